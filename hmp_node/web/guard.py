"""Who may talk to the local API: where it binds, which Host and Origin it believes, whose token it takes.

A page in the owner's browser can reach loopback, and a DNS name can be pointed there: so the Host header must be a
name of ours with our port, an Origin must be our own, and everything of value needs the bearer token besides.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection
from urllib.parse import unquote

from aiohttp import web

from hmp_node.actions.actors import Actor, Mcp
from hmp_node.errors import Denied, Deny, Failed, Failure
from hmp_node.web.keys import CLIENT_HEADER

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
ACTOR: web.RequestKey[Actor] = web.RequestKey("actor")


def check_bind(host: str, allow_remote: bool) -> None:  # noqa: FBT001 the flag's name stands at every call
    """Refuse an address others can reach. Raises `Failed` UNSAFE_BIND unless loopback or ``allow_remote``."""
    if allow_remote or _is_loopback(host):
        return
    raise Failed(
        Failure.UNSAFE_BIND,
        f"The local API would be open to other machines on {host or 'every address'!r}",
        remedy="bind 127.0.0.1 and come in through SSH or a TLS proxy, or set api.allow_remote",
    )


def _is_loopback(host: str) -> bool:
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False  # another name may point anywhere, today or tomorrow
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def check_host(request: web.BaseRequest, hosts: Collection[str]) -> None:
    """Refuse a foreign Host or Origin header. Raises `Denied` BAD_ORIGIN.

    ``hosts`` are names (``localhost``, ``127.0.0.1``, ``[::1]``), good with the bound port, or ``name:port`` pairs,
    good as they stand (``node.example:443`` for a TLS proxy in front).
    """
    given = request.headers.getall("Host", [""])
    host = given[0].lower()
    target = request.raw_path  # whole URLs are for proxies; one of another authority is not meant for us
    if len(given) > 1 or not (target.startswith("/") or _authority(target) == host):
        raise Denied(Deny.BAD_ORIGIN, "The request names another host than its Host header")
    name, ports = _split(host)
    if not any(f"{name}:{port}" in hosts or (name in hosts and port == _bound_port(request)) for port in ports):
        raise Denied(
            Deny.BAD_ORIGIN,
            f"The Host header {host!r} is not a name of this API",
            remedy="use the address in api.json",
        )
    origin = request.headers.get("Origin")
    if origin is not None and origin.lower() not in {f"http://{host}", f"https://{host}"}:
        raise Denied(Deny.BAD_ORIGIN, f"Requests of pages from {origin!r} are refused")


def _authority(url: str) -> str:
    return re.split("[/?#]", url.partition("://")[2], maxsplit=1)[0].lower()


def _split(host: str) -> tuple[str, tuple[int, ...]]:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host, (80, 443)
    return name, (int(port),) if port.isascii() and port.isdigit() and len(port) <= 5 else ()


def _bound_port(request: web.BaseRequest) -> int:
    socket_name = request.transport.get_extra_info("sockname") if request.transport else None
    return int(socket_name[1]) if isinstance(socket_name, tuple) else -1


def check_token(request: web.BaseRequest, tokens: Callable[[str], Actor | None]) -> Actor:
    """The actor of the bearer token; that of MCP goes by the name its client gives.

    Raises `Denied` BAD_TOKEN; neither it nor any log holds the token.
    """
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip()
    actor = tokens(token) if scheme.lower() == "bearer" and token and token.isascii() else None
    if actor is None:
        raise Denied(
            Deny.BAD_TOKEN,
            "A valid bearer token is needed",
            remedy="send `Authorization: Bearer TOKEN` with the token in the home's api.token or mcp.token",
        )
    claim = request.headers.get(CLIENT_HEADER)
    return Mcp.named(unquote(claim)) if isinstance(actor, Mcp) and claim else actor
