"""Verbs of the mind: think, approve, undo. What a model or a peer wrote is shown as text, never as a line of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from hmp_node.cli.render import columns, counted, fields, preview, when
from hmp_node.cli.session import Session
from hmp_node.cli.text import fit, indented, safe
from hmp_node.cli.verb import verb
from hmp_node.errors import Failed, Failure

if TYPE_CHECKING:
    from hmp_node.cli.console import Console
    from hmp_node.client import Event

TICK_S = 900.0  # a small model on a slow machine takes minutes
TICKS_SHOWN = 5
LISTED = 100
SAID = "  | "  # stands before every line of a reply
ARGUMENTS = 400  # characters of a command's arguments or result in a list
# How an event is told: the first of its forms whose fields are all there.
FORMS: Mapping[str, Sequence[str]] = {
    "tick.phase": ("tick {tick}: {phase}",),
    "tick.command": ("  {ordinal} {type}: {status}",),
    "tick.committed": ("tick {tick}: {error}", "tick {tick}: done, commands: {commands}"),
    "approval.waiting": ("{action} of tick {tick} waits for you: hmp-node approve {id}",),
    "approval.decided": ("approval {id}: {state}",),
    "loop.state": ("loop: {state}: {why}", "loop: {state}"),
    "process.finished": ("process {process_id}: {status}",),
}
TOPICS = ("tick.text", *FORMS)
_ROW = re.compile(r"([a-z_]{1,40}):([0-9]{1,16})")

Tick = click.IntRange(1, 2**53)
Lines = Iterator[str]


@verb(
    "think",
    example="hmp-node think\nhmp-node think --once\nhmp-node think --follow\nhmp-node think --tick 41",
)
@click.option("--once", is_flag=True, help="Think one tick now and show what came of it; exits 1 if it failed.")
@click.option("--follow", is_flag=True, help="Stay and show ticks as they happen, until the node stops.")
@click.option("--show-prompt", "prompt", is_flag=True, help="Show what the next prompt would be; nothing is sent.")
@click.option("--stop", is_flag=True, help="Stop thinking, also after a restart; mail and peers go on.")
@click.option("--start", is_flag=True, help="Think again.")
@click.option("--tick", type=Tick, metavar="N", help="Show one tick whole.")
def think(
    session: Session, *, once: bool, follow: bool, prompt: bool, stop: bool, start: bool, tick: int | None
) -> int:
    """Watch and steer the loop that the model lives in.

    With no option: how the loop fares, and the last ticks.
    """
    if sum((once, follow, prompt, stop, start, tick is not None)) > 1:
        raise click.UsageError("give one of --once, --follow, --show-prompt, --stop, --start, --tick")
    if once:
        return _once(session)
    if follow:
        return _follow(session)
    if prompt:
        session.show(session.perform("cycle.prompt"), _prompt_lines)
    elif stop:
        session.show(session.perform("cycle.stop"), lambda _: ["stopped: hmp-node think --start goes on"])
    elif start:
        session.show(session.perform("cycle.start"), lambda _: ["started"])
    elif tick is not None:
        session.show(session.read("tick.show", {"id": tick}), _tick_lines)
    else:
        _status(session)
    return 0


# --- how it fares ---------------------------------------------------------------------------------------


def _status(session: Session) -> None:
    status = session.read("cycle.status")
    ticks = session.read("tick.list", {"limit": TICKS_SHOWN})["ticks"]
    session.show(status | {"ticks": ticks}, lambda value: _status_lines(value, session.console.columns))


def _status_lines(status: Mapping[str, Any], room: int | None) -> Lines:
    yield f"loop: {_state(status)}"
    if status.get("llm_id"):
        yield f"model: {safe(status['llm_id'])}"
    if status.get("mode"):
        pause = f", {safe(status['pause_s'])} s between ticks" if status.get("pause_s") is not None else ""
        yield f"notes: {safe(status['mode'])} mode{pause}"
    if status.get("idle"):
        conditions = {name: value for name, value in status["idle"].items() if not name.endswith("_us")}
        if conditions:
            yield "wakes when the first of these is so:"
            yield from fields(conditions, "  ")
    if status.get("wake_at"):
        yield f"wakes at: {when(status['wake_at'])}"
    if status.get("streak"):
        yield f"repeats itself: {counted(status['streak'], 'tick')} in a row with nothing new"
    if status.get("approvals"):
        yield f"waiting for you: {counted(status['approvals'], 'command')}: hmp-node approve"
    for period, used in (status.get("usage") or {}).items():
        yield f"used in the last {safe(period)}: {_figures(used)}"
    if status.get("budgets"):
        yield f"budgets: {_figures(status['budgets'])}"
    rows = [
        row | {"started": when(row["started_at"]), "commands": _figures(row["commands"])} for row in status["ticks"]
    ]
    names = ("id", "started", "phase", "llm_id", "commands", "error")
    yield from columns(rows, names, room=room, empty="no ticks yet")


def _state(told: Mapping[str, Any]) -> str:
    why = f": {safe(told['why'])}" if told.get("why") else ""
    return safe(told["state"]) + why


def _figures(value: Any) -> str:
    """Figures by name on one line."""
    pairs = value.items() if isinstance(value, Mapping) else ()
    return ", ".join(f"{safe(name).replace('_', ' ')} {_short(figure)}" for name, figure in pairs) or "none"


def _prompt_lines(result: Mapping[str, Any]) -> Lines:
    for message in result["messages"]:
        yield f"[{safe(message['role'])}]"
        yield from indented(message["content"])
    yield f"about {counted(result['tokens'], 'token')}"
    yield "made of:"
    yield from fields(result["manifest"], "  ")


# --- one tick -------------------------------------------------------------------------------------------


def _once(session: Session) -> int:
    session.console.progress("thinking, which may take minutes")
    done = session.perform("cycle.think", timeout=TICK_S)
    session.show(done, lambda value: _tick_lines(session.perform("tick.show", {"id": value["tick"]})))
    if done["phase"] == "committed":
        return 0
    why = done["error"] or "see hmp-node doctor"
    session.console.hint(f"error: tick {done['tick']} ended {done['phase']}: {why}")
    return 1


def _tick_lines(tick: Mapping[str, Any]) -> Lines:
    ended = f", ended {when(tick['finished_at'])}" if tick.get("finished_at") else ""
    yield f"tick {safe(tick['id'])}: {safe(tick['phase'])}, began {when(tick['started_at'])}{ended}"
    if tick.get("llm_id"):
        yield f"model: {safe(tick['llm_id'])}"
    if tick.get("error"):
        yield f"error: {safe(tick['error'])}"
    if tick.get("taint"):
        yield f"had read words of: {_authors(tick['taint'])}"
    for name in ("usage", "reflex", "manifest"):
        if tick.get(name):
            yield f"{name}:"
            yield from fields(tick[name], "  ")
    yield "reply:"
    yield from indented(tick["reply"] or "-")
    yield "commands:" if tick["commands"] else "commands: none"
    for command in tick["commands"]:
        yield from _command_lines(command)


def _command_lines(command: Mapping[str, Any]) -> Lines:
    yield f"  {safe(command['ordinal'])} {safe(command['type'])}: {safe(command['status'])}"
    yield f"      asked: {_short(command['args'])}"
    if command.get("result") is not None:
        yield f"      came: {_short(command['result'])}"


def _short(value: Any) -> str:
    """A JSON value on one line, cut: whole it is with ``--json``."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return fit(safe(text[: ARGUMENTS + 1]), ARGUMENTS)


def _authors(taint: Iterable[Sequence[Any]]) -> str:
    return ", ".join(f"{safe(author)} ({safe(trust)})" for author, trust in taint)


# --- following ------------------------------------------------------------------------------------------


def _follow(session: Session) -> int:
    """Print what the events tell until the node stops or the reader goes."""
    from hmp_node.client import Client

    if not session.console.as_json and session.console.columns is not None:  # nothing may happen for long
        now = session.perform("cycle.status")
        session.console.lines([_told("loop.state", now)])
    watch = Watch(session.console)
    with Client(session.home).events(TOPICS) as stream:
        try:
            while not session.console.gone:
                watch.take(next(stream))
        except Failed as error:
            if error.code != Failure.NO_NODE:
                raise
            session.console.hint("the node has stopped")
        finally:
            watch.line_end()
    return 0


class Watch:
    """Shows events: the reply as it streams in, every line of it moved in, and a line for everything else.

    With JSON every event is one value on one line: {topic, data}.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._at_start = True

    def take(self, event: Event) -> None:
        """Show one event; one whose data we do not know is shown as it is."""
        if self._console.as_json:
            self._console.value({"topic": event.topic, "data": event.data})
        elif event.topic == "tick.text":
            self._text(str(event.data.get("text", "")))
        else:
            self.line_end()
            self._console.lines([_told(event.topic, event.data)])

    def line_end(self) -> None:
        """End the line that the reply stands in, if it does."""
        if not self._at_start:
            self._console.write("\n")
            self._at_start = True

    def _text(self, text: str) -> None:
        first, *rest = safe(text, lines=True).split("\n")
        shown = [SAID + first if self._at_start and first else first]
        shown += [SAID + line if line else "" for line in rest]
        self._at_start = not shown[-1] if rest else self._at_start and not first
        self._console.write("\n".join(shown))  # last: Ctrl-C comes while it is written, and the line ends all the same


def _told(topic: str, data: Mapping[str, Any]) -> str:
    """One event in a line. Fields are looked up by name: a newer node may tell more, or less."""
    known = {name: _short(value) for name, value in data.items() if value not in (None, "")}
    for form in FORMS.get(topic, ()):
        with suppress(KeyError):
            return form.format_map(known)
    return f"{safe(topic)}: {_figures(data)}"


# --- approvals ------------------------------------------------------------------------------------------


@verb(
    "approve",
    example="hmp-node approve\nhmp-node approve 3 4\nhmp-node approve --refuse 5\n"
    "hmp-node approve --tainted\nhmp-node approve --rows note:12 diary:4",
)
@click.argument("what", nargs=-1, metavar="[ID...]")
@click.option("--refuse", is_flag=True, help="Refuse these instead.")
@click.option("--rows", is_flag=True, help="Clear rows KIND:ID, or all, of the words of others: you vouch for them.")
@click.option("--tainted", is_flag=True, help="List the rows that hold words of others.")
@click.option("--all", "every", is_flag=True, help="List what was decided or ran out too.")
def approve(session: Session, *, what: tuple[str, ...], refuse: bool, rows: bool, tainted: bool, every: bool) -> int:
    """Decide what the model may do after it has read words of somebody you do not vouch for.

    With no ID: list what waits, why, and whose words the model had read. An approved command runs as it is listed,
    and the model is told what came of it in its next tick.
    """
    if refuse + rows + tainted + every > 1:
        raise click.UsageError("give one of --refuse, --rows, --tainted, --all")
    if what and (tainted or every):
        raise click.UsageError("--tainted and --all list, and take no ID")
    if (refuse or rows) and not what:
        raise click.UsageError("nothing is named to decide about")
    if rows:
        return _clear(session, what)
    if what:
        return _decide(session, what, refuse=refuse)
    if tainted:
        session.show(session.read("approval.tainted", {"limit": LISTED}), _tainted_lines)
    else:
        asked = {"state": None if every else "waiting", "limit": LISTED}
        session.show(session.read("approval.list", asked), _approval_lines)
    return 0


def _decide(session: Session, what: Sequence[str], *, refuse: bool) -> int:
    if not all(word.isascii() and word.isdigit() and len(word) < 17 for word in what):
        raise click.UsageError("an ID is a number that `hmp-node approve` lists")
    ids = [int(word) for word in what]
    result = session.perform("approval.refuse" if refuse else "approval.approve", {"ids": ids})
    session.show(result, lambda value: [f"{safe(one['id'])}: {safe(one['state'])}" for one in value["decided"]])
    return 0


def _clear(session: Session, what: Sequence[str]) -> int:
    if list(what) == ["all"]:
        result = session.perform("approval.clear", {"all": True})
    else:
        result = session.perform("approval.clear", {"rows": _rows(what)})
    session.show(result, lambda value: [f"{counted(value['cleared'], 'row')} cleared"])
    return 0


def _rows(what: Sequence[str]) -> list[dict[str, Any]]:
    named = [_ROW.fullmatch(word) for word in what]
    rows = [{"kind": found[1], "id": int(found[2])} for found in named if found]
    if len(rows) < len(named):
        raise click.UsageError("a row is KIND:ID as `hmp-node approve --tainted` lists it, such as note:12, or all")
    return rows


def _approval_lines(result: Mapping[str, Any]) -> Lines:
    """Whole, since a person answers for what stands there."""
    for one in result["approvals"]:
        yield f"{safe(one['id'])}: {safe(one['action'])}  {safe(one['state'])}"
        yield f"  asked in tick {safe(one['tick'])} by {safe(one['llm_id'])}, {when(one['created_at'])}"
        if one["state"] == "waiting":
            yield f"  runs out {when(one['expires_at'])}"
        elif one.get("decided_at"):
            yield f"  decided {when(one['decided_at'])} by {safe(one.get('decided_by') or '-')}"
        yield f"  why: {safe(one['reason'])}"
        yield f"  had read words of: {_authors(one['taint'])}"
        yield "  arguments:"
        yield from fields(one["args"], "    ")
    waiting = any(one["state"] == "waiting" for one in result["approvals"])
    if not result["approvals"]:
        yield "nothing waits for you"
    elif waiting:
        yield "hmp-node approve ID runs one as it stands here, hmp-node approve --refuse ID does not"


def _tainted_lines(result: Mapping[str, Any]) -> Lines:
    if not result["rows"]:
        yield "no row holds words of others that you have not cleared"
    for row in result["rows"]:
        yield f"{safe(row['kind'])}:{safe(row['id'])}  words of {', '.join(map(safe, row['authors']))}"
        yield "  " + preview(row["text"], None)


@verb("undo", example="hmp-node undo --tick 41")
@click.option("--tick", type=Tick, required=True, metavar="N", help="The tick, as `hmp-node think` numbers it.")
def undo(session: Session, *, tick: int) -> int:
    """Take back what a tick wrote into the agent's own mind.

    What was changed since stays, and is told; so does what left the node. Exits 1 if anything stayed.
    """
    result = session.perform("tick.undo", {"tick": tick})
    session.show(result, _undo_lines)
    return 1 if result["kept"] else 0


def _undo_lines(result: Mapping[str, Any]) -> Lines:
    yield f"tick {safe(result['tick'])}: {counted(result['undone'], 'row')} taken back"
    for kept in result["kept"]:
        yield f"  stays: {safe(kept['kind'])}:{safe(kept['id'])}: {safe(kept['why'])}"


VERBS = (think, approve, undo)
