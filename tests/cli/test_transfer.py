"""``export`` and ``import`` with a real node: a vault, JSON lines, and what becomes of every file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Node, hmp_node

NOTES = {
    "Note.md": b"hello [[other]] #idea\r\n![[pic one.png]]\n",
    "sub/Other.md": b"\xef\xbb\xbf---\ntags: [a, b]\ncreated: 2026-01-01\nversion: 1.10\nsure: yes\n---\nBody",
    "sub/Head.md": b"---\na: 1\n---\n",
    "Broken.md": b"---\na: b: c\n---\nx",
    "Long.md": b"---\nlong: " + b"word " * 2000 + b"\n---\nx",
    "\u0406\u043c'\u044f \U0001f680.md": "привіт".encode(),
    "sub/deep/pic one.png": b"\x89PNG",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "home") as made:
        yield made


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    root = tmp_path / "vault"
    for path, data in NOTES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


def carried(node: Node, *words: str, code: int = 0) -> dict[str, Any]:
    done = hmp_node(node.home, *words, "--json")
    assert done.returncode == code, done.stderr + done.stdout
    return dict(json.loads(done.stdout))


def outcomes(told: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["outcome"] for one in told["items"]}


def files(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def told_lines(told: dict[str, Any]) -> list[tuple[int, int, str, str]]:
    return [(one["first"], one["last"], one["outcome"], one["code"]) for one in told["items"]]


def test_a_vault_comes_in_and_goes_out_byte_for_byte(node: Node, vault: Path, tmp_path: Path) -> None:
    """khoj-ai/khoj#1363: an import lists each file with what came of it."""
    (vault / "empty.md").touch()
    (vault / "other.bin").write_bytes(b"\0")
    (vault / "bad.md").write_bytes(b"\xff")
    (vault / ".obsidian").mkdir()
    (vault / "link.md").symlink_to("/etc/hostname")
    tried = carried(node, "import", str(vault), "--dry-run", code=1)
    assert node.cli("memory", "list")["memories"] == []
    told = carried(node, "import", str(vault), code=1)
    assert {**tried, "dry_run": False} == told
    left = {"empty.md": "skipped", "other.bin": "skipped", ".obsidian": "skipped", "link.md": "skipped"}
    assert outcomes(told) == dict.fromkeys(NOTES, "added") | left | {"bad.md": "failed"}
    links = node.cli("memory", "links", "3")["edges"]
    assert [(one["source_title"], one["target_title"], one["type"]) for one in links] == [("Note", "Other", "wiki")]
    carried(node, "export", str(tmp_path / "out"))
    assert files(tmp_path / "out") == NOTES


def test_the_same_again_adds_nothing_and_a_changed_file_updates(node: Node, vault: Path) -> None:
    carried(node, "import", str(vault), "--project", "mine")
    assert set(outcomes(carried(node, "import", str(vault), "--project", "mine")).values()) == {"unchanged"}
    (vault / "Note.md").write_text("changed")
    told = carried(node, "import", str(vault), "--project", "mine")
    assert told["counts"] | {"added": 0} == {"added": 0, "updated": 1, "unchanged": 5, "skipped": 1, "failed": 0}
    past = node.cli("memory", "history", "3")
    assert past["memory"]["content"] == "changed"
    assert [one["content"].encode() for one in past["versions"]] == [NOTES["Note.md"]]


def test_a_vault_that_is_gone_or_cannot_be_read_deletes_nothing(node: Node, vault: Path) -> None:
    """stenolabs/stenoai#469: an unreadable vault is not read as a mass delete."""
    carried(node, "import", str(vault))
    before = node.cli("memory", "list")
    (vault / "sub" / "Other.md").unlink()
    (vault / "sub" / "Other.md").mkdir()  # where a file was
    assert carried(node, "import", str(vault))["counts"]["failed"] == 0
    vault.rename(vault.with_name("moved"))
    assert hmp_node(node.home, "import", str(vault), "--format", "vault").returncode == 1
    vault.mkdir()
    assert carried(node, "import", str(vault))["items"] == []
    assert node.cli("memory", "list") == before


def test_a_whole_memory_goes_through_a_vault_and_lines(node: Node, tmp_path: Path) -> None:
    node.call("project.add", {"name": "shop", "summary": "лавка"})
    for args in (
        {"content": "5 years", "type": "fact", "title": "age", "project": "shop"},
        {"content": "6 years\n", "type": "fact", "title": "age", "project": "shop", "tags": ["yes"]},
        {
            "content": "---\nx: y\n---\n\r\n",
            "title": "a: b/c",
            "metadata": {"type": "odd", "d": "2026-01-01", "n": 0.5},
        },
        {"content": "second", "title": "A: B/C"},
        {"content": "no title\nat all"},
    ):
        node.call("memory.add", args)
    node.call("memory.link", {"source": 3, "target": 1, "type": "derived-from"})
    node.call("memory.update", {"id": 5, "content": "still no title"})
    node.call("memory.archive", {"ids": [5]})
    carried(node, "export", str(tmp_path / "out"))
    carried(node, "export", str(tmp_path / "out.jsonl"))
    for form, source in (("vault", "out"), ("jsonl", "out.jsonl")):
        with Node(tmp_path / form) as other:
            first = carried(other, "import", str(tmp_path / source))
            assert (first["counts"]["added"], first["counts"]["failed"]) == (5, 0)
            assert carried(other, "import", str(tmp_path / source))["counts"]["added"] == 0
            out = [
                page["memories"]
                for page in [n.call("memory.export", {"versions": form == "jsonl"}) for n in (node, other)]
            ]
            assert sorted(out[0], key=lambda one: str(one["source"])) == sorted(
                out[1], key=lambda one: str(one["source"])
            )
            links = [n.call("memory.export")["links"] for n in (node, other)]
            assert sorted(map(str, links[0])) == sorted(map(str, links[1]))
            again = tmp_path / f"again-{source}"
            carried(other, "export", str(again))
            if form == "vault":
                assert files(again) == files(tmp_path / "out")
            else:
                assert sorted(again.read_text().splitlines()) == sorted(
                    (tmp_path / "out.jsonl").read_text().splitlines()
                )


def test_a_file_changed_by_hand_is_not_written_over_but_read(node: Node, tmp_path: Path) -> None:
    node.call("memory.add", {"content": "one", "title": "Note"})
    out = tmp_path / "out"
    carried(node, "export", str(out))
    note = out / "Note.md"
    note.write_text(note.read_text().replace("one", "one, by hand"))
    node.call("memory.add", {"content": "x", "title": "Foreign"})
    (out / "Foreign.md").write_text("somebody's own")
    (out / "Sub.md").symlink_to(tmp_path / "elsewhere")
    node.call("memory.add", {"content": "x", "title": "Sub"})
    told = carried(node, "export", str(out), code=1)
    assert outcomes(told) == {"Note.md": "failed", "Foreign.md": "failed", "Sub.md": "failed"}
    assert not (tmp_path / "elsewhere").exists()
    assert "by hand" in note.read_text()
    assert outcomes(carried(node, "import", str(out)))["Note.md"] == "updated"
    assert node.call("memory.get", {"ids": [1]})["memories"][0]["content"] == "one, by hand"
    assert outcomes(carried(node, "export", str(out), code=1))["Note.md"] == "updated"


def test_names_from_memories_stay_in_the_folder(node: Node, tmp_path: Path) -> None:
    for number, path in enumerate(("../../escaped.md", "/abs.md", ".ssh/keys.md", "a/../../escaped.md")):
        kept = {"path": path, "head": "", "files": {"x": {"path": "../escaped.bin", "sha256": "0" * 64}}}
        node.call("memory.add", {"content": f"c{number}", "title": f"../t{number}", "metadata": {"vault": kept}})
    carried(node, "export", str(tmp_path / "deep" / "out"))
    assert sorted(files(tmp_path / "deep")) == [f"out/-t{number}.md" for number in range(4)]


def test_a_broken_line_costs_that_line_only(node: Node, tmp_path: Path) -> None:
    """modelcontextprotocol/servers#4510: one broken line is reported with its number, the rest goes in."""
    lines = [
        b'\xef\xbb\xbf{"content": "one"}\r',
        b'{"content": "two", "metadata": {"n": 0.5}}',
        b'{"content": "thr',
        b'{"content": "\xff"}',
        b'{"content": "a", "content": "b"}',
        b'{"content": "%s"}' % (b"x" * 10_000_000),
        b"",
        b'{"content": "x", "metadata": {"a": NaN}}',
        b"[" * 100_000,
        b"[1]",
        b'{"content": "x", "unknown": 1}',
        b'{"content": "nul \\u0000"}',
        b'{"content": "half \\ud800"}',
        b'{"content": "%s"}' % (b"x" * 3_000_000),
        b'{"kind": "what"}',
        b'{"content": "last"}',
    ]
    path = tmp_path / "some.jsonl"
    path.write_bytes(b"\n".join(lines))
    told = carried(node, "import", str(path), code=1)
    codes = ["bad_json", "bad_utf8", "duplicate_key", "too_large", "bad_number", "too_deep", "bad_argument"]
    codes += ["bad_argument", "bad_string", "bad_string", "too_large", "bad_argument"]
    numbers = [3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15]
    assert told_lines(told) == [
        (1, 2, "added", ""),
        *((number, number, "failed", code) for number, code in zip(numbers, codes, strict=True)),
        (16, 16, "added", ""),
    ]
    assert carried(node, "import", str(path), code=1)["counts"] == {
        "added": 0,
        "updated": 0,
        "unchanged": 3,
        "skipped": 0,
        "failed": 12,
    }


def test_an_export_of_lines_writes_over_nothing(node: Node, tmp_path: Path) -> None:
    (tmp_path / "there.jsonl").write_text("mine")
    assert hmp_node(node.home, "export", str(tmp_path / "there.jsonl")).returncode == 2
    assert (tmp_path / "there.jsonl").read_text() == "mine"


@pytest.mark.slow
def test_a_vault_of_a_thousand_notes(node: Node, tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    for number in range(1000):
        text = f"---\ntags: [t{number % 7}]\n---\nnote {number}, see [[Note {number - 1}]]\n"
        (tmp_path / "vault" / f"Note {number}.md").write_text(text)
    assert carried(node, "import", str(tmp_path / "vault"))["counts"]["added"] == 1000
    carried(node, "export", str(tmp_path / "out"))
    assert files(tmp_path / "out") == files(tmp_path / "vault")
