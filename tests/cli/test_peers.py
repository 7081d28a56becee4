"""peers, ping, trust, alias, block, unblock, purge, verify, grant."""

from __future__ import annotations

from typing import Any

from hmp_node.actions.grant import GrantTable, GrantView
from hmp_node.actions.peer import Pong, SafetyWords, Trusted
from hmp_node.actions.registry import Done
from tests.cli.conftest import Cli
from tests.cli.scripted import BOB, EVE, NOW, Scripted


def peer(did: str = BOB, **more: Any) -> dict[str, Any]:
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
        "words": {},
        "mailmen": [],
    }
    return fields | more


def page(*peers: dict[str, Any], more: bool = False) -> dict[str, Any]:
    return {"peers": list(peers), "more": more}


def test_peers_are_listed_over_all_pages(cli: Cli, node: Scripted) -> None:
    pages = [page(peer(), more=True), page(peer(EVE, announced="bob", blocked=True))]
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
        way("192.0.2.7:7440", "hand", last_success=NOW),
        way("192.0.2.8:7440", "announce", last_failure=NOW, failure_reason="refused\n"),
        way("192.0.2.9:7440", "dht", expires_at=NOW),
    ]
    node.answers["peer.list"] = page(peer(addresses=ways, mailmen=[EVE]), peer(EVE))
    assert cli("peers", "--why").out.splitlines() == [
        f"bob ({BOB}): online",
        "  192.0.2.7:7440 (hand) worked 2026-11-30 12:00:00Z",
        "  192.0.2.8:7440 (announce) has not worked yet, failed 2026-11-30 12:00:00Z: refused\\n",
        "  192.0.2.9:7440 (dht) has not worked yet, good until 2026-11-30 12:00:00Z",
        f"  its mailman: {EVE}",
        f"{EVE}: online",
        "  no address is known: join it, or wait until it connects",
    ]


def way(address: str, source: str, **more: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("expires_at", "last_success", "last_failure", "failure_reason"))
    return {"address": address, "source": source} | empty | more


def test_names_that_peers_announce_are_never_printed_raw(cli: Cli, node: Scripted) -> None:
    node.answers["peer.list"] = page(peer(EVE, announced="\x1b[2Jbob\n\u202e", tags=["Local"]))
    assert "\\x1b[2Jbob\\n\\u202e" in cli("peers").out
    assert "\x1b" not in cli("peers", "--json").out
    assert "\u202e" not in cli("peers", "--json").out


def test_no_peers(cli: Cli, node: Scripted) -> None:
    node.answers["peer.list"] = page()
    assert cli("peers").out == "no peers\n"
    assert cli("peers", "--why").out == "no peers\n"


def test_the_other_verbs_pass_their_words_on(cli: Cli, node: Scripted) -> None:
    node.answers |= {
        "peer.ping": Pong(BOB, 1.5),
        "peer.trust": Trusted(BOB, ["Friend"], 2),
        "peer.alias": Done(),
        "peer.block": Done(),
        "peer.unblock": Done(),
        "peer.purge": {"did": BOB, "notes": 3},
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
        "purge --strangers",
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
        ("peer.purge", {"strangers": True}),
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


def test_purge_takes_a_peer_or_all_strangers(cli: Cli, node: Scripted) -> None:
    for words in (["purge"], ["purge", "bob", "--strangers"]):
        done = cli(*words)
        assert (done.code, "give a PEER, or --strangers" in done.err) == (2, True)
    assert not node.asked


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
