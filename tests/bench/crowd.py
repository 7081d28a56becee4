"""A few processes that hold many connections to one node: ``python -m tests.bench.crowd ADDRESS COUNT FIRST``.

Each connection is a peer of its own key, with a real handshake and announcement, that answers pings. The process says
how many are up, one JSON line a second, until its input closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys

from hmp_node.wire.frames import Ping, Pong
from tests.net.stranger import Stranger, stranger

PACE_S = 0.025  # between two handshakes of one process, below what a node takes from one address
PER_ADDRESS = 40


async def hold(address: str, number: int, up: set[int]) -> None:
    """One peer, until cancelled or turned away."""
    source = f"127.{1 + number // PER_ADDRESS // 200}.{1 + number // PER_ADDRESS % 200}.1"
    async with stranger(address, number, source=source) as peer:
        await peer.shake()
        await peer.announce()
        await _live(peer, number, up)


async def _live(peer: Stranger, number: int, up: set[int]) -> None:
    try:
        while True:
            async with asyncio.timeout(120):
                message = await peer.ws.receive()
            if not isinstance(message.data, bytes) or peer.channel is None:
                return
            frame = peer.channel.open_message(message.data)
            up.add(number)
            if isinstance(frame, Ping):
                await peer.send(Pong(frame.number))
    finally:
        up.discard(number)


async def main(address: str, count: int, first: int) -> None:
    """Open them one after another and report."""
    up: set[int] = set()
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def heard() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            over.set()

    loop.add_reader(sys.stdin, heard)
    tasks = []
    report = asyncio.create_task(_report(up))
    try:
        for number in range(first, first + count):
            tasks.append(asyncio.create_task(hold(address, number, up)))
            await asyncio.sleep(PACE_S)
        await over.wait()
    finally:
        for task in (*tasks, report):
            task.cancel()
        await asyncio.gather(*tasks, report, return_exceptions=True)


async def _report(up: set[int]) -> None:
    while True:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"up": len(up)}), flush=True)
        await asyncio.sleep(1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
