"""Which of our own addresses others can use, when we listen on all of them."""

from __future__ import annotations

import contextlib
import socket

from hmp_node.net.interfaces import interfaces
from hmp_node.wire.address import parse_listen, show

# Nothing is sent to these documentation addresses (RFC 5737, RFC 3849): connecting a UDP socket only asks the
# kernel for a route.
ROUTES = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
WILDCARDS = {"0.0.0.0": ROUTES[:1], "::": ROUTES}  # noqa: S104 not a bind
ADDRESSES = 4  # told of each family, at most


def concrete(bound: str) -> list[str]:
    """``bound`` itself, or for a wildcard what others can dial in its place.

    That is, of each IP family, the address of the interface with the default route; on a network that leads
    nowhere else, the addresses of its interfaces.
    """
    host, port = parse_listen(bound)
    if host not in WILDCARDS:
        return [bound]
    return [show(ip, port) for family, far in WILDCARDS[host] for ip in _usable(family, far)]


def _usable(family: socket.AddressFamily, far: str) -> list[str]:
    if routed := _source(family, far):
        return [routed]
    near = [item.ip for item in interfaces() if item.lan and item.family == family and not item.link_local]
    return near[:ADDRESSES]


def _source(family: socket.AddressFamily, far: str) -> str:
    """The address that packets to ``far`` would leave from; empty without a route."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((far, 9))
        return str(probe.getsockname()[0])
    return ""
