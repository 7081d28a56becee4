"""Standings kept in memory are those of the store, after any change, rollback or eviction."""

from __future__ import annotations

import pytest

from hmp_node.actions import standing
from hmp_node.actions.standing import NOTES, Standing
from hmp_node.store import peers
from hmp_node.store.database import Tx
from tests.actions.sides import Key, Side


async def of(side_: Side, did: str) -> Standing:
    async def work(tx: Tx) -> Standing:
        return await side_.context.standings.of(tx, did, now_us=side_.clock())

    return await side_.db.write(work)


async def test_it_is_read_once_and_again_after_a_change(alice: Side, bob: Side) -> None:
    first = await of(alice, bob.did)
    assert await of(alice, bob.did) is first
    await alice.do("peer.trust", peer=bob.did, tags=["Friend"])
    second = await of(alice, bob.did)
    assert (first.verdicts[NOTES, "in"].quarantined, second.verdicts[NOTES, "in"].quarantined) == (True, False)


async def test_what_a_failed_work_changed_is_not_remembered(alice: Side, bob: Side) -> None:
    """The change, what the work itself read of it, and what was kept before: all as it was."""

    async def work(tx: Tx) -> None:
        await peers.block(tx, bob.did, now=alice.context.now())
        alice.context.standings.touch(tx)
        assert (await alice.context.standings.of(tx, bob.did, now_us=alice.clock())).blocked
        raise RuntimeError("no")

    assert not (await of(alice, bob.did)).blocked
    with pytest.raises(RuntimeError):
        await alice.db.write(work)
    assert not (await of(alice, bob.did)).blocked


async def test_so_many_are_kept(alice: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "KEPT", 3)
    for number in range(10):
        await of(alice, Key(str(number)).did)
    assert len(alice.context.standings._kept) == 3


async def test_flags_that_are_no_json_offer_nothing(alice: Side, bob: Side) -> None:
    await alice.take(bob.announcement(), "peer.announced")

    async def spoil(tx: Tx) -> None:
        await tx.execute("UPDATE agent_peers SET capabilities = 'nonsense'")
        alice.context.standings.touch(tx)

    await alice.db.write(spoil)
    assert (await of(alice, bob.did)).takes_notes is None


async def test_a_ticket_is_the_owners_to_refuse(alice: Side, bob: Side) -> None:
    await alice.do("grant.add", subject=bob.did, kind="ticket", direction="in", allow=False)
    await alice.do("note.send", to=[bob.did], text="you may not answer without end")
    tickets = [grant for grant in (await alice.do("grant.list")).grants if grant.kind == "ticket"]
    assert [(grant.subject, grant.allow) for grant in tickets] == [(bob.did, False)]
    await alice.do("grant.remove", subject=bob.did, kind="ticket", direction="in")
