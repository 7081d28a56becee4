"""Section ``search`` of node.yaml: what the index needs to know, beside the limits and weights of a search."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hmp_node.search.settings import SearchSettings

NONE = "none"
CACHE = "hmp-node"
_SCHEMES = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class IndexSettings(SearchSettings):
    """How rows are indexed, and what makes vectors of them.

    ``embedder``: empty for the local package if one is installed, ``none``, a local package's name, or the address of
    an OpenAI-compatible endpoint up to ``/v1``, which then needs a ``model``. The key is named, never written here:
    ``key_env`` is an environment variable, ``key_file`` a file of mode 0600. ``texts``: given to an endpoint at once;
    ``characters``: of a text that are embedded. ``connect_s``, ``answer_s``: how long an endpoint may take.
    ``retry_s``: the longest pause before a dead one is tried again. ``rows``: indexed in one transaction.
    ``idle_s``: the worker process ends after so long without work. ``nice``: how far its background work stands
    back, 0 to 19. ``query_s``: what a search may wait for it.
    ``cache``: where the tables of word forms are, which every node of a user shares; empty: in the user's own cache.
    """

    embedder: str = ""
    model: str = ""
    key_env: str = ""
    key_file: str = ""
    texts: int = 32
    characters: int = 2_000
    connect_s: float = 10.0
    answer_s: float = 120.0
    retry_s: float = 300.0
    rows: int = 64
    idle_s: float = 300.0
    nice: int = 5
    query_s: float = 15.0
    cache: str = ""

    def __post_init__(self) -> None:
        """Refuse, as `ValueError`, what could not work."""
        if self.is_endpoint and not self.model:
            raise ValueError("embedder is an address, so model has to name the embedding model it is asked for")
        if self.key_env and self.key_file:
            raise ValueError("key_env and key_file: the key is in one of them")
        if not (1 <= self.texts <= 256 and 1 <= self.rows <= 1000 and 100 <= self.characters <= 20_000):
            raise ValueError("texts is 1 to 256, rows 1 to 1000, characters 100 to 20000")
        if not (0 <= self.nice <= 19 and self.idle_s > 0 and self.query_s > 0):
            raise ValueError("nice is 0 to 19, idle_s and query_s are more than 0")

    def cache_folder(self, home: Path) -> Path:
        """Where to keep what can be made anew: ``cache``, the user's cache, or the node's home where that is none."""
        if self.cache:
            return home / Path(self.cache).expanduser()
        users = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
        above = users if users.exists() else users.parent
        return users / CACHE if os.access(above, os.W_OK | os.X_OK) else home / "cache"

    @property
    def is_endpoint(self) -> bool:
        """Whether texts leave for an endpoint."""
        return self.embedder.startswith(_SCHEMES)
