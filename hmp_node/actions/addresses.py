"""Addresses as text: ``HOST:PORT``, ``ws://...``, ``wss://...``; which of them lead where."""

from __future__ import annotations

import ipaddress
import re
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from hmp_node.errors import Reject, Rejected

MAX_ADDRESS = 255
Reach: TypeAlias = Literal["loopback", "private", "global", "name"]

_HOST_PORT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/@?#\[\]]+)):(?P<port>\d{1,5})")
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")
_PATH = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*")


def looks_like_address(text: str) -> bool:
    """Whether this is meant as an address, good or bad, and so cannot be a name."""
    return "://" in text or _HOST_PORT.fullmatch(text) is not None


def check(text: str) -> str:
    """The address, host in lower case; BAD_ADDRESS names what is wrong. Port 0 means inactive and is refused."""
    host, port, url = _split(text)
    if not 1 <= port <= 65535:
        raise _bad(text, "the port must be 1 to 65535")
    if _ip(host) is None and not _HOST_NAME.fullmatch(host):
        raise _bad(text, "the host is neither a name nor an IP address")
    return url if url else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reach(address: str) -> Reach:
    """Where a checked address leads, as far as its text tells."""
    host, _, _ = _split(address)
    ip = _ip(host)
    if ip is None:
        return "loopback" if host.rstrip(".") in ("localhost", "localhost.localdomain") else "name"
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_loopback or ip.is_unspecified:
        return "loopback"
    return "global" if ip.is_global and not ip.is_multicast else "private"


def reach_of_arrival(arrival: str) -> Reach:
    """Where a peer came from: the remote IP, or ``localhost``; unknown counts as global, which shows least."""
    ip = _ip(arrival)
    if arrival == "localhost":
        return "loopback"
    return reach(f"[{ip}]:1" if isinstance(ip, ipaddress.IPv6Address) else f"{ip}:1") if ip else "global"


def host_of(address: str) -> str:
    """The host of an address as the mesh reports it, "" if it reads as none."""
    try:
        return _split(address)[0]
    except Rejected:
        return ""


def may_keep(address: str, arrival: str) -> bool:
    """Whether an address a peer announced may be kept: loopback and private ones only from where they are near."""
    kind, near = reach(address), reach_of_arrival(arrival)
    return kind in ("global", "name") or near == "loopback" or (kind == "private" and near == "private")


def _split(text: str) -> tuple[str, int, str]:
    """(host, port, the URL if it is one)."""
    if len(text) > MAX_ADDRESS:
        raise _bad(text, f"it is longer than {MAX_ADDRESS} characters")
    if "://" not in text:
        match = _HOST_PORT.fullmatch(text)
        if match is None:
            raise _bad(text, "it is not HOST:PORT")
        return (match["six"] or match["host"]).lower(), int(match["port"]), ""
    try:
        url = urlsplit(text)
        host, port = url.hostname or "", url.port
    except ValueError as error:
        raise _bad(text, str(error)) from None
    if url.scheme not in ("ws", "wss"):
        raise _bad(text, f"{url.scheme[:16]!r} is not a scheme peers are reached by")
    if "@" in url.netloc or url.query or url.fragment or not _PATH.fullmatch(url.path):
        raise _bad(text, "a user, a query or a fragment is not allowed, nor an odd path")
    shown = f"[{host}]" if ":" in host else host
    tail = f":{port}" if port is not None else ""
    return (
        host,
        port if port is not None else {"ws": 80, "wss": 443}[url.scheme],
        f"{url.scheme}://{shown}{tail}{url.path}",
    )


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _bad(text: str, why: str) -> Rejected:
    return Rejected(
        Reject.BAD_ADDRESS,
        f"{text[:80]!r} is no address of a peer: {why}",
        remedy="HOST:PORT, [IPV6]:PORT, ws://HOST:PORT/path or wss://HOST/path",
    )
