"""Where a connection comes from: what its scope is judged by, what its limits count, and which proxy is believed."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from hmp_node.wire.address import Ip, plain_ip

ANYWHERE = "global"  # the arrival of a connection whose origin nobody vouches for

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def arrival(address: Ip) -> str:
    """The arrival text that `wire.container.check_scope` judges: "localhost" or the IP."""
    return "localhost" if address.is_loopback else str(address)


def group(address: Ip) -> str:
    """The key for limits per address: an IPv4 host, or the /64 that one IPv6 host can fill alone."""
    if isinstance(address, ipaddress.IPv4Address) or address.is_loopback:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks of checked setting texts."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def trusted(address: Ip, proxies: Sequence[Network]) -> bool:
    """Whether a proxy at ``address`` is believed."""
    return any(address in network for network in proxies)


def forwarded(header: str, proxies: Sequence[Network]) -> Ip | None:
    """The first address in X-Forwarded-For, read from our end, that is no trusted proxy; None if none."""
    for entry in reversed(header.rsplit(",", 31)):
        address = plain_ip(_bare(entry.strip()))
        if address is None or not trusted(address, proxies):
            return address
    return None


def _bare(entry: str) -> str:
    """An X-Forwarded-For entry without the port that some proxies add."""
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    host, colon, _ = entry.partition(":")
    return host if colon and entry.count(":") == 1 else entry
