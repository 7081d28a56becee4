"""What peers signed of themselves: announcements by scope, the words in them, and who holds whose mail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hmp_node.store.database import Reader, Tx
from hmp_node.store.sql import in_list

KINDS = ("interest", "expertise", "topic", "role")
MAX_SCOPES = 4  # of one peer, besides the one for everybody
SHORTEST_PART = 3  # bytes in UTF-8 of a word that may be a part of another: three Latin letters, one sign of Chinese

_CANDIDATES = 2_000


class AnnouncementRow(NamedTuple):
    """The newest announcement of a peer in one scope; ``brought``: it did not come from the peer itself."""

    network: str
    container_did: str
    raw: bytes
    timestamp: str
    brought: int


_COLUMNS = "network, container_did, raw, timestamp, brought"


async def listing(reader: Reader, did: str) -> list[AnnouncementRow]:
    """The announcements of a peer, the newest first."""
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM peer_announcements WHERE did = :did ORDER BY timestamp DESC, network", {"did": did}
    )
    return [AnnouncementRow(*row) for row in rows]


async def put(tx: Tx, did: str, row: AnnouncementRow) -> None:
    """Store an announcement in place of the one before in its scope; of many scopes the oldest are forgotten."""
    await tx.execute(
        f"INSERT INTO peer_announcements (did, {_COLUMNS})"
        " VALUES (:did, :network, :container_did, :raw, :timestamp, :brought)"
        " ON CONFLICT (did, network) DO UPDATE SET container_did = excluded.container_did, raw = excluded.raw,"
        " timestamp = excluded.timestamp, brought = excluded.brought",
        {"did": did, **row._asdict()},
    )
    if row.network:
        await tx.execute(
            "DELETE FROM peer_announcements WHERE did = :did AND network <> '' AND network NOT IN ("
            " SELECT n.network FROM peer_announcements n WHERE n.did = :did AND n.network <> ''"
            f" ORDER BY n.timestamp DESC LIMIT {MAX_SCOPES})",
            {"did": did},
        )


async def newest_for_all(reader: Reader, dids: Sequence[str], *, limit: int) -> list[tuple[str, bytes]]:
    """(DID, mesh form) of the announcements that these peers made for everybody, the newest first; none of the
    blocked or purged."""
    listed, params = in_list(dids)
    rows = await reader.fetch_all(
        f"SELECT a.did, a.raw FROM peer_announcements a WHERE a.network = '' AND a.did IN {listed}"
        " AND NOT EXISTS (SELECT 1 FROM blocked b WHERE b.did = a.did)"
        " AND NOT EXISTS (SELECT 1 FROM shunned s WHERE s.did = a.did)"
        " ORDER BY a.timestamp DESC LIMIT :limit",
        {**params, "limit": limit},
    )
    return [(row[0], row[1]) for row in rows]


# --- words ----------------------------------------------------------------------------------------------


async def set_words(tx: Tx, did: str, words: Mapping[str, Sequence[str]], source: str) -> None:
    """Replace a peer's folded words by kind; what a finder says does not replace what the peer announced."""
    if source != "announce":
        row = await tx.fetch_one("SELECT 1 FROM peer_words WHERE did = :did AND source = 'announce'", {"did": did})
        if row is not None:
            return
    await tx.execute("DELETE FROM peer_words WHERE did = :did", {"did": did})
    await tx.execute_many(
        "INSERT INTO peer_words (did, kind, word, source) VALUES (:did, :kind, :word, :source)"
        " ON CONFLICT (did, kind, word) DO NOTHING",
        [{"did": did, "kind": kind, "word": word, "source": source} for kind, some in words.items() for word in some],
    )


async def words_of(reader: Reader, dids: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """(kind, folded word) of each of these peers."""
    found: dict[str, list[tuple[str, str]]] = {}
    listed, params = in_list(dids)
    rows = await reader.fetch_all(
        f"SELECT did, kind, word FROM peer_words WHERE did IN {listed} ORDER BY did, kind, word", params
    )
    for did, kind, word in rows:
        found.setdefault(did, []).append((kind, word))
    return found


def alike(wanted: str, word: str) -> bool:
    """Whether two folded words are equal, or one is a part of the other."""
    short, long = sorted((wanted, word), key=len)
    return wanted == word or (len(short.encode()) >= SHORTEST_PART and short in long)


async def matching(reader: Reader, wanted: Mapping[str, Sequence[str]]) -> list[str]:
    """DIDs of peers that any of these folded words, by kind, speaks of; a few thousand at most."""
    found: dict[str, None] = {}
    for kind, words in wanted.items():
        if not words:
            continue
        tests: list[str] = []
        params: dict[str, object] = {"kind": kind, "limit": _CANDIDATES}
        for number, word in enumerate(words):
            params[f"w{number}"] = word
            params[f"p{number}"] = f"%{_escaped(word)}%"
            tests.append(f"word LIKE :p{number} ESCAPE '\\' OR :w{number} LIKE '%' || word || '%'")
        rows = await reader.fetch_all(
            f"SELECT DISTINCT did, word FROM peer_words WHERE kind = :kind AND ({' OR '.join(tests)}) LIMIT :limit",
            params,
        )
        # A word may itself hold what LIKE takes for a pattern.
        found |= {did: None for did, word in rows if any(alike(asked, word) for asked in words)}
    return list(found)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


# --- mailmen --------------------------------------------------------------------------------------------


async def set_mailmen(tx: Tx, did: str, mailmen: Sequence[str], source: str) -> None:
    """Replace who holds this peer's mail; a finder's word or an old card's does not replace an announcement's."""
    if source != "announce":
        row = await tx.fetch_one("SELECT 1 FROM peer_mailmen WHERE did = :did AND source = 'announce'", {"did": did})
        if row is not None:
            return
    await tx.execute("DELETE FROM peer_mailmen WHERE did = :did", {"did": did})
    await tx.execute_many(
        "INSERT INTO peer_mailmen (did, mailman_did, source) VALUES (:did, :mailman, :source)"
        " ON CONFLICT (did, mailman_did) DO NOTHING",
        [{"did": did, "mailman": mailman, "source": source} for mailman in mailmen],
    )


async def mailmen_of(reader: Reader, did: str) -> list[str]:
    """DIDs of those who hold this peer's mail, by its word."""
    return (await mailmen_of_each(reader, [did])).get(did, [])


async def mailmen_of_each(reader: Reader, dids: Sequence[str]) -> dict[str, list[str]]:
    """`mailmen_of` of each of these peers that has any."""
    found: dict[str, list[str]] = {}
    listed, params = in_list(dids)
    rows = await reader.fetch_all(
        f"SELECT did, mailman_did FROM peer_mailmen WHERE did IN {listed} ORDER BY did, mailman_did", params
    )
    for did, mailman in rows:
        found.setdefault(did, []).append(mailman)
    return found
