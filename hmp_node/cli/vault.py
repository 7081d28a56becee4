"""A folder of Markdown files (Obsidian and others) read and written; nothing outside it is touched, nothing deleted.

What is written here is noted in a file of our own at the top, so that a file that a person changed is never written
over, and so that what comes back is known.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from hmp_node.cli import vault_notes
from hmp_node.cli.carried import Item, failed, skipped
from hmp_node.cli.files import bad_path
from hmp_node.errors import Reject, Rejected

MARKER = ".hmp-vault.json"
MAX_NOTE = 4_194_304  # bytes
MAX_ATTACHMENT = 268_435_456  # bytes
_EMBEDDED = re.compile(r"!\[\[([^\]|#\n]{1,400})|!\[[^\]\n]*\]\(([^)\s]{1,1000})\)")
_SHA = re.compile(r"[0-9a-f]{64}")


class Attachments:
    """Files that notes embed, kept by their SHA-256 in a folder of the home."""

    def __init__(self, folder: Path, *, dry_run: bool = False) -> None:
        self.folder = folder
        self.dry_run = dry_run

    def keep(self, path: Path) -> tuple[str, bool]:
        """(SHA-256 in hex, whether it is new here). `OSError`."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
        name = digest.hexdigest()
        target = self.folder / name
        if target.exists():
            return name, False
        if not self.dry_run:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            _write(target, path.read_bytes())
        return name, True

    def read(self, name: str) -> bytes | None:
        """What is kept under this SHA-256, if it still is that."""
        try:
            data = (self.folder / name).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == name else None


def _marker(root: Path) -> dict[str, Any]:
    """What we noted when we last wrote this folder."""
    try:
        found = json.loads((root / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        found = {}
    found = found if isinstance(found, dict) else {}
    return {
        "files": found["files"] if isinstance(found.get("files"), dict) else {},
        "projects": found["projects"] if isinstance(found.get("projects"), list) else [],
    }


# --- reading ----------------------------------------------------------------------------------------------


def read(root: Path, project: str | None, attachments: Attachments) -> Iterator[Item]:
    """Every file of the folder as an item. Raises `Rejected` when the folder cannot be read at all."""
    try:
        with os.scandir(root):
            pass
    except OSError as error:
        raise bad_path(root, error) from error
    noted = _marker(root)
    known = {
        one["name"]: one for one in noted["projects"] if isinstance(one, dict) and isinstance(one.get("name"), str)
    }
    if project is None:
        yield from (Item(f"project {name}", project=one) for name, one in known.items())
    notes, others, told = _walk(root)
    yield from told
    shown: dict[str, tuple[str, bool]] = {}
    by_name: dict[str, list[str]] = {}
    for path in others:
        by_name.setdefault(path.rpartition("/")[2], []).append(path)
    for path in notes:
        base = path.partition("/")[0] if project is None and path.partition("/")[0] in known and "/" in path else ""
        yield _note(
            root, path, _Vault(base, project or base or None, noted["files"], others, by_name, attachments, shown)
        )
    for path in others:
        if path in shown:
            yield Item(
                path, outcome="added" if shown[path][1] else "unchanged", reason="kept with the notes that show it"
            )
        else:
            yield skipped(path, "no Markdown, and no note shows it")


class _Vault(NamedTuple):
    """What a note's file is read with; ``base``: the folder of its project."""

    base: str
    project: str | None
    noted: dict[str, Any]
    others: dict[str, None]
    by_name: dict[str, list[str]]
    attachments: Attachments
    shown: dict[str, tuple[str, bool]]


def _walk(root: Path) -> tuple[list[str], dict[str, None], list[Item]]:
    """Paths of notes, of other files, and what is left out or cannot be read."""
    notes: list[str] = []
    others: dict[str, None] = {}
    told: list[Item] = []

    def unreadable(error: OSError) -> None:
        name = os.path.relpath(str(error.filename), root)
        told.append(failed(name, Reject.BAD_PATH, f"the folder cannot be read: {error.strerror}"))

    for folder, folders, files in os.walk(root, onerror=unreadable):
        here = Path(folder).relative_to(root).as_posix()
        under = "" if here == "." else f"{here}/"
        for name in sorted(folders):
            if name.startswith(".") or Path(folder, name).is_symlink():
                why = "a hidden folder" if name.startswith(".") else "a symbolic link is not followed"
                told.append(skipped(under + name, why))
        folders[:] = sorted(one for one in folders if not one.startswith(".") and not Path(folder, one).is_symlink())
        for name in sorted(files):
            path = under + name
            if path == MARKER:
                continue
            if Path(folder, name).is_symlink() or not Path(folder, name).is_file():
                told.append(skipped(path, "a symbolic link or no regular file"))
            elif name.startswith("."):
                told.append(skipped(path, "a hidden file"))
            elif name.lower().endswith(".md"):
                notes.append(path)
            else:
                others[path] = None
    return sorted(notes), others, told


def _note(root: Path, path: str, vault: _Vault) -> Item:
    try:
        data = _read(root / path)
        text = data.decode("utf-8")
        path.encode("utf-8")
        files = {name: _kept(root, found, vault) for name, found in _embedded(path, text, vault)}
    except UnicodeError:
        return failed(path, Reject.BAD_UTF8, "the file is not UTF-8")
    except (OSError, Rejected) as error:
        return failed(path, Reject.BAD_PATH, error.message if isinstance(error, Rejected) else str(error.strerror))
    if not text.strip("\ufeff \t\r\n"):
        return skipped(path, "there are no words in it")
    inside = path.removeprefix(f"{vault.base}/") if vault.base else path
    wrote = vault.noted.get(path)
    source = wrote.get("source") if isinstance(wrote, dict) else None
    if not isinstance(source, str):
        source = f"vault:{root.resolve().name}/{path}"
    note = vault_notes.parse(inside, text, source=source, files=files)
    digest = hashlib.sha256(data)
    for name in sorted(files):
        digest.update(json.dumps([name, files[name]]).encode())
    if vault.project is not None:
        note.entry["project"] = vault.project
    note.entry["digest"] = digest.hexdigest()
    return Item(path, entry=note.entry, links=note.links, reason=note.remark)


def _read(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        data = file.read(MAX_NOTE + 1)
    if len(data) > MAX_NOTE:
        raise Rejected(Reject.TOO_LARGE, f"the file is longer than {MAX_NOTE} bytes")
    return data


def _embedded(path: str, text: str, vault: _Vault) -> Iterator[tuple[str, str]]:
    """(Name in the text, path) of the files of the vault that a note shows."""
    folder = path.rpartition("/")[0]
    for match in _EMBEDDED.finditer(text):
        name = match[1] or unquote(match[2])
        for path_of in (f"{folder}/{name}".strip("/"), f"{vault.base}/{name}".strip("/"), name):
            plain = os.path.normpath(path_of).replace(os.sep, "/")
            if plain in vault.others:
                yield name, plain
                break
        else:
            found = vault.by_name.get(name.rpartition("/")[2], [])
            if found and "://" not in name:
                yield name, found[0]


def _kept(root: Path, path: str, vault: _Vault) -> dict[str, str]:
    if (root / path).stat().st_size > MAX_ATTACHMENT:
        raise Rejected(Reject.TOO_LARGE, f"{path} is longer than {MAX_ATTACHMENT} bytes")
    if path not in vault.shown:
        vault.shown[path] = vault.attachments.keep(root / path)
    return {"path": path.removeprefix(f"{vault.base}/") if vault.base else path, "sha256": vault.shown[path][0]}


# --- writing ----------------------------------------------------------------------------------------------


def write(
    root: Path, pages: Callable[[], Iterator[dict[str, Any]]], project: str | None, attachments: Attachments
) -> Iterator[Item]:
    """Write memories as files; ``pages`` gives the pages of `memory.export`, and is asked twice."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise bad_path(root, error) from error
    taken = Counter(_place(entry, project).casefold() for page in pages() for entry in page["memories"])
    noted = _marker(root)
    projects = {one["name"]: one for one in noted["projects"] if isinstance(one, dict) and "name" in one}
    for page in pages():
        projects |= {one["name"]: one for one in page["projects"]} if project is None else {}
        links: dict[str, list[tuple[str, str]]] = {}
        for link in page["links"]:
            links.setdefault(link["source"], []).append((link["target"], link["type"]))
        for entry in page["memories"]:
            path = _place(entry, project)
            if taken[path.casefold()] > 1:
                path = vault_notes.told_apart(path, entry["source"])
            text = vault_notes.render(entry, links.get(entry["source"], []))
            yield _put(root, path, text.encode(), noted["files"], entry)
            base = path[: len(path) - len(_inside(path, entry, project))]
            for kept in _attached(entry):
                yield _put_attachment(root, base + kept["path"], kept["sha256"], attachments, noted["files"])
    _write(root / MARKER, (json.dumps({"files": noted["files"], "projects": list(projects.values())}) + "\n").encode())


def _place(entry: dict[str, Any], project: str | None) -> str:
    folder = f"{entry['project']}/" if project is None and entry["project"] is not None else ""
    return folder + vault_notes.file_path(entry)


def _inside(path: str, entry: dict[str, Any], project: str | None) -> str:
    return path.partition("/")[2] if project is None and entry["project"] is not None else path


def _attached(entry: dict[str, Any]) -> list[dict[str, str]]:
    files = vault_notes.vault_of(entry["metadata"]).get("files")
    found = files.values() if isinstance(files, dict) else ()
    return [one for one in found if isinstance(one, dict) and _is_attachment(one.get("path"), one.get("sha256"))]


def _is_attachment(path: object, digest: object) -> bool:
    named = isinstance(path, str) and vault_notes.is_safe(path) and not path.lower().endswith(".md")
    return named and isinstance(digest, str) and _SHA.fullmatch(digest) is not None


def _put_attachment(root: Path, path: str, digest: str, attachments: Attachments, noted: dict[str, Any]) -> Item:
    data = attachments.read(digest)
    if data is None:
        return failed(path, Reject.NOT_FOUND, "this attachment is not kept here any more")
    return _put(root, path, data, noted, None)


def _put(root: Path, path: str, data: bytes, noted: dict[str, Any], entry: dict[str, Any] | None) -> Item:
    """Write one file, unless a person's own would be lost."""
    target, digest = root / path, hashlib.sha256(data).hexdigest()
    try:
        for above in reversed(target.relative_to(root).parents[:-1]):
            (root / above).mkdir(exist_ok=True)
            if (root / above).is_symlink():
                return failed(path, Reject.BAD_PATH, f"{above} is a symbolic link, which is not followed")
        if target.is_symlink():
            return failed(path, Reject.BAD_PATH, "there is a symbolic link of this name")
        there = hashlib.sha256(target.read_bytes()).hexdigest() if target.exists() else None
        wrote = noted.get(path)
        ours = (isinstance(wrote, dict) and wrote.get("sha256") == there) or _says_the_same(target, entry)
        if there not in (None, digest) and not ours:
            return failed(path, Reject.DUPLICATE, "there is another file of this name: import it first, or move it")
        if there != digest:
            _write(target, data)
    except OSError as error:
        return failed(path, Reject.BAD_PATH, f"it cannot be written: {error.strerror}")
    noted[path] = {"sha256": digest} | ({"source": entry["source"]} if entry is not None else {})
    return Item(path, outcome={None: "added", digest: "unchanged"}.get(there, "updated"))


def _says_the_same(target: Path, entry: dict[str, Any] | None) -> bool:
    """Whether a file that a person changed was brought in since."""
    if entry is None or not target.exists() or target.stat().st_size > MAX_NOTE:
        return False
    return vault_notes.says_the_same(target.read_bytes().decode("utf-8", "replace"), entry)


def _write(target: Path, data: bytes) -> None:
    """Write a file whole or not at all; a link of its name is replaced, not followed."""
    handle, beside = tempfile.mkstemp(prefix=".hmp-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(beside).replace(target)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
