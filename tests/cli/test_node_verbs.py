"""init, run, id, status, doctor, backup, revoke, log, do, actions; and reading with no node."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hmp_node import node as node_module
from hmp_node.actions.doctor import Diagnosis, Finding
from hmp_node.actions.log import Damage, Exported, LogPage, LogReport, LogRow
from hmp_node.actions.node import Identity
from hmp_node.actions.note import NotePage
from hmp_node.errors import Failed, Failure
from tests.cli.conftest import Cli
from tests.cli.scripted import BOB, EVE, NOW, Scripted, mailmen, note

ME = Identity(BOB, "pk", "bob", "main", "hmp:6Mk?addr=192.0.2.7:7440")
REPORT = LogReport(ok=True, rows=12, chains=1, damages=0, damage=[], redacted=0, redactions=[])


def test_init_tells_what_was_made(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def init(path: Path, *, name: str | None) -> dict[str, Any]:
        asked.append((path, name))
        return {"did": BOB, "home": str(path)}

    monkeypatch.setattr(node_module, "init", init)
    assert f"did: {BOB}" in cli("init", "--name", "Боб").out
    assert cli("init", "--json").value["did"] == BOB
    assert asked == [(home, "Боб"), (home, None)]


def test_run_hands_its_words_to_the_node_and_gives_its_exit_code(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def run(path: Path, **options: Any) -> int:
        asked.append((path, options))
        print("ready did=d mesh=127.0.0.1:1 api=http://127.0.0.1:2", flush=True)
        return 7

    monkeypatch.setattr(node_module, "run", run)
    words = "run --listen 127.0.0.1:0 --listen [::1]:0 --api 127.0.0.1:2 --name bob"
    done = cli(*words.split())
    assert (done.code, done.out) == (7, "ready did=d mesh=127.0.0.1:1 api=http://127.0.0.1:2\n")
    assert asked == [(home, {"listen": ["127.0.0.1:0", "[::1]:0"], "api": "127.0.0.1:2", "name": "bob"})]
    done = cli("run", "--json")
    assert done.value == {"ready": True, "did": "d", "mesh": "127.0.0.1:1", "api": "http://127.0.0.1:2"}
    assert asked[1] == (home, {"listen": None, "api": None, "name": None})


def test_id_and_its_qr_code(cli: Cli, node: Scripted) -> None:
    node.answers["node.id"] = ME
    assert "card: hmp:6Mk?addr=192.0.2.7:7440\n" in cli("id").out
    with_qr = cli("id", "--qr").out
    assert with_qr.startswith(cli("id").out)
    assert "█" in with_qr or "▄" in with_qr
    assert cli("id", "--qr", "--json").value == msgspec.to_builtins(ME)


def test_doctor_exits_1_with_remedies_when_something_is_wrong(cli: Cli, node: Scripted) -> None:
    bad = Finding("connection", ok=False, detail="none", remedy="wait")
    node.answers["node.doctor"] = [
        Diagnosis(False, [Finding("store", ok=True, detail="fine"), bad]),
        Diagnosis(True, []),
    ]
    done = cli("doctor", "bob")
    assert (done.code, done.out) == (1, "ok   store: fine\nBAD  connection: none\n     wait\n")
    assert node.args("node.doctor") == {"peer": "bob"}
    assert cli("doctor").code == 0


def test_doctor_of_a_peer_in_reach_exits_0_whatever_its_old_addresses_did(cli: Cli, node: Scripted) -> None:
    stale = Finding("address ws://192.0.2.7:7440/hmp", ok=False, detail="refused", remedy="is it still right?")
    none = Finding("addresses", ok=False, detail="0 known", remedy="join it")
    for found, code in (([stale, none], 0), ([stale, Finding("blocked", ok=False, detail="by you")], 1)):
        node.answers["node.doctor"] = Diagnosis(False, found)
        done = cli("doctor", "bob")
        assert (done.code, done.out.splitlines()[0]) == (code, "warn address ws://192.0.2.7:7440/hmp: refused")


REACHED = {"reachable": True, "addresses": ["192.0.2.7:7440", "[2001:db8::7]:7440"], "why": ""}
UNREACHED = {"reachable": False, "addresses": [], "why": "192.0.2.7:7440: connect_timeout\x1b"}
UNKNOWN: dict[str, Any] = {"reachable": None, "addresses": [], "why": "no peer with a public address"}


OFF: dict[str, Any] = {
    **{"state": "off", "why": "no model is configured", "tick": None, "llm_id": None, "streak": 0, "wake_at": None},
    **{"approvals": 0, "mode": "manual", "pause_s": 10.0, "idle": None, "usage": {}, "budgets": {}},
}


def node_status(**more: Any) -> dict[str, Any]:
    """What `node.status` gives."""
    facts = {"version": "9", "finders": {"lan": {"heard": 2, "interfaces": ["eth0"], "problem": ""}}}
    fields: dict[str, Any] = {
        **{"did": BOB, "store": {"state": "ok"}, "peers_known": 2, "peers_online": 1, "unread": 0, "quarantined": 0},
        **{"outbox": {}, "refused": {}, "connections": [], "node": facts, "reach": REACHED},
        "mind": OFF,
    }
    return fields | more


@pytest.mark.parametrize(
    ("reach", "told"),
    [
        (REACHED, "yes, at 192.0.2.7:7440, [2001:db8::7]:7440"),
        (UNREACHED, "no: 192.0.2.7:7440: connect_timeout\\x1b"),
        (UNKNOWN, "not known yet: no peer with a public address"),
        (UNKNOWN | {"why": ""}, "not known yet"),
    ],
)
def test_status_says_first_whether_others_reach_us(cli: Cli, node: Scripted, reach: Any, told: str) -> None:
    node.answers["node.status"] = node_status(reach=reach)
    node.answers["mailman.list"] = mailmen()
    done = cli("status")
    assert (done.code, done.out.splitlines()[0]) == (0, f"reachable: {told}")
    assert cli("status", "--json").value["reach"] == reach


def test_status_tells_finders_and_mailmen(cli: Cli, node: Scripted) -> None:
    finders = {
        "lan": {"heard": 2, "interfaces": ["eth0"], "problem": "", "note": "nobody is near"},
        "dht": {
            "problem": "nobody answers\n",
            "contacts": {"v4": 3, "v6": 1},
            "serving": True,
            "at": {"v4": [1]},
            "hints": 0,
        },
        "host": {},
    }
    node.answers["node.status"] = node_status(node={"version": "9", "finders": finders})
    used = [
        {"did": BOB, "name": "bob", "announced": None, "connected": True, "since": NOW},
        {"did": EVE, "name": None, "announced": "E", "connected": False, "since": NOW},
    ]
    node.answers["mailman.list"] = mailmen(own=used, serving=True)
    lines = cli("status").out.splitlines()
    start = lines.index("finder lan: nobody is near, heard 2")
    assert lines[start : start + 5] == [
        "finder lan: nobody is near, heard 2",
        "finder dht: nobody answers\\n, contacts 4, serving yes",
        "finder host: at work",
        f"mailmen: bob ({BOB}); {EVE}, not connected",
        "serving as a mailman: yes",
    ]
    assert lines[1] == f"did: {BOB}"
    assert any(line.startswith("peers: 1 connected") for line in lines)
    assert len(lines) < 20, "a person reads it at a glance; --json has the rest"
    assert not any("eth0" in line for line in lines)
    value = cli("status", "--json").value
    assert (value["mailmen"]["serving"], value["node"]["finders"]) == (True, finders)


def test_status_of_a_stopped_node_has_no_finders(cli: Cli, stored: Scripted) -> None:
    stored.answers["node.status"] = node_status(node={"running": False}, reach=UNKNOWN)
    stored.answers["mailman.list"] = mailmen()
    lines = cli("status").out.splitlines()
    start = lines.index("mailmen: none")
    assert lines[start + 1] == "serving as a mailman: no"
    assert not any(line.startswith("finder") for line in lines)


# --- revoke ---------------------------------------------------------------------------------------------


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make standard input and error a terminal, at which this is typed."""

    def types(text: str) -> None:
        typed = io.StringIO(text)
        monkeypatch.setattr(typed, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", typed)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    return types


def test_revoke_asks_for_the_end_of_the_did(cli: Cli, node: Scripted, terminal: Callable[[str], None]) -> None:
    node.answers |= {"node.id": ME, "node.revoke": {"did": BOB, "told": 3}}
    terminal(BOB[-8:] + "\n")
    done = cli("revoke")
    assert (done.code, done.out) == (0, f"did: {BOB}\ntold: 3\n")
    assert f"revokes {BOB} for good" in done.err
    assert node.args("node.revoke") == {"confirm": BOB}


@pytest.mark.parametrize("typed", ["", "\n", "yes\n", BOB[-7:] + "\n", BOB[-8:].lower() + "\n", BOB[-9:] + "\n", BOB])
def test_a_wrong_answer_revokes_nothing(cli: Cli, node: Scripted, terminal: Callable[[str], None], typed: str) -> None:
    node.answers["node.id"] = ME
    terminal(typed)
    done = cli("revoke", "--json")
    assert (done.code, done.value["error"]["code"]) == (2, "bad_argument")
    assert "nothing was revoked" in done.err
    assert [name for name, _, _ in node.asked] == ["node.id"]


def test_where_no_terminal_is_only_the_whole_did_revokes(
    cli: Cli, node: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.answers |= {"node.id": ME, "node.revoke": lambda given: {"did": given.confirm, "told": 0}}
    monkeypatch.setattr(sys, "stdin", io.StringIO(BOB[-8:] + "\n"))
    done = cli("revoke")
    assert (done.code, "--confirm DID" in done.err) == (2, True)
    assert [name for name, _, _ in node.asked] == ["node.id"]
    assert cli("revoke", "--confirm", BOB).code == 0
    assert node.args("node.revoke") == {"confirm": BOB}
    cli("revoke", "--confirm", "")
    assert node.args("node.revoke") == {"confirm": ""}  # which the node refuses


def test_revoke_needs_a_node(cli: Cli, terminal: Callable[[str], None]) -> None:
    terminal(BOB[-8:] + "\n")
    assert cli("revoke").code == 3
    assert cli("revoke", "--confirm", BOB).code == 3


def test_doctor_of_a_peer_that_only_a_mailman_reaches_exits_0(cli: Cli, node: Scripted) -> None:
    away = Finding("connection", ok=False, detail="none", remedy="wait")
    dead = Finding("address 192.0.2.7:7440", ok=False, detail="refused")
    lost, held = (Finding(f"mailman {EVE}", ok=ok, detail="x") for ok in (False, True))
    for found, code in (([away, dead, lost, held], 0), ([away, dead, lost], 1), ([away, dead], 1)):
        node.answers["node.doctor"] = Diagnosis(False, found)
        done = cli("doctor", "bob")
        assert (done.code, done.out.splitlines()[0][:4]) == (code, "BAD " if code else "warn")


def test_a_backup_to_no_path_is_told(cli: Cli, home: Path) -> None:
    done = cli("backup", "x" * 120_000)
    assert (done.code, len(done.err) < 400, "bad_argument" in done.err) == (2, True, True)


def test_backup_goes_to_the_absolute_path(
    cli: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(node_module, "backup", lambda *args: asked.append(args))
    monkeypatch.chdir(tmp_path)
    assert cli("backup", "copy.db", "--json").value == {"path": str(tmp_path / "copy.db")}
    assert asked == [(home, tmp_path / "copy.db")]


def test_log_show(cli: Cli, node: Scripted) -> None:
    names = {"session_hash": "s", "sender_type": "user", "receiver_type": "agent", "role": "note"}
    shown: dict[str, Any] = {"hash": "h", **names, "context_hashes": []}
    rows = [
        LogRow(
            seq=2,
            sender=BOB,
            receiver="me",
            content="привет\x1b",
            withheld=False,
            tags=[],
            ambient=None,
            created_at=NOW,
            **shown,
        ),
        LogRow(
            seq=1, sender=BOB, receiver="me", content="", withheld=True, tags=[], ambient=None, created_at=NOW, **shown
        ),
    ]
    node.answers["log.show"] = LogPage(rows, more=True)
    assert cli("log", "show", "--limit", "2", "--before", "3").out.splitlines() == [
        f"     2  2026-11-30 12:00:00Z  note  {BOB} -> me",
        "        привет\\x1b",
        f"     1  2026-11-30 12:00:00Z  note  {BOB} -> me",
        "        (redacted)",
        "older ones: --before 1",
    ]
    assert node.args("log.show") == {"limit": 2, "before": 3, "session": None}


def test_log_verify_names_the_damage_and_exits_1(cli: Cli, node: Scripted) -> None:
    damage = [
        Damage("edited", "c1", 3, 5, "ab", "content does not match"),
        Damage("cut", "c1", None, None, None, "the tail is gone\x1b"),
    ]
    redactions = [Damage("redacted", "c1", 4, 6, "cd", "by its owner")]
    broken = LogReport(False, 12, 1, 2, damage, 1, redactions)
    node.answers["log.verify"] = [REPORT, broken, broken]
    done = cli("log", "verify")
    assert (done.code, done.out) == (0, "12 rows, 1 chain, 0 redacted: nothing was changed\n")
    done = cli("log", "verify")
    assert (done.code, done.out.splitlines()) == (
        1,
        [
            "12 rows, 1 chain, 1 redacted: DAMAGED in 2 places",
            "  edited (chain_id c1, seq 3, id 5, hash ab): content does not match",
            "  cut (chain_id c1): the tail is gone\\x1b",
            "  redacted (chain_id c1, seq 4, id 6, hash cd): by its owner",
        ],
    )
    done = cli("log", "verify", "--json")
    assert (done.code, done.value["damage"][0]["kind"]) == (1, "edited")


def test_log_verify_counts_and_places_in_plain_words(cli: Cli, node: Scripted) -> None:
    node.answers["log.verify"] = LogReport(False, 1, 2, 1, [Damage("edited", None, None, None, None, "x")], 0, [])
    assert cli("log", "verify").out == "1 row, 2 chains, 0 redacted: DAMAGED in 1 place\n  edited: x\n"


def test_log_redact_works_on_the_stopped_home(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def redact(path: Path, *, digest: str, reason: str) -> dict[str, Any]:
        asked.append((path, digest, reason))
        return {"seq": 9}

    monkeypatch.setattr(node_module, "redact", redact, raising=False)
    assert cli("log", "redact", "ab" * 32, "--reason", "ошибка").out == "seq: 9\n"
    assert asked == [(home, "ab" * 32, "ошибка")]
    assert cli("log", "redact", "ab" * 32).code == 2


def test_log_export_goes_to_the_absolute_path(
    cli: Cli, node: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    node.answers["log.export"] = lambda given: Exported(given.path, 12)
    assert cli("log", "export", "a.jsonl", "--json").value == {"path": str(tmp_path / "a.jsonl"), "rows": 12}


def test_do_performs_any_action(cli: Cli, node: Scripted) -> None:
    node.answers["note.add"] = note(1)
    done = cli("do", "note.add", "--args", '{"text": "привет", "priority": 1}', "--key", "k", "--json")
    assert done.value["id"] == 1
    assert node.asked == [("note.add", {"text": "привет", "priority": 1}, "k")]
    assert cli("do", "no.such").code == 2
    assert cli("do", "note.add", "--args", '{"nope": 1}').code == 2


def test_actions_lists_the_table(cli: Cli, node: Scripted) -> None:
    lines = cli("actions").out.splitlines()
    assert lines[0].split() == ["NAME", "KIND", "CAPABILITY", "HELP"]
    assert any(line.startswith("note.send ") for line in lines)
    assert not any(line.startswith("note.receive ") for line in lines)
    rows = {row["name"]: row for row in cli("actions", "--json").value["actions"]}
    assert rows["note.send"]["args"]["$defs"]["NoteSend"]["required"] == ["to", "text"]


# --- with no node ---------------------------------------------------------------------------------------


@pytest.fixture
def stored(home: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """A home whose node does not run; its store answers as scripted."""
    home.mkdir()
    actions = Scripted()

    @contextlib.asynccontextmanager
    async def offline(path: Path) -> AsyncIterator[Scripted]:
        assert path == home
        yield actions

    monkeypatch.setattr(node_module, "offline", offline)
    return actions


@pytest.mark.parametrize(
    ("words", "action", "answer"),
    [
        ("id", "node.id", ME),
        ("inbox --quarantined", "note.inbox", NotePage([note(1)], more=False)),
        ("notes list", "note.list", NotePage([], more=False)),
        ("log verify", "log.verify", REPORT),
        ("log export x", "log.export", Exported("/x", 1)),
        ("doctor", "node.doctor", Diagnosis(True, [])),
    ],
)
def test_reading_with_no_node_reads_the_store_and_says_so(
    cli: Cli, stored: Scripted, words: str, action: str, answer: msgspec.Struct
) -> None:
    stored.answers[action] = answer
    done = cli(*words.split(), "--json")
    assert (done.code, done.err) == (0, "no node running: reading the store directly\n")
    assert done.value == msgspec.to_builtins(answer)


def test_errors_of_the_store_are_typed_too(cli: Cli, stored: Scripted) -> None:
    stored.answers["note.list"] = Failed(Failure.STORE_NEWER, "newer", remedy="upgrade")
    done = cli("notes", "list", "--json")
    assert (done.code, done.value["error"]["code"]) == (1, "store_newer")


def test_a_stale_endpoint_counts_as_no_node(cli: Cli, stored: Scripted, home: Path) -> None:
    (home / "api.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": 2**22 + 1}))
    stored.answers["note.list"] = NotePage([], more=False)
    assert cli("notes", "list").out == "no notes\n"


def test_a_home_that_is_not_there_is_not_made(cli: Cli, home: Path) -> None:
    done = cli("inbox")
    assert done.code == 3
    assert not home.exists()
