"""The file worker by itself, and where paths lead before it is asked (loop: 7, item 38)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmp_node.actions.mind_settings import SandboxSettings
from hmp_node.agent import file_worker
from hmp_node.agent.files import Files
from hmp_node.agent.sandbox import Sandbox
from hmp_node.errors import Reject, Rejected


def ask(op: str, path: Path, **more: Any) -> dict[str, Any]:
    return file_worker.answer({"op": op, "path": str(path), **more})


def code(answer: dict[str, Any]) -> str:
    return str(answer["error"]["code"])


def test_it_is_a_program_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("жук")
    request = json.dumps({"op": "read", "path": str(tmp_path / "a"), "offset": 0, "limit": 100})
    line = [sys.executable, "-I", "-S", str(Path(file_worker.__file__))]
    done = subprocess.run(line, input=request, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["text"] == "жук"


@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufffd"), max_size=60),
    size=st.integers(4, 20),
)
def test_pieces_make_the_whole(tmp_path_factory: pytest.TempPathFactory, text: str, size: int) -> None:
    path = tmp_path_factory.getbasetemp() / "pieces"
    path.write_bytes(text.encode())
    read, at, more = "", 0, True
    while more:
        piece = ask("read", path, offset=at, limit=size)
        assert piece["next"] > at or not piece["more"]
        assert not piece["replaced"]
        read, at, more = read + piece["text"], piece["next"], piece["more"]
    assert read == text


def test_an_offset_within_a_character_skips_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("🙂б")
    piece = ask("read", tmp_path / "a", offset=1, limit=100)
    assert (piece["text"], piece["offset"], piece["next"], piece["more"]) == ("б", 4, 6, False)
    assert ask("read", tmp_path / "a", offset=999, limit=100)["text"] == ""


def test_what_is_no_text_is_replaced_and_said(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\xff\0b\xf0")
    piece = ask("read", tmp_path / "a", offset=0, limit=100)
    assert (piece["text"], piece["replaced"]) == ("a��b�", True)
    (tmp_path / "b").write_text("a�")
    assert ask("read", tmp_path / "b", offset=0, limit=100)["replaced"] is False


def test_only_ordinary_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder"):
        assert code(ask("read", tmp_path / name, offset=0, limit=9)) == "bad_path"
        assert code(ask("write", tmp_path / name, text="x", append=True, most=99)) == "bad_path"
        assert code(ask("write", tmp_path / name, text="x", append=False, most=99)) == "bad_path"
    assert code(ask("read", tmp_path / "none", offset=0, limit=9)) == "not_found"
    assert code(ask("read", tmp_path / "none" / "x", offset=0, limit=9)) == "not_found"
    assert Path("/etc/passwd").read_text() != "x"


def test_a_list_is_in_order_and_capped(tmp_path: Path) -> None:
    for name in ("b", "a", "ж"):
        (tmp_path / name).write_text("xy")
    (tmp_path / "c").mkdir()
    (tmp_path / "d").symlink_to("/etc")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_text("")
    answer = ask("list", tmp_path, most=9)
    assert [(one["name"], one["kind"], one["size"]) for one in answer["entries"]] == [
        ("a", "file", 2),
        ("b", "file", 2),
        ("c", "folder", None),
        ("d", "link", None),
        ("ж", "file", 2),
        ("�", "file", 0),
    ]
    json.dumps(answer).encode()
    assert answer["more"] is False
    answer = ask("list", tmp_path, most=2)
    assert [one["name"] for one in answer["entries"]] == ["a", "b"]
    assert answer["more"] is True


def test_writing_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert ask("write", path, text="жук", append=False, most=99) == {"path": str(path), "size": 6, "written": 6}
    path.chmod(0o640)
    assert code(ask("write", path, text="x" * 100, append=False, most=99)) == "too_large"
    assert path.read_text() == "жук"
    ask("write", path, text="new", append=False, most=99)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
    assert ask("write", path, text="er", append=True, most=99)["size"] == 5
    assert code(ask("write", path, text="x" * 95, append=True, most=99)) == "too_large"
    assert path.read_text() == "newer"
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    "request_", [{}, {"op": "delete", "path": "/x"}, {"op": "read", "path": "/etc"}, {"op": "list"}]
)
def test_a_broken_request_is_answered(request_: dict[str, Any]) -> None:
    assert "error" in file_worker.answer(request_)


# --- where paths lead -------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of the owner's, with the home of the node in it."""
    home = tmp_path / "me" / ".hmp-node"
    for folder in ("logs", "files"):
        (home / folder).mkdir(parents=True)
    for name in ("node.db", "identity.key", "api.token", "node.yaml"):
        (home / name).write_text("sesame")
    (tmp_path / "me" / "todo").write_text("milk")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_text("x")
    return home


def locate(home: Path, path: Path | str, *roots: Path | str) -> str:
    settings = SandboxSettings()
    files = Files(Sandbox(settings, hidden=home), settings, (home, home.parent / "llm.key"))
    real, binds = files.locate(str(path), [str(root) for root in roots], False)
    assert binds[0].path in [os.path.realpath(root) for root in roots]
    hidden = {bind.path for bind in binds[1:] if bind.hidden}
    if str(home).startswith(binds[0].path + "/"):
        assert str(home) in hidden
    return real


def test_a_path_under_a_named_folder(home: Path) -> None:
    me = home.parent
    assert locate(home, me / "todo", me) == str(me / "todo")
    assert locate(home, me, me) == str(me)
    assert locate(home, me / "not" / "yet", me) == str(me / "not" / "yet")
    assert locate(home, home / "files" / "a", home / "files") == str(home / "files" / "a")
    (me / "inside").symlink_to("todo")
    assert locate(home, me / "inside", me) == str(me / "todo")


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "/proc/self/environ", "{other}/x", ".hmp-node/identity.key", "llm.key"]
)
def test_symlinks_out_of_it_are_denied(home: Path, target: str) -> None:
    me = home.parent
    (me / "llm.key").write_text("sesame")
    (me / "link").symlink_to(target.format(other=me.parent / "other"))
    (me / "folder").symlink_to("/")
    for path in (me / "link", me / "folder" / "etc" / "passwd"):
        with pytest.raises(Rejected) as caught:
            locate(home, path, me)
        assert caught.value.code == Reject.BAD_PATH


@pytest.mark.parametrize(
    "path",
    [
        *(
            "",
            "todo",
            "./todo",
            "~/todo",
            "{me}/../other/x",
            "{me}/./todo",
            "{me}//todo",
            "{me}/x/../todo",
            "//etc/passwd",
        ),
        *("/etc/passwd", "{me}2/x", "{me}/.hmp-node/node.db", "{me}/.hmp-node/identity.key", "{me}/.hmp-node"),
        *("{me}/.hmp-node/api.token", "{me}/.hmp-node/files/../node.yaml", "/proc/self/mem", "/"),
    ],
)
def test_other_paths_are_denied(home: Path, path: str) -> None:
    with pytest.raises(Rejected) as caught:
        locate(home, path.format(me=home.parent), home.parent)
    assert caught.value.code == Reject.BAD_PATH


def test_some_folders_are_never_for_files(home: Path) -> None:
    for root, path in (
        ("/", "/etc/passwd"),
        ("/proc", "/proc/self/environ"),
        ("/proc/self", "/proc/self/environ"),
        ("/sys", "/sys/kernel"),
        ("/dev", "/dev/null"),
        (str(home), str(home / "node.db")),
        (str(home / "logs"), str(home / "logs" / "x")),
        (str(home / "node.db"), str(home / "node.db")),
        (str(home.parent / "none"), str(home.parent / "none" / "x")),
    ):
        with pytest.raises(Rejected):
            locate(home, path, root)
