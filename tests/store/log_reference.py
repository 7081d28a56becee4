"""A log written from protocol/spec/log.md alone, sharing nothing with the node; makes protocol/vectors/log.json.

Run by hand: ``python -m tests.store.log_reference``.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

VECTORS = Path(__file__).parents[2] / "protocol" / "vectors"
ALICE = json.loads((VECTORS / "keys.json").read_text(encoding="utf-8"))["keys"]["alice"]
BOB, CAROL = (
    json.loads((VECTORS / "keys.json").read_text(encoding="utf-8"))["keys"][name]["did"] for name in ("bob", "carol")
)
KEY = SigningKey(bytes.fromhex(ALICE["seed"]))
CHAIN = "00112233445566778899aabbccddeeff"
NEXT_CHAIN = "ffeeddccbbaa99887766554433221100"
TIME = "2026-03-01T12:00:0{}.000000Z"

Lines = list[dict[str, Any]]


def dumps(value: Any) -> bytes:
    """Canonical JSON of values without floats."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def sha(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def salt(name: str) -> str:
    """A known salt."""
    return sha(b"salt/" + name.encode())[:32]


def session(*identities: str) -> str:
    return sha(b"hmp-session-v1\n", dumps(sorted(identities)))


def committed(salt_hex: str, value: Any) -> str:
    return sha(bytes.fromhex(salt_hex), dumps(value))


def row_hash(row: dict[str, Any]) -> str:
    return sha(b"hmp-log-v1\n", dumps(row))


def chain_hash(seq: int, digest: str, previous: str | None, chain: str = CHAIN) -> str:
    return sha(b"hmp-chain-v1\n", dumps([chain, seq, digest, previous]))


def head_bytes(seq: int, digest: str, chain: str = CHAIN) -> bytes:
    return b"hmp-log-head-v1\n" + dumps({"chain_hash": digest, "chain_id": chain, "seq": seq})


def head(seq: int, digest: str, chain: str = CHAIN) -> dict[str, Any]:
    """A signed head."""
    signature = base64.urlsafe_b64encode(KEY.sign(head_bytes(seq, digest, chain)).signature).rstrip(b"=").decode()
    return {"chain_hash": digest, "chain_id": chain, "created_at": TIME.format(9), "seq": seq, "signature": signature}


def hashed(message: dict[str, Any]) -> dict[str, Any]:
    """What a message's hash covers."""
    row = {key: value for key, value in message["row"].items() if key not in {"id", "hash"}}
    if message["redaction"]:
        parts = message["redaction"]
    else:
        parts = {
            name: None if row[name] is None else committed(message["salts"][name], row[name])
            for name in ("content", "attachments")
        }
    return row | {"content": parts["content"], "attachments": parts["attachments"]}


def message(seq: int, peer: str, content: str, **changes: Any) -> dict[str, Any]:
    """A message from a peer to Alice, without its hashes."""
    row = {
        "id": seq,
        "session_hash": session(peer, ALICE["did"]),
        "sender_type": "agent",
        "sender_id": sha(peer.encode()),
        "receiver_type": "agent",
        "receiver_id": sha(ALICE["did"].encode()),
        "leader_id": None,
        "role": "note",
        "content": content,
        "attachments": None,
        "context_hashes": [],
        "hashtags": [],
        "ambient": None,
        "created_at": TIME.format(seq),
    } | changes
    salts = {
        "content": salt(f"content/{seq}"),
        "attachments": None if row["attachments"] is None else salt(f"attachments/{seq}"),
    }
    return {"chain": {"chain_id": CHAIN, "seq": seq}, "redaction": None, "row": row, "salts": salts}


def link(messages: Lines, first: int = 0) -> Lines:
    """Give messages from index ``first`` on their hashes and their places."""
    tails: dict[str, str] = {}
    for number, made in enumerate(messages):
        row = made["row"]
        if number >= first:
            row["prev_hash"] = tails.get(row["session_hash"])
            row["hash"] = made["chain"]["hash"] = row_hash(hashed(made))
            previous = messages[number - 1]["chain"]["chain_hash"] if number else None
            made["chain"]["chain_hash"] = chain_hash(made["chain"]["seq"], row["hash"], previous)
        tails[row["session_hash"]] = row["hash"]
    return messages


def log() -> Lines:
    """Six messages: Bob at 1, 3 and 5, Carol at 2 and 4, and at 6 the redaction of 4."""
    messages = link(
        [
            message(1, BOB, "Hello, Alice."),
            message(2, CAROL, 'Привіт, "Алісо"\n\u0001', hashtags=[sha(b"goal"), sha("ідея".encode())]),
            message(3, BOB, "", attachments=[{"name": "notes.txt", "size": 3}], ambient={"place": "дім", "n": -7}),
            message(4, CAROL, "My password is 1234.", attachments={}),
            message(5, BOB, "Hello, Alice.", leader_id=sha(b"boss"), role="reply"),
        ]
    )
    secret = messages[3]
    messages.append(
        message(
            6, ALICE["did"], "a password", role="redaction", context_hashes=[secret["row"]["hash"]], sender_type="user"
        )
    )
    link(messages, 5)
    secret["redaction"] = {
        "at": TIME.format(6),
        "attachments": hashed(secret)["attachments"],
        "content": hashed(secret)["content"],
        "entry": messages[5]["row"]["hash"],
    }
    secret["row"] |= {"content": None, "attachments": None}
    secret["salts"] = None
    return messages


def lines(messages: Lines, signed: dict[str, Any] | None) -> Lines:
    """The objects of an export."""
    first = {"chains": [CHAIN], "created_at": TIME.format(9), "did": ALICE["did"], "format": "hmp-log-export-v1"}
    players = [
        {"player": {"did_or_name": name, "hash": sha(name.encode()), "kind": "agent"}}
        for name in (ALICE["did"], BOB, CAROL, "boss")
    ]
    tags = [{"hashtag": {"hash": sha(tag.encode()), "tag": tag}} for tag in ("goal", "ідея")]
    return [first, *players, *tags, *messages, *([{"head": signed}] if signed else [])]


def text(objects: Lines) -> str:
    return "".join(dumps(value).decode() + "\n" for value in objects)


def end(messages: Lines) -> dict[str, Any]:
    """The head of a chain that ends here."""
    last = messages[-1]["chain"]
    return head(last["seq"], last["chain_hash"])


# --- damaged exports --------------------------------------------------------------------------------------

EXPORTS: list[dict[str, Any]] = []


def export(why: str, *expect: list[Any], redacted: int = 1, **more: Any) -> Callable[[Callable[[Lines], Any]], Any]:
    """Enter an export made by changing the good one: a function of its messages gives messages, objects or text."""

    def enter(make: Callable[[Lines], Any]) -> Any:
        made = make(copy.deepcopy(log()))
        if not isinstance(made, str):
            made = text(made if "format" in made[0] else lines(made, end(log())))
        name = make.__name__
        EXPORTS.append({"name": name, "why": why, "text": made, "expect": list(expect), "redacted": redacted} | more)
        return make

    return enter


@export("nothing is wrong")
def whole(messages: Lines) -> Lines:
    return messages


@export("an empty log")
def empty(messages: Lines) -> str:
    return text([{"chains": [], "created_at": TIME.format(9), "did": ALICE["did"], "format": "hmp-log-export-v1"}])


EXPORTS[-1]["redacted"] = 0


@export("everything is gone but the name of the chain", ["cut", 1], redacted=0)
def wiped(messages: Lines) -> Lines:
    return lines([], None)[:1]


@export("everything is gone but the names", ["cut", None], redacted=0)
def names_only(messages: Lines) -> Lines:
    first, *names = lines([], None)
    return [first | {"chains": []}, *names]


@export("everything is gone but the head", ["cut", 1], redacted=0)
def head_only(messages: Lines) -> Lines:
    return lines([], end(messages))


def gone_on(messages: Lines) -> Lines:
    """The log goes on, sessions and all, in a new chain."""
    added = [message(7, BOB, "On."), message(8, CAROL, "And on.")]
    previous = None
    for seq, made in enumerate(added, 1):
        before = [other for other in messages if other["row"]["session_hash"] == made["row"]["session_hash"]]
        made["row"]["prev_hash"] = before[-1]["row"]["hash"]
        made["row"]["hash"] = row_hash(hashed(made))
        previous = chain_hash(seq, made["row"]["hash"], previous, NEXT_CHAIN)
        made["chain"] = {"chain_hash": previous, "chain_id": NEXT_CHAIN, "hash": made["row"]["hash"], "seq": seq}
    first, *rest = lines(messages, end(log()))
    last = added[-1]["chain"]
    head_of_next = {"head": head(last["seq"], last["chain_hash"], NEXT_CHAIN)}
    return [first | {"chains": [CHAIN, NEXT_CHAIN]}, *rest, *added, head_of_next]


@export("a second chain, as after a restore")
def second_chain(messages: Lines) -> Lines:
    return gone_on(messages)


@export("cut, and gone on in a second chain: the head of the first is kept", ["cut", 6], ["edited", 4], redacted=1)
def cut_and_gone_on(messages: Lines) -> Lines:
    return gone_on(messages[:5])


@export("one letter of the content", ["edited", 1])
def content(messages: Lines) -> Lines:
    messages[0]["row"]["content"] = "Hello, Alica."
    return messages


@export("a column that is not content", ["edited", 5])
def role(messages: Lines) -> Lines:
    messages[4]["row"]["role"] = "note"
    return messages


@export("a column that cannot be told in JSON any more", ["edited", 5], file=True)
def untold(messages: Lines) -> Lines:
    messages[4] |= {"row": {"id": 5}, "salts": None}
    return messages


@export("a salt", ["edited", 3])
def salted(messages: Lines) -> Lines:
    messages[2]["salts"]["attachments"] = salt("other")
    return messages


@export("a chain hash", ["edited", 2])
def chained(messages: Lines) -> Lines:
    messages[1]["chain"]["chain_hash"] = "0" * 64
    return messages


@export("a name that is not what its hash stands for", ["edited", None])
def renamed(messages: Lines) -> Lines:
    objects = lines(messages, end(messages))
    objects[2]["player"]["did_or_name"] = CAROL
    return objects


@export("all hashes from 5 on computed anew: only the signed head knows", ["edited", 6])
def rewritten(messages: Lines) -> Lines:
    messages[4]["row"]["content"] = "Goodbye, Alice."
    return link(messages, 4)


@export("the signature of the head", ["edited", 6])
def unsigned(messages: Lines) -> Lines:
    return lines(messages, end(messages) | {"signature": base64.urlsafe_b64encode(bytes(64)).rstrip(b"=").decode()})


@export("a message, right in every hash, behind the signed head", ["edited", 7])
def appended(messages: Lines) -> Lines:
    return link([*messages, message(7, BOB, "more")], 6)


@export("a message that no chain knows", ["edited", None])
def outside(messages: Lines) -> Lines:
    loose = message(7, BOB, "more")
    loose["row"] |= {"hash": "0" * 64, "prev_hash": None}
    return [loose | {"chain": None}, *messages]


@export("redacted, but the message that should say so names another", ["edited", 4], ["edited", 6])
def unsaid(messages: Lines) -> Lines:
    messages[5]["row"]["context_hashes"] = [messages[2]["row"]["hash"]]
    return messages


@export("content gone without a redaction", ["edited", 3])
def emptied(messages: Lines) -> Lines:
    messages[2]["row"]["content"] = None
    return messages


@export("a message and its place", ["missing", 3])
def gone(messages: Lines) -> Lines:
    return messages[:2] + messages[3:]


@export("a message whose place is left", ["missing", 5])
def hollow(messages: Lines) -> Lines:
    messages[4] |= {"row": None, "salts": None}
    return messages


@export("3 gone, the rest renumbered and chained anew", ["missing", 4], ["cut", 6])
def closed(messages: Lines) -> Lines:
    left = messages[:2] + messages[3:]
    for seq, made in enumerate(left, 1):
        made["chain"]["seq"] = seq
        previous = left[seq - 2]["chain"]["chain_hash"] if seq > 1 else None
        made["chain"]["chain_hash"] = chain_hash(seq, made["chain"]["hash"], previous)
    return left


@export("the last two", ["cut", 5], ["edited", 4])
def shortened(messages: Lines) -> Lines:
    return messages[:4]


@export("no head", ["cut", 7])
def headless(messages: Lines) -> Lines:
    return lines(messages, None)


@export("the last line is half written", ["cut", 7], file=True)
def torn(messages: Lines) -> str:
    return text(lines(messages, end(messages)))[:-60]


@export("cut and signed anew, as the owner can: the head from elsewhere knows", ["cut", 4], redacted=0, head=end(log()))
def resigned(messages: Lines) -> Lines:
    return lines(messages[:3], end(messages[:3]))


@export("rewritten and signed anew, as the owner can: the head from elsewhere knows", ["forked", 6], head=end(log()))
def two_faced(messages: Lines) -> Lines:
    messages[4]["row"]["content"] = "Goodbye, Alice."
    link(messages, 4)
    return lines(messages, end(messages))


@export("an older head from elsewhere", head=end(log()[:3]))
def older(messages: Lines) -> Lines:
    return messages


@export("2 and 3 have changed places in the chain", ["reordered", 2])
def swapped(messages: Lines) -> Lines:
    messages[1]["chain"]["seq"], messages[2]["chain"]["seq"] = 3, 2
    return [messages[0], messages[2], messages[1], *messages[3:]]


@export("the line of 2 stands after that of 5", ["reordered", 2], file=True)
def moved(messages: Lines) -> Lines:
    return [messages[0], *messages[2:5], messages[1], messages[5]]


@export("3 and 5, ids and all, chained and signed anew, as the owner can", ["reordered", 3])
def backwards(messages: Lines) -> Lines:
    messages[2], messages[4] = messages[4], messages[2]
    for number, made in enumerate(messages):
        made["row"]["id"] = made["chain"]["seq"] = number + 1
        previous = messages[number - 1]["chain"]["chain_hash"] if number else None
        made["chain"]["chain_hash"] = chain_hash(number + 1, made["chain"]["hash"], previous)
    return lines(messages, end(messages))


@export("two messages at one place", ["forked", 3], file=True)
def doubled(messages: Lines) -> Lines:
    other = message(3, BOB, "another", created_at=TIME.format(4))
    other = link([*messages[:2], other], 2)[2]
    return [*messages[:3], other, *messages[3:]]


@export("a second message after 1 in Bob's session, rightly signed", ["forked", 7])
def branched(messages: Lines) -> Lines:
    made = link([*messages, message(7, BOB, "fork")], 6)
    made[6]["row"]["prev_hash"] = made[0]["row"]["hash"]
    made[6]["row"]["hash"] = made[6]["chain"]["hash"] = row_hash(hashed(made[6]))
    made[6]["chain"]["chain_hash"] = chain_hash(7, made[6]["row"]["hash"], made[5]["chain"]["chain_hash"])
    return lines(made, end(made))


@export("a second beginning of Carol's session, rightly signed", ["forked", 7])
def begun_twice(messages: Lines) -> Lines:
    made = [*messages, message(7, CAROL, "fork")]
    made[6]["row"]["prev_hash"] = None
    made[6]["row"]["hash"] = made[6]["chain"]["hash"] = row_hash(hashed(made[6]))
    made[6]["chain"]["chain_hash"] = chain_hash(7, made[6]["row"]["hash"], made[5]["chain"]["chain_hash"])
    return lines(made, end(made))


# --- the file ---------------------------------------------------------------------------------------------


def vectors() -> dict[str, Any]:
    """All of log.json."""
    messages = log()
    values: list[Any] = [
        "",
        "Hello, Alice.",
        'Привіт, "Алісо"\n\u0001',
        [{"name": "notes.txt", "size": 3}],
        {},
        [],
        -7,
        "null",
    ]
    rows = [hashed(made) for made in messages]
    heads = [
        {"chain_id": CHAIN, "seq": seq, "chain_hash": digest, "bytes": head_bytes(seq, digest).hex()}
        | {"signature": head(seq, digest)["signature"], "valid": True}
        for seq, digest in ((made["chain"]["seq"], made["chain"]["chain_hash"]) for made in messages)
    ]
    heads.append(heads[5] | {"seq": 7, "bytes": head_bytes(7, heads[5]["chain_hash"]).hex(), "valid": False})
    names = [ALICE["did"], BOB, "boss", "goal", "ідея", ""]
    return {
        "format": "hmp-log-vectors-1",
        "about": "the message log, spec/log.md 9; signed with the key of alice in keys.json",
        "did": ALICE["did"],
        "names": [{"name": name, "hash": sha(name.encode())} for name in names],
        "sessions": [
            {"identities": list(identities), "hash": session(*identities)}
            for identities in ((ALICE["did"], BOB), (BOB, ALICE["did"]), (ALICE["did"], "ticks"), ("б", "a", "Z"))
        ],
        "commitments": [
            {"salt": salt(str(number)), "value": value, "commitment": committed(salt(str(number)), value)}
            for number, value in enumerate(values)
        ],
        "rows": [{"row": row, "hash": row_hash(row)} for row in rows],
        "chain": [
            made["chain"] | {"previous": messages[number - 1]["chain"]["chain_hash"] if number else None}
            for number, made in enumerate(messages)
        ],
        "heads": heads,
        "exports": EXPORTS,
    }


def written() -> str:
    """The text of log.json: one vector a line."""
    parts = []
    for key, value in vectors().items():
        if isinstance(value, list):
            inner = ",\n".join("  " + json.dumps(one, ensure_ascii=False) for one in value)
            parts.append(f' "{key}": [\n{inner}\n ]')
        else:
            parts.append(f' "{key}": {json.dumps(value, ensure_ascii=False)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    (VECTORS / "log.json").write_text(written(), encoding="utf-8")
