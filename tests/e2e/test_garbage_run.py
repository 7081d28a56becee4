"""A real node under mutated handshakes, frames and containers; a third of all is mutated behind a valid handshake and
signed again. It must not crash, no job may die, memory stays flat, and what it rejects is counted by type."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hmp_node.wire import canonical
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import (
    Channel,
    Containers,
    DialBack,
    DialledBack,
    Frame,
    Offer,
    Offered,
    Refused,
    Stamp,
    Want,
    cut,
    encode,
)
from hmp_node.wire.limits import Limits
from hmp_node.wire.text import container_did
from tests.bench.common import process
from tests.e2e.harness import Node, report
from tests.net.stranger import Stranger, stranger
from tests.net.world import NETWORK, Keys

OPEN = {
    "HMP_NODE__NETWORK": NETWORK,
    "HMP_NET__HANDSHAKES_PER_SECOND": "100000",
    "HMP_NET__HANDSHAKES_PER_ADDRESS": "100000",
    "HMP_NET__BAD_CONTAINERS": "1000000000",
}
WIDE = Limits(frame_bytes=2**26, container_bytes=2**26)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to four edits: bits, cuts, repeats, insertions, numbers at their limits."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0 if out:
                out[at % len(out)] ^= 1 << rng.randrange(8)
            case 1:
                del out[at : at + rng.randint(1, 40)]
            case 2:
                out[at:at] = rng.randbytes(rng.randint(1, 40))
            case 3:
                out[at:at] = out[at : at + rng.randint(1, 400)]
            case 4 if out:
                out[at % len(out)] = rng.choice(b"\x00\xff\x7f\x80\xc0\xdf\xdd\x90\x9f\xc4\xc6")
            case _:
                out = out[: at or 1]
    return bytes(out)


ODD: list[Callable[[random.Random], Any]] = [
    lambda rng: None,
    lambda rng: rng.choice(
        [True, False, 0, -1, 2**53, 10**400, 1.5, "", "\u202eevil", "a" * rng.choice([1, 300, 70_000])]
    ),
    lambda rng: [],
    lambda rng: {},
    lambda rng: [[[[]]]] * rng.choice([1, 100]),
    lambda rng: {"signature": "AAAA", "": ""},
    lambda rng: _deep(rng.choice([5, 31, 40, 400])),
    lambda rng: "2999-01-01T00:00:00.000000Z",
    lambda rng: "did:hmp:agent:" + "1" * rng.choice([1, 44, 500]),
]


def _deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def resigned(core: bytes, keys: Keys, rng: random.Random) -> bytes:
    """A container whose fields are edited at random places and which is signed again by its author."""
    value = canonical.decode(core)
    for _ in range(rng.randint(1, 3)):
        place: Any = rng.choice([value, value.get("head"), value.get("head"), value.get("payload")])
        if not isinstance(place, dict) or not place:
            continue
        key = rng.choice([*place, "zz", "recipient", "ttl", "compression", "group_recipient", "key_recipient"])
        if rng.random() < 0.25:
            place.pop(key, None)
        else:
            place[key] = rng.choice(ODD)(rng)
    head = value.get("head")
    if isinstance(head, dict) and rng.random() < 0.7:
        head.pop("container_did", None)
        head["container_did"] = container_did(_digest(value))
    data = _encoded(value)
    signature = keys._key.sign(data).signature
    import msgpack

    packed: bytes = msgpack.packb([data, signature, None])
    return packed


def _digest(value: Any) -> bytes:
    import hashlib

    return hashlib.sha256(_encoded(value)).digest()


def _encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode(errors="replace")


class Fuzzer:
    """Sends garbage of three kinds, ``count`` of each."""

    def __init__(self, address: str, to: str, rng: random.Random) -> None:
        self.address, self.to, self.rng = address, to, rng
        self.sent = {"handshakes": 0, "frames": 0, "containers": 0}

    async def handshakes(self, count: int) -> None:
        """Handshake messages mutated at each of the places where the dialler speaks."""
        while self.sent["handshakes"] < count:
            async with stranger(self.address, self.rng.randint(1, 200)) as guest:
                await self._handshake(guest)

    async def _handshake(self, guest: Stranger) -> None:
        first = guest.ws
        stage = self.rng.randrange(3)
        self.sent["handshakes"] += 1
        if stage == 0:
            await first.send_bytes(mutated(self.rng.randbytes(32), self.rng))
        elif stage == 1:
            await first.send_bytes(self.rng.randbytes(32))
            await first.send_bytes(self.rng.randbytes(self.rng.choice([1, 103, 64, 65_535])))
        else:
            await first.send_str("text where bytes are due")

    def frame(self, note: VerifiedContainer) -> Frame:
        """One of every kind that a peer may send."""
        number = self.rng.randrange(2**32)
        kinds: tuple[Frame, ...] = (
            Containers((note.to_mesh(),) * self.rng.randint(1, 3)),
            Offer((Offered(note.did, self.to, number + 1, 0), Offered(note.did, note.sender, 9, 100))),
            Want((note.did, note.did)),
            DialBack(number, 1 + number % 65_535, number),
            DialledBack(number, "9.9.9.9:7440", "ok"),
            Stamp(note.did, number),
            Refused(note.did, "work_needed", temporary=True),
        )
        return self.rng.choice(kinds)

    async def frames(self, count: int) -> None:
        """Frames mutated in clear and then sealed well, and sealed messages mutated on the wire."""
        while self.sent["frames"] < count:
            async with stranger(self.address, self.rng.randint(1, 200)) as guest:
                await guest.shake()
                await guest.announce()
                self.sent["frames"] += 1
                frame = encode(self.frame(guest.keys.note(self.to, "x")))
                for piece in cut(mutated(frame, self.rng)):
                    message = _cipher(guest.channel).encrypt(piece)
                    await guest.ws.send_bytes(mutated(message, self.rng) if self.rng.random() < 0.2 else message)

    async def containers(self, count: int) -> None:
        """Containers mutated as values and signed again by a proven peer, many on one channel."""
        while self.sent["containers"] < count:
            async with stranger(self.address, 201) as guest:
                await guest.shake()
                await guest.announce()
                assert guest.channel is not None
                reading = asyncio.create_task(guest.frames())
                note = guest.keys.container("note", {"text": "hello", "source": "user", "priority": 0}, self.to)
                receipt = guest.keys.container("receipt", {"items": [], "log_head": {}}, self.to)
                for _ in range(min(200, count)):
                    base = self.rng.choice([note, receipt, guest.keys.announcement()])
                    items = tuple(resigned(base.core, guest.keys, self.rng) for _ in range(16))
                    self.sent["containers"] += len(items)
                    for message in _wide(guest.channel).seal_frame(Containers(items)):
                        await guest.ws.send_bytes(message)
                    if self.sent["containers"] >= count or reading.done():
                        break
                reading.cancel()


def _cipher(channel: Channel | None) -> Any:
    assert channel is not None
    return channel._send


def _wide(channel: Channel) -> Channel:
    channel._limits = WIDE
    return channel


async def garbage(node: Node, count: int, seed: int) -> dict[str, Any]:
    """The whole run; the figures of its report."""
    fuzzer = Fuzzer(node.mesh, node.did, random.Random(seed))
    before = await asyncio.to_thread(_settled, node)
    began = time.monotonic()
    kinds = [fuzzer.handshakes, fuzzer.frames, fuzzer.containers]
    rss = []
    for part in range(1, 5):
        for kind in kinds:
            try:
                async with asyncio.timeout(1200):
                    await kind(count * part // 12)
            except (aiohttp.ClientError, ConnectionError):
                continue
        rss.append(process(node.process.pid)["rss_mib"])
    status = await asyncio.to_thread(node.call, "node.status")
    return {
        "seed": seed,
        "sent": fuzzer.sent,
        "seconds": round(time.monotonic() - began),
        "rss_mib": [before, *rss],
        "rejects": status["node"]["net"]["rejects"],
        "faults": status["node"]["net"]["faults"],
        "jobs": status["node"]["jobs"],
    }


def _settled(node: Node) -> float:
    return process(node.process.pid)["rss_mib"]


def run(folder: Path, count: int, seed: int) -> None:
    with Node(folder / "node", env=OPEN) as node:
        figures = asyncio.run(garbage(node, count, seed))
        report(f"garbage-{count}", figures)
        assert all(sent >= count // 3 for sent in figures["sent"].values())
        assert figures["faults"] == 0
        assert all(job["restarts"] == 0 for job in figures["jobs"].values())
        assert figures["rss_mib"][-1] < figures["rss_mib"][1] + 25, "memory grows"
        assert sum(figures["rejects"].values()) > count // 3
        assert len(figures["rejects"]) > 12
        assert node.process.poll() is None
        assert "Traceback" not in node.stderr()
        assert "Traceback" not in (folder / "node" / "logs" / "node.log").read_text(encoding="utf-8")
        assert node.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [20261130, None])
def test_garbage_in_short(tmp_path: Path, seed: int | None) -> None:
    run(tmp_path, 6_000, seed if seed is not None else int.from_bytes(os.urandom(4), "big"))


@pytest.mark.long
def test_a_hundred_thousand_pieces_of_garbage(tmp_path: Path) -> None:
    run(tmp_path, 100_000, int(os.environ.get("HMP_TEST_SEED", "20261130")))
