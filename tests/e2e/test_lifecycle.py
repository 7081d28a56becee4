"""How a node starts, refuses to start, stops, and lives through a full disk and a jumping clock."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hmp_node.client import Client
from hmp_node.errors import Failed, Failure
from tests.e2e.harness import Node, hmp_node, rows, wait_for


def test_a_second_node_on_a_home_is_refused(tmp_path: Path) -> None:
    with Node(tmp_path / "home") as first:
        second = hmp_node(tmp_path / "home", "run", "--listen", "127.0.0.1:0")
        assert second.returncode == 1
        assert "home_locked" in second.stderr
        assert str(first.process.pid) in second.stderr
        assert first.cli("status")["did"] == first.did


def test_init_never_overwrites(tmp_path: Path) -> None:
    made = hmp_node(tmp_path / "home", "init", "--name", "Ада")
    assert made.returncode == 0
    key = (tmp_path / "home" / "identity.key").read_bytes()
    again = hmp_node(tmp_path / "home", "init")
    assert again.returncode == 1
    assert (tmp_path / "home" / "identity.key").read_bytes() == key
    with Node(tmp_path / "home") as node:
        assert node.did in made.stdout
        assert node.cli("status")["node"]["name"] == "Ада"


def test_init_makes_a_whole_home(tmp_path: Path) -> None:
    assert hmp_node(tmp_path / "home", "init").returncode == 0
    assert hmp_node(tmp_path / "home", "id").returncode == 0
    refused = hmp_node(tmp_path / "home", "init")
    assert (refused.returncode, "home_exists" in refused.stderr) == (1, True)
    bad = hmp_node(tmp_path / "other", "init", "--name", "\x1b[31mred")
    assert bad.returncode == 2
    assert not (tmp_path / "other" / "identity.key").exists()


def test_a_store_is_not_given_to_another_identity(tmp_path: Path) -> None:
    for name in ("home", "other"):
        assert hmp_node(tmp_path / name, "init").returncode == 0
    key = tmp_path / "home" / "identity.key"
    own = key.read_bytes()
    key.write_bytes((tmp_path / "other" / "identity.key").read_bytes())
    swapped = hmp_node(tmp_path / "home", "run", timeout=20)
    assert (swapped.returncode, "home_mismatch" in swapped.stderr) == (1, True)
    key.unlink()
    lost = hmp_node(tmp_path / "home", "run", timeout=20)
    assert (lost.returncode, "key_missing" in lost.stderr) == (1, True)
    assert not key.exists()
    key.write_bytes(own)
    key.chmod(0o600)
    with Node(tmp_path / "home") as node:
        assert node.cli("id")["did"] == node.did


@pytest.mark.parametrize("name", ["api.token", "mcp.token"])
def test_a_token_that_others_could_read_is_made_anew(tmp_path: Path, name: str) -> None:
    assert hmp_node(tmp_path / "home", "init").returncode == 0
    token = tmp_path / "home" / name
    for spoil in (lambda: token.chmod(0o644), lambda: token.write_text("ключ"), lambda: token.write_text("")):
        before = token.read_bytes()
        spoil()
        with Node(tmp_path / "home") as node:
            assert node.cli("id")["did"] == node.did
        assert token.read_bytes() != before
        assert token.stat().st_mode & 0o077 == 0


def test_a_network_that_cannot_be_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "node.yaml").write_text('node: {network: "Bad Net!"}\n')
    refused = hmp_node(tmp_path / "home", "run", timeout=20)
    assert (refused.returncode, "bad_config" in refused.stderr) == (1, True)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words in (("--listen", f"127.0.0.1:{port}"), ("--listen", "127.0.0.1:0", "--api", f"127.0.0.1:{port}")):
            refused = hmp_node(tmp_path / "home", "run", *words)
            assert refused.returncode == 1
            assert "port_in_use" in refused.stderr
            assert str(port) in refused.stderr


def test_a_mistake_in_the_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "node.yaml").write_text("store: {reader: 3}\n")
    refused = hmp_node(tmp_path / "home", "run")
    assert refused.returncode == 1
    assert all(word in refused.stderr for word in ("bad_config", "store.reader", "readers"))


@pytest.mark.skipif(os.geteuid() != 0, reason="giving up rights needs root")
def test_a_home_without_rights_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    mortal = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner")
    node = Node(folder / "home", under=mortal)
    try:
        assert node.process.wait(20) == 1
        assert "home_unusable" in node.stderr()
        assert str(folder / "home") in node.stderr()
    finally:
        node.kill()


def test_sigterm_ends_within_five_seconds_with_streams_open(tmp_path: Path) -> None:
    with Node(tmp_path / "alice") as alice, Node(tmp_path / "bob") as bob:
        alice.cli("join", bob.mesh)
        stream = threading.Thread(target=_follow, args=(alice.home,), daemon=True)
        stream.start()
        began = time.monotonic()
        assert alice.stop() == 0
        assert time.monotonic() - began < 5
        stream.join(5)
        assert not stream.is_alive()
        assert not (alice.home / "api.json").exists()
        with pytest.raises(Failed) as caught:
            alice.call("node.status")
        assert caught.value.code is Failure.NO_NODE


def _follow(home: Path) -> None:
    try:
        for _ in Client(home).events():
            pass
    except (Failed, OSError):
        return


def test_reading_needs_no_running_node(tmp_path: Path) -> None:
    with Node(tmp_path / "home") as node, Node(tmp_path / "other") as other:
        node.cli("notes", "add", "to myself")
        node.cli("join", other.mesh)
    peers = json.loads(hmp_node(tmp_path / "home", "peers", "--json").stdout)["peers"]
    assert [peer["state"] for peer in peers] == ["offline"]
    assert hmp_node(tmp_path / "home", "doctor").returncode == 1
    for words in (("notes", "list"), ("log", "verify"), ("log", "show"), ("id",), ("status",), ("outbox",), ("peers",)):
        done = hmp_node(tmp_path / "home", *words)
        assert done.returncode == 0, (words, done.stderr)
        assert "no node running" in done.stderr
    done = hmp_node(tmp_path / "home", "notes", "add", "x")
    assert done.returncode == 3
    assert "hmp-node run" in done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_full_disk_pauses_says_so_and_resumes(tmp_path: Path, small_disk: Path) -> None:
    tight = {"HMP_STORE__MIN_FREE_BYTES": "4000000"}
    with Node(tmp_path / "alice") as alice, Node(small_disk / "bob", env=tight) as bob:
        alice.cli("join", bob.mesh, "--name", "bob")
        bob.cli("trust", alice.did, "Friend")
        alice.cli("send", "bob", "before", "--wait", "delivered")
        filler = small_disk / "filler"
        filler.write_bytes(b"x" * (_free(small_disk) - 1_000_000))
        refused = wait_for("a refusal", lambda: _refused(bob))
        assert "disk_full" in refused
        assert bob.cli("status")["store"]["state"] == "disk_full"
        sent = alice.call("note.send", {"to": ["bob"], "text": "while full"})
        time.sleep(1)
        assert rows(alice.home, "SELECT state FROM outbox WHERE container_did = ?", sent["container_did"])[0][0] in (
            "queued",
            "sent",
        )
        filler.unlink()
        wait_for("delivery", lambda: _state(alice.home, sent["container_did"]) == "delivered", seconds=90)
        assert bob.cli("status")["store"]["state"] == "ok"
        assert bob.cli("log", "verify")["ok"]


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _refused(node: Node) -> str:
    done = hmp_node(node.home, "notes", "add", "no room")
    return done.stderr if done.returncode else ""


def _state(home: Path, did: str) -> str:
    return str(rows(home, "SELECT state FROM outbox WHERE container_did = ?", did)[0][0])


def test_log_files_rotate_and_are_private(tmp_path: Path) -> None:
    env = {"HMP_LOGGER__LEVEL": "debug", "HMP_LOGGER__FILE_BYTES": "300", "HMP_LOGGER__FILES": "2"}
    for _ in range(4):
        with Node(tmp_path / "home", env=env) as node:
            node.stop()
    files = sorted((tmp_path / "home" / "logs").iterdir())
    assert [file.name for file in files] == ["node.log", "node.log.1", "node.log.2"]
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)
    for file in ("identity.key", "api.token", "node.db"):
        assert (tmp_path / "home" / file).stat().st_mode & 0o077 == 0
