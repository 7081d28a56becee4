"""The interfaces of this machine that are up, which networks they are in, and which of them make a LAN."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import ifaddr

from hmp_node.net.origin import Network
from hmp_node.wire.address import parse_listen, plain_ip

# Linux: the request for an interface's flags, and the flags themselves (netdevice(7)).
_GET_FLAGS = 0x8913
_UP, _LOOPBACK, _POINT_TO_POINT, _RUNNING, _MULTICAST = 0x1, 0x8, 0x10, 0x40, 0x1000

WILDCARDS = {"0.0.0.0": (4,), "::": (4, 6)}  # noqa: S104 not a bind; which IP versions come in there
LATELY_S = 1.5

# A mask this short makes strangers neighbours, and nothing nearby is worth that.
_SHORTEST_PREFIX = {4: 8, 6: 32}

# Containers and virtual machines of this host are behind these; announcing there floods hosts that run many.
_VIRTUAL = re.compile(
    r"(?:docker|veth|cni|flannel|cali|virbr|vnet|lxc|lxd|podman|vmnet|vboxnet|tun|wg|tailscale|utun|awdl|llw)"
    r"|br-[0-9a-f]{12}\Z"
)


class Interface(NamedTuple):
    """One address of an interface that is up: ``ip`` without zone, ``prefix`` bits of it are the network's.

    ``lan``: neighbours may be found behind it by multicast.
    """

    name: str
    ip: str
    prefix: int
    family: socket.AddressFamily
    lan: bool = True

    @property
    def network(self) -> Network:
        """The network it is in."""
        return ipaddress.ip_network((self.ip, self.prefix), strict=False)

    @property
    def link_local(self) -> bool:
        """Whether the address means something on this one link only."""
        return ipaddress.ip_address(self.ip).is_link_local


def interfaces() -> list[Interface]:
    """Every usable address of this machine but loopback; empty where the system tells none."""
    try:
        adapters = list(ifaddr.get_adapters())
    except OSError:
        return []
    return [found for adapter in adapters for found in _addresses(adapter)]


def of_lan(found: Iterable[Interface], wanted: Sequence[str]) -> list[Interface]:
    """Those on which to look for neighbours: the ones named by name or IP, or all that look like a LAN."""
    if wanted:
        return [item for item in found if item.name in wanted or item.ip in wanted]
    return [item for item in found if item.lan]


def subnets(found: Iterable[Interface] | None = None) -> list[str]:
    """The networks that this machine is in, as CIDR texts."""
    given = interfaces() if found is None else found
    return [str(item.network) for item in given if _has_neighbours(item)]


def same_subnet(ip: str, found: Iterable[Interface] | None = None) -> bool:
    """Whether ``ip``, with or without a zone, is in a network that one of our interfaces is in."""
    address = plain_ip(ip)
    zone = ip.partition("%")[2]
    return address is not None and any(
        address in item.network and zone in ("", item.name)
        for item in (interfaces() if found is None else found)
        if _has_neighbours(item)
    )


def listens_on(listener: str, ip: str) -> bool:
    """Whether a listener ``HOST:PORT``, wildcard or not, takes what comes to this IP of ours."""
    host, _port = parse_listen(listener)
    address = ipaddress.ip_address(ip)
    return address.version in WILDCARDS.get(host, ()) or plain_ip(host) == address


class Lately:
    """The interfaces as they were at most `LATELY_S` ago: for questions that come by the hundred, inside writes."""

    def __init__(self) -> None:
        self._seen: list[Interface] = []
        self._at = float("-inf")

    def is_near(self, ip: str) -> bool:
        """`same_subnet`, from any thread."""
        now = time.monotonic()
        if now - self._at > LATELY_S:
            self._seen, self._at = interfaces(), now
        return same_subnet(ip, self._seen)


def _has_neighbours(item: Interface) -> bool:
    network = item.network
    return _SHORTEST_PREFIX[network.version] <= item.prefix < network.max_prefixlen


def _addresses(adapter: ifaddr.Adapter) -> Iterator[Interface]:
    """The addresses of one adapter that can be used now."""
    name = str(adapter.nice_name)
    flags = _flags(name)
    if not flags & _UP or not flags & _RUNNING or flags & _LOOPBACK:
        return
    lan = bool(flags & _MULTICAST) and not flags & _POINT_TO_POINT and not _VIRTUAL.match(name)
    for item in adapter.ips:
        ip, family = (item.ip[0], socket.AF_INET6) if isinstance(item.ip, tuple) else (item.ip, socket.AF_INET)
        address = plain_ip(ip)
        if address is None or address.is_loopback or not _ready(item.ip, family):
            continue
        yield Interface(name, str(address), item.network_prefix, family, lan)


def _ready(ip: str | tuple[str, int, int], family: socket.AddressFamily) -> bool:
    """Whether the address can be bound: an IPv6 one cannot until the kernel knows that nobody else has it."""
    if not isinstance(ip, tuple):
        return True
    host, flow, scope = ip
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0, flow, scope))
    except OSError:
        return False
    return True


def _flags(name: str) -> int:
    """The flags of an interface; where they cannot be asked for, those of an ordinary one."""
    usual = _UP | _RUNNING | _MULTICAST
    if sys.platform != "linux":
        return usual
    import fcntl  # noqa: PLC0415 Windows has none

    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe, _GET_FLAGS, struct.pack("16sH14x", name.encode()[:15], 0))
        return int(struct.unpack_from("H", answer, 16)[0])
    return usual
