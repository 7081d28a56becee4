"""What the node has told to one peer or to all, and what the rest of the mesh hears of probes and of dialling back."""

from __future__ import annotations

from hmp_node.errors import Reject
from hmp_node.mesh.events import Closed, HandshakeReceived, Opened, Told
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Bye, Containers, DialBack, DialledBack
from tests.mesh.kit import Bench, Person, closes, frames, performs, sent, tells

BOB, CAROL, DAVE = Person("bob"), Person("carol"), Person("dave")


def raws(containers: list[VerifiedContainer]) -> list[bytes]:
    return [container.to_mesh() for container in containers]


def test_what_is_for_one_peer_goes_to_it_and_what_is_for_all_to_all() -> None:
    bench = Bench()
    bob, carol = bench.connect(BOB), bench.connect(CAROL)
    word = DAVE.announce()
    effects = bench.do(Told(BOB.did, (word,)))
    assert (sent(effects, bob), sent(effects, carol)) == ([word.to_mesh()], [])
    effects = bench.do(Told(None, (word,)))
    assert (sent(effects, bob), sent(effects, carol)) == ([word.to_mesh()], [word.to_mesh()])
    assert bench.do(Told(DAVE.did, (word,))) == [], "who is not here is told nothing"


def test_much_to_tell_is_cut_into_frames() -> None:
    bench = Bench(settings=MeshSettings(batch=10, batch_bytes=5_000))
    conn = bench.connect(BOB)
    words = [Person(f"p{n}").announce() for n in range(50)]
    effects = bench.do(Told(BOB.did, tuple(words)))
    told = [frame for frame in frames(effects, conn) if isinstance(frame, Containers)]
    assert len(told) > 5
    assert max(sum(map(len, frame.items)) for frame in told) <= 5_000
    assert sent(effects, conn) == raws(words)


def test_what_is_told_keeps_to_its_scope_and_to_what_the_peer_takes() -> None:
    bench = Bench()
    far = bench.connect(BOB, arrival="198.51.100.7")
    near = bench.connect(CAROL, arrival="192.0.2.7", announcement=CAROL.announce(hmp_node={"max_container_bytes": 900}))
    free, scoped = DAVE.note(BOB), DAVE.note(BOB, network="lan:192.0.2.0/24")
    large = DAVE.note(BOB, "x" * 2_000)
    effects = bench.do(Told(None, (scoped, free, large)))
    assert sent(effects, far) == raws([free, large])
    assert sent(effects, near) == raws([scoped, free])


# --- probes and dialling back, as far as the rest of the mesh sees them ---------------------------------


def test_a_probe_of_a_connected_peer_is_no_second_channel_and_its_end_is_nobodys_loss() -> None:
    bench = Bench()
    first = bench.connect(BOB)
    bench.effects.clear()
    bench.do(Opened(77, True, "10.0.0.9:1", "10.0.0.9", BOB.did, probe=5))
    assert closes(bench.effects) == {77: "probed"}, "nobody asked for it, and it is no channel"
    assert bench.do(HandshakeReceived(77, b"x"), Closed(77, "lost")) == []
    peer = bench.mesh._peers.peer(BOB.did)
    assert peer is not None
    assert [link.conn for link in peer.links] == [first]


def test_a_peer_that_only_probes_us_is_told_to_nobody() -> None:
    bench = Bench()
    conn, _ = bench.shake(BOB)
    bench.effects.clear()
    bench.frame(conn, Bye("probed"))
    assert closes(bench.effects) == {conn: "probed"}
    assert not tells(bench.effects, "refused")
    assert not performs(bench.effects, "peer.unreached")
    assert bench.mesh._peers.links == 0


def test_dialling_back_is_answered_by_the_peer_behind_the_channel_and_only_once_it_is_up() -> None:
    bench = Bench()
    conn, _ = bench.shake(BOB, arrival="192.168.0.7")
    assert closes(bench.frame(conn, DialBack(1, 7440, 5))) == {conn: str(Reject.ANNOUNCE_EXPECTED)}
    conn = bench.connect(CAROL, arrival="192.168.0.8")
    assert frames(bench.frame(conn, DialBack(2, 7440, 5)), conn) == [DialledBack(2, "", "private_address")]
    assert bench.frame(conn, DialledBack(3, "192.0.2.1:7440", "ok")) == [], "we asked nothing"
