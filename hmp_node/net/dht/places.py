"""Where contacts are: IPs and ports as the socket layer gives them, their subnets, and who may be told of whom."""

from __future__ import annotations

import ipaddress
import socket
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from hmp_node.wire.address import Ip, is_global, plain_ip, refusal

Place: TypeAlias = tuple[str, int]
"""IP in canonical form, without zone and never an IPv4 one inside IPv6; and UDP port."""


CACHED = 4096  # reading an IP costs more than a signature is long; each is read again and again


class Family(NamedTuple):
    """One of the two internets; each has a socket and a table of its own."""

    name: str
    number: socket.AddressFamily
    ip_bytes: int


IPV4 = Family("IPv4", socket.AF_INET, 4)
IPV6 = Family("IPv6", socket.AF_INET6, 16)


def family_of(ip: str) -> Family | None:
    """The family of an IP in text; None for what is no IP, such as a host name."""
    address = plain_ip(ip)
    if address is None or "%" in ip:
        return None
    return IPV4 if address.version == 4 else IPV6


@lru_cache(maxsize=CACHED)
def place_of(host: str, port: int) -> Place | None:
    """The place that a hint names; None if nothing may be sent there: no IP, no single host, or no port."""
    address = plain_ip(host)
    if address is None or "%" in host or refusal(address) or not 0 < port < 65_536:
        return None
    return str(address), port


@lru_cache(maxsize=CACHED)
def subnet(ip: str) -> str:
    """What one party is taken to have at its command: the /24 of an IPv4 address, the /48 of an IPv6 one."""
    address = ipaddress.ip_address(ip)
    return str(ipaddress.ip_network((address, 24 if address.version == 4 else 48), strict=False))


@lru_cache(maxsize=CACHED)
def is_public(ip: str) -> bool:
    """Whether the address is one of the internet."""
    address = ipaddress.ip_address(ip)
    return is_global(address)


@lru_cache(maxsize=CACHED)
def _nearness(ip: str) -> int:
    address: Ip = ipaddress.ip_address(ip)
    return 2 if address.is_loopback else 0 if address.is_global else 1


def may_tell(ip: str, to: str) -> bool:
    """Whether one at ``to`` has any use for ``ip``, and may send us there: only the near are told of what is near."""
    return _nearness(ip) <= _nearness(to)


@lru_cache(maxsize=CACHED)
def pack(place: Place) -> bytes:
    """IP and port in 6 or 18 bytes."""
    return ipaddress.ip_address(place[0]).packed + place[1].to_bytes(2, "big")


@lru_cache(maxsize=CACHED)
def unpack(data: bytes, family: Family) -> Place | None:
    """The place in these bytes; None if they name nothing that may be sent to in this family."""
    if len(data) != family.ip_bytes + 2:
        return None
    address = ipaddress.ip_address(data[:-2])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return None  # an IPv4 peer has no place in the IPv6 table
    return place_of(str(address), int.from_bytes(data[-2:], "big"))
