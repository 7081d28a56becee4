"""The node about itself."""

from __future__ import annotations

from typing import Any

import pytest

from hmp_node.actions import queries
from hmp_node.errors import Failed, Failure
from hmp_node.mesh.events import PeerStatus, PeersToDial, ProbeAsked, StatusAsked
from hmp_node.store.database import Tx
from hmp_node.wire.card import Card, encode
from tests.actions.sides import Key, Side, carry, meet


async def test_id_is_what_a_friend_needs(alice: Side) -> None:
    alice.context.card = lambda: encode(Card(alice.did, ("192.0.2.1:1",), "alice", "main"))
    shown = await alice.do("node.id")
    assert (shown.did, shown.name, shown.network) == (alice.did, "alice", "main")
    assert shown.card.startswith("hmp:" + shown.public_key)


async def test_status_counts(alice: Side, bob: Side) -> None:
    async def ask(question: Any, timeout_s: float) -> Any:
        assert question == StatusAsked(0)
        return (PeerStatus(bob.did, "connected", "192.0.2.1:1", 0.0, 3, None, ""),)

    alice.context.ask = ask
    alice.context.status = lambda: {"uptime_s": 5}
    await meet(alice, bob)
    await alice.do("note.send", to=[bob.did], text="x")
    await carry(alice, bob)
    await alice.do("note.send", to=[bob.did], text="y")
    await bob.do("note.send", to=[alice.did], text="z")
    await carry(bob, alice)
    status = await alice.do("node.status")
    assert (status.peers_known, status.peers_online, status.unread, status.quarantined) == (1, 1, 0, 1)
    assert status.outbox == {"delivered": 1, "queued": 1}
    assert status.store == {"state": "ok", "since": None}
    assert status.node == {"uptime_s": 5}
    assert status.reach.reachable is None
    assert [(c["did"], c["state"], c["in_flight"]) for c in status.connections] == [(bob.did, "connected", 3)]


async def test_refusals_are_counted_in_the_status(alice: Side, bob: Side) -> None:
    await bob.do("peer.block", peer=alice.did)
    with pytest.raises(Exception):  # noqa: B017, PT011
        await bob.take(alice.note(bob))
    assert (await bob.do("node.status")).refused == {"note.receive blocked": 1}


class Mesh:
    """A mesh that tells how each peer stands, and answers probes of addresses."""

    def __init__(self, *held: PeerStatus, answering: dict[str, float] | None = None) -> None:
        self.held = held
        self.answering = answering or {}
        self.probed: list[ProbeAsked] = []

    async def __call__(self, question: Any, timeout_s: float) -> Any:
        if isinstance(question, StatusAsked):
            return self.held
        assert isinstance(question, ProbeAsked)
        self.probed.append(question)
        if question.address in self.answering:
            return question.want, self.answering[question.address]
        raise Failed(Failure.PEER_UNREACHABLE, f"{question.address}: refused: nothing listens there")


async def findings(side: Side, peer: str | None = None) -> dict[str, Any]:
    return {finding.check: finding for finding in (await side.do("node.doctor", peer=peer)).findings}


async def test_doctor_says_why_a_peer_is_out_of_reach_and_what_would_help(alice: Side, bob: Side) -> None:
    alone = await alice.do("node.doctor", peer=bob.did)
    assert not alone.ok
    assert any(finding.check == "addresses" and "join" in finding.remedy for finding in alone.findings)
    mesh = alice.context.ask = Mesh(PeerStatus(bob.did, "waiting", "192.0.2.1:1", 0.0, 0, 5.0, "connection refused"))
    await alice.do("note.send", to=[encode(Card(bob.did, ("192.0.2.1:1", "192.0.2.2:1")))], text="x")
    await alice.system("peer.unreached", did=bob.did, address="192.0.2.1:1", reason="refused")
    await alice.do("peer.block", peer=bob.did)
    found = await findings(alice, bob.did)
    assert not found["blocked"].ok
    assert "connection refused" in found["connection"].detail
    assert not found["connection"].ok
    assert "nothing listens there" in found["address 192.0.2.1:1"].detail
    assert "is the node running" in found["address 192.0.2.1:1"].remedy
    assert found["last seen"].detail == "never"
    assert sorted(probe.address for probe in mesh.probed) == ["192.0.2.1:1", "192.0.2.2:1"]
    assert {probe.want for probe in mesh.probed} == {bob.did}


async def test_doctor_tries_every_address_live_and_tells_the_time_it_took(alice: Side, bob: Side) -> None:
    alice.context.ask = Mesh(answering={"192.0.2.2:1": 0.0123})
    looked: list[str] = []

    async def look_up(did: str) -> None:
        looked.append(did)
        hint = {"did": did, "addresses": ["192.0.2.2:1"], "source": "dht"}
        await alice.system("peer.found", hints=[hint])

    alice.context.look_up = look_up
    await alice.do("note.send", to=[encode(Card(bob.did, ("192.0.2.1:1",)))], text="x")
    found = await findings(alice, bob.did)
    assert looked == [bob.did], "every finder was asked first"
    assert "12 ms" in found["address 192.0.2.2:1"].detail
    assert "from dht" in found["address 192.0.2.2:1"].detail
    assert found["connection"].ok
    assert "192.0.2.2:1" in found["connection"].detail
    assert not found["address 192.0.2.1:1"].ok


async def test_doctor_tries_the_mailmen_of_a_peer(alice: Side, bob: Side) -> None:
    up, dead, unknown = (Key(word).did for word in ("up", "dead", "unknown"))
    alice.context.ask = Mesh(PeerStatus(up, "connected", "192.0.2.5:1", 0.0, 0, None, ""))
    await alice.take(bob.announcement(mailman=[up, dead, unknown]), "peer.announced")
    await alice.system("peer.down", did=bob.did)
    await alice.system("peer.found", hints=[{"did": dead, "addresses": ["192.0.2.6:1"], "source": "dht"}])
    found = await findings(alice, bob.did)
    assert (found[f"mailman {up}"].ok, found[f"mailman {up}"].detail) == (True, "connected")
    assert not found[f"mailman {dead}"].ok
    assert "192.0.2.6:1" in found[f"mailman {dead}"].detail
    assert "no address" in found[f"mailman {unknown}"].detail


async def test_with_no_node_running_doctor_dials_nobody(alice: Side, bob: Side) -> None:
    mesh = alice.context.ask = Mesh()
    alice.context.running = False
    await alice.do("note.send", to=[encode(Card(bob.did, ("192.0.2.1:1",)))], text="x")
    found = await findings(alice, bob.did)
    assert mesh.probed == []
    assert "no node is running" in found["address 192.0.2.1:1"].detail


async def test_an_old_address_is_no_trouble_while_the_peer_is_connected(alice: Side, bob: Side) -> None:
    mesh = alice.context.ask = Mesh(PeerStatus(bob.did, "connected", "192.0.2.2:1", 0.0, 0, None, ""))
    await meet(alice, bob)
    await alice.do("note.send", to=[encode(Card(bob.did, ("192.0.2.1:1",)))], text="x")
    await alice.system("peer.unreached", did=bob.did, address="192.0.2.1:1", reason="refused")
    diagnosis = await alice.do("node.doctor", peer=bob.did)
    assert diagnosis.ok, "what is known of the peer is well"
    assert any("refused" in found.detail and found.ok for found in diagnosis.findings if "192.0.2.1:1" in found.check)
    mesh.held = (PeerStatus(bob.did, "waiting", "192.0.2.2:1", 0.0, 0, None, ""),)
    wrong = {found.check for found in (await alice.do("node.doctor", peer=bob.did)).findings if not found.ok}
    assert wrong == {"connection", "address 192.0.2.1:1"}


async def test_doctor_says_of_a_stranger_that_it_is_one(alice: Side) -> None:
    diagnosis = await alice.do("node.doctor", peer=Key("nobody").did)
    assert not diagnosis.ok
    assert "known" in {found.check for found in diagnosis.findings if not found.ok}


async def test_doctor_looks_at_the_node(alice: Side) -> None:
    diagnosis = await alice.do("node.doctor")
    assert diagnosis.ok
    assert {finding.check for finding in diagnosis.findings} == {
        "node",
        "log",
        "store",
        "peers",
        "reach",
        "outbox",
        "model",
        "search index",
    }
    await alice.do("peer.alias", name="bob", did=Key("bob").did)
    diagnosis = await alice.do("node.doctor")
    assert not diagnosis.ok


async def test_lesson_13_doctor_says_that_multicast_is_blocked_and_that_join_works(alice: Side, bob: Side) -> None:
    """iroh#3084: LAN nodes on one Wi-Fi do not see each other; a static peer must work, and doctor must say so."""
    problem = "multicast is blocked on eth0: nothing we send comes back"
    alice.context.status = lambda: {"finders": {"lan": {"problem": problem}, "dht": {"problem": ""}}}
    found = await findings(alice)
    assert (found["finder lan"].ok, found["finder lan"].detail) == (False, problem)
    assert "join" in found["finder lan"].remedy
    assert found["finder dht"].ok

    async def connected(question: Any, timeout_s: float) -> Any:
        return bob.did, "", "192.168.1.9:1"

    alice.context.ask = connected
    assert (await alice.do("peer.join", where="192.168.1.9:1")).reachable
    assert list(await queries.answer(alice.context, PeersToDial(8))) == [(bob.did, "192.168.1.9:1")]


async def test_a_node_that_joined_no_network_is_well_without_one(alice: Side, bob: Side) -> None:
    alice.context.status = lambda: {"finders": {"dht": {"problem": "no address of another node is known"}}}
    assert (await alice.do("node.doctor")).ok
    listed = await bob.do("seeds.sign", seeds=[{"did": bob.did, "addresses": ["8.8.8.8:1"]}])
    await alice.do("seeds.join", text=listed.text)
    assert not (await findings(alice))["finder dht"].ok


async def test_out_of_reach_is_a_finding_unless_there_is_a_mailman(alice: Side, bob: Side) -> None:
    await alice.system("node.reached", address="8.8.8.8:7440", by=bob.did, code="timed_out")
    found = await findings(alice)
    assert not found["reach"].ok
    assert "8.8.8.8:7440: timed_out" in found["reach"].detail
    assert "mailman use" in found["reach"].remedy

    async def have_mailman(tx: Tx) -> None:
        await tx.execute("INSERT INTO own_mailmen (did, added_at) VALUES (:did, '2026')", {"did": bob.did})

    await alice.db.write(have_mailman)
    assert (await findings(alice))["reach"].ok


async def test_what_expired_is_dropped_with_the_peers_that_were_only_heard_of(alice: Side, bob: Side) -> None:
    friend = Key("friend").did
    for did in (bob.did, friend):
        await alice.system("peer.found", hints=[{"did": did, "addresses": ["8.8.8.8:1"], "source": "dht"}])
    await alice.do("peer.alias", name="friend", did=friend)
    await alice.system("node.reached", address="8.8.8.8:7440", by=bob.did, code="ok")
    alice.clock.pass_s(3 * 86_400)
    await alice.system("node.upkeep")
    assert await alice.rows("SELECT * FROM peer_addresses") == []
    assert await alice.rows("SELECT id FROM agent_peers") == [(friend,)]
    assert await alice.rows("SELECT * FROM own_addresses") == []


async def test_without_a_mesh_the_status_is_of_the_store(alice: Side) -> None:
    async def ask(question: Any, timeout_s: float) -> Any:
        raise Failed(Failure.NO_NODE, "no mesh")

    alice.context.ask = ask
    assert (await alice.do("node.status")).connections == []


async def test_doctor_names_a_job_that_dies_again_and_again(alice: Side) -> None:
    jobs = {
        "mesh": {"state": "running", "restarts": 0, "last_error": None},
        "thinking": {"state": "restarting", "restarts": 9, "last_error": "TypeError()"},
    }
    alice.context.status = lambda: {"jobs": jobs}
    diagnosis = await alice.do("node.doctor")
    assert [(one.check, one.detail) for one in diagnosis.findings if not one.ok] == [
        ("job thinking", "restarting: TypeError()")
    ]
