"""Settings of the net room: every limit an outsider can run into (DESIGN promise 5)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True)
class NetSettings:
    """Limits and time-outs of connections: seconds, bytes; an address is an IPv4 host or an IPv6 /64."""

    connections: int = 512
    """Inbound connections at once, proven or not."""
    connections_per_address: int = 64
    """The same, of one address."""
    unproven: int = 128
    """Inbound sockets whose handshake is not finished; one more and the oldest of them is dropped."""
    handshakes_per_second: float = 100.0
    """Inbound handshakes begun, all addresses together; twice as many in a burst."""
    handshakes_per_address: float = 10.0
    """The same, of one address; four times as many in a burst."""
    handshake_timeout: float = 10.0
    """From the accepted socket to the request, and from the request to the proven peer."""
    connect_timeout: float = 10.0
    """From the first packet of a dial to its open WebSocket."""
    dials: int = 64
    """Outbound dials at once."""
    send_bytes: int = 8 * MIB
    """Queued for one connection and not yet written; more and it is closed as slow."""
    send_frames: int = 1000
    """The same, counted in frames."""
    pending: int = 1024
    """Containers of one connection not yet performed; above it, reading from it pauses (see `weight`)."""
    pending_total: int = 16_384
    """The same, all connections together."""
    bad_containers: int = 256
    """Containers that fail verification on one connection before it is closed."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks whose X-Forwarded-For is believed."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, as `ValueError`, so that the config names the section."""
        for name in (
            "connections",
            "connections_per_address",
            "unproven",
            "dials",
            "send_bytes",
            "send_frames",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in (
            "handshakes_per_second",
            "handshakes_per_address",
            "handshake_timeout",
            "connect_timeout",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")
        for name in ("pending", "pending_total", "bad_containers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for text in self.trusted_proxies:
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                raise ValueError(f"trusted_proxies: {error}") from error


def weight(count: int, size: int) -> int:
    """What containers of ``size`` bytes in all weigh against ``pending``: one each and one for each 4 KiB."""
    return count + size // 4096
