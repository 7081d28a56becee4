"""join, and bootstrap sign|verify."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hmp_node.errors import Failed, Failure, Reject, Rejected
from tests.cli.conftest import Cli
from tests.cli.scripted import BOB, EVE, NOW, Scripted

CARD = "hmp:6Mk?addr=192.0.2.7:7440"
SIGNED = '{"hmp_container": {}}'
SEED = {"did": BOB, "addresses": ["192.0.2.7:7440"]}


def joined(**more: Any) -> dict[str, Any]:
    """What `seeds.join` gives."""
    fields = {"origin": "x", "signer": EVE, "seeds": 2, "dropped": [], "reached": BOB, "expires_at": NOW}
    return fields | more


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files named without a folder lie here."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- join -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["192.0.2.7:7440", "[2001:db8::7]:7440", "wss://x.example/mesh", CARD])
def test_one_peer_is_joined_by_address_or_card(cli: Cli, node: Scripted, where: str) -> None:
    node.answers["peer.join"] = {
        "did": BOB,
        "announced_name": "Bob\x1b",
        "address": "192.0.2.7:7440",
        "alias": "bob",
        "reachable": True,
    }
    done = cli("join", where, "--name", "bob", "--timeout", "3")
    assert node.args("peer.join") == {"where": where, "name": "bob", "timeout_s": 3.0}
    assert (done.code, f"did: {BOB}" in done.out, "Bob\\x1b" in done.out) == (0, True, True)


def test_a_list_is_joined_by_url_or_name_and_its_signer_pinned(cli: Cli, node: Scripted) -> None:
    node.answers["seeds.join"] = joined()
    for where, source in (("https://x.example/s.json", "url"), ("test", "profile")):
        done = cli("join", where, "--signer", EVE, "--timeout", "3")
        assert (done.code, done.err) == (0, "")
        assert done.out == f"2 seeds, signed by {EVE}, good until 2026-11-30 12:00:00Z\nconnected to {BOB}\n"
        args = node.args("seeds.join")
        assert (args[source], args["signer"], args["timeout_s"]) == (where, EVE, 3.0)


def test_a_list_is_joined_from_a_file(cli: Cli, node: Scripted, folder: Path) -> None:
    (folder / "списки.txt").write_text("DID: …\n", encoding="utf-8")
    dropped = [{"did": BOB, "address": "10.0.0.1:1", "reason": "private\x1b"}]
    node.answers["seeds.join"] = joined(signer=None, seeds=1, expires_at=None, dropped=dropped)
    done = cli("join", "списки.txt")
    args = node.args("seeds.join")
    assert (args["text"], args["origin"]) == ("DID: …\n", str(folder / "списки.txt"))
    assert done.out.splitlines() == [
        "1 seed, not signed",
        f"  left out 10.0.0.1:1 of {BOB}: private\\x1b",
        f"connected to {BOB}",
    ]


def test_a_list_of_which_no_seed_answers_is_5_with_what_is_known(cli: Cli, node: Scripted) -> None:
    node.answers["seeds.join"] = joined(reached=None)
    done = cli("join", "test", "--timeout", "0.5")
    assert (done.code, done.out) == (5, f"2 seeds, signed by {EVE}, good until 2026-11-30 12:00:00Z\n")
    assert "no seed answered within 0.5 s (timed_out): they are tried again for ever" in done.err
    done = cli("join", "test", "--json")
    assert (done.code, done.value["seeds"], done.value["reached"]) == (5, 2, None)


@pytest.mark.parametrize(
    "words",
    [
        ["192.0.2.7:7440", "--signer", EVE],
        [CARD, "--signer", EVE],
        ["test", "--name", "bob"],
        ["https://x.example/s.json", "--name", "bob"],
        ["no/such/file.json"],
        ["x" * 5000],
        ["."],
        [""],
        ["a\0b"],
    ],
)
def test_what_is_none_of_these_is_usage_and_nobody_is_asked(cli: Cli, node: Scripted, words: list[str]) -> None:
    done = cli("join", *words)
    assert (done.code, done.out, node.asked) == (2, "", [])
    assert done.err.startswith("error: ")
    assert len(done.err) < 600


def test_a_file_that_is_no_list_is_told(cli: Cli, node: Scripted, folder: Path) -> None:
    (folder / "big.json").write_bytes(b"x" * 262_145)
    (folder / "odd.json").write_bytes(b"\xff")
    assert [cli("join", name, "--json").value["error"]["code"] for name in ("big.json", "odd.json")] == [
        "too_large",
        "bad_utf8",
    ]
    assert not node.asked


@pytest.mark.parametrize(
    ("error", "exits"),
    [
        (Rejected(Reject.WRONG_SIGNER, "signed by another", remedy="--signer"), 1),
        (Rejected(Reject.EXPIRED, "ended"), 1),
        (Rejected(Reject.STALE, "older"), 1),
        (Rejected(Reject.BAD_SEED_LIST, "no list"), 1),
        (Failed(Failure.FETCH_FAILED, "404"), 1),
        (Failed(Failure.TIMED_OUT, "late"), 5),
    ],
)
def test_a_list_that_is_not_taken_is_told(cli: Cli, node: Scripted, error: Exception, exits: int) -> None:
    node.answers["seeds.join"] = error
    done = cli("join", "test")
    assert (done.code, done.out, done.err) == (exits, "", f"error: {error}\n")


# --- lists ----------------------------------------------------------------------------------------------


def test_a_list_is_signed_to_standard_output_or_a_file(cli: Cli, node: Scripted, folder: Path) -> None:
    (folder / "seeds.yaml").write_text(f'- did: {BOB}\n  addresses: ["192.0.2.7:7440"]\n', encoding="utf-8")
    (folder / "seeds.json").write_text(json.dumps([SEED]), encoding="utf-8")
    node.answers["seeds.sign"] = {"text": SIGNED}
    for name in ("seeds.yaml", "seeds.json"):
        done = cli("bootstrap", "sign", name)
        assert (done.code, done.out) == (0, SIGNED + "\n")
        assert node.args("seeds.sign") == {"seeds": [SEED], "ttl_s": 90 * 86_400}
    assert cli("bootstrap", "sign", "seeds.yaml", "--json").value == {"text": SIGNED}
    out = folder / "out.json"
    out.write_text("an older list")
    done = cli("bootstrap", "sign", "seeds.yaml", "--ttl", "12h", "--out", "out.json", "--json")
    assert done.value == {"path": str(out)}
    assert out.read_text(encoding="utf-8") == SIGNED + "\n"
    assert node.args("seeds.sign")["ttl_s"] == 12 * 3600
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["out.json", "seeds.json", "seeds.yaml"]


@pytest.mark.parametrize("text", ["{", "a: 1", "- just text", "3", "", "\x00", "- {a: 1", "[" * 5000])
def test_what_is_no_list_of_seeds_is_not_signed(cli: Cli, node: Scripted, folder: Path, text: str) -> None:
    (folder / "seeds.yaml").write_text(text, encoding="utf-8")
    done = cli("bootstrap", "sign", "seeds.yaml", "--json")
    assert (done.code, done.value["error"]["code"], node.asked) == (2, "bad_argument", [])


def test_paths_that_are_none_are_told(cli: Cli, node: Scripted, folder: Path) -> None:
    (folder / "seeds.yaml").write_text(json.dumps([SEED]), encoding="utf-8")
    node.answers["seeds.sign"] = {"text": SIGNED}
    for words, code in (
        (["sign", "none.yaml"], "not_found"),
        (["sign", "."], "bad_argument"),
        (["verify", "none.json"], "not_found"),
        (["verify", "https://x.example/s.json"], "bad_argument"),
        (["sign", "seeds.yaml", "--out", "no/folder/x.json"], "bad_argument"),
        (["sign", "seeds.yaml", "--out", "x" * 5000], "bad_argument"),
    ):
        done = cli("bootstrap", *words, "--json")
        assert (done.code, done.value["error"]["code"]) == (1 if code == "not_found" else 2, code), words
        assert len(done.err) < 600
    done = cli("bootstrap", "sign", "seeds.yaml", "--out", "/dev/full/x")
    assert (done.code, "Not a directory" in done.err) == (2, True)


def test_a_list_is_verified(cli: Cli, node: Scripted, folder: Path) -> None:
    (folder / "seeds.json").write_text(SIGNED, encoding="utf-8")
    node.answers["seeds.verify"] = {
        "signer": EVE,
        "network": "main",
        "signed_at": NOW,
        "seeds": [{"did": BOB, "name": "b\x1b", "addresses": ["192.0.2.7:7440"]}],
        "expires_at": NOW,
    }
    done = cli("bootstrap", "verify", "seeds.json", "--signer", EVE)
    assert node.args("seeds.verify") == {"text": SIGNED, "signer": EVE}
    assert done.code == 0
    for word in (f"signer: {EVE}", "network: main", "192.0.2.7:7440", "b\\x1b"):
        assert word in done.out
    node.answers["seeds.verify"] = Rejected(Reject.BAD_SIGNATURE, "altered")
    assert cli("bootstrap", "verify", "seeds.json").code == 1
