"""file.read, file.list, file.write: real files, through the worker in the real sandbox (loop: 7, item 38)."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hmp_node.actions.mind_settings import SandboxSettings
from hmp_node.actions.registry import REGISTRY
from hmp_node.agent.files import Files
from hmp_node.agent.sandbox import Bind
from tests.actions.minds import MAIL, ask, code, command
from tests.actions.sides import Side
from tests.agent.machines import machine, needs_sandbox

pytestmark = needs_sandbox


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared" / "in").mkdir(parents=True)
    (tmp_path / "shared" / "todo.txt").write_text("молоко 🥛\n")
    (tmp_path / "secret").write_text("sesame")
    return tmp_path / "shared"


@pytest.fixture
async def reader(alice: Side, shared: Path) -> AsyncIterator[Side]:
    settings = SandboxSettings(files=True, read=(str(shared),), write=(str(shared / "in"),), file_bytes=1000)
    async with machine(alice, settings):
        yield alice


async def test_a_file_is_read(reader: Side, shared: Path) -> None:
    found = await reader.do("file.read", path=str(shared / "todo.txt"))
    assert (found.path, found.text, found.more, found.size) == (str(shared / "todo.txt"), "молоко 🥛\n", False, 18)
    first = await reader.do("file.read", path=str(shared / "todo.txt"), limit=7)
    assert (first.text, first.next, first.more) == ("мол", 6, True)
    assert list(REGISTRY["file.read"].authors(found)) == [f"file:{shared / 'todo.txt'}"]


async def test_a_folder_is_listed(reader: Side, shared: Path) -> None:
    found = await reader.do("file.list", path=str(shared))
    assert [(one.name, one.kind) for one in found.entries] == [("in", "folder"), ("todo.txt", "file")]
    assert list(REGISTRY["file.list"].authors(found)) == [f"file:{shared}"]


async def test_a_file_is_written(reader: Side, shared: Path) -> None:
    path = shared / "in" / "new.txt"
    written = await reader.do("file.write", path=str(path), text="жук")
    assert (written.size, path.read_text()) == (6, "жук")
    await reader.do("file.write", path=str(path), text="!", append=True)
    assert path.read_text() == "жук!"
    assert path.stat().st_uid == os.geteuid()
    assert await code(reader, "file.write", path=str(path), text="x" * 1001) == "too_large"
    assert path.read_text() == "жук!"


async def test_parent_folders_and_symlinks_read_are_denied(reader: Side, shared: Path) -> None:
    (shared / "link").symlink_to("../secret")
    (shared / "in" / "out").symlink_to("/")
    for path in (f"{shared}/../secret", f"{shared}/link", f"{shared}/in/out/etc/passwd", str(shared.parent / "secret")):
        assert await code(reader, "file.read", path=path) == "bad_path"
        assert await code(reader, "file.write", path=path, text="x") == "bad_path"
    assert (shared.parent / "secret").read_text() == "sesame"


async def test_a_symlink_put_there_after_the_look_leads_nowhere(reader: Side, shared: Path) -> None:
    """The second wall: were a path judged well and changed then, nothing but the folder is in the sandbox."""
    files = reader.context.machine._files  # type: ignore[attr-defined]
    assert isinstance(files, Files)
    (shared / "in" / "late").symlink_to(shared.parent)
    for op, more in (("read", {"offset": 0, "limit": 99}), ("write", {"text": "x", "append": False, "most": 99})):
        asked = json.dumps({"op": op, "path": f"{shared}/in/late/secret", **more})
        answer = await files._worker(asked, (Bind(str(shared), writable=True),))
        assert "error" in answer
    assert (shared.parent / "secret").read_text() == "sesame"


async def test_what_may_be_read_may_not_be_written(reader: Side, shared: Path) -> None:
    assert await code(reader, "file.write", path=str(shared / "todo.txt"), text="x") == "bad_path"
    assert await code(reader, "file.read", path=str(shared / "none")) == "not_found"


async def test_the_home_is_never_shown(alice: Side) -> None:
    home = alice.context.home
    (home / "identity.key").write_text("sesame")
    settings = SandboxSettings(files=True, read=(str(home.parent), str(home)), write=(str(home.parent),))
    async with machine(alice, settings):
        for name in ("identity.key", "node.db", "."):
            path = os.path.normpath(home / name)
            assert await code(alice, "file.read", path=path) == "bad_path"
            assert await code(alice, "file.list", path=path) == "bad_path"
            assert await code(alice, "file.write", path=path, text="x") == "bad_path"
        files = alice.context.machine._files  # type: ignore[attr-defined]
        _, binds = files.locate(str(home.parent / "x"), [str(home.parent)], True)
        asked = json.dumps({"op": "list", "path": str(home), "most": 9})
        assert (await files._worker(asked, binds))["entries"] == []


async def test_switched_off_without_the_setting(alice: Side, shared: Path) -> None:
    async with machine(alice, SandboxSettings(read=(str(shared),), write=(str(shared),))):
        path = str(shared / "todo.txt")
        assert await code(alice, "file.read", path=path) == "switched_off"
        assert await code(alice, "file.list", path=path) == "switched_off"
        assert await code(alice, "file.write", path=path, text="x") == "switched_off"


async def test_no_file_without_the_sandbox(alice: Side, shared: Path) -> None:
    settings = SandboxSettings(files=True, read=(str(shared),))
    async with machine(alice, settings, bwrap=str(shared / "bwrap")):
        assert await code(alice, "file.read", path=str(shared / "todo.txt")) == "no_sandbox"


async def test_under_taint_reading_goes_on_and_writing_waits(reader: Side, shared: Path) -> None:
    found = await ask(reader, command(1, MAIL), "file.read", path=str(shared / "todo.txt"))
    assert found.text
    path = str(shared / "in" / "x")
    assert await code(reader, "file.write", by=command(1, MAIL), path=path, text="x") == "needs_approval"
    assert not Path(path).exists()


async def test_what_a_node_keeps_is_shown_by_no_other_name(reader: Side, shared: Path) -> None:
    """Another link to a file of the home, and files of that name of any other home."""
    key = reader.context.home / "identity.key"
    key.write_text("sesame")
    (shared / "innocent.txt").hardlink_to(key)
    (shared / "other").mkdir()
    (shared / "other" / "identity.key").write_text("sesame too")
    for path in ("innocent.txt", "other/identity.key"):
        assert await code(reader, "file.read", path=str(shared / path)) == "bad_path"
