"""Token buckets and the doorkeeper, with time as an argument."""

from __future__ import annotations

from hmp_node.errors import Reject
from hmp_node.net.limits import KEYS_MAX, SOCKETS_SPARE, Buckets, Doorkeeper
from hmp_node.net.settings import NetSettings


class Plug:
    """A socket that remembers being dropped."""

    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def keeper(**settings: float) -> Doorkeeper:
    return Doorkeeper(NetSettings(**settings))  # type: ignore[arg-type]


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    buckets = Buckets(rate=2.0, burst=3.0)
    assert [buckets.take("a", 100.0) for _ in range(5)] == [True, True, True, False, False]
    assert not buckets.take("a", 100.4)
    assert buckets.take("a", 100.5)
    assert not buckets.take("a", 100.5)
    assert buckets.take("b", 100.5)
    assert [buckets.take("a", 1000.0) for _ in range(4)] == [True, True, True, False]


def test_time_that_runs_backwards_gives_nothing() -> None:
    buckets = Buckets(rate=1.0, burst=1.0)
    assert buckets.take("a", 100.0)
    assert not buckets.take("a", 50.0)
    assert buckets.take("a", 51.0)


def test_the_buckets_forget_old_keys() -> None:
    buckets = Buckets(rate=1.0, burst=1.0)
    for number in range(3 * KEYS_MAX):
        buckets.take(str(number), float(number))
    assert len(buckets._levels) == KEYS_MAX


def test_connections_are_counted_by_address_and_in_all() -> None:
    door = keeper(connections=3, connections_per_address=2, handshakes_per_address=1000.0)
    assert door.admit("a", 0.0) is None
    assert door.admit("a", 0.0) is None
    refused = door.admit("a", 0.0)
    assert refused is not None
    assert (refused.code, refused.status) == (Reject.TOO_MANY_CONNECTIONS, 429)
    assert door.admit("b", 0.0) is None
    refused = door.admit("c", 0.0)
    assert refused is not None
    assert (refused.code, refused.status) == (Reject.TOO_MANY_CONNECTIONS, 503)
    door.leave("a")
    assert door.admit("a", 0.0) is None
    door.leave("b")
    door.leave("a")
    door.leave("a")
    assert not door._links


def test_handshakes_are_counted_by_address_and_in_all() -> None:
    door = keeper(handshakes_per_address=1.0, handshakes_per_second=3.0)
    answers = [door.admit("a", 0.0) for _ in range(5)]
    assert answers[:4] == [None] * 4
    assert answers[4] is not None
    assert (answers[4].code, answers[4].status) == (Reject.TOO_MANY_HANDSHAKES, 429)
    others = [door.admit(f"b{number}", 0.0) for number in range(3)]
    assert others[:2] == [None] * 2
    assert others[2] is not None
    assert (others[2].code, others[2].status) == (Reject.TOO_MANY_HANDSHAKES, 503)
    assert door.admit("b9", 1.0) is None


def test_the_oldest_unproven_socket_makes_room_and_a_proven_one_never() -> None:
    door = keeper(unproven=2)
    plugs = [Plug() for _ in range(4)]
    assert door.arrived(plugs[0], "a", counted=True) is None
    door.proven(plugs[0])
    assert door.arrived(plugs[1], "b", counted=True) is None
    assert door.arrived(plugs[2], "c", counted=True) is None
    assert door.arrived(plugs[3], "d", counted=True) is Reject.TOO_MANY_HANDSHAKES
    assert [plug.aborted for plug in plugs] == [False, True, False, False]
    assert (door.sockets, door.unproven) == (4, 2)
    for plug in plugs:
        door.left(plug)
        door.left(plug)
    assert (door.sockets, door.unproven) == (0, 0)
    assert not door._per_socket


def test_one_address_cannot_hold_many_sockets_but_a_proxy_can() -> None:
    door = keeper(connections_per_address=2, unproven=100)
    allowed = 2 + SOCKETS_SPARE
    plugs = [Plug() for _ in range(allowed + 3)]
    dropped = [door.arrived(plug, "a", counted=True) for plug in plugs]
    assert dropped == [None] * allowed + [Reject.TOO_MANY_CONNECTIONS] * 3
    assert [plug.aborted for plug in plugs] == [False] * allowed + [True] * 3
    proxied = [Plug() for _ in range(30)]
    assert not any(door.arrived(plug, "p", counted=False) for plug in proxied)
    for plug in plugs + proxied:
        door.left(plug)
    assert door.sockets == 0
    assert not door._per_socket
