"""Giving up one's own key."""

from __future__ import annotations

from pathlib import Path

import pytest

from hmp_node.actions import revoke
from hmp_node.errors import HmpError
from hmp_node.mesh.events import Told
from hmp_node.wire.container import Draft
from tests.actions.sides import Clock, Side, meet, side


async def sending(from_: Side, to: Side) -> str:
    """What is said of sending a note: "" if nothing is."""
    try:
        await from_.do("note.send", to=[to.did], text="x")
    except HmpError as error:
        return str(error.code)
    return ""


async def test_a_revoked_node_says_so_for_ever_and_its_peers_believe_it(
    tmp_path: Path, bob: Side, clock: Clock
) -> None:
    async with side(tmp_path / "a", "alice", clock=clock) as alice:
        await meet(alice, bob)
        assert await revoke.own_revocation(alice.context) is None
        assert await sending(alice, bob) == ""
        for wrong in ("", "yes", bob.did, alice.did[:-1]):
            with pytest.raises(HmpError) as caught:
                await alice.do("node.revoke", confirm=wrong)
            assert str(caught.value.code) == "bad_argument"
        async with alice.context.feed.subscribe() as events:
            done = await alice.do("node.revoke", confirm=alice.did)
            assert (await anext(events)).topic == "node.revoked"
        assert (done.did, done.told) == (alice.did, 1)
        (told,) = alice.taken(Told)
        assert told.to is None
        assert (await alice.do("node.revoke", confirm=alice.did)).told == 1
        assert alice.taken(Told) == [], "once more is no error, and no news"
        assert await sending(alice, bob) == "key_revoked"
        late = alice.note(bob, "by a thief")
    async with side(tmp_path / "a", "alice", clock=clock) as alice:
        assert await sending(alice, bob) == "key_revoked", "conformance 35"
        word = await revoke.own_revocation(alice.context)
        assert word == told.containers[0]
        assert word is not None
        assert word.payload == {"key_is_falsified": True, "addresses": []}
        assert (await bob.take(word, "peer.announced")).revoked
        with pytest.raises(HmpError) as caught:
            await bob.take(late)
        assert str(caught.value.code) == "key_revoked"


async def test_another_installation_of_ours_may_give_up_the_key(alice: Side, bob: Side) -> None:
    """The word comes back to us by a peer; what else is brought under our own name is nothing to us."""
    await alice.take(alice.announcement(name="an old copy"), "peer.heard", by=bob.did)
    assert await alice.rows("SELECT * FROM agent_peers") == []
    gone = alice.container(Draft("peer_announce", {"key_is_falsified": True, "addresses": []}))
    assert (await alice.take(gone, "peer.heard", by=bob.did)).revoked
    assert await revoke.own_revocation(alice.context) == gone
    assert await sending(alice, bob) == "key_revoked"
