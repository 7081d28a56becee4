"""Server-sent events of the local API."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest

from hmp_node.actions.feed import QUEUE, FeedEvent
from hmp_node.web.limits import ApiLimits
from tests.web.fakes import MODEL_TOKEN, Door, open_door


class Stream:
    """Reads one event stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def line(self) -> str:
        async with asyncio.timeout(5):
            return (await self.response.content.readline()).decode().rstrip("\n")

    async def event(self) -> tuple[str | None, str, Any]:
        fields: dict[str, str] = {}
        while line := await self.line() or ("" if fields else " "):
            name, _, value = line.partition(": ")
            if name.strip():
                fields[name] = value
        return fields.get("id"), fields["event"], msgspec.json.decode(fields["data"])


async def follow(door: Door, query: str = "", **headers: str) -> Stream:
    response = await door.http.get(f"{door.url}/api/v1/events{query}", headers=headers)
    assert response.status == 200
    stream = Stream(response)
    assert (await stream.line()).startswith(":")
    return stream


async def test_events_come_as_they_are_published(door: Door) -> None:
    stream = await follow(door)
    assert stream.response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    door.feed.publish(FeedEvent(7, "note.received", {"text": "привет\nid: 9\n\nevent: x"}))
    door.feed.publish(FeedEvent(None, "peer.up", {"did": "d"}))
    assert await stream.event() == ("7", "note.received", {"text": "привет\nid: 9\n\nevent: x"})
    assert await stream.event() == (None, "peer.up", {"did": "d"})
    stream.response.close()


async def test_topics_filter(door: Door) -> None:
    stream = await follow(door, "?topics=note.state,peer.up")
    for topic in ("note.received", "note.state", "peer.down", "peer.up"):
        door.feed.publish(FeedEvent(None, topic, {}))
    assert [(await stream.event())[1] for _ in range(2)] == ["note.state", "peer.up"]
    stream.response.close()


async def test_a_reader_that_comes_back_gets_what_it_missed_once(door: Door) -> None:
    door.history += [FeedEvent(number, "note.received", {"n": number}) for number in (1, 2, 3)]
    stream = await follow(door, **{"Last-Event-ID": "1"})
    door.feed.publish(FeedEvent(3, "note.received", {"n": 3}))
    door.feed.publish(FeedEvent(4, "note.received", {"n": 4}))
    assert [(await stream.event())[0] for _ in range(3)] == ["2", "3", "4"]
    stream.response.close()


async def test_a_reader_of_an_older_longer_chain_misses_nothing(door: Door) -> None:
    stream = await follow(door, "?since=500")
    door.feed.publish(FeedEvent(1, "note.received", {}))
    assert (await stream.event())[0] == "1"
    stream.response.close()


async def test_nothing_is_lost_between_the_log_and_the_feed() -> None:
    async with open_door() as door:
        door.history += [FeedEvent(1, "a", {}), FeedEvent(2, "a", {})]
        stream = await follow(door, "?since=0")
        assert [(await stream.event())[0] for _ in range(2)] == ["1", "2"]
        door.feed.publish(FeedEvent(2, "a", {}))
        door.feed.publish(FeedEvent(3, "a", {}))
        assert (await stream.event())[0] == "3"
        stream.response.close()


@pytest.mark.parametrize(
    "query",
    ["?topics=a%20b", "?topics=" + ",".join(f"t{n}" for n in range(33)), "?since=-1", "?since=x", "?since=" + "9" * 30],
)
async def test_bad_questions_are_refused(door: Door, query: str) -> None:
    async with door.http.get(f"{door.url}/api/v1/events{query}") as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (400, "bad_argument")


async def test_a_quiet_stream_has_a_heartbeat() -> None:
    assert ApiLimits().heartbeat_s == 15
    async with open_door(ApiLimits(heartbeat_s=0.05)) as door:
        stream = await follow(door)
        lines = [await stream.line() for _ in range(4)]
        assert lines.count(": heartbeat") >= 1
        door.feed.publish(FeedEvent(None, "peer.up", {}))
        assert (await stream.event())[1] == "peer.up"
        stream.response.close()


async def test_a_slow_reader_is_let_go_with_a_word() -> None:
    async with open_door() as door:
        stream = await follow(door)
        for number in range(QUEUE + 1):
            door.feed.publish(FeedEvent(number, "a", {}))
        topics: list[str] = []
        while not topics or topics[-1] != "end":
            _, topic, data = await stream.event()
            topics.append(topic)
        assert data["error"]["code"] == "busy"
        assert await stream.line() == ""


async def test_streams_are_bounded_and_a_closed_one_makes_room() -> None:
    async with open_door(ApiLimits(streams=1, heartbeat_s=0.05)) as door:
        stream = await follow(door)
        async with door.http.get(f"{door.url}/api/v1/events") as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (503, "busy")
        stream.response.close()
        async with asyncio.timeout(5):
            while True:
                async with door.http.get(f"{door.url}/api/v1/events") as answer:
                    if answer.status == 200:
                        break


async def test_a_stopping_node_ends_its_streams_at_once() -> None:
    async with open_door() as door:
        stream = await follow(door)
        async with asyncio.timeout(1.5):
            await door.api.close()
        _, topic, data = await stream.event()
        assert (topic, data["error"]["code"]) == ("end", "no_node")


async def test_a_model_may_not_follow_the_events(door: Door) -> None:
    headers = {"Authorization": f"Bearer {MODEL_TOKEN}"}
    async with door.http.get(f"{door.url}/api/v1/events", headers=headers) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (403, "no_capability")


async def test_a_reader_that_stands_still_is_cut_off() -> None:
    async with open_door(ApiLimits(write_s=0.1, streams=1)) as door:
        stream = await follow(door)
        async with asyncio.timeout(5):
            while True:
                door.feed.publish(FeedEvent(None, "a", {"text": "x" * 500_000}))
                await asyncio.sleep(0)
                async with door.http.get(f"{door.url}/api/v1/events") as answer:
                    if answer.status == 200:
                        break
        stream.response.close()
