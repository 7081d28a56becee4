"""Who may talk to the local API."""

from __future__ import annotations

import socket

import pytest

from hmp_node.errors import Failed, Failure
from hmp_node.web import server
from hmp_node.web.guard import check_bind
from tests.web.fakes import USER_TOKEN, Door, open_door

PATHS = ["/api/v1/actions", "/api/v1/events", "/api/v1/openapi.json", "/metrics", "/api/v1/none"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "authority",
    ["", "Bearer", "Bearer ", "Bearer wrong", f"Basic {USER_TOKEN}", f"Bearer {USER_TOKEN}x", "Bearer ключ"],
)
async def test_without_a_valid_token_everything_of_value_is_401(door: Door, path: str, authority: str) -> None:
    async with door.http.get(door.url + path, headers={"Authorization": authority}) as answer:
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert (await answer.json())["error"]["code"] == "bad_token"
    async with door.http.get(f"{door.url}{path}?token={USER_TOKEN}", headers={"Authorization": ""}) as answer:
        assert answer.status == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.:{port}", ""]
)
@pytest.mark.parametrize("path", ["/healthz", "/api/v1/actions"])
async def test_a_foreign_host_is_403(door: Door, host: str, path: str) -> None:
    headers = {"Host": host.format(port=door.api.port)}
    async with door.http.get(door.url + path, headers=headers) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (403, "bad_origin")


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
async def test_our_own_names_with_our_port_are_welcome(door: Door, host: str) -> None:
    async with door.http.get(f"{door.url}/healthz", headers={"Host": host.format(port=door.api.port)}) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:{port}", 200),
        ("http://127.0.0.1:{other}", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("http://localhost:{port}", 403),
    ],
)
async def test_an_origin_must_be_our_own(door: Door, origin: str, status: int) -> None:
    value = origin.format(port=door.api.port, other=door.api.port + 1)
    async with door.http.get(f"{door.url}/api/v1/actions", headers={"Origin": value}) as answer:
        assert answer.status == status


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"])
def test_loopback_is_safe_to_bind(host: str) -> None:
    check_bind(host, allow_remote=False)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.0.2.1", "mymachine", "::ffff:192.0.2.1", "localhost.example"]
)
def test_anything_else_is_not_unless_allowed(host: str) -> None:
    with pytest.raises(Failed) as caught:
        check_bind(host, allow_remote=False)
    assert caught.value.code == Failure.UNSAFE_BIND
    check_bind(host, allow_remote=True)


async def test_a_taken_port_is_told(door: Door) -> None:
    with pytest.raises(Failed) as caught:
        await server.start(door.api.runner.app, "127.0.0.1", door.api.port)
    assert caught.value.code == Failure.PORT_IN_USE
    assert str(door.api.port) in caught.value.message


async def test_the_api_speaks_ipv6_loopback() -> None:
    try:
        probe = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 loopback here")
    probe.close()
    async with open_door(host="::1") as door:
        assert door.url.startswith("http://[::1]:")
        assert (await door.post("echo", {"text": "a"}))[0] == 200
