"""The one client of a running node's local API, for the CLI and for programs beside the node.

Standard library only and synchronous, so that a command starts fast. Where the node listens stands in the home's
``api.json``, its bearer token in ``api.token`` (``mcp.token`` for who asks on behalf of a coding assistant); both are
read anew for every connection, since a restarted node listens elsewhere.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.web.keys import CLIENT_HEADER, read_key

CALL_S = 30.0
SILENCE_S = 45.0  # three heartbeats of the event stream
LINE_BYTES = 4 * 1024 * 1024
ACTION_CHARS = 100
PAUSES_S = (0.2, 5.0)  # before a stream is opened again: at first, and at most
LIVED_S = 5.0  # a stream that lasted so long was a good one

REOPENED = "stream.reopened"

T = TypeVar("T")


class Event(NamedTuple):
    """One event of the node: ``id`` is its seq in the log chain, or None for what the log does not hold."""

    id: int | None
    topic: str
    data: dict[str, Any]


class Client:
    """Calls the node that runs on ``home``. Every method raises `Failed` NO_NODE when none does.

    It asks as the user, or with ``mcp`` as the coding assistant of that name.
    """

    def __init__(self, home: Path | str, *, timeout: float = CALL_S, mcp: str | None = None) -> None:
        self.home = Path(home)
        self.timeout = timeout
        self.mcp = mcp

    def call(
        self,
        action: str,
        args: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Perform an action and give its result; a typed error of the node is raised as the same error here.

        ``timeout`` is the longest silence in seconds (`Failed` TIMED_OUT). The idempotency key, made up when none is
        given, goes with both attempts: when the connection breaks, the call is made once more, and its effect is one.
        """
        body = _encode(dict(args or {}))
        key = secrets.token_hex(16) if key is None else read_key(key)
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        path = f"/api/v1/actions/{_segment(action)}"
        silence = self.timeout if timeout is None else timeout
        try:
            return self._request("POST", path, body=body, headers=headers, timeout=silence)
        except (http.client.HTTPException, ConnectionError):
            return self._settled(lambda: self._request("POST", path, body=body, headers=headers, timeout=silence))

    def table(self) -> list[dict[str, Any]]:
        """The actions this client may ask for: name, help, kind, capability, example, args (a JSON Schema)."""
        rows = self._settled(lambda: self._request("GET", "/api/v1/actions", timeout=self.timeout))["actions"]
        return list(rows)

    def events(self, topics: Iterable[str] = (), *, since: int | None = None, patience: float = 0.0) -> EventStream:
        """Follow the node's events of these topics (none: all), after chain seq ``since`` if given.

        The stream is open, and misses nothing, from the moment this returns. A broken one is opened again after the
        last event seen, for up to ``patience`` seconds without a node; an event of topic `REOPENED` says so, since
        what carries no id may have been missed.
        """
        return EventStream(self, tuple(topics), since, patience)

    def connect(self, timeout: float) -> tuple[http.client.HTTPConnection, dict[str, str]]:
        """An open connection and the headers that authorise it. `Failed` NO_NODE when nobody listens."""
        address, port = self._endpoint()
        headers = {"Authorization": f"Bearer {self._token()}"}
        if self.mcp is not None:
            headers[CLIENT_HEADER] = quote(self.mcp)
        connection = http.client.HTTPConnection(address, port, timeout=timeout)
        try:
            connection.connect()
        except OSError as error:
            raise self._no_node(f"{address}:{port} does not answer: {error.strerror or error}") from error
        return connection, headers

    def _endpoint(self) -> tuple[str, int]:
        path = self.home / "api.json"
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            url, pid = urlsplit(str(facts["url"])), int(facts["pid"])
            address, port = url.hostname, url.port
        except FileNotFoundError:
            raise self._no_node() from None
        except OSError as error:
            raise Failed(Failure.HOME_UNUSABLE, f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise self._no_node(f"{path} is damaged") from error
        if url.scheme != "http" or address is None or port is None:
            raise self._no_node(f"{path} names no http address")
        if not _alive(pid):  # whoever took over its port must not be shown our token
            raise self._no_node(f"process {pid} is gone")
        return address, port

    def _token(self) -> str:
        path = self.home / ("api.token" if self.mcp is None else "mcp.token")
        try:
            token = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Denied(
                Deny.BAD_TOKEN, f"{path} cannot be read", remedy="run as the user who runs the node"
            ) from error
        if not token.isprintable():  # http.client would refuse it, and quote it
            raise Denied(Deny.BAD_TOKEN, f"{path} holds no token", remedy="restart the node")
        return token

    def _no_node(self, why: str = "") -> Failed:
        told = f" ({why})" if why else ""
        return Failed(Failure.NO_NODE, f"No node is running on {self.home}{told}", remedy="start it with hmp-node run")

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float,
    ) -> dict[str, Any]:
        connection, authority = self.connect(timeout)
        try:
            connection.request(method, path, body=body, headers=authority | dict(headers or {}))
            with connection.getresponse() as response:
                return _result(response.status, response.read())
        except TimeoutError as error:
            raise Failed(Failure.TIMED_OUT, f"The node did not answer within {timeout:g} s") from error
        finally:
            connection.close()

    def _settled(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except (http.client.HTTPException, ConnectionError) as error:
            raise self._no_node(f"the connection broke: {type(error).__name__}") from error


class EventStream:
    """An iterator of `Event`; a context manager, so that it closes."""

    def __init__(self, client: Client, topics: tuple[str, ...], since: int | None, patience: float) -> None:
        self.last_id = since
        self._client, self._topics, self._patience = client, topics, patience
        self._connection: http.client.HTTPConnection | None = None
        self._response: http.client.HTTPResponse | None = None
        self._socket: socket.socket | None = None
        self._over = False
        self._opened = 0.0
        self._pause = PAUSES_S[0]
        self._open()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if self._over:
            raise StopIteration
        try:
            event = self._read()
        except (http.client.HTTPException, OSError, ValueError):  # the last: what we cannot read
            self.close()
            if self._over:
                raise StopIteration from None
            if time.monotonic() - self._opened > LIVED_S:
                self._pause = PAUSES_S[0]
            self._reopen()
            return Event(None, REOPENED, {})
        self._pause = PAUSES_S[0]
        return event

    def close(self) -> None:
        """Hang up. Iterating on opens the stream again."""
        for part in (self._response, self._connection):
            if part is not None:
                part.close()
        self._response = self._connection = self._socket = None

    def end(self) -> None:
        """End the iteration for good, from any thread: one that waits for an event stops waiting."""
        self._over = True
        open_socket = self._socket
        if open_socket is not None:
            with suppress(OSError):  # it broke by itself
                open_socket.shutdown(socket.SHUT_RDWR)

    def _open(self) -> None:
        connection, headers = self._client.connect(SILENCE_S)
        open_socket = connection.sock
        if self.last_id is not None:
            headers["Last-Event-ID"] = str(self.last_id)
        try:
            connection.request(
                "GET", "/api/v1/events?" + urlencode({"topics": ",".join(self._topics)}), headers=headers
            )
            response = connection.getresponse()
            if response.status != 200:
                _result(response.status, response.read())
            response.readline(LINE_BYTES)  # the server's greeting: from here on nothing is missed
        except BaseException:
            connection.close()
            raise
        self._connection, self._response, self._socket = connection, response, open_socket
        self._opened = time.monotonic()

    def _reopen(self) -> None:
        """Open again, each time after a longer pause: a node that ends every stream at once is not hammered."""
        deadline = time.monotonic() + self._patience
        while True:
            time.sleep(self._pause)
            self._pause = min(self._pause * 2, PAUSES_S[1])
            try:
                self._open()
            except (http.client.HTTPException, OSError) as error:
                last: HmpError = Failed(Failure.NO_NODE, f"The node went away: {error}", remedy="hmp-node run")
            except Failed as error:
                if error.code not in {Failure.NO_NODE, Failure.BUSY}:
                    raise
                last = error
            else:
                return
            if time.monotonic() >= deadline:
                raise last

    def _read(self) -> Event:
        if self._response is None:
            raise ConnectionResetError("the stream is closed")
        number, topic, data = None, "message", ""
        while True:
            line = self._response.readline(LINE_BYTES)
            if not line.endswith(b"\n"):
                raise ConnectionResetError("the stream broke off")
            name, _, value = line.decode("utf-8").rstrip("\r\n").partition(": ")
            if name == "id":
                number = int(value)
            elif name == "event":
                topic = value
            elif name == "data":
                data = value
            elif not name and data:
                if topic == "end":
                    raise ConnectionResetError("the node ended the stream")
                self.last_id = self.last_id if number is None else number
                return Event(number, topic, json.loads(data))


def rebuild(code: str, message: str, remedy: str = "") -> HmpError:
    """The typed error of a code, as the node raised it; an unknown code (a newer node) is `Failed` INTERNAL."""
    if code in _REJECTS:
        return Rejected(_REJECTS[code], message, remedy=remedy)
    if code in _DENIALS:
        return Denied(_DENIALS[code], message, remedy=remedy)
    if code in _FAILURES:
        return Failed(_FAILURES[code], message, remedy=remedy)
    return Failed(Failure.INTERNAL, f"{message} [{code}]", remedy=remedy)


_REJECTS = {str(item): item for item in Reject}
_DENIALS = {str(item): item for item in Deny}
_FAILURES = {str(item): item for item in Failure}


def _result(status: int, body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Failed(Failure.INTERNAL, f"The node answered {status} with no JSON we know")
    if status == 200:
        return value
    error = value.get("error")
    told = error if isinstance(error, dict) else {}
    raise rebuild(
        str(told.get("code", status)), str(told.get("message", "The node failed")), str(told.get("remedy", ""))
    )


def _encode(args: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(args, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise Rejected(Reject.BAD_STRING, "An argument is not valid Unicode text") from error
    except (TypeError, ValueError) as error:
        raise Rejected(Reject.BAD_ARGUMENT, f"The arguments are not JSON: {error}") from error


def _segment(action: str) -> str:
    letters = all(char.isascii() and (char.isalnum() or char in "._-") for char in action)
    if not letters or not 0 < len(action) <= ACTION_CHARS:
        shown = action if len(action) <= ACTION_CHARS else action[:ACTION_CHARS] + "..."
        raise Rejected(Reject.UNKNOWN_ACTION, f"There is no action {shown!r}", remedy="see hmp-node actions")
    return action


def _alive(pid: int) -> bool:
    if os.name != "posix" or pid <= 0:
        return pid > 0
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
