"""Minds of real node processes, killed with SIGKILL wherever it hurts, and read when they are dead (loop: crash table).

What a tick did is counted in the databases against what its journal says: each command that ended ``ok`` had its
effect once, no tick whose reply was stored asked its model again, and the log verifies.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hmp_node.client import Client
from hmp_node.errors import HmpError
from tests.agent.machines import needs_sandbox
from tests.e2e.harness import Node, report, rows, wait_for
from tests.e2e.mind_scripts import Endpoint
from tests.nodes.mind import block

NOBODY = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"  # a key that no node has: notes to it stay queued
SETTINGS = {
    "HMP_LLM__MODEL": "scripted",
    "HMP_LLM__TOOLS": "false",
    "HMP_LLM__CALLS_PER_HOUR": "0",
    "HMP_LLM__CALLS_PER_DAY": "0",
    "HMP_LLM__TOKENS_PER_HOUR": "0",
    "HMP_LLM__TOKENS_PER_DAY": "0",
    "HMP_MIND__PAUSE_S": "0",
    "HMP_REFLEX__ENABLED": "false",  # the same commands again and again are meant
    "HMP_REFLEX__JUDGE": "false",
}
WORK = block(
    ("diary.add", {"text": "entry of tick {tick}"}),
    ("table.update", {"name": "counter", "where": {}, "add": {"n": 1}}),
    ("note.add", {"text": "note of tick {tick}"}),
    ("note.send", {"to": [NOBODY], "text": "mail of tick {tick}"}),
    prose="Tick {tick} works.",
)
COMMANDS = 4  # of WORK
NAMED = [
    "loop.open",
    "loop.called",
    "loop.answered",
    "loop.planned",
    "loop.before_command",
    "loop.after_command",
    "loop.before_commit",
    "loop.committed",
]
ANY = [
    *NAMED,
    "store.before_commit",
    "store.after_commit",
    "log.head_written",
    "tables.before_commit",
    "tables.after_commit",
]
FINAL = ("ok", "error", "denied", "skipped", "unknown", "queued")


# --- homes and lives ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a table of one counter, an entry in the diary and an unread note; its mind never thought."""
    home = tmp_path_factory.mktemp("fresh") / "home"
    with Node(home, env={"HMP_MIND__ENABLED": "false"}) as node:
        node.call("table.create", {"name": "counter", "columns": [{"name": "n", "type": "integer"}]})
        node.call("table.insert", {"name": "counter", "rows": [{"n": 0}]})
        node.call("diary.add", {"text": "what the owner wrote"})
        node.call("note.add", {"text": "what the owner asks"})
        assert node.stop() == 0
    return home


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    endpoint = Endpoint(tmp_path)
    yield endpoint
    endpoint.close()


class Mind:
    """A home whose node lives and dies, and its endpoint."""

    def __init__(self, fresh: Path, folder: Path, endpoint: Endpoint, **settings: str) -> None:
        self.home, self.endpoint = folder / "home", endpoint
        shutil.copytree(fresh, self.home)
        self._env = SETTINGS | {"HMP_LLM__URL": endpoint.url} | settings

    def starts(self, **more: str) -> Node:
        """A life that ends when it is killed."""
        return Node(self.home, env=self._env | more)

    def crashes(self, point: str, passes: int = 1, after: str = "") -> Node:
        """A life that ends at a named point."""
        env = self._env | {"CRASH_POINT": point, "CRASH_PASS": str(passes), "CRASH_AFTER": after}
        return Node(self.home, module=("tests.e2e.crashing_node",), env=env)

    def dies(self, point: str, passes: int = 1, after: str = "") -> None:
        """Live until the named point."""
        died(self.crashes(point, passes, after))

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return rows(self.home, sql, *values)

    def value(self, sql: str, *values: Any) -> Any:
        found = self.rows(sql, *values)
        return found[0][0] if found else None

    def has(self, sql: str, *values: Any) -> Callable[[], bool]:
        """To wait for: the first value is there and true."""
        return lambda: bool(self.value(sql, *values))

    def unfinished(self) -> tuple[int, str] | None:
        """The tick in the middle, and its phase."""
        found = self.rows("SELECT id, phase FROM agent_log WHERE phase IN ('open', 'answered', 'planned')")
        assert len(found) <= 1, f"several ticks are in the middle: {found}"
        return found[0] if found else None

    def counter(self) -> int:
        with closing(sqlite3.connect(f"file:{self.home}/tables.db?mode=ro", uri=True)) as database:
            return int(database.execute("SELECT n FROM agent_x_counter").fetchone()[0])

    def newest(self) -> int:
        """The newest tick."""
        return int(self.value("SELECT MAX(id) FROM agent_log") or 0)

    def lives_on(self, ticks: int = 2) -> None:
        """A life that brings so many new ticks to their end, is stopped by its owner, and killed."""
        wanted = self.newest() + ticks
        with self.starts() as node:
            wait_for(
                f"tick {wanted}", self.has("SELECT 1 FROM agent_log WHERE id >= ? AND phase = 'committed'", wanted)
            )
            node.call("cycle.stop")
            wait_for("it stopped", lambda: node.call("cycle.status")["state"] == "stopped")
            assert node.call("log.verify")["ok"]
        self.endpoint.prompts()


def died(node: Node) -> None:
    """Wait for its own end, by SIGKILL."""
    try:
        node.process.wait(40)
    finally:
        code = node.kill()
    assert code == -signal.SIGKILL, Path(node.errors.name).read_text(errors="replace")[-4000:]


# --- what must hold when all are dead -------------------------------------------------------------------


def check(mind: Mind) -> dict[str, int]:
    """Every effect once for a command that ended ok, and none for others; calls; order. Gives figures."""
    calls = mind.endpoint.calls()
    ticks = mind.rows("SELECT id, phase, response_text IS NOT NULL FROM agent_log ORDER BY id")
    assert [tick for tick, _, _ in ticks] == list(range(1, len(ticks) + 1))
    for tick, phase, answered in ticks[:-1]:
        assert phase in ("committed", "aborted"), f"tick {tick} is {phase}"
        assert bool(answered) == (phase == "committed"), f"tick {tick}: {phase}"
    for tick, _, answered in ticks:
        asked = calls.get(tick, 0)
        assert asked == 1 if answered else asked <= 1, f"tick {tick} asked {asked} times"
    assert set(calls) <= {tick for tick, _, _ in ticks}
    done = mind.rows("SELECT tick, ordinal, type, status, process_id FROM tick_commands ORDER BY tick, ordinal")
    ended = {tick for tick, phase, _ in ticks if phase == "committed"}
    assert not [one for one in done if one[0] in ended and one[3] not in FINAL]
    in_order = [process_id for *_, process_id in done if process_id is not None]
    assert in_order == sorted(in_order), "commands ran out of order"
    ok = collections.Counter(name for _, _, name, status, _ in done if status == "ok")
    assert mind.counter() == ok["table.update"]
    for name, sql, words in (
        ("diary.add", "SELECT text FROM diary_entries WHERE id > 1 ORDER BY id", "entry"),
        ("note.add", "SELECT text FROM notes WHERE source = 'llm' AND text LIKE 'note of%' ORDER BY id", "note"),
        ("note.send", "SELECT n.text FROM outbox o JOIN notes n ON n.id = o.note_id ORDER BY o.id", "mail"),
    ):
        wanted = [f"{words} of tick {tick}" for tick, _, kind, status, _ in done if (kind, status) == (name, "ok")]
        assert [text for (text,) in mind.rows(sql)] == wanted, name
    return {"ticks": len(ticks), "committed": len(ended), "commands": len(done), "calls": sum(calls.values())}


# --- every boundary of the tick -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "passes", "phase"),
    [
        ("loop.open", (1, 3), "open"),
        ("loop.called", (1, 2), "open"),
        ("loop.answered", (1, 3), "answered"),
        ("loop.planned", (1, 3), "planned"),
        ("loop.before_command", (1, 2, 7), "planned"),
        ("loop.after_command", (1, 3, COMMANDS), "planned"),
        ("tables.before_commit", (1, 2), "planned"),
        ("tables.after_commit", (1, 2), "planned"),
        ("loop.before_commit", (1, 2), "planned"),
        ("loop.committed", (1, 3), None),
    ],
)
def test_a_tick_killed_at_a_boundary_goes_on_as_the_crash_table_says(
    fresh: Path, tmp_path: Path, endpoint: Endpoint, point: str, passes: tuple[int, ...], phase: str | None
) -> None:
    mind = Mind(fresh, tmp_path, endpoint)
    endpoint.plan({}, then=WORK)
    broken: dict[int, str] = {}
    for count in passes:
        mind.dies(point, count)
        left = mind.unfinished()
        assert (left and left[1]) == phase
        if left is not None:
            broken[left[0]] = left[1]
        if point.startswith("tables."):
            started = mind.rows("SELECT type FROM tick_commands WHERE status = 'started'")
            assert started == [("table.update",)]
        assert endpoint.calls().get(mind.newest(), 0) == (0 if point == "loop.open" else 1)
    mind.lives_on()
    figures = check(mind)
    for tick, was in broken.items():
        wanted = "aborted" if was == "open" else "committed"
        assert mind.value("SELECT phase FROM agent_log WHERE id = ?", tick) == wanted
    assert mind.value("SELECT COUNT(*) FROM tick_commands WHERE status <> 'ok' AND tick < ?", mind.newest()) == 0
    assert figures["committed"] >= len(passes)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["loop.open", "loop.called"])
def test_a_tick_killed_before_its_reply_is_stored_consumes_nothing(
    fresh: Path, tmp_path: Path, endpoint: Endpoint, point: str
) -> None:
    mind = Mind(fresh, tmp_path, endpoint)
    endpoint.plan({1: block(("cycle.mode", {"mode": "auto"}), ("diary.read", {"ids": [1]}))})
    mind.dies(point, 2)
    assert mind.unfinished() == (2, "open")
    assert mind.rows("SELECT kind, row_id FROM requested") == [("diary", 1)]
    assert mind.rows("SELECT text, read FROM notes") == [("what the owner asks", 0)]
    answered = mind.rows("SELECT content FROM llm_recent_responses")
    assert len(answered) == 1
    mind.lives_on(1)
    assert mind.value("SELECT phase FROM agent_log WHERE id = 2") == "aborted"
    shown = json.loads(mind.value("SELECT manifest FROM agent_log WHERE id = 3"))["contexts"]
    assert [(row["kind"], row["id"]) for row in shown["3"]] == [("diary", 1)]
    assert [(row["kind"], row["id"]) for row in shown["4"]] == [("note", 1)]
    assert "what the owner asks" in endpoint.prompts()[-1 if mind.newest() == 3 else -mind.newest() + 2]
    assert mind.rows("SELECT kind, row_id FROM requested") == []
    assert mind.rows("SELECT text, read FROM notes") == [("what the owner asks", 1)]


@pytest.mark.slow
def test_what_the_model_set_of_its_loop_survives_a_kill_right_after(
    fresh: Path, tmp_path: Path, endpoint: Endpoint
) -> None:
    mind = Mind(fresh, tmp_path, endpoint)
    told = block(
        ("cycle.set", {"responses": 3}),
        ("cycle.mode", {"mode": "auto", "filter": {"priority_min": 1}}),
        ("cycle.pause", {"seconds": 7}),
        ("cycle.idle", {"notes": {"priority_min": 2}, "seconds": 500}),
    )
    endpoint.plan({1: told, 2: "The owner woke me."})
    mind.dies("loop.committed")
    for _ in range(2):
        with mind.starts() as node:
            status = wait_for("it sleeps", lambda: (s := node.call("cycle.status"))["state"] == "idle" and s)
            set_ = node.call("cycle.show")
            assert (set_["responses"], set_["mode"], set_["pause_s"]) == (3, "auto", 7)
            assert set_["filter"]["priority_min"] == 1
            assert set_["idle"]["notes"]["priority_min"] == 2
            assert status["wake_at"] is not None
    assert endpoint.calls() == {1: 1}
    with mind.starts() as node:
        node.call("note.add", {"text": "wake up", "priority": 2})
        wait_for("it woke", mind.has("SELECT 1 FROM agent_log WHERE id = 2 AND phase = 'committed'"))
        assert node.call("cycle.show")["idle"] is None
        assert node.call("log.verify")["ok"]
    assert endpoint.calls() == {1: 1, 2: 1}


# --- what reaches beyond the store ----------------------------------------------------------------------


@needs_sandbox
@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "passes", "after", "started", "written"),
    [
        ("store.after_commit", 1, "loop.before_command", "file.write", ""),
        ("store.before_commit", 2, "loop.before_command", "file.write", "line\n"),
        ("store.after_commit", 1, "loop.after_command", "process.start", "line\n"),
        ("store.after_commit", 3, "loop.after_command", "process.start", "line\n"),
    ],
)
def test_an_external_command_killed_in_the_middle_is_unknown_and_never_repeated(
    fresh: Path,
    tmp_path: Path,
    endpoint: Endpoint,
    point: str,
    passes: int,
    after: str,
    started: str,
    written: str,
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    folder = json.dumps([str(shared)])
    mind = Mind(
        fresh,
        tmp_path,
        endpoint,
        HMP_SANDBOX__SHELL="true",
        HMP_SANDBOX__FILES="true",
        HMP_SANDBOX__ALLOW='["sleep"]',
        HMP_SANDBOX__READ=folder,
        HMP_SANDBOX__WRITE=folder,
    )
    seconds = f"{15 + time.time() % 1:.6f}"  # a process of ours, and of nobody else
    told = block(
        ("file.write", {"path": f"{shared}/log", "text": "line\n", "append": True}),
        ("process.start", {"argv": ["sleep", seconds], "timeout_s": 600}),
        ("diary.add", {"text": "entry of tick {tick}"}),
    )
    endpoint.plan({1: told})
    mind.dies(point, passes, after)
    assert mind.rows("SELECT type FROM tick_commands WHERE status = 'started'") == [(started,)]
    assert _text(shared / "log") == written
    mind.lives_on()
    statuses = dict(mind.rows("SELECT type, status FROM tick_commands WHERE tick = 1"))
    wanted = {"file.write": "ok", "process.start": "ok", "diary.add": "ok"} | {started: "unknown"}
    assert statuses == wanted
    if started == "file.write":
        assert _text(shared / "log") == written
    row = mind.rows(
        "SELECT p.status, p.value FROM tick_commands c JOIN process_log p ON p.id = c.process_id WHERE c.type = ?",
        started,
    )
    assert row[0][0] == "offline"
    told_next = next(prompt for prompt in endpoint.prompts() if "- tick: 2\n" in prompt)
    assert "whether it was done is not known" in told_next
    if started == "process.start":
        assert mind.rows("SELECT id FROM process_log WHERE status = 'pending'") == []
    assert mind.rows("SELECT text FROM diary_entries WHERE id > 1") == [("entry of tick 1",)]
    wait_for("nothing is left running", lambda: seconds not in _commands_of_all(), seconds=40)
    assert endpoint.calls()[1] == 1


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _commands_of_all() -> str:
    texts = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            texts.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(texts)


# --- approved commands ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("point", ["api.before_answer", "tables.before_commit", "tables.after_commit"])
def test_commands_that_a_person_approved_run_once_though_killed_in_the_middle(
    fresh: Path, tmp_path: Path, endpoint: Endpoint, point: str
) -> None:
    mind = Mind(fresh, tmp_path, endpoint, HMP_MIND__PAUSE_S="0.1")
    with closing(sqlite3.connect(mind.home / "node.db")) as database, database:
        database.execute("INSERT INTO row_marks (kind, row_id, mark, at) VALUES ('diary', 1, 'pinned', '2026-01-01')")
        database.execute("INSERT INTO row_taint (kind, row_id, author, trust) VALUES ('diary', 1, ?, '')", (NOBODY,))
    endpoint.plan({1: WORK})
    with mind.starts() as node:
        wait_for("two wait", mind.has("SELECT COUNT(*) = 2 FROM approvals WHERE state = 'waiting'"))
        wait_for("the tick ends", mind.has("SELECT phase = 'committed' FROM agent_log WHERE id = 1"))
        assert mind.counter() == 0
        assert mind.rows("SELECT id FROM outbox") == []
        node.kill()
    crashing = mind.crashes(point).ready()
    with contextlib.suppress(HmpError, OSError):  # it may die before it answers
        Client(mind.home).call("approval.approve", {"ids": [1, 2]})
    died(crashing)
    with mind.starts() as node:
        ran = "SELECT COUNT(*) = 2 FROM tick_commands WHERE tick = 1 AND type IN ('table.update', 'note.send')"
        wait_for("both ran", mind.has(f"{ran} AND status = 'ok'"))
        seen = mind.newest() + 2
        wait_for("later ticks", mind.has("SELECT phase = 'committed' FROM agent_log WHERE id = ?", seen))
        node.call("cycle.stop")
        wait_for("it stopped", lambda: node.call("cycle.status")["state"] == "stopped")
        assert node.call("log.verify")["ok"]
    check(mind)
    assert mind.counter() == 1
    assert mind.rows("SELECT state, decided_by FROM approvals") == [("approved", "user")] * 2
    kept = mind.rows("SELECT result FROM tick_commands WHERE tick = 1 AND type IN ('table.update', 'note.send')")
    assert [json.loads(result)["approved_by"] for (result,) in kept] == ["user"] * 2
    assert any("approved_by" in prompt for prompt in endpoint.prompts()), "the model reads what came of it"


# --- at random ------------------------------------------------------------------------------------------


def kill_run(fresh: Path, folder: Path, endpoint: Endpoint, *, kills: int, seed: int) -> dict[str, Any]:
    """Kill a working mind at named points and at random moments, let it come to rest, and count. Gives figures."""
    rng, mind = random.Random(seed), Mind(fresh, folder, endpoint)
    endpoint.plan({}, then=WORK)
    where, phases = collections.Counter[str](), collections.Counter[str]()
    for _ in range(kills):
        point = rng.choice([*ANY, *len(ANY) * ["clock"]])
        node = mind.crashes(point, rng.randint(1, 12))
        if point == "clock":
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.process.wait(rng.uniform(0.5, 2.2))
            node.process.kill()
        died(node)
        where[point] += 1
        left = mind.unfinished()
        phases[left[1] if left else "between"] += 1
        endpoint.prompts()
    mind.lives_on()
    assert mind.value("SELECT COUNT(*) FROM tick_commands WHERE status NOT IN ('ok', 'pending')") == 0
    figures = check(mind)
    return {"seed": seed, "kills": kills, **figures, "counter": mind.counter(), "died_at": where, "died_in": phases}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [20261201, None])
def test_a_mind_killed_at_random_loses_and_repeats_nothing(
    fresh: Path, tmp_path: Path, endpoint: Endpoint, seed: int | None
) -> None:
    seed = seed if seed is not None else int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    print(json.dumps(kill_run(fresh, tmp_path, endpoint, kills=16, seed=seed)))


@pytest.mark.long
def test_two_hundred_kills_of_a_mind(fresh: Path, tmp_path: Path, endpoint: Endpoint) -> None:
    seed = int(os.environ.get("HMP_TEST_SEED", "20261201"))
    began = time.monotonic()
    figures = kill_run(fresh, tmp_path, endpoint, kills=200, seed=seed)
    report("mind-kills", {**figures, "seconds": round(time.monotonic() - began)})
