"""find: matches are printed as they come."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from typing import Any

import pytest

from hmp_node.actions.feed import FeedEvent
from hmp_node.cli.console import Console
from hmp_node.errors import Failed, Failure
from tests.cli.conftest import Cli
from tests.cli.scripted import BOB, EVE, Scripted
from tests.web.served import Served


def match(did: str = BOB, **more: Any) -> dict[str, Any]:
    """One agent that was found."""
    fields: dict[str, Any] = {
        "did": did,
        "name": "bob" if did == BOB else None,
        "announced": "Bob\x1b",
        "sources": ["lan", "dht"],
        "addresses": ["192.0.2.7:7440"],
        "words": {"interest": ["наука"], "role": ["mailman"]},
        "state": "untrusted",
        "via": "lan",
    }
    return fields | more


def found(*matches: dict[str, Any]) -> dict[str, Any]:
    return {"matches": list(matches), "asked": []}


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> queue.SimpleQueue[str]:
    """Every text that goes to standard output, at the moment it does."""
    texts: queue.SimpleQueue[str] = queue.SimpleQueue()
    write = Console.write

    def spy(self: Console, text: str) -> None:
        write(self, text)
        texts.put(text)

    monkeypatch.setattr(Console, "write", spy)
    return texts


def test_every_option_is_passed_on_and_a_match_told_whole(cli: Cli, node: Scripted) -> None:
    node.answers["peer.find"] = found(match(), match(EVE, announced=None, sources=[], addresses=[], words={}))
    words = "find боб --interest a --interest b --expertise c --role mailman --topic d --timeout 2"
    done = cli(*words.split())
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"bob ({BOB}): untrusted, found by lan, dht",
        "  calls itself Bob\\x1b",
        "  interest: наука",
        "  role: mailman",
        "  192.0.2.7:7440",
        f"{EVE}: untrusted",
    ]
    args = node.args("peer.find")
    assert len(args.pop("token")) == 32
    assert args == {
        "query": "боб",
        "interests": ["a", "b"],
        "expertise": ["c"],
        "roles": ["mailman"],
        "topics": ["d"],
        "timeout_s": 2.0,
    }


def test_matches_are_printed_as_they_come_each_once(
    cli: Cli, node: Scripted, served: Served, printed: queue.SimpleQueue[str]
) -> None:
    """The node answers only when what its events told has been printed; another search's matches never are."""

    async def answer(given: Any) -> dict[str, Any]:
        for came, token in (
            (match("did:hmp:agent:Else1"), "another"),
            (match(EVE), given.token),
            (match(), given.token),
        ):
            served.door.feed.publish(FeedEvent(None, "peer.match", came | {"token": token}))
        for did in (EVE, BOB):
            assert did in await asyncio.to_thread(printed.get, timeout=10)
        return found(match(), match(EVE), match("did:hmp:agent:Dave1"))

    node.answers["peer.find"] = answer
    done = cli("find", "x")
    assert done.code == 0
    assert done.out.index(EVE) < done.out.index(BOB) < done.out.index("Dave1")
    assert (done.out.count(BOB), done.out.count("Else1")) == (1, 0)


def test_with_json_all_is_one_value_at_the_end(cli: Cli, node: Scripted) -> None:
    node.answers["peer.find"] = found(match(), match(EVE))
    done = cli("find", "x", "--json")
    assert (done.code, done.err) == (0, "")
    assert [one["did"] for one in done.value["matches"]] == [BOB, EVE]
    assert "token" not in node.args("peer.find")


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_nobody_found_is_1(cli: Cli, node: Scripted, json: list[str]) -> None:
    node.answers["peer.find"] = found()
    done = cli("find", "x", *json)
    assert (done.code, done.err) == (1, "nobody was found\n")
    assert done.out == ("" if not json else '{"matches": [], "asked": []}\n')


def test_a_search_that_fails_is_told_and_leaves_no_thread(cli: Cli, node: Scripted) -> None:
    node.answers["peer.find"] = Failed(Failure.TIMED_OUT, "late")
    before = threading.active_count()
    done = cli("find", "x")
    assert (done.code, done.out, "timed_out" in done.err) == (5, "", True)
    assert threading.active_count() == before


def test_find_needs_a_node(cli: Cli) -> None:
    assert cli("find", "x").code == 3
    assert cli("find", "x", "--json").code == 3


def test_a_reader_that_has_gone_ends_the_search_quietly(
    cli: Cli, node: Scripted, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(self: Console, text: str) -> None:
        self.gone = True

    async def answer(given: Any) -> dict[str, Any]:
        served.door.feed.publish(FeedEvent(None, "peer.match", match() | {"token": given.token}))
        await ended.wait()
        return found(match())

    ended = asyncio.Event()
    monkeypatch.setattr(Console, "write", gone)
    node.answers["peer.find"] = answer
    done = cli("find", "x")
    served.loop.call_soon_threadsafe(ended.set)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_progress_is_for_terminals_alone(cli: Cli, node: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    node.answers["peer.find"] = found(match())
    shown = []
    for out, err in ((False, True), (True, False), (True, True)):
        monkeypatch.setattr(sys.stdout, "isatty", lambda out=out: out)
        monkeypatch.setattr(sys.stderr, "isatty", lambda err=err: err)
        shown.append(cli("find", "x").err)
    assert shown == ["", "", "asking everybody who may know, for 5 s\n"]
