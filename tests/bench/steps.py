"""What each step of a note's way costs in one thread, beside the bare primitives it stands on."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

from nacl.public import PrivateKey, SealedBox
from nacl.signing import SigningKey

from hmp_node.wire import container, frames
from hmp_node.wire.limits import DEFAULT_LIMITS
from hmp_node.wire.text import agent_did, time_text
from tests.bench.common import bodies


def measure() -> dict[str, float]:
    """Microseconds for each step, the median of five rounds."""
    alice, bob = SigningKey.generate(), SigningKey.generate()
    sender, recipient = agent_did(bytes(alice.verify_key)), agent_did(bytes(bob.verify_key))
    text, now_us = bodies(1)[0], time.time_ns() // 1000
    order = {"stream": "0" * 32, "seq": {recipient: 1}}
    payload = {"text": text, "tags": [], "links": [], "priority": 0, "source": "user", "order": order}
    draft = container.Draft(cls="note", payload=payload, recipients=(recipient,), sealed=True)

    def build() -> container.VerifiedContainer:
        return container.build(
            draft,
            sender=sender,
            public_key=bytes(alice.verify_key),
            timestamp=time_text(now_us),
            nonce=os.urandom(16),
            sign=lambda message: alice.sign(message).signature,
            seal_key=os.urandom(32),
            seal_nonce=os.urandom(12),
            recipient_keys={recipient: bytes(bob.verify_key)},
        )

    note = build()
    raw = note.to_mesh()
    frame = frames.encode(frames.Containers((raw,) * 64))
    opener = SealedBox(bob.to_curve25519_private_key())
    signed, box = alice.sign(raw), SealedBox(PrivateKey.generate().public_key)
    return {
        "bare: Ed25519 sign 1 KiB": _microseconds(lambda: alice.sign(raw)),
        "bare: Ed25519 verify 1 KiB": _microseconds(lambda: alice.verify_key.verify(signed)),
        "bare: sealed box of a key": _microseconds(lambda: box.encrypt(b"k" * 32)),
        "build, seal and sign a note": _microseconds(build),
        "parse and verify": _microseconds(
            lambda: container.verify(container.parse_mesh(raw, DEFAULT_LIMITS), now_us=now_us, limits=DEFAULT_LIMITS)
        ),
        "open": _microseconds(
            lambda: container.open_payload(note, me=recipient, open_envelope=opener.decrypt, limits=DEFAULT_LIMITS)
        ),
        "decode a frame of 64 notes": _microseconds(lambda: frames.decode(frame, DEFAULT_LIMITS)),
        "bytes of a note of 1 KiB": len(raw),
    }


def _microseconds(deed: Callable[[], object], rounds: int = 5, seconds: float = 0.2) -> float:
    deed()
    times, began, count = [], time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        deed()
        count += 1
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            deed()
        times.append((time.perf_counter() - start) / count)
    return round(1e6 * statistics.median(times), 1)
