"""Seed lists: signers pinned, expiry honoured, nothing private, and any one live seed is enough."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions import queries, seeds
from hmp_node.errors import Failed, Failure, HmpError
from hmp_node.mesh.events import OutboxChanged, PeersToDial, PingAsked
from hmp_node.wire.container import Draft
from hmp_node.wire.seeds import Seed, draft
from tests.actions.sides import Key, Side, foreign

PUBLIC = Path(__file__).parents[3] / "shared" / "cases" / "bootstrap_v1.txt"
URL = "https://seeds.example.org/main.json"
SEEDS = [Key(f"seed {number}") for number in range(12)]
DAY_US = 86_400_000_000


class Mesh:
    """Seeds that answer, and those that do not."""

    def __init__(self, *alive: str) -> None:
        self.alive = alive
        self.asked: list[PingAsked] = []
        self.at_once = self.most = 0

    async def __call__(self, question: Any, timeout_s: float) -> Any:
        assert isinstance(question, PingAsked)
        self.asked.append(question)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if question.did in self.alive:
            return 0.01
        raise Failed(Failure.PEER_UNREACHABLE, "nobody there")


def signed(side: Side, *rows: Seed, network: str = "main", by: Key | None = None, ttl_us: int = DAY_US) -> str:
    made = draft(network, rows, side.clock() + ttl_us)
    key = by or Key("signer")
    return foreign(side, key.did, made, key=key).to_json().decode()


def seed(number: int, *ways: str) -> Seed:
    return Seed(SEEDS[number].did, f"Seed {number}", ways or (f"8.8.{number}.8:7440",), None)


async def refusal(side: Side, action: str = "seeds.join", **args: Any) -> str:
    with pytest.raises(HmpError) as caught:
        await side.do(action, **args)
    return str(caught.value.code)


async def dialled(side: Side) -> set[str]:
    return {str(row[0]) for row in await queries.answer(side.context, PeersToDial(100))}


# --- joining --------------------------------------------------------------------------------------------


async def test_any_one_live_seed_is_enough(alice: Side) -> None:
    mesh = alice.context.ask = Mesh(SEEDS[11].did)
    joined = await alice.do("seeds.join", text=signed(alice, *map(seed, range(12))), origin="here")
    assert (joined.reached, joined.seeds, joined.dropped) == (SEEDS[11].did, 12, [])
    assert (joined.origin, joined.signer) == ("here", Key("signer").did)
    assert joined.expires_at is not None
    assert mesh.most <= seeds.AT_ONCE
    assert PingAsked(0, SEEDS[11].did, ("8.8.11.8:7440",)) in mesh.asked
    assert {did for post in alice.taken(OutboxChanged) for did in post.recipients} == {key.did for key in SEEDS}


async def test_dead_seeds_cost_a_bounded_time_and_are_dialled_on(alice: Side) -> None:
    async def silent(_question: Any, timeout_s: float) -> Any:
        await asyncio.Event().wait()

    alice.context.ask = silent
    joined = await alice.do("seeds.join", text=signed(alice, seed(1), seed(2)), timeout_s=0.1)
    assert joined.reached is None
    assert await dialled(alice) == {SEEDS[1].did, SEEDS[2].did}
    assert (await alice.do("peer.show", peer=SEEDS[1].did)).announced == "Seed 1"


async def test_without_a_mesh_a_list_is_kept_all_the_same(alice: Side) -> None:
    assert (await alice.do("seeds.join", text=signed(alice, seed(1)))).reached is None
    assert await dialled(alice) == {SEEDS[1].did}


async def test_seeds_are_dialled_until_their_list_ends(alice: Side) -> None:
    await alice.do("seeds.join", text=signed(alice, seed(1)), origin="here")
    alice.clock.pass_s(86_401)
    assert await dialled(alice) == set()
    found = {finding.check: finding for finding in (await alice.do("node.doctor")).findings}
    assert not found["seed list here"].ok


async def test_a_list_is_fetched_from_a_url(alice: Side) -> None:
    text = signed(alice, seed(1))

    async def fetch(url: str) -> bytes:
        assert url == URL
        return text.encode()

    alice.context.fetch = fetch
    assert (await alice.do("seeds.join", url=URL)).origin == URL
    assert await refusal(alice, url=URL, text="x") == "bad_argument"
    assert await refusal(alice) == "bad_argument"


# --- whom to believe ------------------------------------------------------------------------------------


async def test_lesson_26_a_list_does_not_name_its_own_root_of_trust(alice: Side) -> None:
    """A2A#2096: a card that brought the key to check it with. Here the signer of an origin is pinned."""
    mallory = Key("mallory")
    await alice.do("seeds.join", text=signed(alice, seed(1)), origin=URL)
    assert await refusal(alice, text=signed(alice, seed(2), by=mallory), origin=URL) == "wrong_signer"
    assert await refusal(alice, text=v1_line(SEEDS[3]), origin=URL) == "wrong_signer", "nor may it lose its signature"
    wanted = Key("signer").did
    assert await refusal(alice, text=signed(alice, seed(2), by=mallory), origin="new", signer=wanted) == "wrong_signer"
    assert await refusal(alice, text=v1_line(SEEDS[3]), origin="new", signer=wanted) == "wrong_signer"
    forged = json.loads(signed(alice, seed(2)))
    forged["hmp_container"]["payload"]["seeds"][0]["addresses"] = ["6.6.6.6:1"]
    assert await refusal(alice, text=json.dumps(forged), origin=URL) == "payload_hash_mismatch"
    assert await dialled(alice) == {SEEDS[1].did}
    renewed = await alice.do("seeds.join", text=signed(alice, seed(2), by=mallory), origin=URL, signer=mallory.did)
    assert renewed.signer == mallory.did, "the owner may name another"
    assert await refusal(alice, text=signed(alice, seed(2)), origin=URL) == "wrong_signer"


async def test_an_older_list_and_one_that_ended_are_refused(alice: Side) -> None:
    old = signed(alice, seed(1), ttl_us=10 * DAY_US)
    new = signed(alice, seed(2), ttl_us=10 * DAY_US)
    await alice.do("seeds.join", text=new, origin=URL)
    assert await refusal(alice, text=old, origin=URL) == "stale"
    await alice.do("seeds.join", text=new, origin=URL)
    await alice.do("seeds.join", text=old, origin="elsewhere")
    brief = signed(alice, seed(1), ttl_us=1_000_000)
    alice.clock.pass_s(2)
    assert await refusal(alice, text=brief, origin="brief") == "expired"


async def test_a_list_of_another_network_or_by_a_revoked_signer_is_refused(alice: Side) -> None:
    assert await refusal(alice, text=signed(alice, seed(1), network="lab")) == "bad_seed_list"
    signer = Key("signer")
    gone = foreign(alice, signer.did, Draft("peer_announce", {"key_is_falsified": True, "addresses": []}), key=signer)
    await alice.take(gone, "peer.announced")
    assert await refusal(alice, text=signed(alice, seed(1))) == "wrong_signer"
    for nonsense in ("", "   ", "hello", "{}", "[]", '{"hmp_container": 5}'):
        assert await refusal(alice, text=nonsense) != ""
    assert await dialled(alice) == set()


# --- where to dial --------------------------------------------------------------------------------------


async def test_no_list_leads_into_a_private_network_that_is_not_ours(alice: Side) -> None:
    alice.context.is_near = lambda ip: ip.startswith("192.168.1.")
    ways = ("127.0.0.1:1", "192.168.1.9:1", "10.0.0.9:1", "[fe80::1%eth0]:1", "8.8.8.8:1", "ws://seed.example/mesh")
    text = signed(alice, seed(1, *ways))

    async def fetch(_url: str) -> bytes:
        return text.encode()

    alice.context.fetch = fetch
    joined = await alice.do("seeds.join", url=URL)
    assert {left.address for left in joined.dropped} == {"127.0.0.1:1", "10.0.0.9:1", "[fe80::1%eth0]:1"}
    assert all(left.reason for left in joined.dropped)
    shown = await alice.do("peer.show", peer=SEEDS[1].did)
    assert {way.address for way in shown.addresses} == {"192.168.1.9:1", "8.8.8.8:1", "ws://seed.example/mesh"}
    own = await alice.do("seeds.join", text=text, origin="file")
    assert {left.address for left in own.dropped} == {"10.0.0.9:1", "[fe80::1%eth0]:1"}, "loopback by one's own file"


async def test_a_list_of_nothing_that_can_be_used_is_an_error(alice: Side) -> None:
    assert await refusal(alice, text=signed(alice, seed(1, "10.0.0.9:1"))) == "bad_seed_list"
    assert await alice.rows("SELECT * FROM seed_lists") == []
    assert await refusal(alice, text=signed(alice, Seed(alice.did, "", ("8.8.8.8:1",), None))) == "bad_seed_list"


async def test_blocked_and_purged_seeds_do_not_come_back(alice: Side) -> None:
    await alice.do("peer.block", peer=SEEDS[1].did)
    await alice.do("peer.purge", peer=SEEDS[2].did)
    joined = await alice.do("seeds.join", text=signed(alice, seed(1), seed(2), seed(3)))
    assert (joined.seeds, {left.did for left in joined.dropped}) == (1, {SEEDS[1].did, SEEDS[2].did})
    assert await dialled(alice) == {SEEDS[3].did}


# --- the first form -------------------------------------------------------------------------------------


def v1_line(key: Key, way: str = "8.8.8.8:4010", did: str | None = None) -> str:
    """A line as the first agents published them, with work of the newest form, which is read too."""
    from base64 import b64encode

    from hmp_node.wire import pow as work

    did = did or key.did
    address = f"tcp://{way}"
    nonce = work.search(work.stamp_text(did, address), 0, 2**24, 16)
    assert nonce is not None
    pem = b64encode(bytes.fromhex("302a300506032b6570032100") + key.public).decode()
    key_text = json.dumps(f"-----BEGIN PUBLIC KEY-----\n{pem}\n-----END PUBLIC KEY-----\n")
    entries = json.dumps([work.entry(did, address, nonce, 16)])
    return f'DID: "{did}"; NAME: "Agent"; KEY: {key_text}; ADDRESS: {entries};'


async def test_the_first_form_is_taken_with_its_work_and_its_keys(alice: Side) -> None:
    old = "did:hmp:300d25eb-25e2-4f8a-a1a9-818f09f67be4"
    text = "\n".join((v1_line(SEEDS[1], did=old), "nonsense", v1_line(SEEDS[2], "8.8.4.4:4010")))
    joined = await alice.do("seeds.join", text=text, origin="v1")
    assert (joined.signer, joined.expires_at, joined.seeds) == (None, None, 2)
    assert [left.address for left in joined.dropped] == ["line 2"]
    assert alice.actions.pinned(old) == SEEDS[1].public, "its key is known from now on"
    assert await dialled(alice) == {old, SEEDS[2].did}
    stolen = v1_line(SEEDS[3], did=old)
    assert await refusal(alice, text=stolen, origin="other") == "bad_seed_list"
    assert alice.actions.pinned(old) == SEEDS[1].public
    weak = v1_line(SEEDS[4]).replace('"difficulty": 16', '"difficulty": 60')
    assert await refusal(alice, text=weak, origin="weak") == "bad_seed_list"


@pytest.mark.skipif(not PUBLIC.exists(), reason="the public bootstrap.txt is not beside this checkout")
async def test_conformance_36_the_public_bootstrap_list_can_be_joined(alice: Side) -> None:
    joined = await alice.do("seeds.join", text=PUBLIC.read_text(encoding="utf-8"), origin="v1")
    assert (joined.seeds, joined.dropped) == (3, [])
    assert len(await dialled(alice)) == 3


# --- lists of our own -----------------------------------------------------------------------------------


async def test_a_list_that_is_signed_here_can_be_verified_and_joined_there(alice: Side, bob: Side) -> None:
    rows = [{"did": SEEDS[1].did, "addresses": ["8.8.8.8:1", "8.8.8.8:1"], "name": "Семя 🌱"}]
    text = (await alice.do("seeds.sign", seeds=rows, ttl_s=3600)).text
    seen = await bob.do("seeds.verify", text=text, signer=alice.did)
    assert (seen.signer, seen.network) == (alice.did, "main")
    assert [(row.did, row.addresses, row.name) for row in seen.seeds] == [(SEEDS[1].did, ("8.8.8.8:1",), "Семя 🌱")]
    assert await refusal(bob, "seeds.verify", text=text, signer=bob.did) == "wrong_signer"
    assert (await bob.do("seeds.join", text=text, signer=alice.did)).seeds == 1
    bob.clock.pass_s(3601)
    assert await refusal(bob, "seeds.verify", text=text) == "expired"


async def test_what_nobody_could_join_is_not_signed(alice: Side) -> None:
    for row, code in (
        ({"did": "nonsense", "addresses": ["8.8.8.8:1"]}, "bad_argument"),
        ({"did": SEEDS[1].did, "addresses": ["nonsense"]}, "bad_address"),
        ({"did": SEEDS[1].did, "addresses": []}, "bad_argument"),
        ({"did": SEEDS[1].did, "addresses": ["8.8.8.8:1"], "more": 1}, "bad_argument"),
    ):
        assert await refusal(alice, "seeds.sign", seeds=[row]) == code


async def test_profiles_are_built_in(alice: Side) -> None:
    for name in ("nowhere", "../test", "Test", ""):
        assert await refusal(alice, profile=name) == "not_found"
