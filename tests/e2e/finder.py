"""The LAN finder alone, as a process for a host of the laboratory.

Prints a line of JSON for each hint: {"t": seconds, "who": number or DID, "addresses": [...], "over": bool}; on SIGUSR1
its status. The key of finder N is N in every byte.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time

from hmp_node.actions.context import now_us
from hmp_node.net.finders import Hint, Presence
from hmp_node.net.lan_settings import LanSettings
from hmp_node.net.mdns import Mdns
from hmp_node.wire.text import agent_did

NUMBERS = range(1, 64)


def did_of(number: int) -> str:
    """The DID of one finder."""
    return agent_did(bytes([number]) * 32)


async def main() -> None:
    """Find until killed."""
    words = argparse.ArgumentParser()
    words.add_argument("number", type=int)
    words.add_argument("--bound", default="[::]:7440")
    words.add_argument("--every", type=float, default=45.0)
    words.add_argument("--interfaces-every", type=float, default=5.0)
    given = words.parse_args()
    names = {did_of(number): number for number in NUMBERS}

    def found(hint: Hint) -> None:
        over = hint.expires_us is not None and hint.expires_us <= now_us()
        who = names.get(hint.did, hint.did)
        print(json.dumps({"t": time.time(), "who": who, "addresses": hint.addresses, "over": over}), flush=True)

    settings = LanSettings(announce_every=given.every, interfaces_every=given.interfaces_every)
    finder = Mdns(settings, network="lab", public_key=bytes([given.number]) * 32, found=found)
    finder.present(Presence(bound=(given.bound,)))
    loop, task = asyncio.get_running_loop(), asyncio.create_task(finder.run())
    loop.add_signal_handler(signal.SIGUSR1, lambda: print(json.dumps({"status": finder.status()}), flush=True))
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    print(json.dumps({"t": time.time(), "started": given.number}), flush=True)
    await asyncio.wait([task])


if __name__ == "__main__":
    asyncio.run(main())
