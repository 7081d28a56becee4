"""join, peers, ping, trust, alias, block, unblock, purge, verify, grant."""

from __future__ import annotations

from typing import Any

from hmp_node.actions.grant import GrantTable, GrantView
from hmp_node.actions.peer import AddressView, Joined, PeerPage, PeerView, Pong, Purged, SafetyWords, Trusted
from hmp_node.actions.registry import Done
from tests.cli.conftest import Cli
from tests.cli.scripted import BOB, EVE, NOW, Scripted


def peer(did: str = BOB, **more: Any) -> PeerView:
    fields: dict[str, Any] = {
        "did": did,
        "name": "bob" if did == BOB else None,
        "announced": "Bob",
        "state": "online",
        "tags": ["Friend"],
        "blocked": False,
        "revoked": False,
        "last_seen": NOW,
        "registered_at": NOW,
        "description": None,
        "capabilities": {},
        "software": None,
        "addresses": [],
    }
    return PeerView(**(fields | more))


def test_join(cli: Cli, node: Scripted) -> None:
    node.answers["peer.join"] = Joined(BOB, "Bob\x1b", "192.0.2.7:7440", "bob", reachable=True)
    done = cli("join", "192.0.2.7:7440", "--name", "bob", "--timeout", "3")
    assert node.args("peer.join") == {"where": "192.0.2.7:7440", "name": "bob", "timeout_s": 3.0}
    assert f"did: {BOB}" in done.out
    assert "Bob\\x1b" in done.out


def test_peers_are_listed_over_all_pages(cli: Cli, node: Scripted) -> None:
    pages = [PeerPage([peer()], more=True), PeerPage([peer(EVE, announced="bob", blocked=True)], more=False)]
    node.answers["peer.list"] = list(pages)
    done = cli("peers")
    assert [line.split() for line in done.out.splitlines()] == [
        ["NAME", "STATE", "TAGS", "LAST", "SEEN", "DID", "CALLS", "ITSELF"],
        ["bob", "online", "Friend", "2026-11-30", "12:00:00Z", BOB, "Bob"],
        ["-", "blocked", "Friend", "2026-11-30", "12:00:00Z", EVE, "bob"],
    ]
    assert [args["after"] for _, args, _ in node.asked] == [None, BOB]
    node.answers["peer.list"] = list(pages)
    assert [row["did"] for row in cli("peers", "--json").value["peers"]] == [BOB, EVE]


def test_peers_why_tells_how_each_way_went(cli: Cli, node: Scripted) -> None:
    ways = [
        AddressView("192.0.2.7:7440", "hand", NOW, None, None),
        AddressView("192.0.2.8:7440", "announce", None, NOW, "refused\n"),
    ]
    node.answers["peer.list"] = PeerPage([peer(addresses=ways), peer(EVE)], more=False)
    assert cli("peers", "--why").out.splitlines() == [
        f"bob ({BOB}): online",
        "  192.0.2.7:7440 (hand) worked 2026-11-30 12:00:00Z",
        "  192.0.2.8:7440 (announce) has not worked yet, failed 2026-11-30 12:00:00Z: refused\\n",
        f"{EVE}: online",
        "  no address is known: join it, or wait until it connects",
    ]


def test_no_peers(cli: Cli, node: Scripted) -> None:
    node.answers["peer.list"] = PeerPage([], more=False)
    assert cli("peers").out == "no peers\n"
    assert cli("peers", "--why").out == "no peers\n"


def test_the_other_verbs_pass_their_words_on(cli: Cli, node: Scripted) -> None:
    node.answers |= {
        "peer.ping": Pong(BOB, 1.5),
        "peer.trust": Trusted(BOB, ["Friend"], 2),
        "peer.alias": Done(),
        "peer.block": Done(),
        "peer.unblock": Done(),
        "peer.purge": Purged(BOB, 3),
        "grant.add": Done(),
        "grant.remove": Done(),
    }
    for words in (
        "ping bob --timeout 2",
        "trust bob Friend Colleague",
        "trust bob Friend --remove",
        f"alias robert {BOB}",
        "alias robert --remove",
        "block bob",
        "unblock bob",
        "purge bob",
        "grant add tag:Friend notes --direction out --deny --count-per-day 5 --bytes-per-day 0 --for 7d",
        "grant remove bob notes",
    ):
        done = cli(*words.split())
        assert done.code == 0, done.err
    assert [(name, args) for name, args, _ in node.asked] == [
        ("peer.ping", {"peer": "bob", "timeout_s": 2.0}),
        ("peer.trust", {"peer": "bob", "tags": ["Friend", "Colleague"], "remove": False}),
        ("peer.trust", {"peer": "bob", "tags": ["Friend"], "remove": True}),
        ("peer.alias", {"name": "robert", "did": BOB}),
        ("peer.alias", {"name": "robert", "did": None}),
        ("peer.block", {"peer": "bob"}),
        ("peer.unblock", {"peer": "bob"}),
        ("peer.purge", {"peer": "bob"}),
        (
            "grant.add",
            {
                "subject": "tag:Friend",
                "kind": "notes",
                "direction": "out",
                "allow": False,
                "count_per_day": 5,
                "bytes_per_day": 0,
                "ttl_s": 604800,
            },
        ),
        ("grant.remove", {"subject": "bob", "kind": "notes", "direction": "in"}),
    ]


def test_verify_prints_the_words_to_read_aloud(cli: Cli, node: Scripted) -> None:
    node.answers["peer.verify"] = SafetyWords(BOB, ["acid", "acorn"], ["actor", "adult"])
    assert cli("verify", "bob").out == "read aloud: acid acorn\nmust hear:  actor adult\n"


def test_grants_are_a_table(cli: Cli, node: Scripted) -> None:
    node.answers["grant.list"] = GrantTable([GrantView("*", "notes", "in", True, 20, None, NOW, None)])
    assert [line.split() for line in cli("grant", "list").out.splitlines()][1] == [
        "*",
        "notes",
        "in",
        "yes",
        "20",
        "-",
        "-",
    ]
