"""What mesh tests stand on: people with real keys, and one `Mesh` on a bench with its hand-moved clock."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nacl import bindings
from nacl.signing import SigningKey

from hmp_node.errors import HmpError
from hmp_node.mesh.events import (
    Answer,
    Close,
    ContainersReceived,
    Dial,
    Effect,
    Event,
    Found,
    FrameReceived,
    HandshakeReceived,
    LookUp,
    Now,
    Opened,
    OutboxDue,
    PeersToDial,
    Perform,
    Performed,
    Read,
    RowsRead,
    Secure,
    Send,
    SendHandshake,
    Started,
    Tell,
    Ticked,
)
from hmp_node.mesh.handshake import Introduction, Myself
from hmp_node.mesh.machine import Mesh
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.container import Draft, VerifiedContainer, build
from hmp_node.wire.frames import Containers, Frame
from hmp_node.wire.text import agent_did, time_text

NETWORK = "test"
EPOCH_US = 1_790_000_000_000_000
E = TypeVar("E")

_nonces = itertools.count(1)


class Static:
    """The X25519 form of an identity key."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.public = bindings.crypto_scalarmult_base(secret)

    def agree(self, public: bytes) -> bytes:
        return bindings.crypto_scalarmult(self._secret, public)


class Person:
    """Someone with a key: signs containers and shakes hands."""

    def __init__(self, name: str, did: str | None = None) -> None:
        self.name = name
        self._key = SigningKey(hashlib.sha256(name.encode()).digest())
        self.public_key = bytes(self._key.verify_key)
        self.identity = agent_did(self.public_key)
        self.did = did or self.identity
        secret = bindings.crypto_sign_ed25519_sk_to_curve25519(self._key._signing_key)
        self.static = Static(secret)

    def __repr__(self) -> str:
        return f"<{self.name} {self.did}>"

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data).signature

    def container(
        self, cls: str, payload: dict[str, Any], to: tuple[str, ...] = (), now_us: int = EPOCH_US, network: str = ""
    ) -> VerifiedContainer:
        return build(
            Draft(cls=cls, payload=payload, recipients=to, network=network, compress=False),
            sender=self.did,
            public_key=self.public_key,
            timestamp=time_text(now_us),
            nonce=next(_nonces).to_bytes(16, "big"),
            sign=self.sign,
            seal_key=None,
            seal_nonce=None,
            recipient_keys={},
        )

    def announce(self, now_us: int = EPOCH_US, **more: Any) -> VerifiedContainer:
        return self.container("peer_announce", {"name": self.name, **more}, now_us=now_us)

    def note(
        self, to: Person | str, text: str = "hello", now_us: int = EPOCH_US, network: str = ""
    ) -> VerifiedContainer:
        did = to if isinstance(to, str) else to.did
        return self.container("note", {"text": text}, (did,), now_us, network)

    def receipt(
        self, to: Person | str, dids: Iterable[str | tuple[str, str]], now_us: int = EPOCH_US
    ) -> VerifiedContainer:
        """For each container its DID, or (DID, state) if that is not delivered."""
        said = [(one, "delivered") if isinstance(one, str) else one for one in dids]
        items = [{"did": did, "state": state} for did, state in said]
        head = {"chain_id": "c", "seq": 1, "chain_hash": "0" * 64}
        did = to if isinstance(to, str) else to.did
        return self.container("receipt", {"items": items, "log_head": head}, (did,), now_us)

    def myself(self, network: str = NETWORK) -> Myself:
        return Myself(self.did, self.public_key, self.static, network)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Name the seed of a run that fails, so that it can be replayed."""
    try:
        yield
    except BaseException:
        print(f"failing seed: {seed}")
        raise


def ephemerals(seed: int) -> Callable[[], bytes]:
    """Fresh-looking 32 bytes at each call, the same for the same seed."""
    chance = random.Random(seed)
    return lambda: chance.randbytes(32)


@dataclass
class Bench:
    """One mesh under test, and everything it asked for; nothing is answered unless a test does it."""

    me: Person = field(default_factory=lambda: Person("me"))
    settings: MeshSettings = field(default_factory=MeshSettings)
    announcement: dict[str, Any] = field(default_factory=dict)
    started: bool = True
    mono: float = 1000.0

    def __post_init__(self) -> None:
        self.mesh = Mesh(
            self.me.did,
            self.me.public_key,
            self.me.static,
            NETWORK,
            self.settings,
            random.Random(1),
            ephemerals(1),
        )
        self.effects: list[Effect] = []
        self._conns = itertools.count(1)
        self._asks = itertools.count(1)
        if self.started:
            self.do(Started((self.me.announce(**self.announcement),)))

    @property
    def now(self) -> Now:
        return Now(self.mono, EPOCH_US + int(self.mono * 1e6))

    def do(self, *events: Event) -> list[Effect]:
        """Hand over events now; give the effects of all of them."""
        effects = [effect for event in events for effect in self.mesh.handle(event, self.now)]
        self.effects += effects
        return effects

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass, waking the mesh as it asked to be."""
        end = self.mono + seconds
        effects: list[Effect] = []
        while (wake := self.mesh.wake_at) is not None and wake <= end:
            self.mono = max(self.mono, wake)
            effects += self.do(Ticked())
        self.mono = end
        return effects

    def conn(self) -> int:
        return next(self._conns)

    def question(self) -> int:
        return next(self._asks)

    # --- a peer at the other end ---

    def shake(
        self,
        peer: Person,
        *,
        dialled: str | None = None,
        want: str | None = None,
        conn: int | None = None,
        arrival: str = "127.0.0.1",
    ) -> tuple[int, list[Effect]]:
        """Open a connection and shake hands: inbound, or dialled at an address. Gives its number and the effects."""
        conn = self.conn() if conn is None else conn
        theirs = Introduction(peer.myself(), initiator=dialled is None, want=None, ephemeral=ephemerals(conn)())
        address = dialled or f"in:{peer.name}"
        effects = self.do(Opened(conn, dialled is not None, address, arrival, want))
        first = theirs.begin()
        if first is not None:
            effects += self.do(HandshakeReceived(conn, first))
        heard = 0
        while len(messages := [e.data for e in of(effects, SendHandshake) if e.conn == conn]) > heard:
            reply = theirs.receive(messages[heard])
            heard += 1
            if reply is not None:
                effects += self.do(HandshakeReceived(conn, reply))
        return conn, effects

    def connect(
        self,
        peer: Person,
        *,
        dialled: str | None = None,
        want: str | None = None,
        error: HmpError | None = None,
        announcement: VerifiedContainer | None = None,
        arrival: str = "127.0.0.1",
    ) -> int:
        """Bring a channel with the peer up, the store agreeing unless ``error``; gives its number."""
        conn, _ = self.shake(peer, dialled=dialled, want=want, arrival=arrival)
        effects = self.do(ContainersReceived(conn, (announcement or peer.announce(),)))
        for perform in of(effects, Perform):
            self.do(Performed(perform.id, error))
        return conn

    def receive(self, conn: int, *containers: VerifiedContainer) -> list[Effect]:
        return self.do(ContainersReceived(conn, containers))

    def frame(self, conn: int, frame: Frame) -> list[Effect]:
        return self.do(FrameReceived(conn, frame))

    def list_peers(self, *rows: tuple[object, ...]) -> list[Effect]:
        """Answer the read of peers to dial that is waiting."""
        reads = [read for read in of(self.effects, Read) if isinstance(read.query, PeersToDial)]
        return self.do(RowsRead(reads[-1].id, rows))

    def find(self, *addresses: str) -> list[Effect]:
        """Let the search of the finders that was begun last end with these addresses."""
        search = of(self.effects, LookUp)[-1]
        return self.do(Found(search.id, search.did, addresses))


def of(effects: Iterable[object], kind: type[E]) -> list[E]:
    """Only the effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def frames(effects: Iterable[Effect], conn: int | None = None) -> list[Frame]:
    return [send.frame for send in of(effects, Send) if conn is None or send.conn == conn]


def sent(effects: Iterable[Effect], conn: int | None = None) -> list[bytes]:
    """The containers sent, in mesh form."""
    return [item for frame in frames(effects, conn) if isinstance(frame, Containers) for item in frame.items]


def performs(effects: Iterable[Effect], action: str) -> list[Perform]:
    return [perform for perform in of(effects, Perform) if perform.action == action]


def delivered(container: VerifiedContainer, bringer: Person, arrival: str = "127.0.0.1") -> dict[str, object]:
    """What an action is given with a container that this peer brought."""
    return {"container": container, "arrival": arrival, "bringer": bringer.did}


def closes(effects: Iterable[Effect]) -> dict[int, str]:
    return {close.conn: str(close.code) for close in of(effects, Close)}


def tells(effects: Iterable[Effect], topic: str) -> list[dict[str, object]]:
    return [dict(tell.data) for tell in of(effects, Tell) if tell.topic == topic]


def dials(effects: Iterable[Effect]) -> list[str]:
    return [dial.address for dial in of(effects, Dial)]


def reads(effects: Iterable[Effect], query: type) -> list[Read]:
    return [read for read in of(effects, Read) if isinstance(read.query, query)]


def outbox_reads(effects: Iterable[Effect]) -> list[Read]:
    return reads(effects, OutboxDue)


def secures(effects: Iterable[Effect]) -> list[Secure]:
    return of(effects, Secure)


def answers(effects: Iterable[Effect]) -> list[Answer]:
    return of(effects, Answer)
