"""At most two channels a peer, and one in the end; caps on connections; nothing left when peers go."""

from __future__ import annotations

import gc

import pytest

from hmp_node.errors import Deny
from hmp_node.mesh.events import Close, Closed, Opened, OutboxChanged, PeerForgotten, ReceiptsMade, RowsRead
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.frames import Ping
from tests.mesh.kit import Bench, Person, closes, outbox_reads, performs, sent, tells

PEOPLE = sorted((Person(f"p{n}") for n in range(3)), key=lambda person: person.did)
LOW, MIDDLE, HIGH = PEOPLE


def channels(bench: Bench, peer: Person) -> list[int]:
    found = bench.mesh._peers.peer(peer.did)
    return [link.conn for link in found.links] if found is not None else []


def test_the_lower_node_keeps_the_newest_channel_and_closes_the_older() -> None:
    bench = Bench(me=LOW)
    first, second = bench.connect(MIDDLE), bench.connect(MIDDLE, dialled="a")
    assert closes(bench.effects) == {}, "not before the other side has had a moment to see the newer one up"
    assert closes(bench.wait(1.1)) == {first: "superseded"}
    assert channels(bench, MIDDLE) == [second]
    assert len(tells(bench.effects, "peer.up")) == 1
    assert not tells(bench.effects, "peer.down")


def test_a_newer_channel_that_dies_at_once_leaves_the_older_one() -> None:
    bench = Bench(me=LOW)
    first, second = bench.connect(MIDDLE), bench.connect(MIDDLE)
    bench.do(Closed(second, "lost"))
    assert closes(bench.wait(5)) == {}
    assert channels(bench, MIDDLE) == [first]


def test_the_higher_node_keeps_both_and_sends_on_the_newest() -> None:
    bench = Bench(me=HIGH)
    first, second = bench.connect(MIDDLE), bench.connect(MIDDLE)
    assert closes(bench.effects) == {}
    receipt = HIGH.receipt(MIDDLE, ["did:hmp:container:" + "0" * 64])
    event = ReceiptsMade(MIDDLE.did, receipt)
    assert sent(bench.do(event), second) == [receipt.to_mesh()]
    bench.do(Closed(second, "bye:superseded"))
    assert sent(bench.do(event), first) == [receipt.to_mesh()]
    assert not tells(bench.effects, "peer.down")
    assert tells(bench.do(Closed(first, "lost")), "peer.down")
    assert bench.do(event) == []


def test_a_third_channel_closes_the_oldest() -> None:
    bench = Bench(me=HIGH)
    first, second, third = (bench.connect(LOW) for _ in range(3))
    assert closes(bench.effects) == {first: "superseded"}
    assert channels(bench, LOW) == [second, third]


def test_a_socket_that_comes_late_to_a_connected_peer_is_closed() -> None:
    bench = Bench(me=HIGH)
    bench.connect(LOW)
    assert bench.do(Opened(99, True, "a", "127.0.0.1", LOW.did)) == [Close(99, "superseded")]


def test_two_names_of_one_key_are_one_peer_and_two_keys_of_one_name_are_not() -> None:
    named = Person("x", did="did:hmp:x")
    plain = Person("x")
    bench = Bench(me=Person("zz"))
    first, second = bench.connect(plain), bench.connect(named)
    assert len(bench.mesh._peers) == 1
    thief = Person("thief", did="did:hmp:x")
    bench.effects.clear()
    third = bench.connect(thief)  # the store says this key holds the name now
    assert set(closes(bench.effects)) <= {first, second}
    assert [peer.identity for peer in bench.mesh._peers] == [thief.identity]
    assert channels(bench, thief) == [third]
    # What waits for the name goes to its new holder, and only there.
    read = [read for read in outbox_reads(bench.effects) if read.query.recipient == "did:hmp:x"][-1]  # type: ignore[union-attr]
    note = bench.me.note("did:hmp:x")
    effects = bench.do(RowsRead(read.id, ((1, note.did, note.to_mesh(), ""),)))
    assert sent(effects, third) == [note.to_mesh()]
    assert sent(effects) == [note.to_mesh()]


def test_connections_and_handshakes_are_capped() -> None:
    bench = Bench(settings=MeshSettings(max_links=5, max_handshakes=3))
    for conn in range(1, 4):
        assert not closes(bench.do(Opened(conn, False, "a", "127.0.0.1")))
    effects = bench.do(Opened(4, False, "a", "127.0.0.1"))
    assert closes(effects) == {4: "too_many_handshakes"}
    assert tells(effects, "refused") == [{"address": "a", "code": "too_many_handshakes"}]
    for conn in range(5, 7):
        assert not closes(bench.do(Opened(conn, True, "a", "127.0.0.1")))
    assert bench.do(Opened(7, True, "a", "127.0.0.1")) == [Close(7, "too_many_connections")]
    bench.do(Closed(1, "lost"))
    assert not closes(bench.do(Opened(8, False, "a", "127.0.0.1")))


def test_a_blocked_or_purged_peer_is_closed_whatever_its_stage() -> None:
    bench = Bench(me=HIGH)
    conns = {bench.connect(LOW), bench.shake(LOW)[0], bench.shake(LOW, dialled="a", want=LOW.did)[0]}
    bench.connect(MIDDLE)
    opened = bench.conn()
    bench.do(Opened(opened, True, "b", "127.0.0.1", LOW.did))
    effects = bench.do(PeerForgotten(LOW.did))
    # The dial for a peer that is up already was refused on arrival.
    assert closes(effects) == {conn: str(Deny.BLOCKED) for conn in conns if conn in closes(effects)}
    assert channels(bench, LOW) == []
    assert channels(bench, MIDDLE) != []
    assert bench.mesh._peers.links == 1
    assert not outbox_reads(bench.do(OutboxChanged((LOW.did,))))


def test_events_of_unknown_connections_are_ignored() -> None:
    bench = Bench()
    assert bench.frame(77, Ping(1)) == []
    assert bench.receive(77, LOW.note(bench.me)) == []
    assert bench.do(Closed(77, "lost")) == []


def footprint(bench: Bench) -> dict[str, int]:
    mesh = bench.mesh
    dialler, intake, offers, board = mesh._dialler, mesh._intake, mesh._offers, mesh._board
    return {
        "links": mesh._peers.links,
        "young": len(mesh._peers._young),
        "peers": len(mesh._peers),
        "names": len(mesh._peers._names),
        "targets": len(dialler._targets),
        "queue": len(dialler._queue),
        "active": len(dialler._active),
        "dials": len(dialler._dials),
        "asked": dialler._asked,
        "works": len(intake),
        "at work": len(intake._at_work),
        "brought": len(intake._brought),
        "by_conn": len(intake._by_conn),
        "offers": len(offers) + len(offers._of_conn),
        "mailmen": len(mesh._post._mailmen),
        "probes": len(mesh._probes._probes) + len(mesh._probes._conns),
        "reach": len(mesh._reach._peers),
        "timers": len(board.timers),
        "reads": board.reading,
    }


@pytest.mark.parametrize("cycles", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_nothing_is_left_of_peers_that_came_and_went(cycles: int) -> None:
    """Each cycle ends differently: in the handshake, before the announcement, unvetted, up with work under way."""
    bench = Bench()
    bench.list_peers()
    before = footprint(bench)
    heap = 0
    for n in range(cycles):
        bench.effects.clear()
        peer = Person(f"peer{n}")
        kind = n % 5
        if kind == 0:
            conn = bench.conn()
            bench.do(Opened(conn, False, "a", "127.0.0.1"))
        elif kind == 1:
            conn, _ = bench.shake(peer)
        elif kind == 2:
            conn, _ = bench.shake(peer, dialled=f"10.0.0.{n}:1", want=peer.did)
            bench.receive(conn, peer.announce())
        else:
            conn = bench.connect(peer)
            (read,) = outbox_reads(bench.effects)
            note = bench.me.note(peer)
            if kind == 4:
                bench.do(RowsRead(read.id, ((n + 1, note.did, note.to_mesh(), ""),)))
            assert performs(bench.receive(conn, peer.note(bench.me)), "note.receive")
        bench.do(Closed(conn, "lost"))
        bench.wait(0.5)
        if n == 100:
            gc.collect()
            heap = len(gc.get_objects())
    bench.effects.clear()
    assert footprint(bench) == before | {"reads": footprint(bench)["reads"]}
    assert bench.mesh._board.reading <= 1, "but for the read of peers to dial"
    gc.collect()
    assert len(gc.get_objects()) - heap < 1000
