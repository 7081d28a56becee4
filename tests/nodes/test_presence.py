"""What a node says of itself: in each scope what belongs there, and to everybody only what is proven or set by hand."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hmp_node import config, node, supervise
from hmp_node.actions.actors import System, User
from hmp_node.actions.context import BookSettings
from hmp_node.errors import Failed, Failure
from hmp_node.mesh.events import Event, MailmenChanged, Started
from hmp_node.net.finders import Presence
from hmp_node.net.interfaces import Interface
from hmp_node.presence import Announcer
from hmp_node.wire import pow as work
from hmp_node.wire.container import VerifiedContainer
from tests.nodes.test_clocks import ALONE
from tests.wire.agents import Agent

MAILMAN = Agent("postman").did
LAN = Interface("eth0", "10.1.2.3", 24, socket.AF_INET)
LAN6 = Interface("eth0", "fd00::3", 64, socket.AF_INET6)
LINK = Interface("eth0", "fe80::3", 64, socket.AF_INET6)
PUBLIC = Interface("eth1", "9.9.9.9", 8, socket.AF_INET)


class Desk:
    """An announcer over a real store, whose interfaces, mesh and finders are lists."""

    def __init__(self, running: node.Node, settings: config.Config, look: Sequence[Interface]) -> None:
        self.interfaces = list(look)
        self.posted: list[Event] = []
        self.presented: list[Presence] = []
        self.mined: list[tuple[str, int]] = []
        self.running = running
        self.announcer = Announcer(
            running.context,
            settings,
            bound=("[::]:7440",),
            post=self.posted.append,
            present=self.presented.append,
            mine=self.mine,
            look=lambda: self.interfaces,
        )

    async def mine(self, text: str, bits: int) -> int | None:
        """Work of the bits that a test can wait for."""
        self.mined.append((text, bits))
        return work.search(text, 0, 1 << 16, bits)

    @property
    def started(self) -> Started:
        """The newest word to the mesh."""
        return next(event for event in reversed(self.posted) if isinstance(event, Started))

    def said(self) -> dict[str, list[str]]:
        """Addresses by scope."""
        return {
            one.network: [entry["addr"] for entry in payload(one)["addresses"]] for one in self.started.announcements
        }


def payload(container: VerifiedContainer) -> dict[str, Any]:
    assert isinstance(container.payload, dict)
    return container.payload


@asynccontextmanager
async def desk(path: Path, *look: Interface, **sections: Any) -> AsyncIterator[Desk]:
    """A running node, and beside its own an announcer of the test's."""
    async with node.opened(path, listen=["127.0.0.1:0"], api="127.0.0.1:0", environment=ALONE) as running:
        settings = config.Config(
            node=config.NodeSettings(**sections.get("node", {})),
            book=BookSettings(announce_bits=8),
        )
        yield Desk(running, settings, look)


async def test_each_scope_hears_the_addresses_that_mean_something_there(tmp_path: Path) -> None:
    """Conformance 40, at its source."""
    async with desk(tmp_path / "a", LAN, LAN6, LINK, PUBLIC) as our:
        await our.announcer.look()
        said = our.said()
        assert list(said) == ["localhost", "lan:10.1.2.0/24", "lan:fd00::/64", "lan:fe80::/64", ""]
        assert said["lan:10.1.2.0/24"] == said["lan:fe80::/64"] == ["10.1.2.3:7440", "[fd00::3]:7440"]
        assert said["localhost"][:2] == ["127.0.0.1:7440", "[::1]:7440"]
        assert said[""] == [], "nobody has proven 9.9.9.9"
        assert our.started.port == 7440
        assert our.presented[-1].public == ()


async def test_what_a_peer_has_proven_is_told_to_everybody_with_its_work(tmp_path: Path) -> None:
    async with desk(tmp_path / "a", LAN) as our:
        reached = {"address": "9.9.9.9:7440", "by": "did:hmp:agent:x", "code": "ok"}
        await our.running.actions.perform(System(), "node.reached", reached)
        await our.announcer.look()
        assert our.said()[""] == [], "no word before the work is done"
        await our.announcer._prove()
        await our.announcer.look()
        (entry,) = payload(our.started.announcements[-1])["addresses"]
        assert entry["addr"] == "9.9.9.9:7440"
        assert our.mined == [(work.stamp_text(our.running.did, "9.9.9.9:7440"), 8)]
        assert work.check_address(our.running.did, our.running.public_key, entry, 8) is not None
        assert our.presented[-1].public == (("9.9.9.9:7440", entry["nonce"]),)
        await our.announcer._prove()
        assert len(our.mined) == 1, "what was mined once is kept"


async def test_a_look_is_not_kept_waiting_by_work_and_a_busy_miner_is_asked_again(tmp_path: Path) -> None:
    async with desk(tmp_path / "a", LAN) as our:
        answers = iter((Failed(Failure.BUSY, "too many"), None))

        async def busy(text: str, bits: int) -> int | None:
            our.mined.append((text, bits))
            if (fault := next(answers)) is not None:
                raise fault
            return await asyncio.Event().wait()

        our.announcer._mine = busy
        reached = {"address": "9.9.9.9:7440", "by": "did:hmp:agent:x", "code": "ok"}
        await our.running.actions.perform(System(), "node.reached", reached)
        job = asyncio.create_task(our.announcer.prove())
        try:
            for attempts in (1, 2):
                await our.announcer.look()
                await until("work was asked for", lambda attempts=attempts: len(our.mined) == attempts)  # type: ignore[misc]
            our.interfaces = [LAN._replace(ip="10.1.2.77")]
            await our.announcer.look()
            assert our.said()["lan:10.1.2.0/24"] == ["10.1.2.77:7440"]
        finally:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)


async def test_what_the_owner_set_by_hand_needs_no_proof_but_work(tmp_path: Path) -> None:
    by_hand = {"announce": ("wss://node.example.org/mesh", "10.9.9.9:7440")}
    async with desk(tmp_path / "a", LAN, node=by_hand) as our:
        await our.announcer.look()
        await our.announcer._prove()
        await our.announcer.look()
        assert our.said()[""] == ["wss://node.example.org/mesh"]
        assert "10.9.9.9:7440" in our.said()["lan:10.1.2.0/24"]
        assert our.started.port == 0, "there is nothing to ask peers for"


async def test_a_new_address_is_told_and_an_old_one_is_not_told_twice(tmp_path: Path) -> None:
    async with desk(tmp_path / "a", LAN) as our:
        await our.announcer.look()
        before = len(our.posted)
        await our.announcer.look()
        assert len(our.posted) == before
        our.interfaces = [LAN._replace(ip="10.1.2.77")]
        await our.announcer.look()
        assert our.said()["lan:10.1.2.0/24"] == ["10.1.2.77:7440"]


async def test_a_node_that_serves_as_a_mailman_says_so(tmp_path: Path) -> None:
    async with desk(tmp_path / "a", LAN) as our:
        await our.running.actions.perform(User(), "mailman.serve", {"on": True})
        await our.announcer.look()
        assert payload(our.started.announcements[-1])["roles"] == ["mailman"]
        assert "store-forward" in payload(our.started.announcements[-1])["capabilities"]
        assert MailmenChanged((), serving=True) in our.posted


async def test_a_mailman_is_announced_once_it_was_met(tmp_path: Path) -> None:
    """Anybody can make up an agent that calls itself a mailman."""
    async with desk(tmp_path / "a", LAN) as our:
        system = functools.partial(our.running.actions.perform, System())
        await our.running.actions.perform(User(), "mailman.use", {"peer": MAILMAN})
        await our.announcer.look()
        assert MailmenChanged((MAILMAN,), serving=False) in our.posted, "its mail is taken all the same"
        assert payload(our.started.announcements[-1])["mailman"] == []
        await system("peer.up", {"did": MAILMAN, "address": "9.9.9.9:7440", "initiator": True})
        await our.announcer.look()
        assert payload(our.started.announcements[-1])["mailman"] == [MAILMAN]


async def test_a_revoked_node_says_that_and_nothing_else(tmp_path: Path) -> None:
    async with desk(tmp_path / "a", LAN) as our:
        await our.announcer.look()
        await our.running.actions.perform(User(), "node.revoke", {"confirm": our.running.did})
        await our.announcer.look()
        (last_word,) = our.started.announcements
        assert payload(last_word)["key_is_falsified"] is True
        assert our.presented[-1] == Presence()


async def test_lxmf_31_announcing_goes_on_after_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "FIRST_PAUSE", 0.05)
    async with node.opened(tmp_path / "a", listen=["127.0.0.1:0"], api="127.0.0.1:0", environment=ALONE) as running:
        announcer, job = running.announcer, running.supervisor.jobs["announcing"]

        def broken() -> list[Interface]:
            raise OSError("no interfaces can be listed")

        monkeypatch.setattr(announcer, "_look", broken)
        announcer.change()
        await until("the fault is counted", lambda: job.restarts > 0)
        assert "no interfaces can be listed" in job.last_error
        assert running.status()["jobs"]["announcing"]["restarts"] > 0
        monkeypatch.setattr(announcer, "_look", lambda: [LAN])
        announcer._bound = ("0.0.0.0:7440",)
        await until("the next look is told", lambda: "10.1.2.3:7440" in announcer.addresses)


async def until(what: str, true: Callable[[], Any], seconds: float = 20) -> None:
    """Wait for a condition; fail naming it."""
    try:
        async with asyncio.timeout(seconds):
            while not true():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what}") from None
