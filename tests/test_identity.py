"""The key file: made once, private, sealed if wished, and every way it can be wrong has its own word."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import nacl.bindings
import pytest

from hmp_node import identity
from hmp_node.errors import Failed, Failure, Reject, Rejected
from hmp_node.wire.text import agent_did


@pytest.fixture(autouse=True)
def cheap_kdf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "OPSLIMIT", 1)
    monkeypatch.setattr(identity, "MEMLIMIT", 8192)


def test_a_made_key_is_private_and_reads_back(tmp_path: Path) -> None:
    made = identity.create(tmp_path / "key")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    read = identity.load(tmp_path / "key")
    assert (read.did, read.sign(b"x")) == (made.did, made.sign(b"x"))
    assert made.did == agent_did(made.public_key) == identity.public_did(tmp_path / "key")
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_create_never_overwrites(tmp_path: Path) -> None:
    made = identity.create(tmp_path / "key")
    with pytest.raises(FileExistsError):
        identity.create(tmp_path / "key")
    assert identity.load(tmp_path / "key").did == made.did
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_a_passphrase_seals_the_seed(tmp_path: Path) -> None:
    made = identity.create(tmp_path / "key", "каша из топора 🪓")
    assert "seed" not in json.loads((tmp_path / "key").read_text())
    assert identity.load(tmp_path / "key", "каша из топора 🪓").did == made.did
    assert identity.public_did(tmp_path / "key") == made.did
    for given, code in (
        (None, Failure.PASSPHRASE_NEEDED),
        ("", Failure.PASSPHRASE_NEEDED),
        ("nope", Failure.PASSPHRASE_WRONG),
    ):
        with pytest.raises(Failed) as caught:
            identity.load(tmp_path / "key", given)
        assert caught.value.code is code


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    identity.create(tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(Failed, match="chmod 600") as caught:
        identity.load(tmp_path / "key")
    assert caught.value.code is Failure.KEY_EXPOSED


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": "other", "did": "x"}',
        '{"format": "hmp-node identity 1", "did": "x", "seed": "AA=="}',
        "\udcff",
    ],
)
def test_a_damaged_key_says_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_bytes(text.encode(errors="surrogateescape"))
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(Failed) as caught:
        identity.load(tmp_path / "key")
    assert caught.value.code is Failure.KEY_DAMAGED


def test_seed_of_another_did_is_damage(tmp_path: Path) -> None:
    one, two = (json.loads(_made(tmp_path / name)) for name in "ab")
    (tmp_path / "a").write_text(json.dumps(one | {"seed": two["seed"]}))
    with pytest.raises(Failed) as caught:
        identity.load(tmp_path / "a")
    assert caught.value.code is Failure.KEY_DAMAGED


def test_no_key_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="hmp-node init") as caught:
        identity.load(tmp_path / "none")
    assert caught.value.code is Failure.KEY_MISSING


def test_envelopes_open_for_their_recipient_only(tmp_path: Path) -> None:
    alice, bob = (identity.create(tmp_path / name) for name in ("alice", "bob"))
    envelope = nacl.bindings.crypto_box_seal(b"k" * 32, alice.static.public)
    assert alice.open_envelope(envelope) == b"k" * 32
    for wrong in (envelope[:-1], b"", bytes([envelope[0] ^ 1]) + envelope[1:]):
        with pytest.raises(Rejected) as caught:
            alice.open_envelope(wrong)
        assert caught.value.code is Reject.CANNOT_OPEN
    with pytest.raises(Rejected):
        bob.open_envelope(envelope)


def test_static_keys_agree_and_refuse_small_order(tmp_path: Path) -> None:
    alice, bob = (identity.create(tmp_path / name).static for name in ("alice", "bob"))
    assert alice.agree(bob.public) == bob.agree(alice.public)
    with pytest.raises(Rejected) as caught:
        alice.agree(b"\0" * 32)
    assert caught.value.code is Reject.BAD_HANDSHAKE


def _made(path: Path) -> str:
    identity.create(path)
    return path.read_text()
