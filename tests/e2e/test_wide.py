"""A network on addresses that look global: a signed list over https, addresses proven, a bare DID resolved."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import report, wait_for
from tests.e2e.https_files import certify
from tests.e2e.lab import Host
from tests.e2e.lab_nodes import PORT, LabNode, laboratory

pytestmark = pytest.mark.slow

AFAR: dict[str, Any] = {"LAN__ENABLED": "false", "DHT__MODE": "auto", "BOOK__ANNOUNCE_BITS": "18"}


def sign(seed: LabNode, *entries: dict[str, Any]) -> str:
    """A list of these seeds, signed by one of them."""
    text: str = seed.call("seeds.sign", {"seeds": list(entries), "ttl_s": 3600})["text"]
    return text


def serve(host: Host, folder: Path) -> subprocess.Popen[bytes]:
    """Serve a folder over https on a host of the laboratory."""
    process = host.popen(
        *(sys.executable, "-m", "tests.e2e.https_files", host.addresses()[0], "8443", str(folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == b"ready"
    return process


def reachable(node: LabNode) -> bool:
    """Whether peers have proven an address of it."""
    return node.cli("status")["reach"]["reachable"] is True


def serving(node: LabNode) -> bool:
    """Whether its DHT serves others, and knows some."""
    status = node.cli("status")["node"]["finders"]["dht"]
    return bool(status["serving"]) and sum(status["contacts"].values()) > 0


def test_a_network_is_joined_by_a_signed_list_and_a_bare_did_resolves_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    with laboratory(tmp_path) as (lab, nodes):
        wide = lab.wide()
        web, first, second, third = (wide.host() for _ in range(4))
        url = f"https://{web.addresses()[0]}:8443"
        monkeypatch.setenv("SSL_CERT_FILE", str(certify(served, web.addresses()[0])))
        server = serve(web, served)
        try:
            by_hand = json.dumps([f"{first.addresses()[0]}:{PORT}"])
            (seed,) = nodes.on(first, NODE__ANNOUNCE=by_hand, **AFAR)
            bob, eve = nodes.on(second, third, **AFAR)
            dead = {"did": bob.did, "addresses": ["51.15.200.1:7440"]}
            alive = {"did": seed.did, "name": "сид", "addresses": [f"{first.addresses()[0]}:{PORT}"]}
            (served / "list.json").write_text(sign(seed, dead, alive), encoding="utf-8")
            (served / "near.json").write_text(sign(seed, {"did": eve.did, "addresses": ["10.0.0.1:7440"]}))
            (served / "junk.json").write_text('{"hmp_container":' + "[" * 100_000)
            for path, code in (
                ("away", "fetch_failed"),
                ("large", "fetch_failed"),
                ("none", "fetch_failed"),
                ("junk.json", "too_deep"),
            ):
                refused = eve.verb("join", f"{url}/{path}", "--json")
                assert refused.returncode != 0
                assert code in refused.stderr, (path, refused.stderr)
            other = eve.verb("join", f"{url}/list.json", "--signer", bob.did, "--json")
            assert "wrong_signer" in other.stderr
            near = eve.verb("join", f"{url}/near.json", "--json", "--timeout", "1")
            assert "10.0.0.1" in near.stdout + near.stderr
            assert "10.0.0.1:7440" not in json.dumps(eve.cli("peers"))

            began = time.monotonic()
            for node in (bob, eve):
                joined = node.cli("join", f"{url}/list.json", "--signer", seed.did)
                assert joined["reached"] == seed.did
            took = time.monotonic() - began
            for node in (bob, eve):
                wait_for("a peer has dialled it back", partial(reachable, node), 90)
                wait_for("it serves the DHT", partial(serving, node), 90)
            wait_for("bob is found by eve", lambda: _finds(eve, bob), 90)
            route = eve.delivers(bob.did, "нашла")
            assert route["kind"] == "direct"
            report("wide", {"joined_two_s": round(took, 1)})
            assert seed.cli("peers")["peers"]
        finally:
            server.kill()
            server.wait()
            assert server.stdout is not None
            server.stdout.close()


def _finds(node: LabNode, other: LabNode) -> bool:
    found = node.cli("find", other.did, "--timeout", "8")["matches"]
    return any(match["addresses"] for match in found)
