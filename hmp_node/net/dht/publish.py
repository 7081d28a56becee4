"""Our own records: made of what the node says of itself, brought to their holders, renewed, taken back."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from hmp_node.errors import Deny, HmpError, Reject, Rejected
from hmp_node.net.dht.datagram import OK
from hmp_node.net.dht.overlay import SILENT, Overlay
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.dht.shelf import Shelf
from hmp_node.net.finders import Presence
from hmp_node.wire import record as records
from hmp_node.wire.record import MAX_ADDRESSES, MAX_MAILMEN, MAX_WORD_BYTES, Address, Kind, Record, usable
from hmp_node.wire.text import fold_word

SECOND_US = 1_000_000


class Entry(NamedTuple):
    """Under what a record stands: its kind, and its word or ""."""

    kind: Kind
    word: str


class Publisher:
    """Holds what we publish.

    ``seq``: the highest sequence used, microseconds; it never goes back. ``holders``: of each record of ours, by name.
    ``refused``: what else was said to the one that was published last.
    """

    def __init__(
        self,
        settings: DhtSettings,
        network: str,
        public_key: bytes,
        *,
        sign: Callable[[bytes], bytes],
        clock_us: Callable[[], int],
        shelf: Shelf,
    ) -> None:
        self.seq = 0
        self.holders: dict[str, int] = {}
        self.refused: Counter[str] = Counter()
        self._settings = settings
        self._network = network
        self._public_key = public_key
        self._sign = sign
        self._clock_us = clock_us
        self._shelf = shelf
        self._addresses: tuple[Address, ...] = ()
        self._mailmen: tuple[bytes, ...] = ()
        self._entries: tuple[Entry, ...] = ()
        self._out: set[Entry] = set()  # where a record of ours may still be found
        self._revoked = False

    @property
    def has_something(self) -> bool:
        """Whether there is anything to publish or to take back."""
        return bool(self._entries or self._out)

    def set(self, presence: Presence, *, reachable: bool) -> bool:
        """Take what the node says of itself; whether that changes what we publish.

        An unreachable node has no addresses to tell, only mailmen; one that has neither tells nothing.
        """
        before = (self._addresses, self._mailmen, self._entries)
        allow_private = self._settings.allow_private
        public = presence.public if reachable else ()
        usables = (entry for entry in public if usable(self._public_key, entry, allow_private=allow_private))
        self._addresses = tuple(dict(usables).items())[:MAX_ADDRESSES]
        self._mailmen = tuple(dict.fromkeys(presence.mailmen))[:MAX_MAILMEN]
        self._entries = ()
        if self._addresses or self._mailmen:
            words = (*_entries("interest", presence.interests), *_entries("role", presence.roles))
            self._entries = (Entry("address", ""), *dict.fromkeys(words))[: self._settings.words + 1]
        if self._revoked:
            self._revoke()
        return before != (self._addresses, self._mailmen, self._entries)

    def revoke(self) -> None:
        """Say from now on nothing but that our key is no longer to be believed."""
        self._revoked = True
        self._revoke()

    async def publish(self, overlays: Iterable[Overlay]) -> bool:
        """Renew every record of ours and take back those we no longer stand behind; whether all found holders enough.

        That is half of the contacts there are, or of as many as keep a record; those that have no room for us count,
        since they will have none in a minute.
        """
        overlays = list(overlays)
        enough = min(self._settings.bucket_size, sum(overlay.contacts for overlay in overlays)) // 2
        well = True
        self._out.update(self._entries)
        for entry in sorted(self._out):
            held, full = await self._bring(entry, overlays)
            self.holders[_name(entry)] = held
            well = well and held + full >= max(enough, 1)
            if held and entry not in self._entries:
                self._out.discard(entry)
                del self.holders[_name(entry)]
        return well

    def status(self) -> dict[str, Any]:
        """Holders of each record of ours, and what else was said to them."""
        return {"holders": dict(self.holders), "refused": dict(self.refused)}

    def problem(self) -> str:
        """Why nobody keeps our records, if they were offered and nobody does."""
        if not self.holders or any(self.holders.values()):
            return ""
        why = ", ".join(sorted(self.refused)) or SILENT
        return f"no node keeps our record ({why})" + (
            ": is the clock right?" if Reject.BAD_RECORD in self.refused else ""
        )

    # --- inside ---------------------------------------------------------------------------------------

    def _revoke(self) -> None:
        self._addresses, self._mailmen = (), ()
        self._entries = (Entry("address", ""),)

    async def _bring(self, entry: Entry, overlays: list[Overlay]) -> tuple[int, int]:
        """How many holders keep the record now, and how many have no room for it."""
        key = records.key_of(self._network, entry.kind, entry.word or self._public_key)
        said = await self._offer(entry, key, overlays)
        if said[Reject.STALE] + said[Reject.BAD_RECORD] > said[OK]:
            # Our clock was set back, or a copy of this node has been at work: continue behind the newest.
            await self._catch_up(key, overlays)
            said = await self._offer(entry, key, overlays)
        held = said.pop(OK, 0)
        self.refused = said
        return held, said[Deny.BUDGET_COUNT] + said[Deny.SUBNET_FULL]

    async def _offer(self, entry: Entry, key: bytes, overlays: list[Overlay]) -> Counter[str]:
        data = self._make(entry)
        with contextlib.suppress(HmpError):  # a full shelf keeps what is nearer to it
            self._shelf[key] = data
        said: Counter[str] = Counter()
        for overlay in overlays:
            said += await overlay.set_digest(key, data)
        return said

    async def _catch_up(self, key: bytes, overlays: list[Overlay]) -> None:
        for overlay in overlays:
            ours = [found.seq for found in await overlay.get(key) if found.public_key == self._public_key]
            self.seq = max(self.seq, *ours, 0)

    def _make(self, entry: Entry) -> bytes:
        """A fresh record; of many or long addresses, as many as fit."""
        now_us = self._clock_us()
        self.seq = max(now_us, self.seq + 1)
        current = entry in self._entries
        expires = now_us + int(self._settings.record_life * SECOND_US)
        addresses = self._addresses if current else ()
        mailmen = self._mailmen if current else ()
        while True:
            record = Record(
                self._public_key,
                self.seq,
                expires,
                entry.kind,
                entry.word,
                addresses,
                mailmen,
                self._revoked and entry.kind == "address",
            )
            try:
                return records.encode_signed(record, self._network, self._sign)
            except Rejected:
                if not addresses:
                    raise
                addresses = addresses[:-1]


def _entries(kind: Kind, words: Iterable[str]) -> Iterator[Entry]:
    for word in words:
        folded = fold_word(word)
        if folded and folded.isprintable() and len(folded.encode(errors="replace")) <= MAX_WORD_BYTES:
            yield Entry(kind, folded)


def _name(entry: Entry) -> str:
    return f"{entry.kind}:{entry.word}" if entry.word else entry.kind
