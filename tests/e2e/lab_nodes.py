"""Whole nodes on hosts of the laboratory, and what tests ask of them."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.harness import ROOT, Node, environment, rows, wait_for
from tests.e2e.lab import Host, Lab

PORT = 7440


class LabNode(Node):
    """A node on a host of the laboratory, and its verbs run on that host too."""

    def __init__(self, host: Host, home: Path, *, listen: str | None = None, **settings: object) -> None:
        """``settings``: as the environment names them without HMP_, such as ``LAN__ANNOUNCE_EVERY=5``."""
        self.host = host
        env = {f"HMP_{key}": str(value) for key, value in settings.items()}
        env.setdefault("HMP_LAN__ENABLED", "true")
        env.setdefault("HMP_LAN__HOST_FOLDER", str(home.parent / f"run-{host.name}"))  # hosts share the file system
        super().__init__(home, listen=listen or f"[::]:{PORT}", env=env, under=host.under)

    def cli(self, *words: str, stdin: str | None = None) -> Any:
        """Run a verb with ``--json`` on the node's host and give its value; it must succeed."""
        done = self.verb(*words, "--json", stdin=stdin)
        assert done.returncode == 0, f"{words}: exit {done.returncode}: {done.stderr} {done.stdout}"
        return json.loads(done.stdout)

    def verb(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a verb on the node's host to its end."""
        return subprocess.run(
            [*self.host.under, sys.executable, "-m", "hmp_node", "--home", str(self.home), *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=ROOT,
            env=environment(),
            check=False,
        )

    def call(self, action: str, args: dict[str, Any] | None = None, key: str | None = None) -> Any:
        """Call an action on the node's host."""
        assert key is None, "a key is for `cli`"
        return self.cli("do", action, "--args", json.dumps(args or {}))

    def sends(self, to: str, text: str, *more: str) -> dict[str, Any]:
        """Send a note to a DID or card; the recipient's row as it is then."""
        (row,) = self.cli("send", to, text, *more)["recipients"]
        found: dict[str, Any] = row
        return found

    def delivers(self, to: str, text: str, seconds: float = 60) -> dict[str, Any]:
        """Send a note and wait until it is delivered; its route."""
        done = self.cli("send", to, text, "--wait", "delivered", "--timeout", str(seconds))
        (row,) = done["wait"]["rows"]
        assert row["state"] == "delivered", row
        route: dict[str, Any] = row["route"]
        return route

    def peer(self, other: LabNode) -> dict[str, Any]:
        """What this node knows of another."""
        found: dict[str, Any] = next(row for row in self.cli("peers")["peers"] if row["did"] == other.did)
        return found

    def sees(self, other: LabNode) -> bool:
        """Whether the book says that another node is there now."""
        return rows(self.home, "SELECT status FROM agent_peers WHERE id = ?", other.did) == [("online",)]

    def texts(self) -> list[str]:
        """What notes arrived here, sorted."""
        inbound = "SELECT n.text FROM mail m JOIN notes n ON n.id = m.note_id WHERE m.direction = 'in'"
        return sorted(text for (text,) in rows(self.home, inbound))

    def states(self) -> list[str]:
        """The states of the outbox, oldest first."""
        return [state for (state,) in rows(self.home, "SELECT state FROM outbox ORDER BY id")]


class Nodes:
    """Nodes that end with the test; ``ready_at`` is when each had said that it was up."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._numbers = itertools.count(1)
        self.ready_at: dict[str, float] = {}

    def on(self, *hosts: Host, listen: str | None = None, **settings: object) -> list[LabNode]:
        """A new node on each host, started together."""
        homes = [self._folder / f"node-{next(self._numbers)}" for _ in hosts]
        return self._started(zip(hosts, homes, strict=True), listen, settings)

    def again(self, node: LabNode, **settings: object) -> LabNode:
        """A node that was stopped, on its host and home."""
        (started,) = self._started([(node.host, node.home)], None, settings)
        return started

    def _started(
        self,
        places: Iterator[tuple[Host, Path]] | list[tuple[Host, Path]],
        listen: str | None,
        settings: dict[str, Any],
    ) -> list[LabNode]:
        nodes = []
        for host, home in places:
            nodes.append(LabNode(host, home, listen=listen, **settings))
            self._stack.callback(nodes[-1].kill)
        for node in nodes:
            node.ready()
            self.ready_at[node.did] = time.time()
        return nodes

    def meeting(self, nodes: Sequence[LabNode], seconds: float = 30) -> dict[tuple[str, str], float]:
        """Wait until all hold each other online; seconds it took each from the later one's ready line."""
        took: dict[tuple[str, str], float] = {}

        def all_met() -> bool:
            for one, other in itertools.permutations(nodes, 2):
                pair = (one.did, other.did)
                if pair not in took and one.sees(other):
                    took[pair] = time.time() - max(self.ready_at[did] for did in pair)
            return len(took) == len(nodes) * (len(nodes) - 1)

        wait_for("all nodes hold each other online", all_met, seconds)
        return took


@contextmanager
def laboratory(folder: Path, *, nft: bool = False) -> Iterator[tuple[Lab, Nodes]]:
    """A laboratory and nodes in it."""
    with Lab(nft=nft) as lab, ExitStack() as stack:
        yield lab, Nodes(folder, stack)
