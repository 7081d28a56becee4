"""The client of the local API."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions.feed import FeedEvent
from hmp_node.client import REOPENED, Client, rebuild
from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.web.limits import ApiLimits
from tests.web.served import Served, serve


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def publish_endpoint(home: Path, port: int, pid: int | None = None) -> None:
    home.mkdir(exist_ok=True)
    facts = {"url": f"http://127.0.0.1:{port}", "pid": os.getpid() if pid is None else pid}
    (home / "api.json").write_text(json.dumps(facts))
    (home / "api.token").write_text("t" * 43)


def test_a_call_gives_the_result_and_makes_a_key_of_its_own(home: Path) -> None:
    with serve(home) as served:
        client = Client(home)
        assert client.call("echo", {"text": "привет"}) == {"said": ["привет"], "parts": []}
        client.call("echo", {"text": "привет"})
        client.call("echo", {"text": "привет"}, key="mine")
        keys = [key for *_, key in served.door.actions.calls]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


@pytest.mark.parametrize("code", [*Reject, *Deny, *Failure])
def test_every_code_comes_back_as_the_error_it_was(code: Any) -> None:
    kind = {Reject: Rejected, Deny: Denied, Failure: Failed}[type(code)]
    error = rebuild(str(code), "message", "remedy")
    assert (type(error), error.code, str(error)) == (kind, code, f"message ({code}): remedy")


def test_an_unknown_code_of_a_newer_node_is_told() -> None:
    error = rebuild("new_in_2030", "message")
    assert error.code == Failure.INTERNAL
    assert "new_in_2030" in str(error)


def test_a_typed_error_of_the_node_is_raised_here(home: Path) -> None:
    with serve(home), pytest.raises(Failed) as caught:
        Client(home).call("echo", {"text": "full"})
    assert (caught.value.code, caught.value.remedy) == (Failure.DISK_FULL, "free some")


def no_node(home: Path) -> str:
    with pytest.raises(Failed) as caught:
        Client(home).call("echo", {"text": "a"})
    assert caught.value.code == Failure.NO_NODE
    assert "hmp-node run" in caught.value.remedy
    return caught.value.message


def test_no_node_has_ever_run(home: Path) -> None:
    assert str(home) in no_node(home)


def test_a_stale_endpoint_with_nobody_there(home: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        publish_endpoint(home, unused.getsockname()[1])
        assert "does not answer" in no_node(home)


def test_a_stale_endpoint_whose_port_is_another_programs_now_never_sees_the_token(home: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        other.setblocking(False)
        publish_endpoint(home, other.getsockname()[1], pid=gone.pid)
        assert "is gone" in no_node(home)
        with pytest.raises(BlockingIOError):
            other.accept()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"url": 1}',
        '{"url": "http://h:x", "pid": 1}',
        '{"url": "ftp://h:1", "pid": 1}',
        '{"url": "http://127.0.0.1:1", "pid": 999999999999}',
    ],
)
def test_a_damaged_endpoint_is_no_node(home: Path, text: str) -> None:
    home.mkdir()
    (home / "api.json").write_text(text)
    no_node(home)


def test_a_wrong_token_is_denied(home: Path) -> None:
    with serve(home):
        (home / "api.token").write_text("wrong")
        with pytest.raises(Denied) as caught:
            Client(home).call("echo", {"text": "a"})
        assert caught.value.code == Deny.BAD_TOKEN
        (home / "api.token").unlink()
        with pytest.raises(Denied):
            Client(home).call("echo", {"text": "a"})


@pytest.mark.parametrize(
    ("action", "args", "code"),
    [
        ("echo", {"text": "\ud800"}, Reject.BAD_STRING),
        ("echo", {"text": float("nan")}, Reject.BAD_ARGUMENT),
        ("echo", {"text": object()}, Reject.BAD_ARGUMENT),
        ("echo", {"text": 1}, Reject.BAD_ARGUMENT),
        ("../events", {}, Reject.UNKNOWN_ACTION),
        ("", {}, Reject.UNKNOWN_ACTION),
        ("no.such", {}, Reject.UNKNOWN_ACTION),
    ],
)
def test_bad_arguments_are_typed_errors(home: Path, action: str, args: dict[str, Any], code: Reject) -> None:
    with serve(home), pytest.raises(HmpError) as caught:
        Client(home).call(action, args)
    assert caught.value.code == code


class Rude(threading.Thread):
    """A server that treats each connection as told: "break" after the request, "answer" it, or say nothing ("hang")."""

    def __init__(self, manners: list[str]) -> None:
        super().__init__()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.manners, self.requests = manners, list[bytes]()
        self.done = threading.Event()
        self.start()

    def run(self) -> None:
        with self.socket:
            for manner in self.manners:
                connection, _ = self.socket.accept()
                with connection:
                    self.requests.append(connection.recv(65536))
                    if manner == "hang":
                        self.done.wait(10)
                    elif manner != "break":
                        body = manner.encode()
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def __enter__(self) -> Rude:
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.join(10)


def keys_of(requests: list[bytes]) -> list[bytes]:
    return [line for request in requests for line in request.split(b"\r\n") if line.startswith(b"Idempotency-Key")]


def test_a_broken_connection_is_tried_once_more_with_the_same_key(home: Path) -> None:
    with Rude(["break", '{"said": []}']) as server:
        publish_endpoint(home, server.socket.getsockname()[1])
        assert Client(home).call("echo", {"text": "a"}) == {"said": []}
    first, second = keys_of(server.requests)
    assert first == second


def test_a_connection_that_breaks_twice_is_no_node(home: Path) -> None:
    with Rude(["break", "break"]) as server:
        publish_endpoint(home, server.socket.getsockname()[1])
        assert "connection broke" in no_node(home)


def test_a_node_that_says_nothing_is_timed_out_and_not_asked_again(home: Path) -> None:
    with Rude(["hang"]) as server:
        publish_endpoint(home, server.socket.getsockname()[1])
        with pytest.raises(Failed) as caught:
            Client(home).call("echo", {"text": "a"}, timeout=0.1)
    assert caught.value.code == Failure.TIMED_OUT


@pytest.mark.parametrize("answer", ["", "[]", "<html>"])
def test_an_answer_that_is_not_ours_is_told(home: Path, answer: str) -> None:
    with Rude([answer]) as server:
        publish_endpoint(home, server.socket.getsockname()[1])
        with pytest.raises(Failed) as caught:
            Client(home).call("echo", {"text": "a"})
    assert caught.value.code == Failure.INTERNAL


def test_the_table(home: Path) -> None:
    with serve(home):
        assert [row["name"] for row in Client(home).table()] == ["echo", "peer.list"]


def event(number: int | None, topic: str = "note.received") -> FeedEvent:
    return FeedEvent(number, topic, {"text": f"№ {number}: привет"})


def test_events_are_followed_from_the_moment_the_stream_opens(home: Path) -> None:
    with serve(home) as served, Client(home).events(["note.received"]) as stream:
        served.publish(event(1), event(None, "peer.up"), event(2))
        assert [next(stream) for _ in range(2)] == [
            (1, "note.received", {"text": "№ 1: привет"}),
            (2, "note.received", {"text": "№ 2: привет"}),
        ]
        assert stream.last_id == 2


def test_events_since_an_id_and_over_heartbeats(home: Path) -> None:
    with serve(home, ApiLimits(heartbeat_s=0.02)) as served:
        served.door.history += [event(1), event(2)]
        with Client(home).events(since=1) as stream:
            assert next(stream).id == 2
            timer = threading.Timer(0.1, served.publish, [event(3)])
            timer.start()
            assert next(stream).id == 3
            timer.join()


def test_a_stream_is_ended_from_another_thread(home: Path) -> None:
    """Whoever waits for the next event stops at once, and no stream is opened again."""
    with serve(home) as served, Client(home).events(["peer.match"]) as stream:
        seen: list[str] = []
        reader = threading.Thread(target=lambda: seen.extend(event.topic for event in stream))
        reader.start()
        served.publish(event(None, "peer.match"))
        deadline = time.monotonic() + 10
        while not seen and time.monotonic() < deadline:
            time.sleep(0.01)
        stream.end()
        reader.join(10)
        assert not reader.is_alive()
        assert seen == ["peer.match"]
        assert list(stream) == []
        stream.end()


def test_a_stream_that_is_over_is_not_opened_again(home: Path) -> None:
    server = Fickle([""])
    publish_endpoint(home, server.socket.getsockname()[1])
    with Client(home).events(patience=5) as stream:
        server.join(10)
        stream.end()
        assert list(stream) == []


def test_a_restarted_node_is_followed_on_without_a_gap(home: Path) -> None:
    def restart(old: Served) -> None:
        old.stop()
        new.start()
        new.door.history += [event(1), event(2)]

    old, new = Served(home), Served(home)
    old.start()
    with Client(home).events(patience=10) as stream:
        old.publish(event(1))
        assert next(stream).id == 1
        turn = threading.Thread(target=restart, args=(old,))
        turn.start()
        turn.join()
        assert next(stream) == (None, REOPENED, {})
        assert next(stream).id == 2
    new.stop()


def test_a_node_that_went_away_for_good_is_told_after_the_patience(home: Path) -> None:
    served = Served(home)
    served.start()
    with Client(home).events(patience=0.3) as stream:
        served.stop()
        with pytest.raises(Failed) as caught:
            next(stream)
        assert caught.value.code == Failure.NO_NODE


STREAM = "HTTP/1.1 200 OK\r\n\r\n: hello\n\n"


class Fickle(threading.Thread):
    """A server that ends each stream at once, after ``said``."""

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.said = said
        self.start()

    def run(self) -> None:
        with self.socket:
            for said in self.said:
                connection, _ = self.socket.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall((STREAM + said).encode())


def test_a_stream_that_ends_at_once_is_opened_again_ever_more_slowly(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("hmp_node.client.time.sleep", pauses.append)
    event = "event: peer.up\ndata: {}\n\n"
    server = Fickle([""] * 7 + ["event: end\ndata: {}\n\n", "id: x\n", event, "", ""])
    publish_endpoint(home, server.socket.getsockname()[1])
    with Client(home).events(patience=5) as stream:
        assert [next(stream).topic for _ in range(9)] == [REOPENED] * 9
        assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5])
        assert next(stream).topic == "peer.up"
        assert [next(stream).topic for _ in range(2)] == [REOPENED] * 2
        assert pauses[9:] == pytest.approx([0.2, 0.4])
    server.join(10)


def test_a_stream_that_lived_long_is_opened_again_soon(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("hmp_node.client.time.sleep", pauses.append)
    server = Fickle([""] * 4)
    publish_endpoint(home, server.socket.getsockname()[1])
    with Client(home).events(patience=5) as stream:
        next(stream)
        monkeypatch.setattr("hmp_node.client.LIVED_S", -1.0)
        next(stream)
        next(stream)
    assert pauses == pytest.approx([0.2, 0.2, 0.2])
    server.join(10)


@pytest.mark.parametrize("key", ["a\nb", "ключ", "", "x" * 201])
def test_a_key_that_is_none_is_a_typed_error(home: Path, key: str) -> None:
    with serve(home) as served:
        with pytest.raises(Rejected, match="bad_argument"):
            Client(home).call("echo", {"text": "a"}, key=key)
        assert not served.door.actions.calls


def test_a_token_file_that_holds_no_token_is_denied_and_not_quoted(home: Path) -> None:
    with serve(home):
        (home / "api.token").write_text("SECRET\nX: y")
        with pytest.raises(Denied) as caught:
            Client(home).call("echo", {"text": "a"})
    assert "SECRET" not in str(caught.value)


def test_bad_topics_are_refused_at_once(home: Path) -> None:
    with serve(home), pytest.raises(Rejected):
        Client(home).events(["a b"])


def test_the_client_needs_the_standard_library_alone() -> None:
    script = "import sys, hmp_node.client; print({'aiohttp', 'msgspec', 'nacl', 'click', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
