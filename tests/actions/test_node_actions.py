"""The node about itself."""

from __future__ import annotations

from typing import Any

import pytest

from hmp_node.errors import Failed, Failure
from hmp_node.mesh.events import PeerStatus, StatusAsked
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
    assert [(c["did"], c["state"], c["in_flight"]) for c in status.connections] == [(bob.did, "connected", 3)]


async def test_refusals_are_counted_in_the_status(alice: Side, bob: Side) -> None:
    await bob.do("peer.block", peer=alice.did)
    with pytest.raises(Exception):  # noqa: B017, PT011
        await bob.take(alice.note(bob))
    assert (await bob.do("node.status")).refused == {"note.receive blocked": 1}


async def test_doctor_says_why_a_peer_is_out_of_reach_and_what_would_help(alice: Side, bob: Side) -> None:
    async def ask(question: Any, timeout_s: float) -> Any:
        return (PeerStatus(bob.did, "waiting", "192.0.2.1:1", 0.0, 0, 5.0, "connection refused"),)

    alone = await alice.do("node.doctor", peer=bob.did)
    assert not alone.ok
    assert any(finding.check == "addresses" and "join" in finding.remedy for finding in alone.findings)
    alice.context.ask = ask
    await alice.do("note.send", to=[encode(Card(bob.did, ("192.0.2.1:1",)))], text="x")
    await alice.system("peer.unreached", did=bob.did, address="192.0.2.1:1", reason="refused")
    await alice.do("peer.block", peer=bob.did)
    found = {finding.check: finding for finding in (await alice.do("node.doctor", peer=bob.did)).findings}
    assert not found["blocked"].ok
    assert "connection refused" in found["connection"].detail
    assert "refused" in found["address 192.0.2.1:1"].detail
    assert found["last seen"].detail == "never"


async def test_an_old_address_is_no_trouble_while_the_peer_is_connected(alice: Side, bob: Side) -> None:
    state = "connected"

    async def ask(question: Any, timeout_s: float) -> Any:
        return (PeerStatus(bob.did, state, "192.0.2.2:1", 0.0, 0, None, ""),)

    alice.context.ask = ask
    await meet(alice, bob)
    await alice.do("note.send", to=[encode(Card(bob.did, ("192.0.2.1:1",)))], text="x")
    await alice.system("peer.unreached", did=bob.did, address="192.0.2.1:1", reason="refused")
    diagnosis = await alice.do("node.doctor", peer=bob.did)
    assert diagnosis.ok, "what is known of the peer is well"
    assert any("refused" in found.detail and found.ok for found in diagnosis.findings if "192.0.2.1:1" in found.check)
    state = "waiting"
    wrong = {found.check for found in (await alice.do("node.doctor", peer=bob.did)).findings if not found.ok}
    assert wrong == {"connection", "address 192.0.2.1:1"}


async def test_doctor_says_of_a_stranger_that_it_is_one(alice: Side) -> None:
    diagnosis = await alice.do("node.doctor", peer=Key("nobody").did)
    assert not diagnosis.ok
    assert "known" in {found.check for found in diagnosis.findings if not found.ok}


async def test_doctor_looks_at_the_node(alice: Side) -> None:
    diagnosis = await alice.do("node.doctor")
    assert diagnosis.ok
    assert {finding.check for finding in diagnosis.findings} == {"node", "log", "store", "peers", "outbox"}
    await alice.do("peer.alias", name="bob", did=Key("bob").did)
    diagnosis = await alice.do("node.doctor")
    assert not diagnosis.ok


async def test_without_a_mesh_the_status_is_of_the_store(alice: Side) -> None:
    async def ask(question: Any, timeout_s: float) -> Any:
        raise Failed(Failure.NO_NODE, "no mesh")

    alice.context.ask = ask
    assert (await alice.do("node.status")).connections == []
