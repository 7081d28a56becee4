"""Lookups among liars, the silent and the dead: what is found is signed, the newest there is, and found in time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest

from hmp_node.net.dht.datagram import FIND, GET, STORE
from hmp_node.net.dht.overlay import Overlay
from hmp_node.net.dht.places import pack
from hmp_node.net.finders import Want
from hmp_node.wire import record as records
from tests.net.dht.swarm import NETWORK, Peer, loopback, make_record, now_us, peers, signed, stranger, until
from tests.wire.agents import ANN, BOB, EVE, ZOE, Agent

KEY = records.key_of(NETWORK, "address", ANN.public_key)


def overlay(peer: Peer) -> Overlay:
    (made,) = peer.dht._overlays.values()
    return made


def hold(peer: Peer, *data: bytes, agent: Agent = ANN, key: bytes = KEY) -> None:
    """Have a node hold records as if they had been stored from somewhere."""
    for number, one in enumerate(data):
        peer.dht._shelf.put(key, one, signer=agent.public_key, place=(f"127.240.{number}.1", 7))


def value(*data: bytes, total: int | None = None, contacts: tuple[bytes, ...] = ()) -> Any:
    """A holder that says so, whatever it is asked; contacts alone to FIND."""

    def lies(kind: int, _body: tuple[Any, ...]) -> tuple[object, ...] | None:
        answers: dict[int, tuple[object, ...]] = {
            GET: (len(data) if total is None else total, data, contacts),
            FIND: (contacts,),
            STORE: ("ok",),
        }
        return answers[kind]

    return lies


# --- what is believed -----------------------------------------------------------------------------------


async def test_conformance_43_forged_or_oversized_dht_values_are_ignored() -> None:
    good = signed(ANN, make_record(ANN))
    bad = {
        "forged": records.encode_signed(make_record(ANN, seq=now_us() + 10_000_000), NETWORK, EVE.sign),
        "another's": signed(EVE),
        "another network's": signed(ANN, make_record(ANN), network="other"),
        "oversized": good + bytes(900),
        "expired": signed(ANN, make_record(ANN, expires=now_us() - 1)),
        "too far ahead": signed(ANN, make_record(ANN, expires=now_us() + 26 * 3600 * 1_000_000)),
        "of the future": signed(ANN, make_record(ANN, seq=now_us() + 400 * 1_000_000)),
        "no record": b"\x93\x01\x02\x03",
        "deep": b"\x91" * 900,
        "nothing": b"",
        "a name": signed(ANN, make_record(ANN, addresses=(("evil.example:7", 1),))),
    }
    async with peers(1) as (peer,):
        for name, lie in bad.items():
            async with stranger(name, "127.200.0.1", answers=True, lies=value(lie)) as liar:
                before = peer.status()["bad_values"]
                peer.dht.add_contact(*liar.place)
                await until("the liar is a contact", lambda: peer.contacts == 1)
                assert await peer.dht.resolve(ANN.did) is None, name
                assert peer.status()["bad_values"] == before + 1, name
                overlay(peer)._table.flush()
        async with stranger("honest", "127.200.0.1", answers=True, lies=value(good)) as holder:
            peer.dht.add_contact(*holder.place)
            await until("the holder is a contact", lambda: peer.contacts == 1)
            found = await peer.dht.resolve(ANN.did)
            assert found is not None
            assert found.public_key == ANN.public_key


async def test_the_newest_record_of_all_holders_is_found() -> None:
    now = now_us()
    async with peers(8) as made:
        for number, peer in enumerate(made[1:]):
            hold(peer, signed(ANN, make_record(ANN, seq=now + number)))
        found = await made[0].dht.resolve(ANN.did)
        assert found is not None
        assert found.seq == now + 6


async def test_our_own_copy_is_not_believed_before_others() -> None:
    now = now_us()
    async with peers(3) as made:
        hold(made[0], signed(ANN, make_record(ANN, seq=now)))
        hold(made[2], signed(ANN, make_record(ANN, seq=now + 1)))
        found = await made[0].dht.resolve(ANN.did)
        assert found is not None
        assert found.seq == now + 1


async def test_a_revocation_is_found_though_newer_records_are() -> None:
    now = now_us()
    async with peers(4) as made:
        hold(made[1], signed(ANN, make_record(ANN, seq=now + 5)))
        hold(made[2], signed(ANN, make_record(ANN, seq=now, addresses=(), revoked=True)))
        found = await made[0].dht.resolve(ANN.did)
        assert found is not None
        assert found.revoked
        await made[0].dht.look_up(ANN.did)
        assert made[0].hints == []


async def test_liars_in_one_subnet_cannot_confirm_a_stale_record() -> None:
    now = now_us()
    stale, fresh = signed(ANN, make_record(ANN, seq=now)), make_record(ANN, seq=now + 1)
    async with peers(10) as made, contextlib.AsyncExitStack() as stack:
        for number in range(12):
            liar = await stack.enter_async_context(
                stranger(f"liar {number}", f"127.200.0.{number + 1}", answers=True, lies=value(stale))
            )
            made[0].dht.add_contact(*liar.place)
        await until("liars are contacts", lambda: any(c.ip.startswith("127.200.") for c in overlay(made[0])._table))
        for peer in made[1:]:
            hold(peer, signed(ANN, fresh))
        for _ in range(5):
            found = await made[0].dht.resolve(ANN.did)
            assert found == fresh


async def test_a_liar_that_tells_of_nobody_but_liars_does_not_hide_a_record() -> None:
    """Half of what we know lies: each of several walks asks others, and one of them arrives."""
    async with peers(12) as made, contextlib.AsyncExitStack() as stack:
        fakes = tuple(
            bytes((KEY[0],)) + bytes((number,)) + KEY[2:] + pack((f"127.{210 + number}.9.9", 7)) for number in range(20)
        )
        liars = [
            await stack.enter_async_context(
                stranger(f"liar {number}", f"127.{190 + number}.0.1", answers=True, lies=value(contacts=fakes))
            )
            for number in range(10)
        ]
        for liar in liars:
            made[0].dht.add_contact(*liar.place)
        await until("liars are contacts", lambda: made[0].contacts >= 14)
        for peer in made[6:]:
            hold(peer, signed(ANN))
        for _ in range(3):
            began = time.monotonic()
            assert await made[0].dht.resolve(ANN.did) is not None
            print(f"found among 10 liars in {time.monotonic() - began:.2f} s")


async def test_contacts_are_few_of_a_subnet_and_cannot_aim_us_at_a_victim() -> None:
    async with peers(1) as (peer,), contextlib.AsyncExitStack() as stack:
        victim = await stack.enter_async_context(stranger("victim", "127.201.0.1"))
        liars = []
        for number in range(6):
            ids = (Agent(f"fake {number} {n}").public_key[:20] for n in range(30))
            aimed = tuple(made + pack((victim.place[0], victim.place[1] + n % 2)) for n, made in enumerate(ids))
            liar = await stack.enter_async_context(
                stranger(f"liar {number}", f"127.{190 + number}.0.1", answers=True, lies=value(contacts=aimed))
            )
            liars.append(liar)
            peer.dht.add_contact(*liar.place)
        await until("liars are contacts", lambda: peer.contacts == 6)
        before = victim.heard_bytes, sum(liar.sent_bytes for liar in liars)
        await peer.dht.resolve(ANN.did)
        got = victim.heard_bytes - before[0]
        gave = sum(liar.sent_bytes for liar in liars) - before[1]
        print(f"one lookup among liars: {len(victim.heard)} datagrams to the victim, {got} bytes for {gave} of lies")
        assert got <= gave
        assert len(victim.heard) <= 8


async def test_places_that_are_not_of_our_kind_are_never_asked() -> None:
    odd = (
        bytes(20) + pack(("0.0.0.0", 7)),
        bytes(20) + pack(("224.0.0.1", 7)),
        bytes(20) + pack(("255.255.255.255", 7)),
        bytes(20) + pack(("169.254.169.254", 80)),
        bytes(20) + pack(("127.9.9.9", 7))[:4] + b"\0\0",
        bytes(20) + pack(("2001:db8::1", 7)),
        bytes(20) + pack(("::ffff:1.2.3.4", 7)),
        b"",
        b"x" * 3,
        b"x" * 300,
    )
    async with peers(1) as (peer,), stranger("liar", "127.200.0.1", answers=True, lies=value(contacts=odd)) as liar:
        peer.dht.add_contact(*liar.place)
        await until("the liar is a contact", lambda: peer.contacts == 1)
        before = peer.status()["asked"]
        assert await peer.dht.resolve(ANN.did) is None
        assert peer.status()["asked"] == before + 1
        assert peer.status()["faults"] == 0


# --- in time --------------------------------------------------------------------------------------------


async def test_a_lookup_ends_in_its_time_whoever_is_silent() -> None:
    async with peers(1, lookup_timeout=1.0, call_timeout=0.5) as (peer,), contextlib.AsyncExitStack() as stack:
        for number in range(5):
            # Each tells of ever new contacts that never answer.
            def lies(kind: int, body: tuple[Any, ...], number: int = number) -> tuple[object, ...]:
                told = tuple(
                    now_us().to_bytes(20, "big") + pack((f"127.{number + 60}.{time.monotonic_ns() // 7 % 250}.{n}", 9))
                    for n in range(1, 20)
                )
                return (told,) if kind == FIND else (0, (), told)

            liar = await stack.enter_async_context(
                stranger(f"liar {number}", f"127.{190 + number}.0.1", answers=True, lies=lies)
            )
            peer.dht.add_contact(*liar.place)
        await until("liars are contacts", lambda: peer.contacts == 5)
        began = time.monotonic()
        assert await peer.dht.resolve(ANN.did) is None
        took = time.monotonic() - began
        before = peer.status()["asked"]
        await asyncio.gather(*(peer.dht.resolve(ANN.did) for _ in range(3)))
        print(f"in vain after {took:.2f} s; {(peer.status()['asked'] - before) / 3:.0f} questions a lookup")
        assert took < 3.0
        assert peer.status()["asked"] - before <= 3 * 96


async def test_many_lookups_at_once_wait_their_turn_and_end() -> None:
    async with peers(6, lookups=2) as made:
        hold(made[3], signed(ANN))
        found = await asyncio.gather(*(made[0].dht.resolve(ANN.did) for _ in range(30)))
        assert all(record is not None for record in found)


async def test_a_lookup_that_is_given_up_leaves_nothing_behind() -> None:
    async with peers(4) as made:
        task = asyncio.create_task(made[0].dht.resolve(ANN.did))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        hold(made[2], signed(ANN))
        assert await made[0].dht.resolve(ANN.did) is not None


async def test_a_network_of_one_finds_nothing_at_once() -> None:
    async with peers(1) as (peer,):
        began = time.monotonic()
        assert await peer.dht.resolve(ANN.did) is None
        await peer.dht.search(Want(interests=("a",), roles=("b",)))
        assert time.monotonic() - began < 1.0
        assert await peer.dht.resolve("did:example:other") is None
        await peer.dht.look_up("did:example:other")
        assert "no address" in peer.status()["problem"]


# --- several under one word -----------------------------------------------------------------------------


async def test_all_providers_of_a_word_are_found_page_by_page() -> None:
    key = records.key_of(NETWORK, "role", "mailman")
    agents = [Agent(f"provider {number}") for number in range(32)]
    async with peers(3) as made:
        for number, agent in enumerate(agents):
            record = make_record(agent, kind="role", word="mailman", mailmen=(BOB.public_key, ZOE.public_key))
            made[1].dht._shelf.put(
                key, signed(agent, record), signer=agent.public_key, place=(f"127.240.{number}.1", 7)
            )
        await made[0].dht.search(Want(roles=("Mailman", "mailman")))
        assert {hint.did for hint in made[0].hints} == {agent.did for agent in agents}
        assert len(made[0].hints) == 32, "each is told once"
        assert all(hint.roles == ("mailman",) and hint.source == "dht" for hint in made[0].hints)
        assert all(hint.mailmen == (BOB.did, ZOE.did) for hint in made[0].hints)


async def test_a_holder_that_promises_records_without_end_is_left() -> None:
    key = records.key_of(NETWORK, "role", "mailman")
    record = signed(ANN, make_record(ANN, kind="role", word="mailman"))
    async with peers(1) as (peer,):
        async with stranger("liar", "127.200.0.1", answers=True, lies=value(record, total=2**62)) as liar:
            peer.dht.add_contact(*liar.place)
            await until("the liar is a contact", lambda: peer.contacts == 1)
            before = len(liar.heard)
            await peer.dht.search(Want(roles=("mailman",)))
            assert len(liar.heard) - before <= 9
            assert [hint.did for hint in peer.hints] == [ANN.did]
        assert key != records.key_of(NETWORK, "interest", "mailman")


async def test_two_nodes_of_a_dozen_find_one_another_by_interest() -> None:
    async with peers(12) as made:
        made[3].present(interests=("Нейронауки", "art"), roles=("mailman",))
        made[7].present(interests=("нейронауки",))

        def held(peer: Peer) -> dict[str, int]:
            found: dict[str, int] = peer.status()["published"]["holders"]
            return found

        await until("both are published", lambda: len(held(made[3])) == 4 and len(held(made[7])) == 2)
        await made[10].dht.search(Want(interests=("НЕЙРОНАУКИ",)))
        assert {hint.did for hint in made[10].hints} == {made[3].did, made[7].did}
        assert {hint.interests for hint in made[10].hints} == {("нейронауки",)}
        assert {hint.addresses for hint in made[10].hints} == {
            (f"{loopback(3)}:{made[3].place[1]}",),
            (f"{loopback(7)}:{made[7].place[1]}",),
        }
