"""Memories as Markdown files and back: any title makes a safe name, any memory and any file survive the way."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hmp_node.cli import front_matter
from hmp_node.cli.vault_notes import file_path, is_safe, parse, render, safe_name, told_apart

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
PLAIN = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
TIME = "2026-01-02T03:04:05.000006Z"
# fmt: off
TRICKY = ["yes", "no", "~", "null", "2026-01-01", "0123", "1.10", "1e5", "1e+16", "0x1f", "1_000", "12:30", ": #",
          "---",
          "a: b",           "'", '"', "- x", "&a", "*a", "!x", "%", "@", "`", "\u2028", "\r\n", " x ", "\u202eabc",
          "🚀", "שלום", "Київ", "", "=", "<<", ".inf"]
# fmt: on


def memory(**more: Any) -> dict[str, Any]:
    return {
        "source": "did:hmp:agent:x/memory/7",
        "content": "words",
        "type": "note",
        "title": None,
        "project": None,
        "tags": [],
        "metadata": {},
        "created_at": TIME,
        "updated_at": TIME,
        "version": 1,
        "author": "user",
        "status": "active",
        "status_at": TIME,
        "valid_from": TIME,
        "valid_until": None,
        "taint": [],
    } | more


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(TEXT, VALUES, max_size=5))
@example({text: text for text in TRICKY})
def test_values_survive_the_front_matter(values: dict[str, Any]) -> None:
    found = front_matter.split(front_matter.write(values) + "body")
    assert found.body == "body"
    assert repr(front_matter.read(found.yaml)) == repr(values)


@pytest.mark.parametrize("text", [one for one in TRICKY if one.isascii() and one.isalnum()])
def test_scalars_that_are_not_json_stay_text(text: str) -> None:
    assert front_matter.read(f"key: {text}") == {"key": None if text == "null" else text}


@pytest.mark.parametrize(
    "text", ["a: b: c", "- list", "a: &x 1\nb: *x", "a: !!python/object:os.system x", "a: 1\na: 2",
     "? [a]\n: b", "a: \x01"]
)  # fmt: skip
def test_what_is_no_plain_mapping_is_told(text: str) -> None:
    assert front_matter.read(text) is None


CONTENT = TEXT.filter(str.strip) | st.sampled_from(
    ["---\na: b\n---\nx", "\ufeffx", "a\r\nb\r\n", "\n\n#tag\n\n", "x\r"]
)


@settings(max_examples=40, deadline=None)
@given(
    content=CONTENT,
    title=st.none() | st.sampled_from(["a: b", "yes", "🚀", "2026-01-01", "x" * 200, "'\""]),
    tags=st.lists(st.sampled_from(["a", "yes", "0123", "тег"]), max_size=3, unique=True),
    metadata=st.dictionaries(TEXT | st.sampled_from(["type", "title", "hmp", "links", "metadata"]), VALUES, max_size=3),
    links=st.lists(
        st.tuples(st.sampled_from(["a", "vault:x/y: z.md"]), st.sampled_from(["related", "yes"])), max_size=2
    ),
)
def test_a_memory_survives_the_file(
    content: str, title: str | None, tags: list[str], metadata: dict[str, Any], links: list[tuple[str, str]]
) -> None:
    metadata.pop("tags", None)
    one = memory(content=content, title=title, tags=tags, metadata=metadata, project="shop", version=3)
    note = parse("any.md", render(one, links), source="another", files=None)
    back = memory(project="shop") | note.entry
    assert repr({name: back[name] for name in sorted(one)}) == repr(
        {name: {**one, "metadata": back["metadata"]}[name] for name in sorted(one)}
    )
    assert {name: repr(value) for name, value in back["metadata"].items()} == {
        name: repr(value) for name, value in metadata.items()
    }
    assert note.links == links


def brought(text: str, path: str = "sub/Note.md") -> dict[str, Any]:
    """The memory that a file makes, as it goes out again."""
    return memory() | parse(path, text, source="vault:v/x").entry


@settings(max_examples=40, deadline=None)
@given(head=TEXT, body=TEXT)
@example("title: Other\ntags: [a, b]\ncreated: 2026-01-01\nstatus: done\nyes: yes\nn: 0123\n", "x #tag")
@example("a: b: c\n", "words")
@example("a: 1\n", "")
@example("a: " + "long " * 2000 + "\n", "x")
@example("a: " + "too long " * 9000 + "\n", "x")
def test_a_file_from_elsewhere_goes_out_letter_for_letter(head: str, body: str) -> None:
    """jeiel85/markleaf-android#222: front matter over 4 KiB survives the round trip."""
    for text in (body, f"---\n{head}---\n{body}", f"\ufeff---\r\n{head}\r\n--- \r\n{body}"):
        assert render(brought(text), []) == text


def test_what_a_foreign_head_says() -> None:
    text = (
        "---\ntitle: Other\ntags: 'a, #b'\ntype: fact\ncreated: 2026-01-01\nstatus: done\nn: 0123\n---\n#c `#d` x#e\n"
    )
    entry = parse("sub/Note.md", text, source="s").entry
    assert (entry["title"], entry["type"], entry["created_at"]) == ("Other", "fact", "2026-01-01T00:00:00.000000Z")
    assert entry["tags"] == ["a", "b", "c"]
    metadata = dict(entry["metadata"])
    assert metadata.pop("vault")["path"] == "sub/Note.md"
    assert metadata == {"status": "done", "n": "0123"}


def test_a_changed_memory_keeps_the_unknown_keys_of_its_head() -> None:
    one = brought("---\naliases: [x, 'y']\nrating: 0123\n---\nbody")
    again = render(one | {"content": "other words", "tags": ["new"]}, [])
    back = parse("x.md", again, source="s").entry
    assert (back["content"], back["tags"], back["source"]) == ("other words", ["new"], "vault:v/x")
    assert (back["metadata"]["aliases"], back["metadata"]["rating"]) == (["x", "y"], "0123")
    assert file_path(memory() | back) == "sub/Note.md"


@settings(max_examples=40, deadline=None)
@given(TEXT | st.text(max_size=400))
@example("../../etc/passwd")
@example("CON")
@example("nul.txt")
@example(".hidden")
@example("a" * 500)
@example("ї" * 300)
@example("\u202egnp.exe")
@example("...")
@example("C:\\x")
def test_any_title_makes_a_safe_name(title: str) -> None:
    name = safe_name(title)
    assert name == safe_name(title)
    assert is_safe(f"{name}.md"), name
    assert "/" not in name
    assert len(f"{name} 01234567.md".encode()) <= 200


@pytest.mark.parametrize(
    "path",
    ["../x.md", "/x.md", "a/../x.md", "a//x.md", ".ssh/x.md", "a/.x.md", "a\\x.md", "C:x.md", "a/nul/x.md", "x\n.md",
     "a /x.md", "", "a/", f"{'x' * 300}.md"],
)  # fmt: skip
def test_a_path_in_metadata_leads_nowhere_else(path: str) -> None:
    assert not is_safe(path)
    one = memory(title="Title", metadata={"vault": {"path": path, "head": ""}})
    assert file_path(one) == "Title.md"


def test_titles_that_differ_in_case_only_are_told_apart() -> None:
    first, second = told_apart("a/Note.md", "s1"), told_apart("a/note.md", "s2")
    assert first.casefold() != second.casefold()
    assert first == told_apart("a/Note.md", "s1")
    assert unicodedata.is_normalized("NFC", safe_name("и\u0306"))
