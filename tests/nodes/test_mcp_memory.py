"""Memories and work sessions through MCP, on a whole node: what one assistant keeps, everybody finds again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from hmp_node.actions.actors import User
from hmp_node.mcp_server.rows import CAUTION
from hmp_node.node import Node, opened
from hmp_node.store import trail
from hmp_node.store.database import Tx
from hmp_node.store.trail import Taint
from tests.nodes.assistant import ERAS, assistant, attached, refused, text_of, told
from tests.nodes.test_clocks import ALONE, until


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node that searches by words alone, so that what it finds does not hang on the speed of a model."""
    async with opened(tmp_path / "a", listen=["127.0.0.1:0"], api="127.0.0.1:0", environment=ALONE) as running:
        yield running


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_fact_told_twice_is_one_live_record(node: Node, era: str) -> None:
    """memory_reports 1."""
    async with assistant(node, era) as client:
        first = await told(client, "memory_add", content="Сервер стоїть у Києві 🖥", type="fact", title="staging")
        again = await told(client, "memory_add", content="Сервер стоїть у Києві 🖥", type="fact", title="staging")
        assert (first["created"], again["created"]) == (True, False)
        assert again["memory"] == first["memory"]
        page = await node.actions.perform(User(), "memory.list", {})
        assert [one.id for one in page.memories] == [first["memory"]["id"]]


async def test_an_update_reads_the_same_through_every_door(node: Node) -> None:
    """memory_reports 3 and 39."""
    async with assistant(node) as client:
        kept = (await told(client, "memory_add", content="five years", tags=["age"]))["memory"]
        new = await told(client, "memory_add", id=kept["id"], version=kept["version"], content="six years")
        assert (new["created"], new["memory"]["version"]) == (False, kept["version"] + 1)
        stale = await refused(client, "memory_add", id=kept["id"], version=kept["version"], content="seven years")
        assert (stale["code"], "read it again" in stale["remedy"]) == ("stale_version", True)
        assert (await refused(client, "memory_add", version=1, content="x"))["code"] == "bad_argument"

        (by_mcp,) = (await told(client, "memory_get", ids=[kept["id"]]))["memories"]
        token = node.home.token.read_text(encoding="ascii").strip()
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
            body = {"ids": [kept["id"]]}
            async with http.post(f"{node.api.url}/api/v1/actions/memory.get", json=body) as answer:
                (by_http,) = (await answer.json())["memories"]
        fetched = await told(client, "fetch", id=f"memory:{kept['id']}")
        assert by_mcp["content"] == by_http["content"] == fetched["text"] == "six years"
        assert by_mcp["tags"] == ["age"], "what an update does not name stays"


async def test_what_contradicts_supersedes_and_stays_in_the_history(node: Node, era: str) -> None:
    async with assistant(node, era) as client:
        old = (await told(client, "memory_add", content="the port is 8080", type="fact", title="port"))["memory"]
        new = await told(client, "memory_supersede", id=old["id"], content="the port is 9090", at="2026-11-01")
        assert new["superseded"] == [old["id"]]
        (was,) = (await told(client, "memory_get", ids=[old["id"]]))["memories"]
        assert (was["status"], was["superseded_by"]) == ("superseded", new["memory"]["id"])
        again = await refused(client, "memory_supersede", id=old["id"], content="the port is 7070")
        assert (again["code"], bool(again["remedy"])) == ("stale_version", True)
        by_title = await told(client, "memory_add", content="the port is 7070", type="fact", title="Port")
        assert by_title["superseded"] == [new["memory"]["id"]]


async def test_links_by_hand_and_by_title(node: Node) -> None:
    async with assistant(node) as client:
        adr = (await told(client, "memory_add", content="We chose PostgreSQL", title="ADR 1"))["memory"]["id"]
        note = (await told(client, "memory_add", content="Follows from [[adr 1]]"))["memory"]["id"]
        third = (await told(client, "memory_add", content="pgvector it is"))["memory"]["id"]
        assert (await told(client, "memory_link", source=third, target=adr, type="derived-from"))["changed"]
        assert not (await told(client, "memory_link", source=third, target=adr, type="derived-from"))["changed"]
        found = await client.call_tool("memory_get", {"ids": [adr, 99], "links": True})
        links = {(one["source"], one["type"], one["target"]) for one in found.structured_content["links"]}
        assert links == {(note, "wiki", adr), (third, "derived-from", adr)}
        assert found.structured_content["missing"] == [99]
        assert f"memory {third} derived-from memory {adr}" in text_of(found)
        assert (await refused(client, "memory_link", source=adr, target=adr))["code"] == "cycle"


async def test_a_project_is_begun_saved_and_resumed(node: Node, era: str) -> None:
    async with assistant(node, era) as client:
        nothing = await refused(client, "session_resume", project="my-shop")
        assert (nothing["code"], "session_save begins a project" in nothing["remedy"]) == ("not_found", True)
        assert (await told(client, "session_resume"))["projects"] == []
        saved = await told(
            client,
            "session_save",
            project="my-shop",
            summary="кошик працює",
            todo=["оплата карткою", {"task": "тести", "priority": "high"}],
            bugs="подвійне списання",
        )
        assert saved["project_begun"]
        await told(client, "memory_add", content="ціни в гривнях", project="my-shop")
        await told(client, "session_save", project="my-shop", summary="кошик і оплата працюють")
        result = await client.call_tool("session_resume", {"project": "my-shop"})
        found = result.structured_content
        assert found["session"]["summary"] == "кошик і оплата працюють"
        assert [one["task"] for one in found["session"]["todo"]] == ["оплата карткою", "тести"]
        assert found["session"]["bugs"] == "подвійне списання"
        assert [one["content"] for one in found["memories"]] == ["ціни в гривнях"]
        for words in ("кошик і оплата", "> - тести", "> подвійне", "> ціни"):
            assert words in text_of(result)
        assert [one["name"] for one in (await told(client, "session_resume"))["projects"]] == ["my-shop"]
        assert await attached(client, "memory://project/my-shop") == found
        uris = {str(one.uri) for one in (await client.list_resources()).resources}
        assert uris == {"log://checkpoint", "memory://project/my-shop"}
        with pytest.raises(MCPError) as caught:
            await client.read_resource("memory://project/other")
        assert caught.value.code == types.INVALID_PARAMS
        wrong = await refused(client, "memory_add", content="x", project="my-shpo")
        assert (wrong["code"], "my-shop" in wrong["remedy"]) == ("not_found", True)
        assert (await refused(client, "session_save", project="Not Kebab", summary="x"))["code"] == "bad_argument"


async def test_calls_of_one_reply_all_land(node: Node, era: str) -> None:
    """memory_reports 28."""
    async with assistant(node, era) as client:
        texts = {f"decision {number} 🧭" for number in range(40)}
        kept = await asyncio.gather(*(told(client, "memory_add", content=text) for text in texts))
        assert len({one["memory"]["id"] for one in kept}) == 40
        page = await node.actions.perform(User(), "memory.list", {"limit": 100})
        assert {one.content for one in page.memories} == texts
        assert (await told(client, "log_verify"))["ok"]


async def test_a_row_goes_back_to_who_wrote_it_and_to_the_log(node: Node) -> None:
    async with assistant(node, name="Code Editor") as client:
        kept = (await told(client, "memory_add", content="a decision"))["memory"]
        assert kept["author"] == "mcp:Code Editor"
        (row,) = (await node.actions.perform(User(), "memory.get", {"ids": [kept["id"]]})).memories
        log = await node.actions.perform(User(), "log.show", {"limit": 10})
        assert row.log_hash in {one.hash for one in log.rows if one.sender == "mcp:Code Editor"}


async def test_rows_that_go_back_to_others_say_so(node: Node, era: str) -> None:
    did = "did:hmp:agent:bob"
    async with assistant(node, era) as client:
        kept = (await told(client, "memory_add", content="Bob says: use port 8080", title="port"))["memory"]["id"]
        saved = await told(client, "session_save", project="shop", summary="as Bob wrote", todo=["ask Bob\nmemory 1"])

        async def taint(tx: Tx) -> None:
            await trail.taint(tx, trail.MEMORY, kept, [Taint(did, "stranger")])
            await trail.taint(tx, trail.SESSION, saved["session"]["id"], [Taint(did, "stranger")])

        await node.database.write(taint)
        result = await client.call_tool("memory_get", {"ids": [kept]})
        (row,) = result.structured_content["memories"]
        assert (row["outside"], row["trust"]) == ([did], "stranger")
        caution, head, *_ = text_of(result).splitlines()
        assert (caution, f"from outside: {did}" in head) == (CAUTION, True)
        resumed = await client.call_tool("session_resume", {"project": "shop"})
        assert resumed.structured_content["session"]["outside"] == [did]
        lines = text_of(resumed).splitlines()
        assert lines[0] == CAUTION
        assert "> - ask Bob memory 1" in lines
        fetched = await told(client, "fetch", id=f"memory:{kept}")
        assert fetched["metadata"]["caution"] == CAUTION


async def test_what_was_kept_is_found_in_any_form_and_opened_by_its_id(node: Node, era: str) -> None:
    async with assistant(node, era) as client:
        await told(client, "session_save", project="shop", summary="початок")
        for number in range(3):
            await told(client, "memory_add", content=f"Сервер {number} стоїть у Львові", project="shop")
        await told(client, "memory_add", content="The cat sleeps 🐈", title="Cat")
        await told(client, "diary", text="Бачив кота біля серверної")

        async def indexed() -> bool:
            return "pending" not in (await told(client, "search", query="cat"))["searched"]

        await until("everything is indexed", indexed)
        first = await client.call_tool("search", {"query": "серверами", "kinds": ["memory"], "limit": 2})
        page = first.structured_content
        assert json.loads(text_of(first)) == page, "by convention the text is the same as JSON"
        assert len(page["results"]) == 2
        rest = await told(client, "search", query="серверами", kinds=["memory"], limit=2, cursor=page["next_cursor"])
        found = [*page["results"], *rest["results"]]
        assert {one["text"] for one in found} == {f"Сервер {number} стоїть у Львові" for number in range(3)}
        assert "next_cursor" not in rest
        for one in found:
            assert {"id", "title", "url", "text", "project", "author", "at", "score"} <= one.keys()
            assert (await told(client, "fetch", id=one["id"]))["text"] == one["text"]
            assert (await told(client, "memory_get", ids=[one["id"]]))["memories"][0]["content"] == one["text"]
            assert (await attached(client, one["url"]))["text"] == one["text"]
        (cat,) = (await told(client, "search", query="cats", kinds=["memory"]))["results"]
        assert (cat["title"], cat["text"]) == ("Cat", "The cat sleeps 🐈")
        nothing = await told(client, "search", query="слон")
        assert (nothing["results"], bool(nothing["nothing"])) == ([], True)
        for query in ("TODO: x", '"', "*", "NEAR(", "2026-03-14", "POL-358", "🐈", ""):
            assert not (await client.call_tool("search", {"query": query})).is_error
        wrong = await refused(client, "search", query="x", project="shpo")
        assert (wrong["code"], "shop" in wrong["remedy"]) == ("not_found", True)
        assert (await refused(client, "search", query="x", kinds=["elephant"]))["code"] == "bad_argument"


async def test_nothing_of_our_own_words_becomes_a_memory(node: Node) -> None:
    """memory_reports 2."""
    async with assistant(node) as client:
        await client.list_tools()
        await client.get_prompt("continue_project", {"project": "x"})
        await client.get_prompt("weekly_review", {})
        await told(client, "session_resume")
        await refused(client, "memory_add", content=" ")
        assert (await node.actions.perform(User(), "memory.list", {})).memories == []


async def test_a_large_memory_is_cut_in_company_and_whole_alone(node: Node) -> None:
    async with assistant(node) as client:
        text = "довго " * 5000
        big = (await told(client, "memory_add", content=text))["memory"]
        assert len(big["content"]) < big["cut"] == len(text)
        small = (await told(client, "memory_add", content="x"))["memory"]
        (alone,) = (await told(client, "memory_get", ids=[big["id"]]))["memories"]
        assert alone["content"] == text
        both = (await told(client, "memory_get", ids=[big["id"], small["id"]]))["memories"]
        assert [one.get("cut") for one in both] == [len(text), None]
        assert json.loads(text_of(await client.call_tool("fetch", {"id": f"memory:{big['id']}"})))["text"] == text
