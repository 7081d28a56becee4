"""Whole nodes in one process whose wall clocks jump or differ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hmp_node import node
from hmp_node.actions.actors import User
from hmp_node.actions.context import now_us
from hmp_node.errors import Failed
from tests.search.tables import BY_WORDS

HOUR_US = 3_600_000_000
ALONE = {"HMP_LAN__ENABLED": "false", "HMP_DHT__MODE": "off"} | BY_WORDS


async def until(what: str, true: Callable[[], Any], seconds: float = 20) -> None:
    """Wait for an awaitable condition."""
    async with asyncio.timeout(seconds):
        while not await true():
            await asyncio.sleep(0.02)
    assert what


def opened(home: Path) -> Any:
    return node.opened(
        home,
        listen=["127.0.0.1:0"],
        api="127.0.0.1:0",
        environment=ALONE | {"HMP_MAIL__RETRY_S": "0.5", "HMP_MESH__RESCAN": "1"},
    )


async def test_a_note_of_a_clock_that_was_ahead_waits_with_its_reason_and_the_next_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "a") as alice, opened(tmp_path / "b") as bob:
        await alice.actions.perform(User(), "peer.join", {"where": bob.mesh_addresses[0], "timeout_s": 10})
        true = alice.context.now_us
        alice.context.now_us = lambda: true() + HOUR_US
        ahead = await alice.actions.perform(User(), "note.send", {"to": [bob.did], "text": "from the future"})
        alice.context.now_us = true
        after = await alice.actions.perform(User(), "note.send", {"to": [bob.did], "text": "now"})

        async def states() -> dict[str, tuple[str, str | None]]:
            page = await alice.actions.perform(User(), "note.outbox", {})
            return {row.container_did: (row.state, row.reason) for row in page.rows}

        async def settled() -> bool:
            found = await states()
            return found[after.container_did][0] == "delivered" and found[ahead.container_did][1] is not None

        await until("the second note is delivered and the first says why not", settled)
        assert (await states())[ahead.container_did] == ("queued", "future_timestamp")
        # An hour later it goes.
        bob_true = bob.context.now_us
        monkeypatch.setattr(node, "now_us", lambda: bob_true() + HOUR_US)

        async def arrived() -> bool:
            return (await states())[ahead.container_did][0] == "delivered"

        await until("the first is delivered", arrived)
        assert (await alice.actions.perform(User(), "log.verify", {})).ok


async def test_a_clock_that_jumps_back_breaks_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as alice, opened(tmp_path / "b") as bob:
        await alice.actions.perform(User(), "peer.join", {"where": bob.mesh_addresses[0], "timeout_s": 10})
        true = alice.context.now_us
        for offset in (0, -24 * HOUR_US, 100_000_000, -HOUR_US):
            alice.context.now_us = lambda offset=offset: true() + offset
            sent = await alice.actions.perform(User(), "note.send", {"to": [bob.did], "text": f"{offset}"})
            wait = {"container_did": sent.container_did, "state": "delivered", "timeout_s": 10}
            assert (await alice.actions.perform(User(), "note.wait", wait)).met, offset
        texts = await bob.database.fetch_all(
            "SELECT n.text FROM mail m JOIN notes n ON n.id = m.note_id ORDER BY m.position"
        )
        assert [text for (text,) in texts] == ["0", str(-24 * HOUR_US), "100000000", str(-HOUR_US)]
        for side in (alice, bob):
            assert (await side.actions.perform(User(), "log.verify", {})).ok


async def test_clocks_that_differ_too_much_are_named_at_the_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = now_us
    monkeypatch.setattr(node, "now_us", lambda: true() + HOUR_US)
    async with opened(tmp_path / "a") as ahead:
        # Its announcement is signed with its own clock; from here on everybody shares the true one.
        ahead.context.now_us = lambda: true() + HOUR_US
        monkeypatch.setattr(node, "now_us", true)
        async with opened(tmp_path / "b") as bob:
            with pytest.raises(Failed) as caught:
                await bob.actions.perform(User(), "peer.join", {"where": ahead.mesh_addresses[0], "timeout_s": 5})
            assert "clock" in str(caught.value)
