"""The node's key: made once, kept in one file, never handed out.

The Ed25519 seed lies in ``identity.key`` (JSON, mode 0600), optionally sealed with a passphrase by Argon2id
(RFC 9106, libsodium's ``crypto_pwhash``) and XSalsa20-Poly1305. Rooms receive three deeds of an `Identity`
(`sign`, `open_envelope`, and `static` for the Noise handshake), never the seed.
"""

from __future__ import annotations

import base64
import json
import os
import stat
from pathlib import Path
from typing import Any

import nacl.bindings
import nacl.exceptions
import nacl.pwhash
import nacl.secret
import nacl.signing
import nacl.utils

from hmp_node.errors import Failed, Failure, Reject, Rejected
from hmp_node.wire.text import agent_did

FORMAT = "hmp-node identity 1"
# libsodium's MODERATE profile: 3 passes over 256 MiB, about half a second on one core.
OPSLIMIT = nacl.pwhash.argon2id.OPSLIMIT_MODERATE
MEMLIMIT = nacl.pwhash.argon2id.MEMLIMIT_MODERATE


class Static:
    """The X25519 form of the identity key, for Noise: its public half and Diffie-Hellman with it."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.public = nacl.bindings.crypto_scalarmult_base(secret)

    def agree(self, public: bytes) -> bytes:
        """X25519 shared secret (32 bytes, RFC 7748); `Rejected` BAD_HANDSHAKE for a point of small order."""
        try:
            return nacl.bindings.crypto_scalarmult(self._secret, public)
        except nacl.exceptions.CryptoError as error:
            raise Rejected(Reject.BAD_HANDSHAKE, "The peer's X25519 key gives no usable shared secret") from error


class Identity:
    """A node's Ed25519 identity; ``did`` is self-certifying (protocol/spec/container.md)."""

    def __init__(self, seed: bytes) -> None:
        self._key = nacl.signing.SigningKey(seed)
        self.public_key: bytes = bytes(self._key.verify_key)
        self.did = agent_did(self.public_key)
        secret = nacl.bindings.crypto_sign_ed25519_sk_to_curve25519(seed + self.public_key)
        self._secret = secret
        self.static = Static(secret)

    def sign(self, message: bytes) -> bytes:
        """Ed25519 signature (64 bytes, RFC 8032)."""
        return self._key.sign(message).signature

    def open_envelope(self, envelope: bytes) -> bytes:
        """Open a libsodium sealed box made to this identity; `Rejected` CANNOT_OPEN if it is not ours."""
        try:
            return nacl.bindings.crypto_box_seal_open(envelope, self.static.public, self._secret)
        except (nacl.exceptions.CryptoError, TypeError, ValueError) as error:
            raise Rejected(Reject.CANNOT_OPEN, "The envelope was not sealed to this identity") from error


def create(path: Path, passphrase: str | None = None) -> Identity:
    """Make a new identity file; never overwrites: raises `FileExistsError` if there is one.

    The file is complete and on disk under its name, or absent: it is written beside and linked in.
    """
    seed = nacl.utils.random(32)
    identity = Identity(seed)
    record: dict[str, Any] = {"format": FORMAT, "did": identity.did}
    record |= _seal_seed(seed, passphrase) if passphrase else {"seed": _text(seed)}
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(record, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(beside, path)
        _sync_folder(path.parent)
    finally:
        beside.unlink()
    return identity


def load(path: Path, passphrase: str | None = None) -> Identity:
    """Read an identity file.

    Raises `Failed`: KEY_MISSING, KEY_EXPOSED, KEY_DAMAGED, PASSPHRASE_NEEDED, PASSPHRASE_WRONG.
    """
    record = _read(path)
    try:
        seed = _bytes(record["seed"]) if "seed" in record else _open_seed(path, record["sealed"], passphrase)
        identity = Identity(seed)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if identity.did != record.get("did"):
        raise _damaged(path, "the key and the DID in it do not belong together")
    return identity


def public_did(path: Path) -> str:
    """The DID in an identity file, without opening the key (no passphrase needed)."""
    return str(_read(path)["did"])


def _read(path: Path) -> dict[str, Any]:
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise Failed(
            Failure.KEY_MISSING, f"There is no identity at {path}", remedy="make one with `hmp-node init`"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from error
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Failed(
            Failure.KEY_EXPOSED,
            f"Others on this machine may read the identity {path} (mode {stat.S_IMODE(mode):04o})",
            remedy=f"run `chmod 600 {path}`; if others have had access, make a new identity",
        )
    try:
        record = json.loads(text)
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(record, dict) or record.get("format") != FORMAT or not isinstance(record.get("did"), str):
        raise _damaged(path, f"it is not of the form {FORMAT!r}")
    return record


def _seal_seed(seed: bytes, passphrase: str) -> dict[str, Any]:
    salt = nacl.utils.random(nacl.pwhash.argon2id.SALTBYTES)
    box = nacl.secret.SecretBox(_derive(passphrase, salt, OPSLIMIT, MEMLIMIT))
    return {
        "sealed": {
            "kdf": "argon2id",
            "opslimit": OPSLIMIT,
            "memlimit": MEMLIMIT,
            "salt": _text(salt),
            "box": _text(bytes(box.encrypt(seed))),
        }
    }


def _open_seed(path: Path, sealed: dict[str, Any], passphrase: str | None) -> bytes:
    if not passphrase:
        raise Failed(
            Failure.PASSPHRASE_NEEDED,
            f"The identity {path} is sealed with a passphrase",
            remedy="set HMP_PASSPHRASE, or node.passphrase_file in node.yaml to a file of mode 0600",
        )
    opslimit, memlimit = int(sealed["opslimit"]), int(sealed["memlimit"])
    if opslimit > 4 * OPSLIMIT or memlimit > 4 * MEMLIMIT:
        raise ValueError("its key derivation asks for more work than any version of hmp_node does")
    key = _derive(passphrase, _bytes(sealed["salt"]), opslimit, memlimit)
    try:
        return nacl.secret.SecretBox(key).decrypt(_bytes(sealed["box"]))
    except nacl.exceptions.CryptoError as error:
        raise Failed(Failure.PASSPHRASE_WRONG, f"The passphrase does not open the identity {path}") from error


def _derive(passphrase: str, salt: bytes, opslimit: int, memlimit: int) -> bytes:
    return nacl.pwhash.argon2id.kdf(
        nacl.secret.SecretBox.KEY_SIZE,
        passphrase.encode(),
        salt,
        opslimit=opslimit,
        memlimit=memlimit,
    )


def _damaged(path: Path, why: str) -> Failed:
    return Failed(
        Failure.KEY_DAMAGED,
        f"The identity {path} cannot be read: {why}",
        remedy="restore it from a backup; without it this DID is lost",
    )


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
