"""Mesh addresses as people and peers write them, and where they lead as far as their text tells.

Accepted: ``host:port``, ``[v6]:port``, ``ws://host[:port][/path]`` and ``wss://host[:port][/path]``.
Everything a remote can announce passes through here, so what could turn a dial into a weapon is refused too:
queries and user names in URLs, numbers that a resolver would read as addresses, and addresses that are no
single host.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hmp_node.errors import Reject, Rejected

PATH = "/mesh"
LENGTH_MAX = 255

Ip: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Reach: TypeAlias = Literal["loopback", "private", "global", "name"]

_MEANT = re.compile(r"(?:\[[^\s/@?#\[\]]+\]|[^\s:/@?#\[\]]+):\d{1,5}\Z")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\Z")
_URL_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]{1,64}){1,8}/?\Z")
_NUMBER = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)\Z")
_PORT = re.compile(r"[0-9]{1,5}\Z")
_ZONE = re.compile(r"[A-Za-z0-9._-]{1,32}\Z")
_METADATA = frozenset(
    ipaddress.ip_address(text) for text in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254")
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_DEFAULT_PORTS = {"ws": 80, "wss": 443}
_OURS = ("localhost", "localhost.localdomain")


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


# --- the grammar ----------------------------------------------------------------------------------------


def looks_like_address(text: str) -> bool:
    """Whether this is meant as an address, good or bad, and so cannot be a name."""
    return "://" in text or _MEANT.match(text) is not None


def parse(text: str) -> MeshAddress:
    """Read one mesh address; two spellings of one address give equal values. `Rejected` BAD_ADDRESS."""
    return _read(text)[0]


def check(text: str) -> str:
    """The address as it is kept and shown: as it was written, but for one spelling of its host. BAD_ADDRESS."""
    return _read(text)[1]


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
    return f"{_bracketed(host)}:{port}"


def host_of(address: str) -> str:
    """The host of an address as the mesh reports it, "" if it reads as none."""
    try:
        return parse(address).host
    except Rejected:
        return ""


# --- what an IP is to us --------------------------------------------------------------------------------


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
    inner = _inner(address)
    return refusal(inner) if inner is not None else ""


def is_global(address: Ip) -> bool:
    """Whether packets to this address leave for the internet, also those that a gateway unwraps on the way."""
    inner = _inner(address)
    return address.is_global and not address.is_multicast and (inner is None or is_global(inner))


def reach(address: str) -> Reach:
    """Where an address leads, as far as its text tells. BAD_ADDRESS for what is none."""
    host = parse(address).host
    ip = plain_ip(host)
    if ip is None:
        return "loopback" if host in _OURS else "name"
    return _reach(ip)


def reach_of_arrival(arrival: str) -> Reach:
    """Where a peer came from: the remote IP, or ``localhost``; unknown counts as global, which shows least."""
    if arrival == "localhost":
        return "loopback"
    ip = plain_ip(arrival)
    return "global" if ip is None else _reach(ip)


def may_keep(address: str, arrival: str) -> bool:
    """Whether an address a peer announced may be kept: loopback and private ones only from where they are near."""
    kind, near = reach(address), reach_of_arrival(arrival)
    if kind in ("global", "name") or near == "loopback":
        return True
    return kind == near == "private" and "%" not in address  # a zone is an interface of the machine that names it


def _reach(ip: Ip) -> Reach:
    if ip.is_loopback or ip.is_unspecified:
        return "loopback"
    return "global" if is_global(ip) else "private"


def _inner(ip: Ip) -> Ip | None:
    """The IPv4 address inside an IPv6 one that a translator or relay sends on to: 6to4, Teredo, NAT64 (RFC 3056, 4380,
    6052)."""
    if not isinstance(ip, ipaddress.IPv6Address):
        return None
    if ip.sixtofour is not None:
        return ip.sixtofour
    if ip.teredo is not None:
        return ip.teredo[1]
    return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None


# --- how it is read -------------------------------------------------------------------------------------


def _read(text: str) -> tuple[MeshAddress, str]:
    """The address, and its text with the host in canonical form."""
    if len(text) > LENGTH_MAX or not text.isascii() or not text.isprintable() or " " in text:
        raise _bad(text, "it is too long or holds characters no address has")
    scheme, slashes, rest = text.partition("://")
    if not slashes:
        host, port = _split(text, None)
        host = _host(text, host)
        return MeshAddress("ws", host, port, PATH), show(host, port)
    scheme = scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        raise _bad(text, "the scheme is neither ws nor wss")
    netloc, slash, tail = rest.partition("/")
    if any(sign in rest for sign in "?#@\\"):
        raise _bad(text, "a user name, query or fragment has no place in it")
    path = slash + tail if tail else PATH
    if not _URL_PATH.match(path) or any(part in (".", "..") for part in path.split("/")):
        raise _bad(text, "its path is not a plain one")
    host, port = _split(netloc, _DEFAULT_PORTS[scheme])
    host = _host(text, host)
    spot = show(host, port) if ":" in netloc.rpartition("]")[2] else _bracketed(host)
    return MeshAddress(scheme, host, port, path), f"{scheme}://{spot}{slash}{tail}"


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


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bad(text: str, why: str) -> Rejected:
    return Rejected(
        Reject.BAD_ADDRESS,
        f"{text[:80]!r} is not a mesh address: {why}",
        remedy="write HOST:PORT, [IPv6]:PORT, ws://HOST[:PORT][/PATH] or wss://HOST[:PORT][/PATH]",
    )
