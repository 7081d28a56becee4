"""Which of our own addresses others can use, when we listen on all of them."""

from __future__ import annotations

import contextlib
import socket

from hmp_node.wire.address import parse_listen, show

# Nothing is sent to these documentation addresses (RFC 5737, RFC 3849): connecting a UDP socket only asks the
# kernel for a route.
ROUTES = (("0.0.0.0", socket.AF_INET, "192.0.2.1"), ("::", socket.AF_INET6, "2001:db8::1"))  # noqa: S104 not a bind


def concrete(bound: str) -> list[str]:
    """``bound`` itself, or for a wildcard the address of the interface with the default route, if there is one."""
    host, port = parse_listen(bound)
    for wildcard, family, far in ROUTES:
        if host == wildcard:
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((far, 9))
                return [show(probe.getsockname()[0], port)]
            return []
    return [bound]
