"""Nodes of one user on one machine: the folder where they meet, and what is believed of what lies in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hmp_node.net import host
from hmp_node.net.finders import Hint, Presence, Want
from hmp_node.net.host import SameHost
from hmp_node.net.lan_settings import LanSettings
from hmp_node.wire.text import agent_did
from tests.net.world import until


def key(number: int) -> bytes:
    return bytes([number]) * 32


DIDS = [agent_did(key(number)) for number in range(8)]


def now_us() -> int:
    return time.time_ns() // 1000


class Side:
    """One finder, and the hints it gave."""

    def __init__(self, folder: Path, number: int, network: str = "lab", **settings: Any) -> None:
        self.did = DIDS[number]
        self.hints: list[Hint] = []
        given = LanSettings(host_folder=str(folder), **settings)
        self.finder = SameHost(given, network=network, public_key=key(number), found=self.hints.append)
        self.finder.present(Presence(bound=(f"[::]:{7000 + number}",)))

    def saw(self, other: Side) -> list[Hint]:
        return [hint for hint in self.hints if hint.did == other.did]


@contextlib.asynccontextmanager
async def running(*sides: Side) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(side.finder.run()) for side in sides]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def word(did: str, **other: Any) -> str:
    facts = {"did": did, "network": "lab", "addresses": ["127.0.0.1:7440"], "pid": os.getpid(), "space": host.space()}
    return json.dumps(facts | other)


async def hints_for(folder: Path, fill: Callable[[], object]) -> tuple[list[Hint], dict[str, int]]:
    """The hints and the counts of one look at a folder filled by ``fill``."""
    folder.mkdir(mode=0o700, exist_ok=True)
    fill()
    side = Side(folder, 0)
    await side.finder.search(Want())
    return side.hints, side.finder.status()["dropped"]


async def test_two_nodes_of_one_host_meet_and_part(tmp_path: Path) -> None:
    ada, bob = Side(tmp_path / "run", 1), Side(tmp_path / "run", 2)
    async with running(ada):
        async with running(bob):
            await until("they meet", lambda: ada.saw(bob) and bob.saw(ada))
            hint = ada.saw(bob)[0]
            assert hint.addresses == ("127.0.0.1:7002", "[::1]:7002")
            assert (hint.source, ada.finder.name) == ("host", "host")
            assert hint.expires_us is not None
            assert 0 < hint.expires_us - now_us() <= 60_000_000
            assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
            assert len(list((tmp_path / "run").glob("*.json"))) == 2
        await until("bob's hint is over", lambda: (ada.saw(bob)[-1].expires_us or 0) <= now_us())
        assert ada.finder.status()["heard"] == 0
    assert list((tmp_path / "run").iterdir()) == []


async def test_who_listens_elsewhere_now_is_told_anew(tmp_path: Path) -> None:
    ada, bob = Side(tmp_path / "run", 1), Side(tmp_path / "run", 2)
    async with running(ada, bob):
        await until("they meet", lambda: ada.saw(bob))
        bob.finder.present(Presence(bound=("127.0.0.1:9999", "192.168.1.9:80")))
        await until("the new address", lambda: ada.saw(bob)[-1].addresses == ("127.0.0.1:9999", "192.168.1.9:80"))
        ends = [hint.addresses for hint in ada.saw(bob) if (hint.expires_us or 0) <= now_us()]
        assert ends == [("127.0.0.1:7002", "[::1]:7002")]
        bob.finder.present(Presence())
        await until("no word", lambda: ada.finder.status()["heard"] == 0)


async def test_a_folder_wiped_under_a_running_node_is_filled_again(tmp_path: Path) -> None:
    ada, bob = Side(tmp_path / "run", 1), Side(tmp_path / "run", 2)
    async with running(ada):
        await until("a word", lambda: list((tmp_path / "run").glob("*.json")))
        next((tmp_path / "run").glob("*.json")).unlink()
        (tmp_path / "run").rmdir()
        async with running(bob):
            await until("they meet", lambda: ada.saw(bob) and bob.saw(ada))


async def test_the_word_of_a_killed_process_is_neither_believed_nor_kept(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    file = tmp_path / "run" / host.file_name(DIDS[1])
    hints, dropped = await hints_for(tmp_path / "run", lambda: file.write_text(word(DIDS[1], pid=dead.pid)))
    assert (hints, dropped, file.exists()) == ([], {"gone": 1}, False)


async def test_a_reused_process_number_does_not_revive_a_node(tmp_path: Path) -> None:
    file = tmp_path / "run" / host.file_name(DIDS[1])

    def fill() -> None:
        file.write_text(word(DIDS[1]))
        os.utime(file, (time.time() - 61, time.time() - 61))

    assert await hints_for(tmp_path / "run", fill) == ([], {"gone": 1})
    assert not file.exists()


async def test_a_running_node_touches_its_word(tmp_path: Path) -> None:
    side = Side(tmp_path / "run", 1)
    await side.finder.search(Want())
    (file,) = (tmp_path / "run").glob("*.json")
    inode = file.stat().st_ino
    os.utime(file, (time.time() - 55, time.time() - 55))
    await side.finder.search(Want())
    assert (file.stat().st_ino, time.time() - file.stat().st_mtime < 10) == (inode, True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "bad_file"),
        ("", "bad_file"),
        ("[" * 4000, "bad_file"),
        ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "bad_file"),
        (word(DIDS[1], addresses=[]), "bad_file"),
        (word(DIDS[1], addresses=["169.254.169.254:80"]), "bad_file"),
        (word(DIDS[1], addresses=["ws://u:p@127.0.0.1:80"]), "bad_file"),
        (word(DIDS[1], addresses="127.0.0.1:80"), "bad_file"),
        (word(DIDS[1], pid="1"), "bad_file"),
        (word(DIDS[2]), "bad_file"),  # under another's file name
        (word("did:hmp:agent:\x1b[31m"), "bad_file"),
        (word(DIDS[1], network="other"), "other_network"),
        (word(DIDS[1], space="1-1"), "elsewhere"),
        (word(DIDS[1], pid=-1), "gone"),
        (word(DIDS[1], pid=2**70), "gone"),
        (word(DIDS[1], more="x" * 5000), "bad_file"),
    ],
)
async def test_what_is_no_word_of_a_running_node_is_counted(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "run" / host.file_name(DIDS[1])
    assert await hints_for(tmp_path / "run", lambda: file.write_text(text)) == ([], {reason: 1})


async def test_a_bad_file_is_counted_once_and_heard_when_mended(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    file = tmp_path / "run" / host.file_name(DIDS[1])
    file.write_text("{")
    side = Side(tmp_path / "run", 0)
    for _ in range(3):
        await side.finder.search(Want())
    assert side.finder.status()["dropped"] == {"bad_file": 1}
    file.write_text(word(DIDS[1]))
    await side.finder.look_up(DIDS[1])
    assert [hint.did for hint in side.hints] == [DIDS[1]]
    await side.finder.look_up(DIDS[1])
    assert len(side.hints) == 2


async def test_links_pipes_and_folders_are_not_read(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(word(DIDS[1]))

    def fill() -> None:
        (tmp_path / "run" / host.file_name(DIDS[1])).symlink_to(outside)
        os.mkfifo(tmp_path / "run" / host.file_name(DIDS[2]))
        (tmp_path / "run" / host.file_name(DIDS[3])).mkdir()

    assert await hints_for(tmp_path / "run", fill) == ([], {"bad_file": 3})


async def test_no_more_files_than_allowed_are_read(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    for number in range(1, 8):
        (tmp_path / "run" / host.file_name(DIDS[number])).write_text(word(DIDS[number]))
    side = Side(tmp_path / "run", 0, peers=3)
    await side.finder.search(Want())
    assert (len(side.hints), side.finder.status()["dropped"]) == (3, {"too_many": 1})


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away needs root")
async def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    os.chown(tmp_path / "run", 65534, 65534)
    side = Side(tmp_path / "run", 1)
    await side.finder.search(Want())
    assert "belongs to another user" in side.finder.status()["problem"]
    assert list((tmp_path / "run").iterdir()) == []
    os.chown(tmp_path / "run", 0, 0)
    await side.finder.search(Want())
    assert side.finder.status()["problem"] == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
async def test_a_file_of_another_user_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "run" / host.file_name(DIDS[1])

    def fill() -> None:
        file.write_text(word(DIDS[1]))
        os.chown(file, 65534, 65534)

    assert await hints_for(tmp_path / "run", fill) == ([], {"bad_file": 1})


async def test_a_folder_that_others_may_enter_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o777)
    (tmp_path / "run").chmod(0o777)
    side = Side(tmp_path / "run", 1)
    await side.finder.search(Want())
    assert "chmod 700" in side.finder.status()["problem"]
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o777
    assert list((tmp_path / "run").iterdir()) == []


async def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "real")
    side = Side(tmp_path / "run", 1)
    await side.finder.search(Want())
    assert "no folder" in side.finder.status()["problem"]


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert host.folder_of(LanSettings()) == tmp_path / "hmp-node"
    assert host.folder_of(LanSettings(host_folder="/somewhere")) == Path("/somewhere")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert host.folder_of(LanSettings()).name == f"hmp-node-{os.getuid()}"


def test_what_a_neighbour_dials() -> None:
    assert host.local_addresses(["0.0.0.0:1"]) == ("127.0.0.1:1",)
    assert host.local_addresses(["[::]:1", "0.0.0.0:1"]) == ("127.0.0.1:1", "[::1]:1")
    assert host.local_addresses(["10.0.0.7:2", "[fe80::1%eth0]:3"]) == ("10.0.0.7:2", "[fe80::1%eth0]:3")
    assert host.local_addresses([]) == ()
