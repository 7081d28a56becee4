"""Two real nodes whose minds converse over the mesh, and what waits for a person when they may not (DESIGN 11)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import conversation_scripts as scripts
from tests.e2e.harness import ROOT, Node, environment, hmp_node, report, rows, wait_for

MANY = {"HMP_LLM__CALLS_PER_HOUR": "0", "HMP_LLM__TOKENS_PER_HOUR": "0"}


@contextmanager
def endpoint(folder: Path, script: str) -> Iterator[str]:
    """A scripted endpoint as a process; gives its address."""
    folder.mkdir(parents=True, exist_ok=True)
    port_file = folder / f"{script}.port"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.agent.llm_server", str(port_file), f"tests.e2e.conversation_scripts:{script}"],
        cwd=ROOT,
        env=environment(),
    )
    try:
        port = wait_for("the endpoint listens", lambda: port_file.exists() and port_file.read_text())
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(10)


def mind(folder: Path, name: str, stack: ExitStack, *, listen: str = "127.0.0.1:0", url: str = "") -> Node:
    """A node; without the address of a model it does not think yet."""
    env = {"HMP_MIND__PAUSE_S": "0.05", "HMP_LLM__MODEL": "scripted", "HMP_LLM__URL": f'"{url}"', **MANY}
    return stack.enter_context(Node(folder / name, listen=listen, env=env))


def befriend(one: Node, other: Node, name: str, *, converse: bool) -> None:
    one.cli("join", other.mesh, "--name", name)
    one.cli("trust", name, "Friend")
    if converse:
        one.cli("grant", "add", name, "converse", "--direction", "out")


def awaken(node: Node, folder: Path, stack: ExitStack) -> None:
    """Give it the mind of its name: from now on it thinks."""
    url = stack.enter_context(endpoint(folder, node.home.name))
    node.cli("llm", "register", "mind", url, "--model", "scripted")


def heard(node: Node) -> list[str]:
    """Texts of the notes that came in, in the order of display, with those that are not shown at all."""
    sql = "SELECT n.text FROM mail m JOIN notes n ON n.id = m.note_id WHERE m.direction = 'in' ORDER BY m.position"
    return [text for (text,) in rows(node.home, sql)]


def turns(first: int, last: int) -> list[str]:
    return [scripts.words(turn) for turn in range(first, last + 1, 2)]


def commands(node: Node) -> list[tuple[Any, ...]]:
    return rows(node.home, "SELECT type, status, result FROM tick_commands ORDER BY tick, ordinal")


def idles(node: Node) -> bool:
    """Whether it sleeps, with nothing left that would wake it."""
    return unread(node) == 0 and bool(node.call("cycle.status")["state"] == "idle") and unread(node) == 0


def unread(node: Node) -> int:
    sql = "SELECT COUNT(*) FROM notes n JOIN mail m ON m.note_id = n.id WHERE m.direction = 'in' AND n.read = 0"
    return int(rows(node.home, sql)[0][0])


def quiet(*nodes: Node) -> None:
    """Wait until all is said and both sleep, then stop their loops at a boundary."""
    for node in nodes:
        wait_for("it idles", lambda node=node: idles(node), 30)  # type: ignore[misc]
        node.call("cycle.stop")


@pytest.mark.slow
def test_two_minds_with_converse_talk_for_fifty_turns(tmp_path: Path) -> None:
    with ExitStack() as stack:
        alice, bob = (mind(tmp_path, name, stack) for name in ("alice", "bob"))
        befriend(alice, bob, "bob", converse=True)
        befriend(bob, alice, "alice", converse=True)
        for node in (bob, alice):
            awaken(node, tmp_path, stack)
        wait_for("the last turn", lambda: heard(alice)[-1:] == [scripts.words(scripts.TURNS)], 120)
        quiet(alice, bob)

        assert heard(bob) == turns(1, scripts.TURNS), "every note once and in order"
        assert heard(alice) == turns(2, scripts.TURNS)
        for node, other, last in ((alice, bob, scripts.TURNS - 1), (bob, alice, scripts.TURNS)):
            assert {(name, status) for name, status, _ in commands(node)} == {
                (name, "ok")
                for name in ("note.send", "note.show", "note.mark_read", "cycle.idle", "diary.add", "concept.add")
            }, [row for row in commands(node) if row[1] != "ok"]
            assert rows(node.home, "SELECT COUNT(*) FROM approvals") == [(0,)]
            assert unread(node) == 0
            phases = dict(rows(node.home, "SELECT phase, COUNT(*) FROM agent_log GROUP BY phase"))
            assert set(phases) == {"committed"}
            assert phases["committed"] <= scripts.TURNS + 10, "asleep until a note comes: two ticks for each that came"
            assert node.cli("log", "verify")["ok"]
            (diary,) = node.call("diary.list")["diary"]
            assert diary["text"] == f"{scripts.DIARY} ({last})"
            assert diary["taint"] == [other.did]
            concepts = {one["name"]: one for one in node.call("concept.list")["concepts"]}
            assert concepts[scripts.CONCEPT]["description"] == f"{last} turns"
            assert all(one["taint"] == [other.did] for one in concepts.values())
            assert len(concepts) == 2
            (link,) = node.call("link.list")["links"]
            assert (link["from_name"], link["relation"], link["taint"]) == (scripts.CONCEPT, "is about", [other.did])
            jobs = node.call("node.status")["node"]["jobs"]
            assert {name: job["restarts"] for name, job in jobs.items() if job["restarts"]} == {}
        report(
            "conversation",
            {
                "turns": scripts.TURNS,
                "ticks": {
                    node.home.name: rows(node.home, "SELECT COUNT(*) FROM agent_log")[0][0] for node in (alice, bob)
                },
            },
        )


@pytest.mark.slow
def test_without_converse_an_answer_waits_for_a_person(tmp_path: Path) -> None:
    with ExitStack() as stack:
        alice, bob = (mind(tmp_path, name, stack) for name in ("alice", "bob"))
        befriend(alice, bob, "bob", converse=True)
        befriend(bob, alice, "alice", converse=False)
        for node in (bob, alice):
            assert node.stop() == 0
        url = {name: stack.enter_context(endpoint(tmp_path, name)) for name in ("alice", "bob")}
        alice, bob = (
            mind(tmp_path, node.home.name, stack, listen=node.mesh, url=url[node.home.name]) for node in (alice, bob)
        )
        waiting = wait_for("bob's answer waits", lambda: bob.cli("approve")["approvals"])
        wait_for("bob idles", lambda: idles(bob))
        assert [one["action"] for one in waiting] == ["note.send"]
        assert waiting[0]["args"]["text"] == scripts.words(2)
        assert [author for author, *_ in waiting[0]["taint"]] == [alice.did]
        assert rows(bob.home, "SELECT COUNT(*) FROM outbox WHERE note_id IS NOT NULL") == [(0,)]
        assert heard(alice) == []
        assert rows(bob.home, "SELECT status FROM tick_commands WHERE type = 'note.send'") == [("queued",)]

        assert hmp_node(bob.home, "approve", str(waiting[0]["id"])).returncode == 0
        wait_for("alice hears it", lambda: heard(alice) == [scripts.words(2)])
        (second,) = wait_for("the next answer waits", lambda: bob.cli("approve")["approvals"])
        assert second["args"]["text"] == scripts.words(4)
        assert hmp_node(bob.home, "approve", "--refuse", str(second["id"])).returncode == 0
        quiet(alice, bob)
        assert heard(alice) == [scripts.words(2)]
        assert heard(bob) == turns(1, 3)
        found = rows(bob.home, "SELECT status FROM tick_commands WHERE type = 'note.send' ORDER BY tick")
        assert found == [("ok",), ("denied",)]
        for node in (alice, bob):
            assert node.cli("log", "verify")["ok"]
