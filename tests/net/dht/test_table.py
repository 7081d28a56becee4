"""The table: fair to subnets, exact in distance, patient with silence."""

from __future__ import annotations

import hashlib
import random

from kademlia.node import Node

from hmp_node.net.dht.table import Contact, Table, few_of_a_subnet

ME = bytes(20)


def node_id(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()[:20]


def contact(name: object, ip: str, port: int = 7000) -> Contact:
    return Contact(node_id(name), (ip, port))


def far(number: int) -> bytes:
    """An id in the half of the table that is not ours."""
    return b"\x80" + node_id(number)[1:]


def table(size: int = 20, share: int = 2) -> Table:
    return Table(Node(ME), size, share)


def filled(count: int, size: int = 20) -> Table:
    made = table(size)
    for number in range(count):
        made.answered(contact(number, f"10.{number // 250}.{number % 250}.1"))
    return made


def test_a_subnet_has_two_places_in_a_bucket_and_an_address_one() -> None:
    made = table()
    assert made.answered(contact("a", "198.51.100.1"))
    assert made.answered(contact("b", "198.51.100.2"))
    assert not made.answered(contact("c", "198.51.100.3"))
    assert not made.answered(contact("d", "198.51.100.1"))
    assert made.answered(contact("e", "198.51.101.1"))
    assert not made.answered(contact("f", "198.51.101.1")), "the same IP and port"
    assert made.answered(contact("g", "198.51.101.1", 7001))
    assert len(made) == 4


def test_an_ipv6_subnet_is_a_48() -> None:
    made = table()
    found = [made.answered(contact(n, f"2001:db8:1:{n:x}::1")) for n in range(5)]
    assert found == [True, True, False, False, False]
    assert made.answered(contact("other", "2001:db8:2::1"))


def test_two_hundred_ids_from_one_address_get_two_places_in_each_bucket() -> None:
    made = filled(100)
    before = len(made)
    for number in range(200):
        made.answered(contact(f"evil {number}", "203.0.113.9", 1000 + number))
    evil = [found for found in made if found.ip == "203.0.113.9"]
    print(f"{len(evil)} of 200 ids of one address among {len(made)} contacts in {len(made.buckets)} buckets")
    assert len(evil) <= 2 * len(made.buckets)
    assert len(made) >= before, "nobody was driven out"
    for bucket in made.buckets:
        spares = [spare for spare in bucket.replacement_nodes.values() if spare.ip == "203.0.113.9"]
        assert sum(found.ip == "203.0.113.9" for found in bucket.nodes.values()) <= 2
        assert len(spares) <= 2


def test_two_hundred_ids_at_one_place_are_one_contact_of_a_bucket() -> None:
    made = table()
    for number in range(200):
        made.answered(Contact(far(number), ("203.0.113.9", 7000)))
    assert len(made) == 1


def test_the_nearest_are_those_of_a_plain_sort() -> None:
    chance = random.Random(11)
    made = filled(300)
    for _ in range(50):
        target = Node(chance.randbytes(20))
        expected = sorted((found.long_id ^ target.long_id, found.id) for found in made)[:20]
        assert [found.id for found in made.find_neighbors(target)] == [id_ for _, id_ in expected]


def test_every_contact_is_in_the_bucket_of_its_range() -> None:
    made = filled(500)
    assert len(made.buckets) > 2
    edge = 0
    for bucket in made.buckets:
        assert bucket.range[0] == edge
        edge = bucket.range[1] + 1
        assert len(bucket.nodes) <= 20
        assert all(bucket.has_in_range(found) for found in bucket.nodes.values())
    assert edge == 2**160
    for found in made:
        assert made.get(found.id) is found
    top = Contact(b"\xff" * 20, ("192.0.2.1", 1))
    middle = Contact(b"\x7f" + b"\xff" * 19, ("192.0.3.1", 1))
    for odd in (top, middle):
        made.answered(odd)
        assert made.buckets[made.get_bucket_for(odd)].has_in_range(odd)


def test_we_are_never_our_own_contact() -> None:
    made = table()
    assert not made.answered(Contact(ME, ("192.0.2.1", 1)))
    assert not made.wants(Contact(ME, ("192.0.2.1", 1)))
    assert len(made) == 0


def test_who_is_silent_comes_last_and_is_replaced_by_a_spare_one() -> None:
    made = table(size=3)
    inside = [Contact(far(n), (f"10.0.{n}.1", 7)) for n in range(3)]
    spare = [Contact(far(n), (f"10.0.{n}.1", 7)) for n in range(3, 6)]
    for found in (*inside, *spare):
        made.answered(found)
    assert {found.id for found in made} == {found.id for found in inside}
    assert made.spares() == 3
    target = Node(inside[0].id[:19] + bytes((inside[0].id[19] ^ 1,)))
    assert made.find_neighbors(target, k=1)[0].id == inside[0].id
    known = made.silent(inside[0])
    assert known is not None
    assert known.failures == 1
    assert made.find_neighbors(target, k=1)[0].id != inside[0].id
    assert {found.id for found in made.find_neighbors(target, k=3)} == {found.id for found in inside}
    candidate = made.spare(known)
    assert candidate is not None
    assert candidate.id == spare[2].id, "the one that was heard last"
    assert len(made) == 2, "it comes in when it has answered, not before"
    assert made.answered(candidate)
    assert made.get(candidate.id) is not None
    assert made.get(inside[0].id) is None


def test_an_answer_clears_the_failures() -> None:
    made = table()
    one = contact("one", "10.0.0.1")
    made.answered(one)
    made.silent(one)
    assert not made.answered(contact("one", "10.0.0.1")), "no new contact"
    found = made.get(one.id)
    assert found is not None
    assert found.failures == 0


def test_a_contact_moves_only_when_its_old_place_is_silent() -> None:
    made = table()
    old, new = contact("one", "10.0.0.1"), contact("one", "10.9.9.9")
    made.answered(old)
    assert not made.wants(new)
    made.answered(new)
    found = made.get(old.id)
    assert found is not None
    assert found.place == old.place
    assert made.silent(new) is None, "silence at the other place says nothing"
    made.silent(old)
    assert made.wants(new)
    made.answered(new)
    found = made.get(old.id)
    assert found is not None
    assert (found.place, found.failures) == (new.place, 0)
    assert len(made) == 1


def test_only_whom_there_is_room_for_is_asked_back() -> None:
    made = table(size=3)
    for n in range(3):
        made.answered(Contact(far(n), (f"10.0.{n}.1", 7)))
    assert made.wants(Contact(far(3), ("10.0.3.1", 7))), "as a spare one"
    for n in range(3, 6):
        made.answered(Contact(far(n), (f"10.0.{n}.1", 7)))
    assert not made.wants(Contact(far(6), ("10.0.6.1", 7)))
    assert not made.wants(Contact(far(3), ("10.0.3.1", 7))), "it is a spare one"
    assert made.wants(contact("near", "10.1.0.1")) == (node_id("near")[0] < 0x80)


def test_few_of_a_subnet_keeps_the_order() -> None:
    given = [contact(n, ip) for n, ip in enumerate(("10.0.0.1", "10.0.0.2", "10.0.1.1", "10.0.0.3", "10.0.1.1"))]
    assert few_of_a_subnet(given, 2) == [given[0], given[1], given[2]]
