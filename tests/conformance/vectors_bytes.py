"""The vectors of stage bytes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.conformance.crafting import (
    chance,
    craft,
    mesh_of,
)
from tests.conformance.reference_forms import MAX_CONTAINER
from tests.conformance.vectors_common import Vector, vector


def bytes_stage() -> Iterator[Vector]:
    """Inputs that fail before anybody asks what they mean."""
    plain = craft()
    core, signature = plain.core, plain.signature

    def text(name: str, old: bytes, new: bytes, expect: str, why: str) -> Iterator[Vector]:
        assert old in core
        yield vector(f"json_{name}", "bytes", "json", plain.json.replace(old, new, 1), expect, why)
        yield vector(f"mesh_{name}", "bytes", "mesh", mesh_of(core.replace(old, new, 1), signature), expect, why)

    def mesh(name: str, data: bytes, expect: str, why: str) -> Vector:
        return vector(f"mesh_{name}", "bytes", "mesh", data, expect, why)

    yield from text("duplicate_key", b'{"text":', b'{"text":"a","text":', "duplicate_key", "a member twice")
    yield from text(
        "duplicate_key_escaped", b'{"text":', b'{"te\\u0078t":"a","text":', "duplicate_key", "twice, once escaped"
    )
    yield from text("nan", b'"hello"', b"NaN", "bad_number", "NaN")
    yield from text("infinity", b'"hello"', b"-Infinity", "bad_number", "minus infinity")
    yield from text("beyond_double", b'"hello"', b"1e400", "bad_number", "a number that no double holds")
    yield from text("endless_number", b'"hello"', b"1" * 1025, "bad_number", "a number of more than 1024 characters")
    yield from text("lone_surrogate", b"hello", b"\\ud83d", "bad_string", "half a surrogate pair")
    yield from text("surrogates_swapped", b"hello", b"\\ude00\\ud83d", "bad_string", "a pair in the wrong order")
    yield from text("surrogate_in_name", b'{"text"', b'{"\\udc00":1,"text"', "bad_string", "half a pair in a name")
    yield from text("nul", b"hello", b"a\\u0000b", "bad_string", "U+0000")
    yield from text("bad_utf8", b"hello", b"\xff\xfe", "bad_utf8", "not UTF-8")
    yield from text("utf8_surrogate", b"hello", b"\xed\xa0\x80", "bad_utf8", "a surrogate encoded as UTF-8")
    yield from text("utf8_overlong", b"hello", b"\xc0\xaf", "bad_utf8", "an overlong slash")
    yield from text("leading_zero", b'"hello"', b"01", "bad_json", "a leading zero")
    yield from text("bare_point", b'"hello"', b"1.", "bad_json", "a number that ends in its point")
    yield from text("single_quotes", b'"hello"', b"'hello'", "bad_json", "single quotes")
    yield from text("trailing_comma", b'"hello"}', b'"hello",}', "bad_json", "a comma too many")
    yield from text("raw_newline", b"hello", b"a\nb", "bad_json", "a raw control character in a string")
    yield from text("bad_escape", b"hello", b"\\x41", "bad_json", "an escape JSON does not have")
    yield from text("truncated", b'"hello"}', b'"hel', "bad_json", "cut short")
    yield from text("two_values", b'{"head"', b'{}{"head"', "bad_json", "two values")
    yield vector("json_empty", "bytes", "json", b"", "bad_json", "nothing")
    yield vector("json_bom", "bytes", "json", b"\xef\xbb\xbf" + plain.json, "bad_json", "a byte order mark")
    deep, edge = b"[" * 33 + b"]" * 33, b"[" * 32 + b"]" * 32
    yield from text("depth_33", b'"hello"', b"[" * 31 + b"]" * 31, "too_deep", "one level more than the limit")
    front, back = plain.json.split(b'"hello"')
    huge = [(front, 1), (b"[", 100_000), (b"]", 100_000), (back, 1)]
    yield vector("json_depth_huge", "bytes", "json", huge, "too_deep", "deep enough to overrun a stack")
    for depth, blocks in (("edge", edge), ("over", deep)):
        expect = "accept" if blocks is edge else "too_deep"
        beside = plain.json[:-1] + b',"versions":' + blocks + b"}"
        yield vector(
            f"json_detached_depth_{depth}",
            "bytes",
            "json",
            beside,
            expect,
            "a detached block at the limit, and over it",
        )
        made = mesh_of(core, signature, b'{"versions":' + blocks + b"}")
        yield mesh(f"detached_depth_{depth}", made, expect, "the same in mesh form")

    yield mesh("space", mesh_of(core.replace(b'":', b'": ', 1), signature), "not_canonical", "whitespace")
    yield mesh(
        "escape", mesh_of(core.replace(b"hello", b"\\u0068ello"), signature), "not_canonical", "a needless escape"
    )
    yield mesh("slash", mesh_of(core.replace(b"hello", b"\\/"), signature), "not_canonical", "an escaped slash")
    yield mesh(
        "upper_hex", mesh_of(core.replace(b"hello", b"\\u001F"), signature), "not_canonical", "upper case in an escape"
    )
    head, payload = core.removesuffix(b"}").split(b',"payload":', 1)
    swapped = b'{"payload":' + payload + b"," + head.removeprefix(b"{") + b"}"
    yield mesh("unsorted", mesh_of(swapped, signature), "not_canonical", "members out of order")
    yield mesh(
        "detached_space",
        mesh_of(core, signature, b'{ "versions":{}}'),
        "not_canonical",
        "whitespace in the detached blocks",
    )
    yield mesh(
        "detached_duplicate",
        mesh_of(core, signature, b'{"versions":1,"versions":2}'),
        "duplicate_key",
        "a detached block twice",
    )
    yield mesh(
        "detached_bad_utf8", mesh_of(core, signature, b'{"versions":"\xff"}'), "bad_utf8", "detached blocks not UTF-8"
    )

    good = plain.mesh
    long = b"\xdc\x00\x03\xc6" + len(core).to_bytes(4, "big") + core + b"\xc5\x00\x40" + signature + b"\xc0"
    yield mesh("long_lengths", long, "accept", "any length form is read, the shortest is written")
    yield mesh("detached_empty", mesh_of(core, signature, b"{}"), "accept", "an empty object of detached blocks is nil")
    yield mesh("empty", b"", "bad_msgpack", "nothing")
    yield mesh("cut_short", good[:-5], "bad_msgpack", "the end is missing")
    yield mesh("trailing", good + b"\0", "bad_msgpack", "a byte behind the array")
    yield mesh("two_parts", b"\x92" + good[1:-1], "bad_msgpack", "an array of two")
    yield mesh("four_parts", b"\x94" + good[1:] + b"\xc0", "bad_msgpack", "an array of four")
    yield mesh("map", b"\x83" + good[1:], "bad_msgpack", "a map")
    yield mesh(
        "core_as_text",
        b"\x93\xda" + len(core).to_bytes(2, "big") + core + good[-67:],
        "bad_msgpack",
        "the core as a msgpack string",
    )
    for size in (0, 63, 65):
        yield mesh(
            f"signature_{size}", mesh_of(core, chance("signature", size)), "bad_msgpack", f"a signature of {size} bytes"
        )
    yield mesh("huge_length", b"\x93\xc6\xff\xff\xff\xff", "bad_msgpack", "a length that is not there")
    yield mesh("json_text", plain.json, "bad_msgpack", "the other form")

    spaces = MAX_CONTAINER - len(plain.json)
    yield vector("json_limit", "bytes", "json", [(plain.json, 1), (b" ", spaces)], "accept", "as large as allowed")
    yield vector("json_too_large", "bytes", "json", [(plain.json, 1), (b" ", spaces + 1)], "too_large", "one byte more")
    room = MAX_CONTAINER - len(craft({"text": ""}).mesh) - 2  # the length of the core takes 2 bytes more
    full = craft({"text": "x" * room}, cls="note")
    assert len(full.mesh) == MAX_CONTAINER
    yield vector("mesh_limit", "bytes", "mesh", _pieces(full.mesh, b"x" * room), "accept", "as large as allowed")
    over = craft({"text": "x" * (room + 1)}, cls="note")
    yield vector("mesh_too_large", "bytes", "mesh", _pieces(over.mesh, b"x" * (room + 1)), "too_large", "one byte more")
    yield vector(
        "mesh_too_large_garbage",
        "bytes",
        "mesh",
        [(b"\x93\xc6\x00\x04\x00\x00", 1), (b"[", MAX_CONTAINER)],
        "too_large",
        "size comes before everything else",
    )


def _pieces(data: bytes, filler: bytes) -> list[tuple[bytes, int]]:
    front, back = data.split(filler)
    return [(front, 1), (filler[:1], len(filler)), (back, 1)]
