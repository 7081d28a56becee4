"""The vectors of frames, and handshakes with fixed keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from tests.conformance.crafting import ALICE, BOB, Person, chance, craft
from tests.conformance.reference_channel import MAX_FRAME, Side, cut, public_of
from tests.conformance.reference_forms import pack_bin
from tests.conformance.reference_json import base64url
from tests.conformance.vectors_common import CONTENT_DID, Vector, vector
from tests.conformance.vectors_seal import ANNOUNCE

NETWORK = "vectors"
SUBPROTOCOL = f"hmp.v5.{NETWORK}"
PROLOGUE = f"hmp\n5.0\n{NETWORK}".encode()


def text(value: str) -> bytes:
    """A msgpack string, shortest form."""
    raw = value.encode()
    if len(raw) < 32:
        return bytes([0xA0 | len(raw)]) + raw
    return (b"\xd9" + bytes([len(raw)]) if len(raw) < 256 else b"\xda" + len(raw).to_bytes(2, "big")) + raw


def _containers(*items: bytes) -> bytes:
    count = bytes([0x90 | len(items)]) if len(items) < 16 else b"\xdc" + len(items).to_bytes(2, "big")
    return b"\x92\x01" + count + b"".join(map(pack_bin, items))


def frames() -> Iterator[Vector]:
    """Frames, after joining and decryption."""
    note = craft().mesh

    def one(name: str, data: bytes | list[tuple[bytes, int]], expect: str, why: str) -> Vector:
        return vector(f"frame_{name}", "frame", "frame", data, expect, why)

    yield one("containers_one", _containers(note), "accept", "one container")
    yield one(
        "containers_two",
        _containers(note, b"not judged here"),
        "accept",
        "what is in the items is judged later, one by one",
    )
    yield one("containers_1024", [(b"\x92\x01\xdc\x04\x00", 1), (b"\xc4\x00", 1024)], "accept", "as many as allowed")
    yield one("ping", b"\x92\x02\x07", "accept", "a ping")
    yield one("ping_long_form", b"\x92\x02\xcf" + (7).to_bytes(8, "big"), "accept", "any length form of an integer")
    yield one("ping_largest", b"\x92\x02\xcf" + (2**63 - 1).to_bytes(8, "big"), "accept", "the largest number")
    yield one("pong", b"\x92\x03\xcc\xff", "accept", "a pong")
    yield one(
        "refused", b"\x94\x04" + text(CONTENT_DID) + text("bad_signature") + b"\xc2", "accept", "refused for good"
    )
    yield one("refused_for_now", b"\x94\x04" + text(CONTENT_DID) + text("busy") + b"\xc3", "accept", "refused for now")
    yield one("bye", b"\x92\x05" + text("shutdown"), "accept", "goodbye")
    yield one("array_16", b"\xdc\x00\x02\x02\x07", "accept", "any length form of an array")

    yield from _mail_frames(one)
    yield from _dial_frames(one)

    yield one("unknown_type", b"\x92\x0b\xc0", "unknown_frame", "a type of the future")
    yield one("type_zero", b"\x91\x00", "unknown_frame", "no type 0")
    yield one("type_negative", b"\x91\xff", "unknown_frame", "no type -1")
    yield one("empty", b"", "bad_frame", "nothing")
    yield one("empty_array", b"\x90", "bad_frame", "no type")
    yield one("map", b"\x81\x02\x07", "bad_frame", "a map")
    yield one("integer", b"\x02", "bad_frame", "no array")
    yield one("type_text", b"\x92\xa4ping\x07", "bad_frame", "a name for a type")
    yield one("type_true", b"\x92\xc3\x07", "bad_frame", "true is not 1")
    yield one("type_float", b"\x92\xcb\x40\x00\x00\x00\x00\x00\x00\x00\x07", "bad_frame", "2.0 is not 2")
    yield one("trailing", b"\x92\x02\x07\x00", "bad_frame", "a byte behind the array")
    yield one("truncated", b"\x92\x02", "bad_frame", "cut short")
    yield one("reserved_byte", b"\x92\x02\xc1", "bad_frame", "the byte msgpack never uses")
    yield one("bad_utf8", b"\x92\x05\xa2\xff\xfe", "bad_frame", "a string that is not UTF-8")
    yield one(
        "length_lies", b"\x92\x01\xdd\xff\xff\xff\xff", "bad_frame", "an array of four billion, and nothing in it"
    )
    yield one("deep", [(b"\x92\x0b", 1), (b"\x91", 100_000), (b"\xc0", 1)], "bad_frame", "nested beyond reason")
    yield one("containers_none", _containers(), "bad_frame", "an empty list")
    yield one("containers_1025", [(b"\x92\x01\xdc\x04\x01", 1), (b"\xc4\x00", 1025)], "bad_frame", "one too many")
    yield one("containers_bare", b"\x92\x01" + pack_bin(note), "bad_frame", "a container outside a list")
    yield one("containers_text", b"\x92\x01\x91" + text("note"), "bad_frame", "a string for a container")
    yield one("containers_extra", b"\x93\x01\x90\xc0", "bad_frame", "a part too many")
    yield one("ping_negative", b"\x92\x02\xff", "bad_frame", "a negative number")
    yield one("ping_too_large", b"\x92\x02\xcf" + (2**63).to_bytes(8, "big"), "bad_frame", "2^63")
    yield one("ping_true", b"\x92\x02\xc3", "bad_frame", "true is no number")
    yield one("ping_nil", b"\x92\x02\xc0", "bad_frame", "no number")
    yield one("ping_bare", b"\x91\x02", "bad_frame", "a part too few")
    yield one(
        "refused_upper", b"\x94\x04" + text(CONTENT_DID) + text("BAD") + b"\xc2", "bad_frame", "codes are lower case"
    )
    yield one("refused_no_did", b"\x94\x04" + text("") + text("busy") + b"\xc2", "bad_frame", "an empty DID")
    yield one(
        "refused_control",
        b"\x94\x04" + text("did:x:\x1b[31m") + text("busy") + b"\xc2",
        "bad_frame",
        "an escape sequence for a DID",
    )
    yield one("refused_number", b"\x94\x04" + text(CONTENT_DID) + text("busy") + b"\x01", "bad_frame", "1 is not true")
    yield one("bye_endless", b"\x92\x05" + text("x" * 65), "bad_frame", "a code of 65 characters")
    yield one("bye_sentence", b"\x92\x05" + text("see you"), "bad_frame", "a code has no spaces")
    yield one("bye_bytes", b"\x92\x05" + pack_bin(b"bye"), "bad_frame", "bytes for a code")

    room = MAX_FRAME - 8
    yield one(
        "limit", [(b"\x92\x01\x91\xc6" + room.to_bytes(4, "big"), 1), (b"\0", room)], "accept", "as large as allowed"
    )
    room += 1
    yield one(
        "too_large",
        [(b"\x92\x01\x91\xc6" + room.to_bytes(4, "big"), 1), (b"\0", room)],
        "frame_too_large",
        "one byte more",
    )


def number(value: int) -> bytes:
    """A msgpack integer, shortest form."""
    if -32 <= value < 128:
        return value.to_bytes(1, "big", signed=value < 0)
    if value < 0:
        return b"\xd0" + value.to_bytes(1, "big", signed=True)
    mark, size = next((mark, size) for mark, size in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)) if value < 256**size)
    return bytes([mark]) + value.to_bytes(size, "big")


def array(*parts: bytes) -> bytes:
    """A msgpack array."""
    count = len(parts)
    return (bytes([0x90 | count]) if count < 16 else b"\xdc" + count.to_bytes(2, "big")) + b"".join(parts)


def _offered(did: str = CONTENT_DID, recipient: str = BOB.did, size: int = 2048, priority: int = 0) -> bytes:
    return array(text(did), text(recipient), number(size), number(priority))


def _mail_frames(one: Callable[[str, bytes | list[tuple[bytes, int]], str, str], Vector]) -> Iterator[Vector]:
    """Offers, wants, stamps."""

    def offer(*items: bytes) -> bytes:
        return array(b"\x06", array(*items))

    yield one("offer", offer(_offered(), _offered(priority=-100, size=1)), "accept", "two containers to be had")
    yield one("offer_brim", offer(_offered(size=2**32, priority=100)), "accept", "the largest of everything")
    thousand = [(b"\x92\x06\xdc\x04\x00", 1), (_offered(), 1024)]
    yield one("offer_1024", thousand, "accept", "as many as allowed")
    yield one("offer_1025", [(b"\x92\x06\xdc\x04\x01", 1), (_offered(), 1025)], "bad_frame", "one too many")
    yield one("offer_none", offer(), "bad_frame", "nothing to be had")
    yield one("offer_bare", array(b"\x06", text(CONTENT_DID)), "bad_frame", "no list")
    yield one("offer_dids", offer(text(CONTENT_DID)), "bad_frame", "an item has four parts")
    yield one("offer_short", offer(array(text(CONTENT_DID), text(BOB.did), b"\x01")), "bad_frame", "three parts")
    yield one("offer_empty", offer(_offered(size=0)), "bad_frame", "no container has 0 bytes")
    yield one("offer_huge", offer(_offered(size=2**32 + 1)), "bad_frame", "more than 4 GiB")
    yield one("offer_urgent", offer(_offered(priority=101)), "bad_frame", "priority over 100")
    yield one("offer_idle", offer(_offered(priority=-101)), "bad_frame", "priority under -100")
    yield one("offer_to_nobody", offer(_offered(recipient="")), "bad_frame", "no recipient")
    yield one("offer_second_bad", offer(_offered(), _offered(did="я")), "bad_frame", "one bad item spoils the frame")
    yield one("want", array(b"\x07", array(text(CONTENT_DID))), "accept", "one of them")
    yield one("want_nothing", array(b"\x07", array()), "accept", "none of them")
    yield one("want_1025", [(b"\x92\x07\xdc\x04\x01", 1), (text("did:x:y"), 1025)], "bad_frame", "one too many")
    yield one("want_bytes", array(b"\x07", array(pack_bin(b"did:x:y"))), "bad_frame", "bytes for a DID")
    yield one("want_bare", array(b"\x07", text(CONTENT_DID)), "bad_frame", "no list")
    yield one("stamp", array(b"\x0a", text(CONTENT_DID), number(123_456)), "accept", "work for a container")
    yield one("stamp_largest", array(b"\x0a", text(CONTENT_DID), number(2**63 - 1)), "accept", "the largest nonce")
    yield one("stamp_too_large", array(b"\x0a", text(CONTENT_DID), number(2**63)), "bad_frame", "a nonce of 64 bits")
    yield one("stamp_negative", array(b"\x0a", text(CONTENT_DID), number(-1)), "bad_frame", "a negative nonce")
    yield one("stamp_for_nothing", array(b"\x0a", text(""), number(1)), "bad_frame", "no container")
    yield one("stamp_bare", array(b"\x0a", text(CONTENT_DID)), "bad_frame", "no nonce")


def _dial_frames(one: Callable[[str, bytes | list[tuple[bytes, int]], str, str], Vector]) -> Iterator[Vector]:
    """Dial-backs and their answers."""

    def ask(*parts: int) -> bytes:
        return array(b"\x08", *map(number, parts))

    def answer(address: str, code: str = "ok") -> bytes:
        return array(b"\x09", b"\x01", text(address), text(code))

    yield one("dial_back", ask(1, 4830, 98_765), "accept", "dial me at port 4830")
    yield one("dial_back_brim", ask(2**63 - 1, 65_535, 2**63 - 1), "accept", "the largest of everything")
    yield one("dial_back_port_0", ask(1, 0, 1), "bad_frame", "no port 0")
    yield one("dial_back_port_65536", ask(1, 65_536, 1), "bad_frame", "no such port")
    yield one("dial_back_unpaid", ask(1, 4830), "bad_frame", "no nonce")
    yield one("dial_back_nonce", ask(1, 4830, 2**63), "bad_frame", "a nonce of 64 bits")
    yield one("dial_back_third_party", array(b"\x08", b"\x01", text("192.0.2.1"), number(1)), "bad_frame", "no address")
    yield one("dialled_back", answer("203.0.113.7:4830"), "accept", "it worked")
    yield one("dialled_back_refused", answer("", "busy"), "accept", "nothing was dialled")
    yield one("dialled_back_endless", answer("a" * 256), "bad_frame", "an address of 256 characters")
    yield one("dialled_back_control", answer("\x1b[31m"), "bad_frame", "an escape sequence for an address")
    yield one("dialled_back_no_code", answer("203.0.113.7:4830", ""), "bad_frame", "no code")
    yield one("dialled_back_nil", array(b"\x09", b"\x01", b"\xc0", text("ok")), "bad_frame", "nil is no address")


# --- handshakes -----------------------------------------------------------------------------------------


def card(person: Person, version: str = "5.0") -> bytes:
    """The payload of handshake messages 2 and 3."""
    return b"\x92" + pack_bin(person.public_key) + text(version)


def shake(
    cards: tuple[bytes, bytes], *, prologues: tuple[bytes, bytes] = (PROLOGUE, PROLOGUE)
) -> tuple[Side, Side, list[bytes]]:
    """A handshake of Alice, who dials, with Bob; the messages."""
    alice = Side(True, prologues[0], ALICE.static_private, chance("ephemeral/alice", 32))
    bob = Side(False, prologues[1], BOB.static_private, chance("ephemeral/bob", 32))
    first = alice.write(b"")
    bob.read(first)
    second = bob.write(cards[1])
    alice.read(second)
    third = alice.write(cards[0])
    bob.read(third)
    return alice, bob, [first, second, third]


def transcripts() -> dict[str, Any]:
    """The content of channel.json."""
    return {
        "network": NETWORK,
        "subprotocol": SUBPROTOCOL,
        "prologue": base64url(PROLOGUE),
        "handshake": _handshake(),
        "cutting": _cutting(),
        "cut_sizes": _cut_sizes(),
        "joining": _joining(),
        "refused_handshakes": _refused(),
    }


def _handshake() -> dict[str, Any]:
    alice, bob, messages = shake((card(ALICE), card(BOB)))
    assert alice.hash == bob.hash
    announce = {
        name: craft(ANNOUNCE, cls="peer_announce", sender=who, nonce=name).mesh
        for name, who in (("alice", ALICE), ("bob", BOB))
    }
    plain = [
        ("initiator", _containers(announce["alice"])),
        ("responder", _containers(announce["bob"])),
        ("initiator", b"\x92\x02\x01"),
        ("responder", b"\x92\x03\x01"),
        ("responder", b"\x92\x05" + text("shutdown")),
    ]
    senders = {"initiator": alice.split()[0], "responder": bob.split()[0]}
    spoken = []
    for side, frame in plain:
        sent = [senders[side].encrypt(piece) for piece in cut(frame)]
        spoken.append({"from": side, "frame": base64url(frame), "messages": [base64url(message) for message in sent]})
    return {
        "initiator": {
            "name": "alice",
            "static_private": ALICE.static_private.hex(),
            "ephemeral_private": alice.ephemeral.hex(),
            "ephemeral_public": public_of(alice.ephemeral).hex(),
        },
        "responder": {
            "name": "bob",
            "static_private": BOB.static_private.hex(),
            "ephemeral_private": bob.ephemeral.hex(),
            "ephemeral_public": public_of(bob.ephemeral).hex(),
        },
        "payloads": ["", base64url(card(BOB)), base64url(card(ALICE))],
        "messages": [base64url(message) for message in messages],
        "handshake_hash": alice.hash.hex(),
        "initiator_sends_with": (alice.split()[0].key or b"").hex(),
        "responder_sends_with": (bob.split()[0].key or b"").hex(),
        "frames": spoken,
    }


def _cutting() -> dict[str, Any]:
    """A large frame of Alice's, the first after a fresh handshake: three messages."""
    alice, _, _ = shake((card(ALICE), card(BOB)))
    filler = 150_000
    frame = b"\x92\x01\x91\xc6" + filler.to_bytes(4, "big") + b"\x2a" * filler
    cipher = alice.split()[0]
    messages = [cipher.encrypt(piece) for piece in cut(frame)]
    return {
        "about": "the first frame after the handshake above, from the initiator: a container of 150,000 bytes 0x2a",
        "frame_pieces": [[base64url(frame[:8]), 1], [base64url(b"\x2a"), filler]],
        "frame_length": len(frame),
        "messages": [
            {
                "length": len(message),
                "plain_first_byte": piece[0],
                "plain_length": len(piece),
                "sha256": hashlib.sha256(message).hexdigest(),
            }
            for message, piece in zip(messages, cut(frame), strict=True)
        ],
    }


def _cut_sizes() -> list[dict[str, Any]]:
    sizes = (1, 65_517, 65_518, 65_519, 131_036, 131_037, MAX_FRAME)
    return [{"frame_length": size, "plain_lengths": [len(piece) for piece in cut(bytes(size))]} for size in sizes]


def _joining() -> list[dict[str, Any]]:
    ping = b"\x92\x02\x07"

    def one(name: str, pieces: list[bytes], expect: str, frames: list[bytes], why: str) -> dict[str, Any]:
        return {
            "name": name,
            "why": why,
            "plain": [base64url(piece) for piece in pieces],
            "expect": expect,
            "frames": [base64url(frame) for frame in frames],
        }

    return [
        one("whole", [b"\1" + ping], "accept", [ping], "one piece"),
        one("short_pieces", [b"\0\x92", b"\0\x02", b"\1\x07"], "accept", [ping], "pieces may be of any length"),
        one("last_empty", [b"\0" + ping, b"\1"], "accept", [ping], "the last piece may be empty"),
        one(
            "two_frames",
            [b"\1" + ping, b"\0\x92", b"\1\x02\x08"],
            "accept",
            [ping, b"\x92\x02\x08"],
            "one frame after another",
        ),
        one("no_lead", [b""], "bad_frame", [], "no leading byte"),
        one("lead_2", [b"\2" + ping], "bad_frame", [], "a leading byte of the future"),
        one("more_empty", [b"\0"], "bad_frame", [], "more to follow, and nothing in this one: it could go on for ever"),
    ]


def _refused() -> list[dict[str, Any]]:
    """Handshakes that the responder, Bob, refuses at the message given; his ephemeral key is the one above."""
    _, _, good = shake((card(ALICE), card(BOB)))
    other_network = Side(True, b"hmp\n5.0\nelsewhere", ALICE.static_private, chance("ephemeral/alice", 32))
    wrong = [
        ("first_short", [good[0][:31]], "31 bytes are no key"),
        ("first_payload", [good[0] + b"hello"], "message 1 carries nothing"),
        ("first_low_order", [bytes(32)], "a public key of low order"),
        ("third_flipped", [good[0], good[2][:-1] + bytes([good[2][-1] ^ 1])], "one bit of message 3"),
        ("third_short", [good[0], good[2][:47]], "too short for a static key"),
        ("card_empty", _with_card(b""), "no card in message 3"),
        ("card_of_another", _with_card(card(BOB)), "an Ed25519 key that does not convert to the static key"),
        ("card_other_version", _with_card(card(ALICE, "6.0")), "another protocol version"),
        ("card_map", _with_card(b"\x80"), "a card of another shape"),
        ("card_long_key", _with_card(b"\x92" + pack_bin(ALICE.public_key + b"\0") + text("5.0")), "a key of 33 bytes"),
    ]
    made = [
        {
            "name": name,
            "why": why,
            "to_responder": [base64url(message) for message in messages],
            "expect": "bad_handshake",
        }
        for name, messages, why in wrong
    ]
    bob = Side(False, PROLOGUE, BOB.static_private, chance("ephemeral/bob", 32))
    bob.read(other_network.write(b""))
    answer = bob.write(card(BOB))
    made.append(
        {
            "name": "other_prologue",
            "why": "the initiator, of network elsewhere, cannot read message 2",
            "to_initiator": [base64url(answer)],
            "initiator_prologue": base64url(other_network.prologue),
            "expect": "bad_handshake",
        }
    )
    return made


def _with_card(payload: bytes) -> list[bytes]:
    _, _, messages = shake((payload, card(BOB)))
    return [messages[0], messages[2]]
