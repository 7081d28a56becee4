"""From a secure channel to a peer that is up: its announcement first, then the store's word on it."""

from __future__ import annotations

import pytest

from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.mesh.events import Closed, ContainersReceived, OutboxDue, Performed, RowsRead, Started
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Bye, Ping, Pong, Refused
from tests.mesh.kit import (
    EPOCH_US,
    Bench,
    Person,
    closes,
    delivered,
    frames,
    outbox_reads,
    performs,
    sent,
    tells,
)

BOB, EVE = Person("bob"), Person("eve")
NAMED = Person("carol", did="did:hmp:carol")


def test_a_peer_is_up_once_the_store_has_its_announcement() -> None:
    bench = Bench()
    conn, _ = bench.shake(BOB)
    announcement = BOB.announce()
    effects = bench.receive(conn, announcement)
    (perform,) = performs(effects, "peer.announced")
    assert (perform.actor, perform.argument) == (BOB.did, delivered(announcement, BOB))
    assert not tells(effects, "peer.up")
    effects = bench.do(Performed(perform.id, None))
    assert tells(effects, "peer.up") == [{"did": BOB.did, "name": "bob", "address": "in:bob", "initiator": False}]
    (read,) = outbox_reads(effects)
    assert read.query == OutboxDue(BOB.did, 0, 64)


def test_what_follows_the_announcement_in_the_same_frame_is_taken_too() -> None:
    bench = Bench()
    conn, _ = bench.shake(BOB)
    note = BOB.note(bench.me)
    effects = bench.receive(conn, BOB.announce(), note)
    (perform,) = performs(effects, "note.receive")
    assert (perform.actor, perform.argument) == (BOB.did, delivered(note, BOB))


@pytest.mark.parametrize("first", ["note", "nothing"])
def test_a_first_frame_without_an_announcement_closes(first: str) -> None:
    bench = Bench()
    conn, _ = bench.shake(BOB)
    containers = (BOB.note(bench.me), BOB.announce()) if first == "note" else ()
    effects = bench.do(ContainersReceived(conn, containers))
    assert closes(effects) == {conn: "announce_expected"}
    assert not performs(effects, "note.receive")


@pytest.mark.parametrize("frame", [Ping(1), Pong(1), Refused("did:hmp:x", "busy", temporary=True)])
def test_any_other_first_frame_closes(frame: Ping | Pong | Refused) -> None:
    bench = Bench()
    conn, _ = bench.shake(BOB)
    assert closes(bench.frame(conn, frame)) == {conn: "announce_expected"}


def test_an_announcement_by_another_key_closes() -> None:
    bench = Bench()
    conn, _ = bench.shake(BOB)
    effects = bench.receive(conn, EVE.announce())
    assert closes(effects) == {conn: "announce_mismatch"}
    assert not performs(effects, "peer.announced")


def test_our_own_name_under_another_key_closes() -> None:
    bench = Bench(me=Person("me", did="did:hmp:me"))
    conn, _ = bench.shake(Person("thief", did="did:hmp:me"))
    assert closes(bench.receive(conn, Person("thief", did="did:hmp:me").announce())) == {conn: "announce_mismatch"}


def test_an_announcement_that_does_not_come_closes() -> None:
    bench = Bench()
    conn, _ = bench.shake(BOB)
    assert closes(bench.wait(9.9)) == {}
    assert closes(bench.wait(0.2)) == {conn: "announce_expected"}


def test_a_peer_may_go_by_a_name_the_store_accepts_for_its_key() -> None:
    bench = Bench()
    conn, _ = bench.shake(NAMED)
    effects = bench.receive(conn, NAMED.announce())
    (perform,) = performs(effects, "peer.announced")
    assert perform.actor == "did:hmp:carol"
    effects = bench.do(Performed(perform.id, None))
    assert tells(effects, "peer.up")[0]["did"] == "did:hmp:carol"
    assert {read.query.recipient for read in outbox_reads(effects)} == {  # type: ignore[union-attr]
        "did:hmp:carol",
        NAMED.identity,
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Denied(Deny.BLOCKED, "blocked"), "blocked"),
        (Rejected(Reject.KEY_CONFLICT, "another key is pinned"), "key_conflict"),
        (Rejected(Reject.KEY_REVOKED, "revoked"), "key_revoked"),
    ],
)
def test_a_peer_the_store_refuses_never_comes_up(error: HmpError, code: str) -> None:
    bench = Bench()
    conn = bench.connect(BOB, error=error)
    assert closes(bench.effects) == {conn: code}
    assert not tells(bench.effects, "peer.up")
    assert not outbox_reads(bench.effects)


def test_a_blocked_peer_hears_no_refusal_of_its_announcement() -> None:
    bench = Bench()
    conn = bench.connect(BOB, error=Denied(Deny.BLOCKED, "blocked"))
    assert not [frame for frame in frames(bench.effects, conn) if isinstance(frame, Refused)]


def test_an_opening_announcement_is_answered_by_the_channel_and_not_by_a_refusal() -> None:
    bench = Bench()
    conn = bench.connect(BOB, error=Rejected(Reject.KEY_CONFLICT, "x"))
    assert not [frame for frame in frames(bench.effects, conn) if isinstance(frame, Refused)]
    assert closes(bench.effects) == {conn: "key_conflict"}


def test_a_full_disk_keeps_out_only_those_whose_name_must_be_looked_up() -> None:
    bench = Bench()
    full = Failed(Failure.DISK_FULL, "full")
    bench.connect(BOB, error=full)
    assert tells(bench.effects, "peer.up")
    conn = bench.connect(NAMED, error=full)
    assert closes(bench.effects) == {conn: "busy"}


def test_a_store_that_says_nothing_lets_a_proven_peer_in_and_may_still_throw_it_out() -> None:
    bench = Bench()
    conn, _ = bench.shake(BOB)
    (perform,) = performs(bench.receive(conn, BOB.announce()), "peer.announced")
    assert tells(bench.wait(11), "peer.up")
    effects = bench.do(Performed(perform.id, Denied(Deny.BLOCKED, "blocked")))
    assert closes(effects) == {conn: "blocked"}
    assert tells(effects, "peer.down") == [{"did": BOB.did, "code": "blocked"}]


def test_the_same_announcement_on_two_channels_brings_both_up() -> None:
    """A peer announces itself with one container wherever it connects; in-progress duplicates must not stall."""
    bench = Bench()
    announcement = BOB.announce()
    first, _ = bench.shake(BOB)
    second, _ = bench.shake(BOB)
    effects = bench.receive(first, announcement) + bench.receive(second, announcement)
    one, two = performs(effects, "peer.announced")
    bench.do(Performed(two.id, None))
    bench.do(Performed(one.id, None))
    assert len(bench.mesh._peers.peer(BOB.did).links) + len(closes(bench.effects)) == 2  # type: ignore[union-attr]


def test_a_revoked_key_is_told_to_the_store_and_closed() -> None:
    bench = Bench()
    conn = bench.connect(BOB, announcement=BOB.announce(key_is_falsified=True, addresses=[]))
    assert performs(bench.effects, "peer.announced")
    assert closes(bench.effects) == {conn: "key_revoked"}
    conn = bench.connect(EVE)
    effects = bench.receive(conn, EVE.announce(EPOCH_US + 1, key_is_falsified=True, addresses=[]))
    assert performs(effects, "peer.announced")
    assert closes(effects) == {conn: "key_revoked"}


def test_a_new_announcement_of_ours_goes_to_all_peers() -> None:
    bench = Bench()
    conns = {bench.connect(BOB), bench.connect(EVE)}
    newer = bench.me.announce(EPOCH_US + 5)
    effects = bench.do(Started((newer,)))
    assert {conn for conn in conns if sent(effects, conn) == [newer.to_mesh()]} == conns


def test_the_store_is_told_of_peers_that_come_and_go() -> None:
    bench = Bench()
    conn = bench.connect(BOB, dialled="10.0.0.2:1", want=BOB.did)
    (up,) = performs(bench.effects, "peer.up")
    assert up.actor == "system"
    assert up.argument == {"did": BOB.did, "name": "bob", "address": "10.0.0.2:1", "initiator": True}
    (down,) = performs(bench.do(Closed(conn, "lost")), "peer.down")
    assert down.argument == {"did": BOB.did, "code": "lost"}


@pytest.mark.parametrize("code", ["future_timestamp", "key_conflict", "bad_payload"])
def test_a_peer_that_refuses_our_announcement_is_left_with_its_reason(code: str) -> None:
    """Two nodes whose clocks disagree must say so, not time out."""
    bench = Bench()
    (ours,) = bench.mesh._announcements
    conn, _ = bench.shake(BOB)
    bench.receive(conn, BOB.announce())
    assert closes(bench.frame(conn, Refused(ours.did, code, temporary=True))) == {conn: code}
    conn = bench.connect(EVE)
    assert closes(bench.frame(conn, Refused(ours.did, code, temporary=False))) == {conn: code}


def test_a_peer_whose_disk_is_full_is_not_left_for_not_keeping_our_new_announcement() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    (ours,) = bench.mesh._announcements
    assert bench.frame(conn, Refused(ours.did, "disk_full", temporary=True)) == []


def test_what_the_store_learns_from_a_new_announcement_may_let_more_go_out() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    (read,) = outbox_reads(bench.effects)
    bench.do(RowsRead(read.id, ()))
    (perform,) = performs(bench.receive(conn, BOB.announce(EPOCH_US + 1)), "peer.announced")
    assert outbox_reads(bench.do(Performed(perform.id, None)))


def test_goodbye_in_any_stage_forgets_the_connection() -> None:
    bench = Bench()
    conn, _ = bench.shake(BOB)
    assert closes(bench.frame(conn, Bye("blocked"))) == {conn: "blocked"}
    assert bench.do(Closed(conn, "bye:blocked")) == []
    conn = bench.connect(BOB)
    effects = bench.frame(conn, Bye("superseded"))
    assert tells(effects, "peer.down") == [{"did": BOB.did, "code": "bye:superseded"}]


# --- what we say of ourselves, by scope -----------------------------------------------------------------


def scoped(bench: Bench) -> dict[str, VerifiedContainer]:
    """Our announcements, narrowest first: one for this host, one for a LAN, one for everybody."""
    return {
        network: bench.me.container("peer_announce", {"name": f"me in {network or 'the world'}"}, network=network)
        for network in ("localhost", "lan:192.0.2.0/24", "")
    }


@pytest.mark.parametrize(
    ("arrival", "network"),
    [
        ("localhost", "localhost"),
        ("192.0.2.7", "lan:192.0.2.0/24"),
        ("198.51.100.7", ""),
        ("global", ""),
    ],
)
def test_a_peer_hears_the_narrowest_announcement_that_may_reach_it_and_the_one_for_everybody(
    arrival: str, network: str
) -> None:
    bench = Bench(started=False)
    ours = scoped(bench)
    bench.do(Started(tuple(ours.values())))
    conn, _ = bench.shake(BOB, arrival=arrival)
    assert sent(bench.effects, conn) == list(dict.fromkeys((ours[network].to_mesh(), ours[""].to_mesh())))


def test_a_new_announcement_goes_to_each_peer_in_the_scope_that_reaches_it() -> None:
    bench = Bench()
    conns = {arrival: bench.connect(Person(arrival), arrival=arrival) for arrival in ("localhost", "192.0.2.7")}
    ours = scoped(bench)
    effects = bench.do(Started(tuple(ours.values())))
    assert sent(effects, conns["localhost"]) == [ours["localhost"].to_mesh(), ours[""].to_mesh()]
    assert sent(effects, conns["192.0.2.7"]) == [ours["lan:192.0.2.0/24"].to_mesh(), ours[""].to_mesh()]


def test_a_peer_that_refuses_any_of_our_announcements_is_left() -> None:
    bench = Bench(started=False)
    ours = scoped(bench)
    bench.do(Started(tuple(ours.values())))
    conn = bench.connect(BOB, arrival="192.0.2.7")
    refusal = Refused(ours["lan:192.0.2.0/24"].did, "key_conflict", temporary=False)
    assert closes(bench.frame(conn, refusal)) == {conn: "key_conflict"}


def test_without_an_announcement_that_may_reach_a_peer_it_hears_none() -> None:
    bench = Bench(started=False)
    ours = scoped(bench)
    bench.do(Started((ours["localhost"],)))
    conn, _ = bench.shake(BOB, arrival="192.0.2.7")
    assert not sent(bench.effects, conn)
