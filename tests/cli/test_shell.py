"""The prompt: what a line means, through a pipe and through a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hmp_node.actions.registry import REGISTRY
from hmp_node.cli.lines import BLOCK_BYTES, completions, explained, read_line
from hmp_node.cli.shell import HISTORY, LINE_BYTES
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.web import openapi
from tests.cli.conftest import Cli, Outcome
from tests.cli.scripted import BOB, Scripted, note

TABLE = {row["name"]: row for row in openapi.table(openapi.visible(REGISTRY, "user"))}
WAIT_S = 20.0
BLOCK = """# Команды:
{"cmd_id": "a", "type": "note.add", "args": {"text": "раз"}}
{"cmd_id": "b", "type": "note.add", "args": {"text": "два"}}
# Конец команд
"""


# --- what a line means ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "name", "args"),
    [
        ("node.status", "node.status", {}),
        ('note.send to=bob text="привет, мир"', "note.send", {"to": ["bob"], "text": "привет, мир"}),
        ("note.send to=bob to=alice text=42", "note.send", {"to": ["bob", "alice"], "text": "42"}),
        ("note.send 'to=[\"bob\"]' text='{}' priority=-1", "note.send", {"to": ["bob"], "text": "{}", "priority": -1}),
        ("note.send to=bob text=x reply_to=7 ttl_s=60", "note.send", {"reply_to": 7, "ttl_s": 60}),
        (f"note.send to={BOB} text='a=b' reply_to=did:x", "note.send", {"reply_to": "did:x", "text": "a=b"}),
        ("note.inbox unread=true tag=null limit=3", "note.inbox", {"unread": True, "tag": None, "limit": 3}),
        ("note.inbox tag=true sender=7", "note.inbox", {"tag": "true", "sender": "7"}),
        ("note.mark_read ids=7", "note.mark_read", {"ids": [7]}),
        ("note.mark_read ids=7 ids=8", "note.mark_read", {"ids": [7, 8]}),
        ("note.mark_read ids=[7,8]", "note.mark_read", {"ids": [7, 8]}),
        ("note.read id=seven", "note.read", {"id": "seven"}),
        ("cycle.mode mode=auto filter='{\"priority_min\": 1}'", "cycle.mode", {"filter": {"priority_min": 1}}),
        ('note.add {"text": "a=b", "tags": ["x"]}', "note.add", {"text": "a=b", "tags": ["x"]}),
        ('note.add{"text": "х"}', "note.add", {"text": "х"}),
        ("  note.add   text=x  ", "note.add", {"text": "x"}),
        ("note add text=x", "note.add", {"text": "x"}),
        ("notes.add text=x", "note.add", {"text": "x"}),
        ('send_message {"peer": "bob", "text": "x"}', "note.send", {"to": ["bob"], "text": "x"}),
        ("send_message peer=bob text=x", "note.send", {"to": ["bob"], "text": "x"}),
    ],
)
def test_lines(line: str, name: str, args: dict[str, Any]) -> None:
    found, given = read_line(line, TABLE)
    assert found == name
    assert given | args == given
    if "seven" not in line:
        msgspec.convert(given, REGISTRY[name].args)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("note.ad text=x", Reject.UNKNOWN_ACTION),
        ("рм -рф", Reject.UNKNOWN_ACTION),
        ("=", Reject.BAD_ARGUMENT),
        ("note.add text=don't", Reject.BAD_ARGUMENT),
        ("note.add text=two words", Reject.BAD_ARGUMENT),
        ("note.add {", Reject.BAD_JSON),
        ('note.add {"text": "a", "text": "b"}', Reject.DUPLICATE_KEY),
        ('note.add {"priority": NaN}', Reject.BAD_NUMBER),
        ("note.add " + '{"a":' * 5000 + "1" + "}" * 5000, Reject.TOO_DEEP),
        ("note.receive {}", Reject.UNKNOWN_ACTION),
        ("x" * 5000, Reject.UNKNOWN_ACTION),
    ],
)
def test_lines_that_mean_nothing_are_typed_refusals(line: str, code: Reject) -> None:
    with pytest.raises(Rejected) as refused:
        read_line(line, TABLE)
    assert refused.value.code == code
    assert len(str(refused.value)) < 400


def test_a_near_miss_is_told_what_may_be_meant() -> None:
    with pytest.raises(Rejected, match=r"did you mean note\.send"):
        read_line("note.snd text=x", TABLE)


@pytest.mark.parametrize(
    ("before", "text", "found"),
    [
        ("", "note.ad", ["note.add "]),
        ("", "he", ["help "]),
        ("help ", "note.ad", ["note.add "]),
        ("note.add ", "t", ["text=", "tags="]),
        ("note.add text=x ", "t", ["tags="]),
        ("cycle.mode ", "mo", ["mode="]),
        ("cycle.mode mode=", "a", ["auto "]),
        ("note.inbox unread=", "", ["true ", "false "]),
        ("note.add text=", "x", []),
        ("nonsense ", "", []),
        ("note.add nope=", "", []),
    ],
)
def test_completions(before: str, text: str, found: list[str]) -> None:
    assert completions(before, text, TABLE) == found


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_action_can_be_explained_and_completed(name: str) -> None:
    lines = list(explained(TABLE[name]))
    assert lines[0].startswith(f"{name}: ")
    named = {field.encode_name for field in msgspec.structs.fields(REGISTRY[name].args)}
    assert {line.strip().partition(":")[0] for line in lines[2:-1]} == named
    assert {one.removesuffix("=") for one in completions(name + " ", "", TABLE)} == named


# --- through a pipe -------------------------------------------------------------------------------------

Feed = Callable[..., Outcome]


@pytest.fixture
def feed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Feed:
    """Run the shell over these bytes or this text."""

    def run(text: str | bytes, *words: str) -> Outcome:
        data = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return cli("shell", *words)

    return run


def adds(node: Scripted) -> list[str]:
    """The texts of the notes that were added."""
    return [args["text"] for name, args, _ in node.asked if name == "note.add"]


def test_piped_lines_are_run_and_printed_like_do(feed: Feed, cli: Cli, node: Scripted) -> None:
    node.answers["note.add"] = lambda given: note(1, given.text, direction="local")
    done = feed('\n# a word\nnote.add text=раз\n  \nnote.add {"text": "два"}')
    assert (done.code, done.err) == (0, "")
    assert adds(node) == ["раз", "два"]
    alone = [cli("do", "note.add", "--args", json.dumps({"text": text})).out for text in ("раз", "два")]
    assert done.out == "".join(alone)


def test_piped_lines_with_json_give_one_value_each(feed: Feed, node: Scripted) -> None:
    node.answers["note.add"] = [note(1), note(2)]
    done = feed("note.add text=a\nnote.add text=b\n", "--json")
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == [1, 2]


@pytest.mark.parametrize(
    ("line", "code"),
    [("no.such", 2), ("note.add nope", 2), ("note.add text=denied", 4), ("note.add {", 2), (b"note.add text=\xff", 2)],
)
def test_the_first_error_of_a_pipe_ends_it_with_its_exit_code(
    feed: Feed, node: Scripted, line: str | bytes, code: int
) -> None:
    def answer(given: Any) -> Any:
        return Denied(Deny.NO_CAPABILITY, "not you") if given.text == "denied" else note(1)

    node.answers["note.add"] = answer
    data = line.encode() if isinstance(line, str) else line
    done = feed(b"note.add text=first\n" + data + b"\nnote.add text=never\n")
    assert (done.code, done.err.splitlines()[0]) == (code, "line 2:")
    assert done.err.splitlines()[1].startswith("error: ")
    assert "never" not in adds(node)


def test_a_line_without_an_end_is_refused(feed: Feed, node: Scripted) -> None:
    done = feed("note.add text=" + "x" * LINE_BYTES)
    assert (done.code, "too_large" in done.err) == (2, True)


@pytest.mark.parametrize("word", ["exit", "quit"])
def test_a_word_leaves(feed: Feed, node: Scripted, word: str) -> None:
    assert feed(f"{word}\nno.such\n").code == 0


def test_the_shell_needs_a_node(feed: Feed) -> None:
    assert feed("node.status\n").code == 3


def test_help_lists_and_explains(feed: Feed, node: Scripted) -> None:
    lines = feed("help\n").out.splitlines()
    assert lines[0].split() == ["NAME", "HELP"]
    assert len(lines) == 1 + sum(action.public for action in REGISTRY.values())
    assert all(line.startswith("grant.") for line in feed("help grant\n").out.splitlines()[1:])
    lines = feed("help notes.add\n").out.splitlines()
    assert lines[0] == f"note.add: {REGISTRY['note.add'].help}"
    assert {"  text: string (needed)", "  priority: integer = 0"} <= set(lines)
    assert feed("help nonsense\n").code == 2
    assert json.loads(feed("help note.add\n", "--json").out)["name"] == "note.add"
    assert not node.asked


# --- blocks ---------------------------------------------------------------------------------------------


def test_a_piped_block_runs_only_when_it_was_agreed_to(feed: Feed, node: Scripted) -> None:
    node.answers["note.add"] = lambda given: note(1, given.text)
    done = feed(BLOCK)
    assert (done.code, adds(node)) == (2, [])
    assert "--yes" in done.err
    done = feed(BLOCK + "note.add text=три\n", "--yes")
    assert (done.code, adds(node)) == (0, ["раз", "два", "три"])
    assert done.err.splitlines() == ['1: note.add {"text": "раз"}', '2: note.add {"text": "два"}']


def test_a_block_may_end_with_the_input_and_be_english(feed: Feed, node: Scripted) -> None:
    node.answers["note.add"] = note(1)
    assert feed('## COMMANDS\n{"type": "note.add", "args": {"text": "x"}}', "--yes").code == 0
    assert adds(node) == ["x"]


def test_an_error_in_a_block_ends_it(feed: Feed, node: Scripted) -> None:
    node.answers["note.add"] = Denied(Deny.NO_CAPABILITY, "not you")
    done = feed(BLOCK, "--yes")
    assert (done.code, adds(node)) == (4, ["раз"])
    assert "note.add: failed; not run: 1" in done.err


def test_a_block_with_an_unknown_command_runs_nothing(feed: Feed, node: Scripted) -> None:
    lines = BLOCK.splitlines()
    lines.insert(2, '{"type": "note.ad", "args": {}}')
    assert feed("\n".join(lines), "--yes").code == 2
    assert not node.asked


def test_a_block_is_shown_whole_and_one_with_nothing_in_it_is_refused(feed: Feed, node: Scripted) -> None:
    text = "ё" * 5000 + "\x1b\nEND"
    done = feed("# Commands:\n" + json.dumps({"type": "note.add", "args": {"text": text}}) + "\n")
    assert done.err.splitlines()[0] == '1: note.add {"text": "' + "ё" * 5000 + '\\u001b\\nEND"}'
    assert feed("# Commands:\n# End of commands\n", "--yes").code == 1
    done = feed('# Commands:\n{"type": "note.add", "args": {"text": \n# End of commands\n', "--yes")
    assert (done.code, "(bad_reply)" in done.err) == (1, True)
    assert not node.asked


def test_a_block_without_an_end_is_refused(feed: Feed, node: Scripted) -> None:
    done = feed("# Commands:\n" + "x\n" * BLOCK_BYTES, "--yes")
    assert (done.code, "too_large" in done.err) == (2, True)


# --- through a terminal ---------------------------------------------------------------------------------


class Terminal:
    """The shell on a pseudo-terminal; what it printed is looked for in order."""

    def __init__(self, home: Path, *words: str) -> None:
        self._master, slave = pty.openpty()
        command = [sys.executable, "-m", "hmp_node", "--home", str(home), "shell", *words]
        environment = os.environ | {"TERM": "dumb", "PYTHONIOENCODING": "", "INPUTRC": os.devnull}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self._text = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, pattern: str) -> str:
        """What was printed up to this, which is dropped."""
        deadline = time.monotonic() + WAIT_S
        while not (found := re.search(pattern, self._text)):
            assert time.monotonic() < deadline, self._text
            assert self._read(), f"{pattern!r} did not come: {self._text!r}"
        before, self._text = self._text[: found.end()], self._text[found.end() :]
        return before

    def interrupt(self) -> None:
        """As Ctrl-C once the prompt waits for a key: CPython's readline sees an earlier signal at the next key only."""
        deadline = time.monotonic() + WAIT_S
        while "S" not in subprocess.check_output(["ps", "-o", "state=", "-p", str(self.process.pid)], text=True):
            assert time.monotonic() < deadline
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """The rest of what it prints is dropped; its exit code."""
        deadline = time.monotonic() + WAIT_S
        while self._read():
            assert time.monotonic() < deadline
        return self.process.wait(WAIT_S)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], 0.2)
        if not ready:
            return self.process.poll() is None
        with contextlib.suppress(OSError):  # the other side is closed
            data = os.read(self._master, 65536)
            self._text += data.decode("utf-8", "replace").replace("\r\n", "\n")
            return bool(data)
        return False

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(home: Path, node: Scripted) -> Iterator[Terminal]:
    shell = Terminal(home)
    shell.until("hmp> ")
    yield shell
    shell.close()


def test_at_a_terminal_errors_never_end_the_prompt(terminal: Terminal, node: Scripted) -> None:
    node.answers["note.add"] = [Denied(Deny.NO_CAPABILITY, "not\x1b you"), note(1, "привет\x1b[2J")]
    terminal.type("no.such\n")
    assert "(unknown_action)" in terminal.until("hmp> ")
    terminal.type("note.add text=x\n")
    assert "error: not\\x1b you (no_capability)" in terminal.until("hmp> ")
    terminal.type('note.add text="привет, мир"\n')
    assert "text: привет\\x1b[2J\n" in terminal.until("hmp> ")
    assert adds(node) == ["x", "привет, мир"]
    terminal.type("\x04")
    assert terminal.end() == 0


def test_at_a_terminal_tab_completes_names_and_arguments(terminal: Terminal, node: Scripted) -> None:
    pytest.importorskip("readline", reason="this Python has no readline")
    node.answers["note.add"] = note(1)
    terminal.type("note.ad\tte\tx pri\t2\n")
    terminal.until("hmp> ")
    assert node.args("note.add") == {"text": "x", "priority": 2}


def test_at_a_terminal_interrupts_end_a_line_and_not_the_prompt(terminal: Terminal, node: Scripted) -> None:
    terminal.type("note.add text=nev")
    terminal.until("nev")
    terminal.interrupt()
    assert "interrupted" in terminal.until("hmp> ")
    node.answers["note.add"] = note(1)
    terminal.type("note.add text=x\n")
    terminal.until("hmp> ")
    assert adds(node) == ["x"]


def test_a_pasted_block_is_shown_and_asked_about(terminal: Terminal, node: Scripted) -> None:
    node.answers["note.add"] = lambda given: note(1, given.text)
    terminal.type(BLOCK)
    assert '2: note.add {"text": "два"}' in terminal.until(r"run these 2\? \[y/N\] ")
    terminal.type("\n")
    assert "nothing was run" in terminal.until("hmp> ")
    assert not node.asked
    terminal.type(BLOCK)
    terminal.until(r"\[y/N\] ")
    terminal.type("y\n")
    terminal.until("hmp> ")
    assert adds(node) == ["раз", "два"]


def test_history_is_kept_for_the_owner_only(home: Path, node: Scripted) -> None:
    pytest.importorskip("readline", reason="this Python has no readline")
    node.answers["note.add"] = lambda given: note(1, given.text)
    for line in ("note.add text=ёж\n", "\x10\n"):  # the second: the line before, by Ctrl-P
        shell = Terminal(home)
        try:
            shell.until("hmp> ")
            shell.type(line)
            shell.until("hmp> ")
            shell.type("\x04")
            assert shell.end() == 0
        finally:
            shell.close()
    assert adds(node) == ["ёж", "ёж"]
    path = home / HISTORY
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "note.add text=ёж" in path.read_text(encoding="utf-8")


def test_a_history_that_cannot_be_kept_is_no_error(home: Path, node: Scripted) -> None:
    (home / HISTORY).mkdir()
    node.answers["note.add"] = note(1)
    shell = Terminal(home)
    try:
        shell.until("hmp> ")
        shell.type("note.add text=x\n")
        shell.until("hmp> ")
        shell.type("\x04")
        assert shell.end() == 0
    finally:
        shell.close()
