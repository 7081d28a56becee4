"""Mesh addresses as people and peers write them, and what an IP address means to us.

Accepted: ``host:port``, ``[v6]:port``, ``ws://host[:port][/path]`` and ``wss://host[:port][/path]``.
Everything a remote can announce passes through `parse`, so it also refuses what could turn a dial into a
weapon: queries and user names in URLs, numbers that a resolver would read as addresses, and addresses that
are no single host.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hmp_node.errors import Reject, Rejected

PATH = "/mesh"
LENGTH_MAX = 512
ANYWHERE = "global"  # the arrival of a connection whose origin nobody vouches for

Ip: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\Z")
_URL_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]{1,64}){1,8}/?\Z")
_NUMBER = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)\Z")
_PORT = re.compile(r"[0-9]{1,5}\Z")
_ZONE = re.compile(r"[A-Za-z0-9._-]{1,32}\Z")
_METADATA = frozenset(
    ipaddress.ip_address(text) for text in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254")
)
_DEFAULT_PORTS = {"ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class MeshAddress:
    """Where a node may listen: ``scheme`` ws or wss; ``host`` a lower case name or an IP without brackets."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        """What our WebSocket client dials; the zone of a link-local address stands bare, as it wants it."""
        return f"{self.scheme}://{show(self.host, self.port)}{self.path}"

    def __str__(self) -> str:
        plain = self.scheme == "ws" and self.path == PATH
        return show(self.host, self.port) if plain else self.url


def parse(text: str) -> MeshAddress:
    """Read one mesh address; two spellings of one address give equal values. `Rejected` BAD_ADDRESS."""
    if len(text) > LENGTH_MAX or not text.isascii() or not text.isprintable() or " " in text:
        raise _bad(text, "it is too long or holds characters no address has")
    scheme, slashes, rest = text.partition("://")
    if not slashes:
        host, port = _split(text, None)
        return MeshAddress("ws", _host(text, host), port, PATH)
    scheme = scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        raise _bad(text, "the scheme is neither ws nor wss")
    netloc, slash, path = rest.partition("/")
    if any(sign in rest for sign in "?#@\\"):
        raise _bad(text, "a user name, query or fragment has no place in it")
    path = slash + path if path else PATH
    if not _URL_PATH.match(path) or any(part in (".", "..") for part in path.split("/")):
        raise _bad(text, "its path is not a plain one")
    host, port = _split(netloc, _DEFAULT_PORTS[scheme])
    return MeshAddress(scheme, _host(text, host), port, path)


def parse_listen(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT`` to listen on. `Rejected` BAD_ADDRESS.

    Port 0 lets the system choose; 0.0.0.0 means every IPv4 interface and ``[::]`` every interface.
    """
    host, port = _split(text, None, lowest=0)
    try:
        return str(ipaddress.ip_address(host)), port
    except ValueError:
        return _name(text, host), port


def show(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plain_ip(text: str) -> Ip | None:
    """An IP as the socket layer names it, without zone and IPv4-in-IPv6 wrapping; None for anything else."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def refusal(address: Ip) -> str:
    """Why we never dial this address, or "": it is no single host, or a cloud's metadata service."""
    if address.is_unspecified or address.is_multicast or address == ipaddress.ip_address("255.255.255.255"):
        return "it is not the address of one host"
    if address in _METADATA:
        return "it is a cloud's metadata service"
    return ""


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


def _split(text: str, default_port: int | None, *, lowest: int = 1) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[v6]:port``; without a port, the default."""
    if text.startswith("["):
        host, bracket, after = text[1:].partition("]")
        if not bracket or ":" not in host or (after and not after.startswith(":")):
            raise _bad(text, "its brackets do not hold an IPv6 address")
        port = after[1:]
        bare = not after
    else:
        host, colon, port = text.partition(":")
        bare = not colon
        if ":" in port:
            raise _bad(text, "an IPv6 address needs brackets")
    if bare and default_port is not None:
        return host, default_port
    if not _PORT.match(port) or not lowest <= int(port) <= 65_535:
        raise _bad(text, f"a port from {lowest} to 65535 is missing")
    return host, int(port)


def _host(text: str, host: str) -> str:
    """The canonical form of a host we may dial."""
    address, _, zone = host.replace("%25", "%", 1).partition("%")
    try:
        ip = plain_ip(address) if ":" in address else ipaddress.ip_address(address)
    except ValueError:
        return _name(text, host)
    if ip is None:
        raise _bad(text, "its brackets do not hold an IPv6 address")
    if reason := refusal(ip):
        raise _bad(text, reason)
    if not zone:
        return str(ip)
    if not (ip.is_link_local and _ZONE.match(zone)):
        raise _bad(text, "only a link-local address has a zone")
    return f"{ip}%{zone}"


def _name(text: str, host: str) -> str:
    """A host name in lower case."""
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(_LABEL.match(label) for label in labels):
        raise _bad(text, "its host is neither a name nor an IP address")
    if _NUMBER.match(labels[-1]):
        raise _bad(text, "its host looks like a number but is not an IPv4 address")
    return ".".join(labels).lower()


def _bad(text: str, why: str) -> Rejected:
    return Rejected(
        Reject.BAD_ADDRESS,
        f"{text[:80]!r} is not a mesh address: {why}",
        remedy="write HOST:PORT, [IPv6]:PORT, ws://HOST[:PORT][/PATH] or wss://HOST[:PORT][/PATH]",
    )
