"""Multicast DNS packets made by hand, as a stranger on the network would make them."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Sequence

from hmp_node.wire.text import b58encode

SERVICE = "_hmp._tcp.local"
GROUP = ("224.0.0.251", 5353)
IN, FLUSH = 1, 0x8001
A, PTR, TXT, AAAA, SRV = 1, 12, 16, 28, 33


def text(**items: str | bytes) -> bytes:
    """The content of a TXT record."""
    pieces = [
        key.encode() + b"=" + (value.encode() if isinstance(value, str) else value) for key, value in items.items()
    ]
    return b"".join(bytes([len(piece)]) + piece for piece in pieces)


def facts(number: int, network: str, **other: str | bytes) -> bytes:
    """The TXT content of node ``number``, whose key is that number in every byte, with ``other`` in place of parts."""
    return text(**({"k": b58encode(number.to_bytes(2, "big") * 16), "v": "5.0", "n": network} | other))


def service(
    name: bytes | str, content: bytes, *, port: int = 7440, ips: Sequence[str] = ("127.0.0.1",), ttl: int = 120
) -> bytes:
    """A response that announces one service whole; ``name`` is one label of at most 63 bytes."""
    label = name.encode() if isinstance(name, str) else name
    whole = bytes([len(label)]) + label + _name(SERVICE)
    records = [
        _record(_name(SERVICE), PTR, IN, ttl, whole),
        _record(whole, SRV, FLUSH, ttl, struct.pack(">HHH", 0, 0, port) + whole),
        _record(whole, TXT, FLUSH, ttl, content),
    ]
    for ip in ips:
        address = ipaddress.ip_address(ip)
        records.append(_record(whole, A if address.version == 4 else AAAA, FLUSH, ttl, address.packed))
    return response(*records)


def pointer(name: str, ttl: int = 4500) -> bytes:
    """A response that names a service and nothing more."""
    return response(_record(_name(SERVICE), PTR, IN, ttl, bytes([len(name)]) + name.encode() + _name(SERVICE)))


def response(*records: bytes) -> bytes:
    """A packet with these answers."""
    return struct.pack(">HHHHHH", 0, 0x8400, 0, len(records), 0, 0) + b"".join(records)


def _name(text_: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in text_.split(".")) + b"\0"


def _record(name: bytes, kind: int, cls: int, ttl: int, data: bytes) -> bytes:
    return name + struct.pack(">HHIH", kind, cls, ttl, len(data)) + data


class Sender:
    """Multicasts packets on the loopback interface."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, packet: bytes) -> None:
        """Send one datagram to the group."""
        self._socket.sendto(packet, GROUP)
