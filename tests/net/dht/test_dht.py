"""The finder as the node uses it: joining, publishing, taking back, restarting, and what it says of itself."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import time
from typing import Any

import pytest

from hmp_node.errors import Reject
from hmp_node.net.dht.dht import Dht
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.dht.state import State, from_json, to_json
from hmp_node.net.finders import Finder, Hint, Presence, Want
from hmp_node.wire import record as records
from hmp_node.wire.text import did_key
from tests.net.dht.swarm import NETWORK, Peer, loopback, make_record, now_us, peers, signed, stranger, until
from tests.wire.agents import BOB, EVE, Agent

DAY_US = 24 * 3600 * 1_000_000


def held(peer: Peer) -> dict[str, int]:
    """Holders of a node's own records."""
    found: dict[str, int] = peer.status()["published"]["holders"]
    return found


def contacts_of(peer: Peer) -> set[tuple[str, int]]:
    return {contact.place for overlay in peer.dht._overlays.values() for contact in overlay._table}


async def test_what_one_presents_another_finds() -> None:
    async with peers(2) as (one, two):
        finder: Finder = one.dht
        assert finder.name == "dht"
        two.dht.present(
            Presence(
                bound=("0.0.0.0:7000",),
                public=(("127.2.0.1:7000", None), ("127.2.0.1:7001", 5)),
                mailmen=(BOB.public_key,),
                interests=("Art",),
                name="two",
            ),
            reachable=True,
        )
        await until("it is published", lambda: held(two).get("interest:art"))
        before = now_us()
        await one.dht.look_up(two.did)
        (hint,) = one.hints
        assert hint == Hint(two.did, ("127.2.0.1:7000", "127.2.0.1:7001"), "dht", hint.expires_us, (BOB.did,))
        assert hint.expires_us is not None
        assert before < hint.expires_us <= before + DAY_US
        await one.dht.search(Want(interests=("art", "music"), topics=("art",)))
        assert one.hints[1]._replace(expires_us=None) == hint._replace(expires_us=None, interests=("art",))


async def test_what_was_presented_before_there_was_anybody_is_published_with_the_first_contact() -> None:
    async with peers(2, joined=False) as (one, two):
        one.present()
        two.present()
        await until("there was nobody", lambda: not one.dht._renew.is_set() and not two.dht._renew.is_set())
        two.dht.add_contact(*one.place)
        await until("both are published", lambda: held(one).get("address") == held(two).get("address") == 1, 5)
        assert await one.dht.resolve(two.did) is not None
        assert await two.dht.resolve(one.did) is not None


async def test_records_follow_a_network_that_grows() -> None:
    async with peers(12, joined=False, bucket_size=4) as made:
        made[0].present()
        made[1].dht.add_contact(*made[0].place)
        await until("it is published", lambda: held(made[0]).get("address") == 1)
        first = held(made[0]).copy()
        for peer in made[2:]:
            peer.dht.add_contact(*made[0].place)
        await until("it is published to more", lambda: held(made[0]).get("address", 0) >= 4, 10)
        assert first == {"address": 1}


async def test_what_is_no_longer_so_is_taken_back() -> None:
    async with peers(3) as (one, two, _):
        two.present(interests=("art", "music"))
        await until("it is published", lambda: len(held(two)) == 3)
        two.present(interests=("music",))
        await until("art is taken back", lambda: set(held(two)) == {"address", "interest:music"})
        await one.dht.search(Want(interests=("art",)))
        assert one.hints == []
        two.present_nothing()
        await until("all is taken back", lambda: not held(two))
        await one.dht.look_up(two.did)
        await one.dht.search(Want(interests=("music",)))
        assert one.hints == []
        record = await one.dht.resolve(two.did)
        assert record is not None
        assert not record.leads_somewhere


async def test_a_changed_address_is_found_soon() -> None:
    async with peers(3) as (one, two, _):
        two.present()
        await until("it is published", lambda: held(two))
        for port in (7001, 7002):
            before = await one.dht.resolve(two.did)
            two.dht.present(Presence(public=((f"127.2.0.1:{port}", None),)), reachable=True)
            text = f"127.2.0.1:{port}"

            async def moved(text: str = text) -> bool:
                record = await one.dht.resolve(two.did)
                return record is not None and record.addresses[0][0] == text

            deadline = time.monotonic() + 5
            while not await moved():
                assert time.monotonic() < deadline
            after = await one.dht.resolve(two.did)
            assert before is not None
            assert after is not None
            assert after.seq > before.seq


async def test_conformance_40_host_and_lan_addresses_never_leave_for_the_network_of_the_internet() -> None:
    async with peers(1, joined=False, allow_private=False) as (peer,):
        publisher = peer.dht._publisher
        private = (
            "127.0.0.1:7",
            "10.0.0.1:7",
            "192.168.1.5:7",
            "[fe80::1]:7",
            "[fd00::1]:7",
            "localhost:7",
            "a.example:7",
        )
        peer.dht.present(Presence(public=tuple((text, 1) for text in private)), reachable=True)
        assert publisher._addresses == ()
        assert not publisher.has_something
        peer.dht.add_contact("10.0.0.1", 7)
        peer.dht.add_contact("127.0.0.1", 7)
        assert peer.status()["hints"] == 0
        assert peer.status()["refused_hints"] == 2


async def test_a_node_that_cannot_be_reached_asks_and_publishes_mailmen_and_is_never_a_contact() -> None:
    async with peers(3) as made:
        quiet = Peer("quiet", loopback(9), mode="auto")
        try:
            await quiet.start()
            quiet.dht.add_contact(*made[0].place)
            await until("it has contacts", lambda: quiet.contacts >= 1)
            made[1].present()
            await until("one is published", lambda: held(made[1]))
            assert await quiet.dht.resolve(made[1].did) is not None
            presence = Presence(public=(("127.10.0.1:7", None),), mailmen=(BOB.public_key,), roles=("poet",))
            quiet.dht.present(presence, reachable=False)
            await until("its mailmen are published", lambda: len(held(quiet)) == 2 and all(held(quiet).values()))
            record = await made[2].dht.resolve(quiet.did)
            assert record is not None
            assert (record.addresses, record.mailmen) == ((), (BOB.public_key,))
            assert all(quiet.place not in contacts_of(peer) for peer in made)
            assert quiet.status()["serving"] is False
            assert quiet.status()["records"] == 2, "its own"
            quiet.dht.present(presence, reachable=True)
            assert quiet.status()["serving"] is True
            await until("its address is published", lambda: all(held(quiet).values()) and not quiet.dht._renew.is_set())

            async def found() -> bool:
                record = await made[2].dht.resolve(quiet.did)
                return record is not None and bool(record.addresses)

            deadline = time.monotonic() + 5
            while not await found():
                assert time.monotonic() < deadline
            await until("it is a contact now", lambda: any(quiet.place in contacts_of(peer) for peer in made))
        finally:
            await quiet.stop()


async def test_node_names_are_never_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object, **_: object) -> Any:
        raise AssertionError(f"a name was looked up: {args}")

    async with peers(1) as (peer,):
        monkeypatch.setattr(socket, "getaddrinfo", forbidden)
        monkeypatch.setattr(socket, "gethostbyname", forbidden)
        for host in ("localhost", "example.org", "dht.example", "", "127.1", "0x7f.1", "fe80::1%lo", "0.0.0.0"):
            peer.dht.add_contact(host, 7000)
        peer.dht.add_contact("127.9.0.1", 0)
        peer.dht.add_contact("127.9.0.1", 70_000)
        assert peer.status()["hints"] == 0
        assert peer.status()["refused_hints"] == 10


async def test_hints_are_capped_and_asked_once_each() -> None:
    async with peers(2, hints=50) as (one, _):
        for number in range(1000):
            one.dht.add_contact(loopback(300 + number), 9)
        assert one.status()["hints"] == 50
        await until("all fresh ones were asked", lambda: not one.dht._joiner._fresh)
        assert one.status()["asked"] < 400


# --- again and again ------------------------------------------------------------------------------------


async def test_a_restarted_node_is_back_from_its_saved_contacts() -> None:
    async with peers(6) as made:
        made[3].present()
        await until("it is published", lambda: held(made[3]))
        node = made[5]
        await node.restart()
        assert node.saved is not None
        assert node.saved["version"] == 1
        await until("it is back", lambda: node.contacts >= 4)
        assert await node.dht.resolve(made[3].did) is not None


async def test_a_restarted_node_continues_its_sequence_though_its_clock_was_set_back() -> None:
    async with peers(3) as (one, two, _):
        two.present()
        await until("it is published", lambda: held(two))
        first = await one.dht.resolve(two.did)
        two.ahead_us = -3600 * 1_000_000
        await two.restart()
        await until("it is back", lambda: two.contacts)
        two.dht.present(Presence(public=(("127.2.0.1:4444", None),)), reachable=True)
        await until("it is published again", lambda: held(two).get("address"))
        second = await one.dht.resolve(two.did)
        assert first is not None
        assert second is not None
        assert second.seq > first.seq
        assert second.addresses == (("127.2.0.1:4444", None),)


async def test_a_copy_that_lost_its_state_catches_up_with_what_it_signed_before() -> None:
    async with peers(3) as (one, two, three):
        newer = make_record(two.agent, seq=now_us() + 200 * 1_000_000)
        for peer in (one, three):
            peer.dht._shelf.put(two.key, signed(two.agent, newer), signer=two.agent.public_key, place=("127.9.9.9", 7))
        two.dht.present(Presence(public=(("127.2.0.1:4444", None),)), reachable=True)
        await until("it is published", lambda: held(two).get("address") == 2)
        record = await one.dht.resolve(two.did)
        assert record is not None
        assert record.seq > newer.seq
        assert record.addresses == (("127.2.0.1:4444", None),)


async def test_a_clock_that_is_far_ahead_is_told() -> None:
    async with peers(2) as (one, two):
        two.ahead_us = 2 * DAY_US
        two.present()
        await until("nobody keeps it", lambda: held(two) == {"address": 0})
        assert "is the clock right" in two.status()["problem"]
        assert await one.dht.resolve(two.did) is None
        two.ahead_us = 0
        two.dht._publisher.seq = 0
        await until("it is kept", lambda: held(two) == {"address": 1}, 10)
        assert two.status()["problem"] == ""


async def test_records_are_renewed_before_they_expire_and_by_nobody_else() -> None:
    async with peers(3, record_life=60.0, republish_first=0.3, republish_every=0.6) as (one, two, three):
        two.present()
        await until("it is published", lambda: held(two).get("address") == 2)
        first = await one.dht.resolve(two.did)

        async def renewed() -> bool:
            record = await one.dht.resolve(two.did)
            assert record is not None
            assert first is not None
            return record.seq > first.seq

        deadline = time.monotonic() + 10
        while not await renewed():
            assert time.monotonic() < deadline
        await two.kill()
        stores = one.status()["stores"], three.status()["stores"]
        for holder in (one, three):  # a new contact, a refresh and a round of publishing hand nothing on
            holder.dht._grown()
            await holder.dht._refresh()
            await holder.dht._publish()
        assert (one.status()["stores"], three.status()["stores"]) == stores
        one.ahead_us = three.ahead_us = 61 * 1_000_000
        assert await one.dht.resolve(two.did) is None
        await one.dht._sweep()
        assert one.status()["records"] == 0


async def test_a_word_whose_holders_are_full_is_not_offered_every_second() -> None:
    async with peers(3) as (one, two, three):
        key = records.key_of(NETWORK, "role", "mailman")
        for number in range(32):
            agent = Agent(f"mailman {number}")
            record = signed(agent, make_record(agent, kind="role", word="mailman"))
            for peer in (one, three):
                peer.dht._shelf.put(key, record, signer=agent.public_key, place=(f"127.240.{number}.1", 7))
        two.present(roles=("mailman",))
        await until("it was offered", lambda: held(two).get("role:mailman") == 0)
        assert held(two)["address"] == 2
        assert two.status()["problem"] == ""
        assert two.status()["published"]["refused"] == {"budget_count": 2}
        assert await two.dht._publish(), "as well as can be"


async def test_a_revoked_key_is_published_and_stays_so() -> None:
    async with peers(3) as (one, two, _):
        two.present(roles=("poet",))
        await until("it is published", lambda: len(held(two)) == 2)
        two.dht.revoke()
        await until("the word is taken back", lambda: set(held(two)) == {"address"})
        record = await one.dht.resolve(two.did)
        assert record is not None
        assert record.revoked
        two.present(roles=("poet",))
        await one.dht.look_up(two.did)
        await one.dht.search(Want(roles=("poet",)))
        assert one.hints == []


async def test_a_record_too_large_is_cut_to_the_addresses_that_fit() -> None:
    async with peers(2) as (one, two):
        long = tuple((f"ws://127.2.0.{number}:7/{'a' * 60}/{'b' * 60}", None) for number in range(1, 9))
        two.dht.present(Presence(public=long), reachable=True)
        await until("it is published", lambda: held(two).get("address"))
        record = await one.dht.resolve(two.did)
        assert record is not None
        assert record.addresses == long[: len(record.addresses)]
        assert 3 <= len(record.addresses) < 8


async def test_odd_words_are_left_out() -> None:
    async with peers(2) as (_, two):
        two.present(
            interests=("ok", "", "  ", "a\x00b", "\ud800", "ы" * 65, "OK"), roles=tuple(f"r{n}" for n in range(99))
        )
        await until("it is published", lambda: held(two).get("role:r0"))
        await until("all are published", lambda: len(held(two)) == 33, 30)
        assert "interest:ok" in held(two)
        assert sum(name.startswith("interest") for name in held(two)) == 1
        await two.dht.search(Want(interests=("\ud800", "", "\x00"), roles=("ы" * 65,)))


# --- seeds ----------------------------------------------------------------------------------------------


async def test_dead_seeds_cost_a_bounded_time_and_are_tried_for_ever() -> None:
    """kademlia tried four dead addresses for 5 s, gave [] and never tried again."""
    late = Peer("late", loopback(40))
    try:
        async with peers(1, join_first=0.1, join_every=0.3) as (peer,):
            await late.start()
            place = late.place
            await late.kill()
            for number in range(10):
                peer.dht.add_contact(loopback(50 + number), 9)
            peer.dht.add_contact(*place)
            await until("they were asked", lambda: peer.status()["silent"] >= 11)
            assert "none of 11 known addresses answers" in peer.status()["problem"]
            await until("they are asked again", lambda: peer.status()["silent"] >= 33)
            await late.start()
            await until("it has joined", lambda: peer.contacts == 1, 5)
            assert peer.status()["problem"] == ""
    finally:
        await late.stop()


async def test_one_live_seed_among_dead_ones_is_enough() -> None:
    async with peers(8) as made:
        joiner = Peer("joiner", loopback(70))
        try:
            await joiner.start()
            began = time.monotonic()
            for number in range(30):
                joiner.dht.add_contact(loopback(100 + number), 9)
            joiner.dht.add_contact(*made[4].place)
            await until("it has joined", lambda: joiner.contacts >= 4, 10)
            print(f"joined through one live seed of 31 in {time.monotonic() - began:.2f} s")
            joiner.present()
            await until("it is published", lambda: held(joiner).get("address", 0) >= 4)
            assert await made[0].dht.resolve(joiner.did) is not None
        finally:
            await joiner.stop()


# --- sockets and families -------------------------------------------------------------------------------


async def test_a_port_in_use_is_a_problem_and_not_an_error() -> None:
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken.bind(("127.1.0.1", 0))
    peer = Peer("peer", "127.1.0.1")
    try:
        await peer.dht.start([taken.getsockname()])
        assert not peer.dht.bound
        assert "cannot be opened" in peer.status()["problem"]
        assert await peer.dht.resolve(EVE.did) is None
        taken.close()
        await peer.dht._open()
        assert peer.place == ("127.1.0.1", peer.place[1])
        assert "cannot be opened" not in peer.status()["problem"]
    finally:
        taken.close()
        await peer.stop()


async def test_off_opens_nothing_and_runs() -> None:
    peer = Peer("peer", "127.1.0.1", mode="off")
    await peer.dht.start([("127.1.0.1", 0)])
    task = asyncio.create_task(peer.dht.run())
    await asyncio.sleep(0)
    peer.present(interests=("a",))
    peer.dht.add_contact("127.9.0.1", 7)
    await peer.dht.look_up(EVE.did)
    await peer.dht.search(Want(interests=("a",)))
    assert peer.dht.bound == ()
    assert peer.status()["problem"] == ""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await peer.dht.stop()
    assert peer.saved is None, "nothing was loaded, so nothing is overwritten"


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_each_family_has_a_socket_and_a_table_of_its_own() -> None:
    both = Peer("both", loopback(1))
    six, four = Peer("six", "::1"), Peer("four", loopback(2))
    try:
        await both.dht.start([("127.2.0.1", 0), ("::1", 0), ("127.0.0.1", 0)])
        both._task = asyncio.create_task(both.dht.run())
        both._port = both.place[1]
        await six.start()
        await four.start()
        (v4, v6) = both.dht.bound
        assert v4[0] == "127.2.0.1", "of several, one that others can reach"
        assert v6[0] == "::1"
        six.dht.add_contact(*v6)
        four.dht.add_contact(*v4)
        await until("all know one another", lambda: both.status()["contacts"] == {"IPv4": 1, "IPv6": 1})
        both.present()
        await until("it is published in both", lambda: held(both).get("address") == 2)
        assert await six.dht.resolve(both.did) == await four.dht.resolve(both.did) is not None
        assert not any("ffff" in host for host, _ in contacts_of(both))
        four.present()
        await until("it is published", lambda: held(four))
        assert await six.dht.resolve(four.did) is not None, "a node of both families holds records for both"
        assert contacts_of(six) == {v6}
        assert contacts_of(four) == {v4}
    finally:
        for peer in (both, six, four):
            await peer.stop()


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_an_ipv6_wildcard_takes_no_ipv4_datagrams() -> None:
    peer = Peer("peer", "::")
    try:
        await peer.dht.start([("::", 0)])
        assert [host for host, _ in peer.dht.bound] == ["0.0.0.0", "::"]
        async with stranger("a", "127.78.0.1") as made:
            assert await made.ask(("127.0.0.1", peer.dht.bound[0][1]), 1) == ()
        assert peer.status()["dropped"] == {}
        six = next(overlay for family, overlay in peer.dht._overlays.items() if family.name == "IPv6")
        assert six.exchange is not None
        assert six.exchange._transport is not None
        plug = six.exchange._transport.get_extra_info("socket")
        assert plug.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
    finally:
        await peer.stop()


# --- what is saved --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "x",
        {},
        {"version": 2, "contacts": [["127.0.0.1", 7]]},
        {"version": 1, "contacts": 7, "seq": "x"},
        {
            "version": 1,
            "contacts": [7, [], ["a.example", 7], ["127.0.0.1"], ["127.0.0.1", "7"], ["0.0.0.0", 7]],
            "seq": -1,
        },
        {"version": 1, "contacts": [["127.0.0.1", 70_000], [None, 7], ["::ffff:0.0.0.0", 7]], "seq": 2**70},
    ],
)
def test_a_damaged_state_is_an_empty_one(value: object) -> None:
    assert from_json(value, 64) == State()


def test_the_state_is_plain_json() -> None:
    import json

    state = State((("127.0.0.1", 7), ("2001:db8::1", 9)), 17)
    assert from_json(json.loads(json.dumps(to_json(state))), 64) == state
    assert from_json(to_json(state), 1).contacts == state.contacts[:1]


async def test_a_state_that_cannot_be_read_or_written_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer("peer", "127.1.0.1")

    def broken(*_: object) -> Any:
        raise OSError("no disk")

    peer.dht._load = peer.dht._save = broken
    try:
        await peer.start()
        peer.dht.add_contact("127.9.0.1", 7)
        await until("it runs", lambda: peer.status()["asked"])
    finally:
        await peer.stop()
    assert len([line for line in caplog.messages if "DHT" in line]) == 2


# --- faults and settings --------------------------------------------------------------------------------


async def test_a_listener_that_raises_is_told_and_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    async with peers(2) as (one, two):
        two.present()
        await until("it is published", lambda: held(two))

        def broken(_hint: Hint) -> None:
            raise RuntimeError("full")

        one.dht._found = broken
        await one.dht.look_up(two.did)
        assert any("could not be taken" in line for line in caplog.messages)


async def test_a_lookup_ends_when_the_node_stops() -> None:
    async with peers(6) as made:
        lookups = [asyncio.create_task(made[0].dht.resolve(EVE.did)) for _ in range(5)]
        await asyncio.sleep(0)
        await made[0].stop()
        began = time.monotonic()
        assert await asyncio.gather(*lookups) == [None] * 5
        assert time.monotonic() - began < 2.0


async def test_a_job_that_fails_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async with peers(2, refresh_every=0.05) as (one, _):
        calls = []

        async def broken() -> None:
            calls.append(1)
            raise RuntimeError("odd")

        for overlay in one.dht._overlays.values():
            overlay.refresh = broken  # type: ignore[method-assign]
        await until("it was tried again", lambda: len(calls) >= 3)
    assert any("A job of the DHT failed" in line for line in caplog.messages)


def test_the_word_off_in_yaml_turns_it_off() -> None:
    assert DhtSettings(mode=False).mode == "off"
    assert DhtSettings(mode=True).mode == "auto"


@pytest.mark.parametrize(
    "given",
    [
        {"bucket_size": 0},
        {"paths": 0},
        {"call_timeout": 0.0},
        {"retries": -1},
        {"lookup_calls": 3},
        {"record_life": 86_401.0},
        {"record_life": 30.0},
        {"republish_every": 86_400.0},
        {"token_life": 0.0},
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        DhtSettings(**given)


def test_every_setting_has_a_default_and_says_what_it_is() -> None:
    assert dataclasses.asdict(DhtSettings())["mode"] == "auto"
    assert not DhtSettings().allow_private


async def test_networks_do_not_meet() -> None:
    one, two = Peer("one", loopback(1)), Peer("two", loopback(2), network="other")
    try:
        await one.start()
        await two.start()
        two.dht.add_contact(*one.place)
        await until("it was dropped", lambda: one.status()["dropped"].get(Reject.WRONG_NETWORK))
        await until("nobody answered", lambda: two.status()["silent"])
        assert one.contacts == two.contacts == 0
    finally:
        await one.stop()
        await two.stop()


async def test_a_node_holds_the_place_that_its_key_gives_it() -> None:
    async with peers(2) as (one, two):
        (overlay,) = one.dht._overlays.values()
        (contact,) = overlay._table
        key = did_key(two.did)
        assert key is not None
        assert contact.id == records.node_id(NETWORK, key)
        assert isinstance(one.dht, Dht)
        assert Agent("peer 1").did == two.did
