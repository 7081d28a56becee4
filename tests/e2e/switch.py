"""A switch between the namespaces given as arguments: every frame is late, and some are lost.

Makes a TAP ``eth0`` in each namespace, says ``ready`` on stdout, and runs until it is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import os
import random
import struct
import threading
from pathlib import Path

CLONE_NEWNET = 0x40000000
TUNSETIFF, TAP_NO_PI = 0x400454CA, 0x1002
FRAME = 65_536


def tap(namespace: str) -> int:
    """The descriptor of a new TAP ``eth0`` in a namespace."""
    made: list[int] = []

    def make() -> None:  # entering a namespace moves the whole thread, so it is one that ends here
        where = os.open(Path("/run/netns") / namespace, os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(where, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        os.close(where)
        plug = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(plug, TUNSETIFF, struct.pack("16sH", b"eth0", TAP_NO_PI))
        made.append(plug)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


class Switch:
    """Learns who is behind which port and passes frames on, each with its own delay."""

    def __init__(self, ports: list[int], delay: float, jitter: float, loss: float, seed: int) -> None:
        self._ports, self._delay, self._jitter, self._loss = ports, delay, jitter, loss
        self._random = random.Random(seed)
        self._behind: dict[bytes, int] = {}
        self._loop = asyncio.get_running_loop()
        for port in ports:
            self._loop.add_reader(port, self._read, port)

    def _read(self, port: int) -> None:
        while True:
            try:
                frame = os.read(port, FRAME)
            except BlockingIOError:
                return
            to, sender = frame[:6], frame[6:12]
            self._behind[sender] = port
            for out in [self._behind[to]] if to in self._behind else self._ports:
                if out != port and self._random.random() >= self._loss:
                    late = self._delay + self._random.random() * self._jitter
                    self._loop.call_later(late, self._write, out, frame)

    @staticmethod
    def _write(port: int, frame: bytes) -> None:
        try:
            os.write(port, frame)
        except OSError:  # its interface is down, or not up yet
            return


async def main() -> None:
    """Switch for ever."""
    words = argparse.ArgumentParser()
    words.add_argument("namespaces", nargs="+")
    for name in ("delay", "jitter", "loss"):
        words.add_argument(f"--{name}", type=float, required=True)
    words.add_argument("--seed", type=int, required=True)
    given = words.parse_args()
    Switch([tap(name) for name in given.namespaces], given.delay, given.jitter, given.loss, given.seed)
    print("ready", flush=True)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main())
