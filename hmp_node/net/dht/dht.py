"""The finder that asks the DHT, and the node's own place in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from hmp_node.mesh.board import Chance
from hmp_node.net.dht.datagram import Codec
from hmp_node.net.dht.join import Joiner
from hmp_node.net.dht.overlay import Overlay, figures
from hmp_node.net.dht.places import IPV4, IPV6, Family, Place, family_of
from hmp_node.net.dht.publish import Publisher
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.dht.shelf import Shelf
from hmp_node.net.dht.state import State, from_json, to_json
from hmp_node.net.finders import Found, Hint, Presence, Want
from hmp_node.wire import record as records
from hmp_node.wire.address import plain_ip
from hmp_node.wire.record import MAX_WORD_BYTES, Kind, Record
from hmp_node.wire.text import agent_did, did_key, fold_word

SWEEP_SECONDS = 60.0
PUBLISH_SECONDS = 1.0  # at least, between the end of one round of publishing and the next

logger = logging.getLogger(__name__)


class Dht:
    """See `net.finders.Finder`; `start` opens the sockets, `run` joins and stays in, `stop` closes and saves.

    ``sign`` gives 64 bytes; ``clock_us`` microseconds UTC. ``load`` and ``save`` take and give one JSON object and
    are called in a worker thread.
    """

    name = "dht"

    def __init__(
        self,
        settings: DhtSettings,
        *,
        network: str,
        public_key: bytes,
        sign: Callable[[bytes], bytes],
        clock_us: Callable[[], int],
        found: Found,
        load: Callable[[], Mapping[str, Any] | None],
        save: Callable[[dict[str, Any]], None],
        random: Chance,
    ) -> None:
        self._settings = settings
        self._network = network
        self._found = found
        self._load = load
        self._save = save
        self._random = random
        self._node_id = records.node_id(network, public_key)
        self._shelf = Shelf(settings, network, self._node_id, clock_us)
        self._codec = Codec(network, public_key, sign)
        self._clock_us = clock_us
        self._publisher = Publisher(settings, network, public_key, sign=sign, clock_us=clock_us, shelf=self._shelf)
        self._joiner = Joiner(settings, overlays=self._open_overlays, reopen=self._open, random=random)
        self._overlays: dict[Family, Overlay] = {}
        self._bound: dict[Family, Place] = {}
        self._problems: dict[str, str] = {}
        self._loaded = False
        self._reachable = False
        self._renew = asyncio.Event()
        self._told = 0  # contacts when we last published

    # --- for the node ---------------------------------------------------------------------------------

    @property
    def bound(self) -> tuple[Place, ...]:
        """Where our sockets are."""
        return tuple(self._bound[family] for family, overlay in self._overlays.items() if overlay.is_open)

    async def start(self, bound: Sequence[tuple[str, int]]) -> None:
        """Open one UDP socket for each family in ``bound``: the first IP of it that is more than loopback, if any.

        A socket that cannot be opened is a problem told in `status` and tried again by `run`, never an error.
        """
        if self._settings.mode == "off":
            return
        for family in (IPV4, IPV6):
            hosts = [(host, port) for host, port in bound if family_of(host) is family]
            if family is IPV4 and not hosts:  # whoever listens on [::] listens on every address of both families
                hosts = [("0.0.0.0", port) for host, port in bound if host == "::"]  # noqa: S104 the mesh does too
            if hosts:
                self._bound[family] = next((place for place in hosts if not _is_loopback(place[0])), hosts[0])
        for family in self._bound:
            self._overlays[family] = Overlay(
                self._settings,
                family,
                self._network,
                self._node_id,
                codec=self._codec,
                shelf=self._shelf,
                clock_us=self._clock_us,
                grown=self._grown,
                random=self._random,
            )
        await self._open()

    async def stop(self) -> None:
        """Save the state and close the sockets."""
        if self._loaded:
            await self._save_state()
        for overlay in self._overlays.values():
            overlay.stop()
        await asyncio.sleep(0)  # the sockets are closed by the loop's next turn

    async def run(self) -> None:
        """Join the network and stay in it, keep our records alive, until cancelled."""
        if not self._overlays:
            await asyncio.Event().wait()
        await self._load_state()
        settings = self._settings
        async with asyncio.TaskGroup() as group:
            group.create_task(self._joiner.run())
            group.create_task(self._stay_published())
            group.create_task(self._every(settings.refresh_every, self._refresh))
            group.create_task(self._every(settings.save_every, self._save_state))
            group.create_task(self._every(SWEEP_SECONDS, self._sweep))

    def add_contact(self, host: str, port: int) -> None:
        """Take a hint that a node of this network may listen there: an IP, or it is not taken."""
        self._joiner.add(host, port)

    def present(self, presence: Presence, *, reachable: bool) -> None:
        """Take what the node says of itself; published at once when it changes what others can find."""
        self._reachable = reachable
        self._set_clients()
        if self._publisher.set(presence, reachable=reachable):
            self._renew.set()

    def revoke(self) -> None:
        """Publish from now on only that our key is no longer to be believed."""
        self._publisher.revoke()
        self._renew.set()

    async def look_up(self, did: str) -> None:
        """Look for one agent's addresses; only a DID that holds its key can be looked for here."""
        public_key = did_key(did)
        if public_key is None:
            return
        record = await self._resolve(public_key)
        if record is not None:
            self._tell(record)

    async def search(self, want: Want) -> None:
        """Look for agents that announce one of these interests or roles; each is told as it comes."""
        wanted: list[tuple[Kind, str]] = [
            *(("interest", fold_word(word)) for word in want.interests),
            *(("role", fold_word(word)) for word in want.roles),
        ]
        keys = [
            records.key_of(self._network, kind, word)
            for kind, word in dict.fromkeys(wanted)
            if word and word.isprintable() and len(word.encode(errors="replace")) <= MAX_WORD_BYTES
        ]
        searches = [
            overlay.get_all(key, self._tell)
            for key in keys[: self._settings.search_words]
            for overlay in self._open_overlays()
        ]
        await asyncio.gather(*searches)

    async def resolve(self, did: str) -> Record | None:
        """The newest record of an agent that can be found now, a revocation before all others."""
        public_key = did_key(did)
        return None if public_key is None else await self._resolve(public_key)

    def status(self) -> dict[str, Any]:
        """Figures for `hmp-node status` and `doctor`."""
        overlays = list(self._open_overlays())
        exchanges = [overlay.exchange for overlay in overlays if overlay.exchange is not None]
        return {
            "mode": self._settings.mode,
            "serving": bool(overlays) and not self._is_client(),
            "sockets": {overlay.family.name: list(self._bound[overlay.family]) for overlay in overlays},
            "contacts": {overlay.family.name: overlay.contacts for overlay in overlays},
            "spares": {overlay.family.name: overlay.spares for overlay in overlays},
            "keys": self._shelf.keys,
            "records": len(self._shelf),
            "hints": len(self._joiner.hints),
            "refused_hints": self._joiner.refused,
            "bad_values": sum(overlay.bad_values for overlay in overlays),
            "published": self._publisher.status(),
            **figures(exchanges),
            "problem": self._problem(),
        }

    # --- sockets --------------------------------------------------------------------------------------

    def _open_overlays(self) -> Iterator[Overlay]:
        return (overlay for overlay in self._overlays.values() if overlay.is_open)

    async def _open(self) -> None:
        """Open what is not open."""
        for family, overlay in self._overlays.items():
            if overlay.is_open:
                continue
            host, port = self._bound[family]
            try:
                await overlay.listen(port, host)
            except OSError as error:
                self._problems[family.name] = f"UDP {host} port {port} cannot be opened: {error.strerror or error}"
                continue
            self._problems.pop(family.name, None)
            self._bound[family] = _place_of_socket(overlay) or (host, port)
        self._set_clients()

    def _is_client(self) -> bool:
        return self._settings.mode == "client" or (self._settings.mode == "auto" and not self._reachable)

    def _set_clients(self) -> None:
        for overlay in self._overlays.values():
            if overlay.exchange is not None:
                overlay.exchange.calls.client = self._is_client()

    # --- jobs -----------------------------------------------------------------------------------------

    def _grown(self) -> None:
        """There is a contact more; of so many new ones some are nearer to our records than their holders."""
        if self._contacts() >= 2 * self._told:
            self._renew.set()

    def _contacts(self) -> int:
        return sum(overlay.contacts for overlay in self._overlays.values())

    async def _stay_published(self) -> None:
        """Publish when something changes and when it is time, sooner if too few took our records the last time."""
        settings = self._settings
        pause, well = settings.republish_first, False
        while True:
            changed = await self._renewed_within(pause * self._jitter())
            if not (self._contacts() and self._publisher.has_something):
                continue  # a first contact renews
            before, well = well, await self._publish()
            shortest, longest = (
                (settings.republish_first, settings.republish_every)
                if well
                else (PUBLISH_SECONDS, settings.republish_first)
            )
            pause = shortest if changed or before != well else min(2 * pause, longest)
            await asyncio.sleep(PUBLISH_SECONDS)

    async def _renewed_within(self, seconds: float) -> bool:
        """Wait for something to publish, so long at most; whether there is."""
        try:
            async with asyncio.timeout(seconds):
                await self._renew.wait()
        except TimeoutError:
            return False
        self._renew.clear()
        return True

    async def _publish(self) -> bool:
        self._told = self._contacts()
        try:
            return await self._publisher.publish(self._open_overlays())
        except Exception:
            logger.exception("Our own records were not published")
            return False

    async def _refresh(self) -> None:
        for overlay in list(self._open_overlays()):
            await overlay.refresh()

    async def _sweep(self) -> None:
        self._shelf.sweep()

    async def _every(self, period: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(period * self._jitter())
            await self._guarded(work)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it; a fault of ours is told, and the job goes on."""
        try:
            await work()
        except Exception:
            logger.exception("A job of the DHT failed")

    def _jitter(self) -> float:
        return 0.75 + self._random.random() / 2

    # --- state ----------------------------------------------------------------------------------------

    async def _load_state(self) -> None:
        try:
            value = await asyncio.to_thread(self._load)
        except Exception:
            logger.exception("The saved contacts of the DHT cannot be read")
            value = None
        state = from_json(value, self._settings.saved_contacts)
        self._publisher.seq = max(self._publisher.seq, state.seq)
        self._loaded = True
        for host, port in state.contacts:
            self.add_contact(host, port)

    async def _save_state(self) -> None:
        most = self._settings.saved_contacts
        places = [place for overlay in self._overlays.values() for place in overlay.places(most)]
        # A node that has lost everybody would otherwise forget whom to ask when it comes back.
        places += [place for place in self._joiner.hints if place not in places]
        state = State(tuple(places[:most]), self._publisher.seq)
        try:
            await asyncio.to_thread(self._save, to_json(state))
        except Exception:
            logger.exception("The contacts of the DHT cannot be saved")

    # --- finding --------------------------------------------------------------------------------------

    async def _resolve(self, public_key: bytes) -> Record | None:
        key = records.key_of(self._network, "address", public_key)
        answers = await asyncio.gather(*(overlay.get(key) for overlay in self._open_overlays()))
        found = [record for answer in answers for record in answer]
        return max(found, key=lambda record: (record.revoked, record.seq), default=None)

    def _tell(self, record: Record) -> None:
        """Tell of a record as a hint, if it leads anywhere."""
        if not record.leads_somewhere or record.revoked:
            return
        hint = Hint(
            agent_did(record.public_key),
            tuple(address for address, _ in record.addresses),
            self.name,
            record.expires,
            tuple(agent_did(key) for key in record.mailmen),
            (record.word,) if record.kind == "interest" else (),
            (record.word,) if record.kind == "role" else (),
        )
        try:
            self._found(hint)
        except Exception:
            logger.exception("What was found in the DHT could not be taken")

    def _problem(self) -> str:
        if self._settings.mode == "off":
            return ""
        if self._problems:
            return "; ".join(self._problems.values())
        if not self._overlays:
            return "there is no IP address to listen on"
        if not self._contacts():
            known = len(self._joiner.hints)
            return f"none of {known} known addresses answers" if known else "no address of another node is known"
        return self._publisher.problem()


def _is_loopback(host: str) -> bool:
    address = plain_ip(host)
    return address is not None and address.is_loopback


def _place_of_socket(overlay: Overlay) -> Place | None:
    exchange = overlay.exchange
    return None if exchange is None else exchange.own_place
