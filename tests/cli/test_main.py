"""The command line as a whole: help, exit codes, streams."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from hmp_node.actions.registry import REGISTRY
from hmp_node.cli import session
from hmp_node.cli.console import Console
from hmp_node.cli.main import cli as root
from hmp_node.cli.main import exit_code
from hmp_node.cli.verb import Verb, Verbs
from hmp_node.client import rebuild
from hmp_node.errors import Denied, Deny, Failed, Failure, Reject, Rejected
from tests.cli.conftest import Cli
from tests.cli.scripted import Scripted, note

VERBS = (
    "init run stop id status doctor backup restore revoke send inbox outbox search export import think approve undo"
    " shell mcp do actions"
)
PEER_VERBS = "join find peers ping trust alias block unblock purge verify"
GROUPS = {
    "notes": "list read tag hide delete add",
    "mailman": "list use drop serve",
    "bootstrap": "sign verify",
    "grant": "list add remove",
    "log": "show verify export redact",
    "llm": "list register update remove select test",
    "memory": "add get list update supersede archive delete restore history as-of link unlink links purge",
    "project": "add get list update archive",
    "session": "save resume list",
    "diary": "add read update delete list search pin archive tags link unlink relations",
    "thought": "add read update delete list search pin",
    "concept": "add read update delete list search expand merge pin",
    "link": "add read update delete list",
    "table": "list create drop insert select update delete",
    "process": "list start stop close output",
    "script": "list add read delete run",
}


def walk(group: click.Group = root, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name, command in group.commands.items():
        found.append(((*path, name), command))
        if isinstance(command, click.Group):
            found += walk(command, (*path, name))
    return found


def program(*words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "hmp_node", *words], capture_output=True, timeout=20, check=False, **options
    )


def test_all_verbs_are_there() -> None:
    assert {*VERBS.split(), *PEER_VERBS.split(), *GROUPS} == set(root.commands)
    for group, names in GROUPS.items():
        command = root.commands[group]
        assert isinstance(command, click.Group)
        assert set(names.split()) == set(command.commands)


@pytest.mark.parametrize(("path", "command"), [pytest.param(*item, id=" ".join(item[0])) for item in walk()])
def test_every_verb_has_help_an_example_and_json(path: tuple[str, ...], command: click.Command, cli: Cli) -> None:
    done = cli(*path, "--help")
    assert (done.code, done.err) == (0, "")
    assert "Example:\n  hmp-node " in done.out or f"Example:\n  {_first_line(command)}" in done.out
    if isinstance(command, Verb):
        assert "--json" in done.out


def _first_line(command: click.Command) -> str:
    assert isinstance(command, Verb | Verbs)
    return command.example.splitlines()[0]


def parses(line: str) -> None:
    """Walk a command line down to its verb and parse it, without running it."""
    words = shlex.split(line)[1:]
    command: click.Command = root
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    command.make_context("verb", words, obj=session.Session(Path("/"), Console())).close()


@pytest.mark.parametrize("example", [command.example for _, command in walk() if isinstance(command, Verb | Verbs)])
def test_the_examples_of_verbs_are_real_command_lines(example: str) -> None:
    for line in example.splitlines():
        parses(line.rpartition("| ")[2])


@pytest.mark.parametrize("name", [name for name, action in REGISTRY.items() if action.public])
def test_the_examples_of_actions_are_real_command_lines(name: str) -> None:
    parses(REGISTRY[name].example)


def test_help_is_there_in_a_third_of_a_second_and_imports_nothing_heavy() -> None:
    started = time.perf_counter()
    done = program("--help")
    took = time.perf_counter() - started
    assert done.returncode == 0
    assert b"hmp-node run" in done.stdout
    print(f"--help took {took:.3f} s")
    heavy = {"aiohttp", "msgspec", "nacl", "asyncio", "segno", "yaml"}
    script = f"import sys, hmp_node.cli.main; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"set()\n"


def test_no_words_is_usage() -> None:
    done = program()
    assert done.returncode == 2
    assert b"Usage: hmp-node" in done.stderr
    assert done.stdout == b""


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["send"],
        ["send", "bob"],
        ["send", "bob", "x", "--wait", "maybe"],
        ["send", "bob", "x", "--ttl", "soon"],
        ["notes", "read", "seven"],
        ["notes", "tag", "7"],
        ["do", "x", "--args", "{"],
        ["do", "x", "--args", "[]"],
        ["do", "x", "--args", '{"a": 1, "a": 2}'],
        ["alias", "bob"],
        ["inbox", "--limit", "0"],
        ["--nonsense"],
        ["send", "bob", "x", "--timeout", "nan"],
        ["send", "bob", "x", "--timeout", "inf"],
        ["ping", "bob", "--timeout", "nan"],
        ["join", "bob", "--timeout", "-inf"],
        ["do", "x", "--timeout", "NaN"],
        ["find", "x", "--timeout", "nan"],
        ["bootstrap", "sign"],
        ["bootstrap", "sign", "x", "--ttl", "soon"],
        ["mailman", "use"],
        ["--home", "", "status"],
    ],
)
def test_wrong_words_are_usage_with_and_without_json(cli: Cli, words: list[str]) -> None:
    done = cli(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    with_json = cli(*words, "--json")
    assert with_json.code == 2
    assert with_json.value["error"]["code"] == "bad_argument"
    assert with_json.err.startswith("error: ")


@pytest.mark.parametrize(
    ("code", "exits"),
    [
        ("no_node", 3),
        ("timed_out", 5),
        ("no_capability", 4),
        ("blocked", 4),
        ("bad_token", 4),
        ("bad_argument", 2),
        ("unknown_action", 2),
        ("too_large", 2),
        ("bad_string", 2),
        ("key_reused", 2),
        ("bad_card", 2),
        ("not_found", 1),
        ("ambiguous_name", 1),
        ("unknown_name", 1),
        ("bad_config", 1),
        ("disk_full", 1),
        ("peer_unreachable", 1),
        ("home_locked", 1),
        ("not_mailman", 4),
        ("work_needed", 4),
        ("bad_seed_list", 1),
        ("wrong_signer", 1),
        ("fetch_failed", 1),
    ],
)
def test_exit_codes(code: str, exits: int) -> None:
    assert exit_code(rebuild(code, "x")) == exits


def test_a_typed_error_is_told_on_stderr_and_with_json_on_stdout(cli: Cli, node: Scripted) -> None:
    node.answers["peer.block"] = Denied(Deny.NO_CAPABILITY, "not\nyou \x1b[31m", remedy="ask the owner")
    done = cli("block", "bob")
    assert (done.code, done.out) == (4, "")
    assert done.err == "error: not\n  you \\x1b[31m (no_capability): ask the owner\n"
    done = cli("block", "bob", "--json")
    assert done.code == 4
    told = {"code": "no_capability", "message": "not\nyou \x1b[31m", "remedy": "ask the owner"}
    assert done.value == {"error": told}
    assert done.err.startswith("error: ")


def test_the_node_saying_nothing_is_5(cli: Cli, node: Scripted) -> None:
    node.answers["peer.ping"] = Failed(Failure.TIMED_OUT, "no answer")
    assert cli("ping", "bob").code == 5


def test_a_fault_of_ours_is_told_like_any_other(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(session.Session, "read", broken)
    done = cli("peers", "--json")
    assert (done.code, done.value["error"]["code"]) == (1, "internal")
    assert "ZeroDivisionError" in done.err


def test_a_group_of_errors_tells_the_one_that_is_ours(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        port = Failed(Failure.PORT_IN_USE, "taken", remedy="another")
        raise BaseExceptionGroup("jobs", [ExceptionGroup("inner", [port, port])])

    monkeypatch.setattr(session.Session, "read", broken)
    done = cli("peers")
    assert (done.code, done.err) == (1, "error: taken (port_in_use): another\n")


@pytest.mark.parametrize(
    "words", [["send", "bob", "x"], ["notes", "read", "1"], ["trust", "bob", "Friend"], ["actions"]]
)
def test_writes_with_no_node_are_3_and_say_how_to_start_one(cli: Cli, words: list[str]) -> None:
    done = cli(*words)
    assert (done.code, done.out) == (3, "")
    assert "(no_node)" in done.err
    assert "hmp-node run" in done.err


def test_home_is_the_option_then_the_variable_then_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.setenv("HMP_HOME", "/somewhere")
    assert session.home_of("a") == tmp_path / "a"
    assert session.home_of(None) == Path("/somewhere")
    monkeypatch.delenv("HMP_HOME")
    assert session.home_of(None) == Path("/home/x/.hmp-node")


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHON"))}
    return kept | more


@pytest.mark.parametrize("locale", [{"LANG": "C"}, {"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}, {}])
def test_cyrillic_goes_in_and_out_in_any_locale(home: Path, node: Scripted, locale: dict[str, str]) -> None:
    node.answers["note.add"] = lambda given: note(1, given.text, direction="local")
    done = program("--home", str(home), "notes", "add", "привет, Ёж", env=environment(**locale))
    assert done.returncode == 0, done.stderr
    assert "привет, Ёж" in done.stdout.decode("utf-8")
    assert node.args("note.add")["text"] == "привет, Ёж"
    done = program("--home", str(home), "notes", "add", "-", input="из stdin: Ж\n".encode(), env=environment(**locale))
    assert done.returncode == 0, done.stderr
    assert node.args("note.add")["text"] == "из stdin: Ж"


def test_words_that_are_not_text_are_refused(home: Path, node: Scripted) -> None:
    done = subprocess.run(
        [
            sys.executable.encode(),
            b"-m",
            b"hmp_node",
            b"--home",
            os.fsencode(home),
            b"notes",
            b"add",
            b"\xff\xfe",
            b"--json",
        ],
        capture_output=True,
        check=False,
        env=environment(LANG="C.UTF-8"),
    )
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "bad_string")
    assert not node.asked


@pytest.mark.parametrize("words", [["inbox"], ["inbox", "--json"], ["--help"]])
def test_a_reader_that_goes_away_is_no_error(home: Path, node: Scripted, words: list[str]) -> None:
    from hmp_node.actions.note import NotePage

    node.answers["note.inbox"] = NotePage([note(number, "x" * 400) for number in range(1, 900)], more=False)
    command = [sys.executable, "-m", "hmp_node", "--home", str(home), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 0


@pytest.mark.parametrize("key", ["a\nb", "ключ", "", "x" * 120_000, "a\x7f"])
@pytest.mark.parametrize("words", [["send", "bob", "x"], ["notes", "add", "x"], ["do", "note.add"]])
def test_a_key_that_is_none_is_usage(cli: Cli, node: Scripted, words: list[str], key: str) -> None:
    done = cli(*words, "--key", key, "--json")
    assert (done.code, done.value["error"]["code"], len(done.err) < 400) == (2, "bad_argument", True)
    assert not node.asked


def test_an_action_with_an_endless_name_is_usage(cli: Cli, node: Scripted) -> None:
    done = cli("do", "x" * 120_000, "--json")
    assert (done.code, done.value["error"]["code"], len(done.err) < 400) == (2, "unknown_action", True)


def test_the_exit_codes_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    usage = next(line for line in page.splitlines() if line.endswith("| 2 |"))
    for code in [*Reject, *Deny, *Failure]:
        exits = exit_code(rebuild(str(code), "x"))
        assert (f"`{code}`" in usage) == (exits == 2), code
        assert exits == 1 or f"`{code}`" in page, code


OUTPUTS = [["inbox"], ["inbox", "--json"], ["--help"], ["send", "--help"], ["--version"]]


@pytest.mark.parametrize("words", OUTPUTS)
def test_a_full_output_is_told_in_one_line(home: Path, node: Scripted, words: list[str]) -> None:
    from hmp_node.actions.note import NotePage

    node.answers["note.inbox"] = NotePage([note(1)], more=False)
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "hmp_node", "--home", str(home), *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=20, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: Standard output cannot be written: No space left on device (disk_full)")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", ">/dev/full 2>/dev/full"])
@pytest.mark.parametrize("words", ["inbox", "inbox --json", "nonsense --json"])
def test_a_closed_output_is_told_in_one_line(home: Path, node: Scripted, closed: str, words: str) -> None:
    from hmp_node.actions.note import NotePage

    node.answers["note.inbox"] = NotePage([note(1)], more=False)
    line = f"exec {shlex.quote(sys.executable)} -m hmp_node --home {shlex.quote(str(home))} {words} {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, timeout=20, check=False)
    assert done.returncode == (2 if "nonsense" in words else 1)
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == (0 if "2>" in closed else 1)


def test_a_ready_line_that_nobody_can_read_ends_the_node_without_a_traceback(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "hmp_node", "--home", str(tmp_path / "n"), "run", "--listen", "127.0.0.1:0"]
        done = subprocess.run(
            [*command, "--api", "127.0.0.1:0"], stdout=full, stderr=subprocess.PIPE, timeout=20, check=False
        )
    assert done.returncode == 1
    assert b"error: Standard output cannot be written" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_message_of_several_lines_is_read_as_such(cli: Cli, node: Scripted) -> None:
    node.answers["peer.list"] = Rejected(Reject.BAD_CONFIG, 'not YAML:\n  in "node.yaml", line 1\nerror: forged')
    done = cli("peers")
    assert done.err.splitlines() == [
        "error: not YAML:",
        '    in "node.yaml", line 1',
        "  error: forged (bad_config)",
    ]
