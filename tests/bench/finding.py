"""Finding and reaching: how soon two nodes of one host meet, a note through a mailman, how many peers a node holds."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.common import process
from tests.e2e.harness import ROOT, Node, hmp_node, wait_for
from tests.e2e.lab import lacking
from tests.e2e.lab_nodes import laboratory
from tests.net.dht.swarm import peers, until
from tests.net.dht.test_sixty import all_held, look_up_many
from tests.net.world import NETWORK

PAIRS = 5
NOTES = 500
PATIENT = {"HMP_MAIL__STRANGER_NOTES_PER_DAY": "1000", "HMP_MAIL__STRANGER_BYTES_PER_DAY": "10000000"}
SENDERS = 16
DHT_NODES = 60
CROWD = 600
CROWDS = 3
CROWD_SECONDS = 40


def measure(folder: Path) -> dict[str, Any]:
    """Each with real processes, everything at its defaults but the name of the network."""
    return {
        "same_host": meetings(folder / "meet"),
        "lan": lan(folder / "lan"),
        "dht": asyncio.run(lookups()),
        "mailman": through_a_mailman(folder / "mail"),
        "bootstrap": crowd(folder / "crowd"),
    }


def meetings(folder: Path) -> dict[str, Any]:
    """Seconds from the second node's ready line to a channel between the two, over and over."""
    took = []
    for number in range(PAIRS):
        lan = {
            "HMP_LAN__ENABLED": "true",
            "HMP_NODE__NETWORK": f"bench-{number}",
            "HMP_LAN__HOST_FOLDER": str(folder / "host"),
        }
        with Node(folder / f"a{number}", env=lan) as a, Node(folder / f"b{number}", env=lan) as b:
            began = time.monotonic()
            wait_for("the two nodes meet", lambda: a.did in _connected(b), 60)
            took.append(time.monotonic() - began)
    return {"seconds": [round(value, 2) for value in took], "median_s": round(statistics.median(took), 2)}


def lan(folder: Path) -> dict[str, Any] | str:
    """Seconds from ready line to channel between two hosts of a bridge, by mDNS alone; or why it was not measured."""
    if reason := lacking():
        return reason
    took: list[float] = []
    for number in range(PAIRS):
        with laboratory(folder / str(number)) as (lab, nodes):
            bridge = lab.lan("10.99.0.0/24", "fd99::/64")
            took += nodes.meeting(nodes.on(bridge.host(), bridge.host())).values()
    return {"seconds": [round(value, 2) for value in took], "median_s": round(statistics.median(took), 2)}


async def lookups() -> dict[str, Any]:
    """Sixty nodes of the DHT on addresses of their own: latency and success, before and after half are killed."""
    chance = random.Random(7)
    async with peers(DHT_NODES) as made:
        for first in range(0, DHT_NODES, 6):
            batch = made[first : first + 6]
            for peer in batch:
                peer.present()
            await until("they are published", partial(all_held, batch), 60)
        before = await look_up_many(made, made, chance)
        dead = chance.sample(made, DHT_NODES // 2)
        await asyncio.gather(*(peer.kill() for peer in dead))
        alive = [peer for peer in made if peer not in dead]
        return {"nodes": DHT_NODES, "healthy": before, "half_killed": await look_up_many(alive, made, chance)}


def _connected(node: Node) -> set[str]:
    return {row["did"] for row in node.call("node.status")["connections"] if row["state"] == "connected"}


def through_a_mailman(folder: Path) -> dict[str, Any]:
    """Notes a second from a sender to a recipient who is away, and then from the mailman to the recipient."""
    with Node(folder / "postman") as postman:
        postman.call("mailman.serve", {"on": True})
        with Node(folder / "away", env=PATIENT) as away:
            away.cli("join", postman.mesh, "--name", "postman")
            wait_for("the mailman serves", lambda: _uses(away), 30)
            card = away.cli("id")["card"]
            wait_for("the mailman knows its client", lambda: postman.call("mailman.list")["clients"] == 1, 30)
            away.stop()
        with Node(folder / "sender", env={"HMP_MAIL__RELAY_AFTER_S": "0"}) as sender:
            sender.cli("join", postman.mesh, "--name", "postman")
            began = time.monotonic()
            with ThreadPoolExecutor(SENDERS) as pool:
                for _ in pool.map(lambda number: sender.call("note.send", _letter(card, number)), range(NOTES)):
                    pass
            queued = time.monotonic() - began
            wait_for("the mailman has all", lambda: sender.call("node.status")["outbox"].get("relayed") == NOTES, 120)
            relayed = time.monotonic() - began
            with Node(folder / "away", env=PATIENT) as back:
                began = time.monotonic()
                wait_for("the recipient has all", lambda: back.call("node.status")["quarantined"] == NOTES, 120)
                delivered = time.monotonic() - began
    return {
        "notes": NOTES,
        "accepted_per_s": round(NOTES / queued),
        "to_mailman_per_s": round(NOTES / relayed),
        "to_recipient_per_s": round(NOTES / delivered),
    }


def _letter(to: str, number: int) -> dict[str, Any]:
    return {"to": [to], "text": f"note {number}"}


def _uses(node: Node) -> bool:
    return hmp_node(node.home, "mailman", "use", "postman").returncode == 0


def crowd(folder: Path) -> dict[str, Any]:
    """How many proven connections one node holds at once, and what they cost."""
    more = {"HMP_NODE__NETWORK": NETWORK, "HMP_NET__CONNECTIONS": "2000"}
    with Node(folder / "seed", env=more) as node:
        before = process(node.process.pid)
        each = CROWD // CROWDS
        clients = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.bench.crowd", node.mesh, str(each), str(1000 + each * number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=ROOT,
            )
            for number in range(CROWDS)
        ]
        try:
            began = time.monotonic()
            wait_for("the crowd is connected", lambda: _secure(node) >= CROWD, 180)
            up = time.monotonic() - began
            busy = process(node.process.pid)
            time.sleep(CROWD_SECONDS)  # long enough that every peer is pinged
            held, after = _secure(node), process(node.process.pid)
        finally:
            said = [client.communicate()[0] for client in clients]
    told = [json.loads(lines.splitlines()[-1])["up"] for lines in said]
    return {
        "connections": held,
        "clients_say": sum(told),
        "up_after_s": round(up, 1),
        "rss_mib": after["rss_mib"],
        "kib_each": round(1024 * (after["rss_mib"] - before["rss_mib"]) / max(held, 1), 1),
        "idle_cpu_percent_of_a_core": round(100 * (after["cpu_s"] - busy["cpu_s"]) / CROWD_SECONDS, 1),
    }


def _secure(node: Node) -> int:
    return int(node.call("node.status")["node"]["net"]["secure"])
