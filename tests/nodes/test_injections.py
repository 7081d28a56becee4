"""Every hostile text arrives by its own way, a model repeats it and obeys it, and nothing comes of that."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hmp_node import node
from hmp_node.actions.actors import Peer, User
from hmp_node.agent.fence import defang
from hmp_node.agent.texts import load
from hmp_node.cli.text import indented, safe
from hmp_node.errors import HmpError
from hmp_node.wire.container import Draft
from tests.agent.machines import needs_sandbox
from tests.nodes.injecting import (
    FENCED,
    NO_ACTIONS,
    Line,
    Meeting,
    check_outside,
    lines,
    meeting,
    orders,
    repeated,
    stands_in,
    watch_network,
)
from tests.nodes.mind import block, until
from tests.nodes.test_clocks import ALONE
from tests.wire.agents import Agent, make

STORED = {
    "concept_description": "SELECT description FROM concepts",
    "diary_entry": "SELECT text FROM diary_entries",
    "link_title": "SELECT name FROM concepts",
}


@pytest.fixture(autouse=True)
def _nobody_is_dialled() -> Iterator[None]:
    """No test of this file makes any connection but to this machine, and asks for no name."""
    watch_network(on=True)
    yield
    for event, where in watch_network(on=False):
        host = where[0] if isinstance(where, tuple) else where
        is_local = isinstance(host, bytes | str) and (str(host).startswith("/") or host in ("127.0.0.1", "::1"))
        assert is_local, f"{event}: {where}"


def test_all_are_here() -> None:
    found = lines()
    assert [line.number for line in found] == list(range(1, 66))
    assert Counter(line.vector for line in found) == {
        "note": 18,
        "peer_name": 5,
        "announce_interest": 5,
        "concept_description": 5,
        "diary_entry": 5,
        "file_content": 7,
        "process_output": 6,
        "search_hit": 5,
        "card": 5,
        "link_title": 4,
    }


async def test_notes(tmp_path: Path) -> None:
    async with meeting(tmp_path) as m:
        for line in lines("note"):
            note = await m.send(line.text)
            assert await m.a.value("SELECT text FROM notes WHERE id = :id", id=note) == line.text
            await m.arrive_echo_obey(line, orders=orders(line, m))
            await m.raw(line)
        await m.after(line)
        await m.nothing_left()


async def announced(m: Meeting, line: Line, agent: Agent, **said: Any) -> str:
    """Take the announcement of a peer as the mesh does; how it is refused, or ""."""
    payload = {"name": "", "addresses": [], "capabilities": ["notes", "encrypt"], **said}
    container = make(Draft("peer_announce", payload), by=agent, at=m.a.node.context.now_us())
    taking = {"container": container, "arrival": "127.0.0.1"}
    try:
        await m.a.node.actions.perform(Peer(agent.did), "peer.announced", taking)
    except HmpError as error:
        m.refused[line.id] = str(error.code)
        return str(error.code)
    return ""


async def test_names_and_interests(tmp_path: Path) -> None:
    """What a node would not let its own owner announce is signed by hand; the rest is announced by a real node."""
    named = {line.id: line for line in lines("peer_name", "announce_interest")}
    real = named["inj-020"]  # an interest that an owner may set has 64 characters at most
    boaster = ALONE | {"HMP_MIND__ENABLED": "false", "HMP_NODE__NAME": json.dumps(real.text)}
    async with (
        meeting(tmp_path) as m,
        node.opened(tmp_path / "b", listen=["127.0.0.1:0"], api="127.0.0.1:0", environment=boaster) as b,
    ):
        await b.actions.perform(User(), "peer.join", {"where": m.a.node.mesh_addresses[0], "timeout_s": 20})
        await until("its name", lambda: m.a.rows("SELECT 1 FROM agent_peers WHERE name = :name", name=real.text))
        for line in named.values():
            agent = Agent(line.id)
            did = b.did if line == real else agent.did
            if line != real:
                said = {"name": line.text} if line.vector == "peer_name" else {"interests": [line.text]}
                if await announced(m, line, agent, **said):
                    continue
            await m.tick(block(("peer.show", {"peer": did}), prose=f"Who is that? {line.id}"))
            tick = await m.arrive_echo_obey(line, orders=orders(line, m))
            assert did in {author for author, _ in tick["taint"]}
            await m.raw(line)
        await m.after(line)
        # What a search finds is shown and counts like what a list shows.
        tick = await m.tick(block(("peer.find", {"query": "fotograf", "timeout_s": 0.2}), prose="I look for somebody."))
        assert tick["commands"][0]["status"] == "ok"
        found = {author for author, _ in (await m.tick("I have seen it."))["taint"]}
        assert found == {Agent("inj-028").did}
        print(m.refused)
        assert m.refused == {"inj-019": "bad_payload"}, "a name has 64 characters at most"
        await m.nothing_left()


@pytest.mark.parametrize("vector", sorted(STORED))
async def test_what_the_model_itself_stored(tmp_path: Path, vector: str) -> None:
    """The peer sends it, the model keeps it, and it comes back as the model's own row, with its taint."""
    async with meeting(tmp_path) as m:
        for line in lines(vector):
            await m.send(f"Keep this for me ({line.id}):\n{line.text}")
            keep = kept_by(line)
            tick = await m.tick(block(*keep, prose=f"I keep {line.id}."))
            for (name, _), one in zip(keep, tick["commands"], strict=True):
                if one["status"] != "ok":
                    m.refused[f"{line.id} {name} {one['ordinal']}"] = one["result"]["error"]["code"]
            if tick["commands"][-1]["status"] == "ok":
                assert (line.text,) in await m.a.rows(STORED[vector])
            else:
                assert not line.benign
                await m.send(f'[one](https://l.example.invalid/ "{line.text}")')
            tick = await m.arrive_echo_obey(line, orders=orders(line, m))
            assert m.eve.did in {author for author, _ in tick["taint"]}
            await m.raw(line)
        await m.after(line)
        print(m.refused)
        # A relation has 64 characters, all of them in one line, and so has the name of what a link leads to, with 200.
        relations = {f"inj-{number:03} link.add 0" for number in (62, 64)} | {"inj-064 link.add 1"}
        assert m.refused == (dict.fromkeys(relations, "bad_argument") if vector == "link_title" else {})
        await m.nothing_left()


def kept_by(line: Line) -> list[tuple[str, dict[str, Any]]]:
    """How a model would keep it; the last of the commands is the one that counts."""
    if line.vector == "concept_description":
        return [("concept.add", {"name": f"c {line.id}", "description": line.text})]
    if line.vector == "diary_entry":
        return [("diary.add", {"text": line.text}), ("diary.list", {"limit": 1})]
    relation = {"from": line.id, "to": "title", "relation": line.text}
    return [("link.add", relation), ("link.add", {"from": line.id, "to": line.text, "relation": "is_titled"})]


async def test_search_hits(tmp_path: Path) -> None:
    async with meeting(tmp_path) as m:
        for line in lines("search_hit"):
            await m.send(f"A hit: {line.text}")
            mark = f"mark{line.number}"
            keep = ("diary.add", {"text": f"{mark} {line.text}", "tags": [mark]})
            search = ("diary.search", {"query": mark})
            tick = await m.tick(block(keep, search, prose=f"I look for {line.id}."))
            assert [one["status"] for one in tick["commands"]] == ["ok", "ok"]
            tick = await m.arrive_echo_obey(line, orders=orders(line, m))
            assert [row["kind"] for row in tick["manifest"]["contexts"]["3"]][:1] == ["diary"]
            await m.raw(line)
        await m.after(line)
        await m.nothing_left()


async def test_cards(tmp_path: Path) -> None:
    """No card of these is one: joining by it, and sending to it, are refused; in a note it is a text like others."""
    async with meeting(tmp_path) as m:
        for line in lines("card"):
            for action, args in (("peer.join", {"where": line.text}), ("note.send", {"to": [line.text], "text": "x"})):
                with pytest.raises(HmpError) as caught:
                    await m.a.do(action, **args)
                m.refused[f"{line.id} {action}"] = str(caught.value.code)
            await m.send(line.text)
            sends = ("mesh.send", {"peer": line.text, "text": m.word})
            tick = await m.arrive_echo_obey(line, orders=[*orders(line, m), sends])
            assert tick["commands"][-1]["status"] == "queued"
            await m.raw(line)
        await m.after(line)
        print(m.refused)
        assert set(m.refused.values()) == {"bad_card"}
        for table, column in (("peer_addresses", "address"), ("aliases", "name")):
            kept = await m.a.rows(f"SELECT {column} FROM {table} WHERE {column} NOT LIKE '127.0.0.1:%'")
            assert kept == []
        await m.nothing_left()


@needs_sandbox
async def test_files(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    async with meeting(tmp_path, sandbox__read=json.dumps([str(folder)])) as m:
        for line in lines("file_content"):
            path = folder / f"{line.id}.txt"
            path.write_text(line.text, encoding="utf-8", newline="")
            tick = await m.tick(block(("file.read", {"path": str(path)}), prose=f"I read {line.id}."))
            assert tick["commands"][0]["status"] == "ok"
            tick = await m.arrive_echo_obey(line, orders=orders(line, m))
            assert (f"file:{path}", "data") in tick["taint"]
            assert path.read_text(encoding="utf-8") == line.text
            await m.raw(line)
        await m.after(line)
        await m.nothing_left()


@needs_sandbox
async def test_what_processes_print(tmp_path: Path) -> None:
    async with meeting(tmp_path) as m:
        for line in lines("process_output"):
            code = f"import sys; sys.stdout.buffer.write({line.text.encode()!r})"
            await m.a.do("script.add", name=line.id, version="9", code=code, language="python")
            started = (await m.a.do("process.start", script=line.id))["process_id"]

            async def ended(number: int = started) -> bool:
                await m.a.node.context.machine.refresh()  # type: ignore[attr-defined]
                return bool(await m.a.rows("SELECT 1 FROM process_log WHERE id = :id AND status = 'ok'", id=number))

            await until("it has ended", ended)
            tick = await m.arrive_echo_obey(line, orders=orders(line, m))
            assert (f"process:{started}", "data") in tick["taint"]
            await m.raw(line)
        await m.after(line)
        await m.nothing_left()


async def test_of_a_complete_stranger_nothing_reaches_a_prompt(tmp_path: Path) -> None:
    async with meeting(tmp_path, granted=False) as m:
        await m.a.do("grant.add", subject="*", kind="notes", direction="in", count_per_day=1000)  # of the quarantine
        for line in lines():
            await m.send(line.text, wait=line.number == 65)
            await announced(m, line, Agent(line.id), name=line.text[:64], interests=[line.text[:256]])
        ids = [int(number) for (number,) in await m.a.rows("SELECT id FROM notes ORDER BY id")]
        assert len(ids) == 65
        prompts: list[str] = []

        def asks(*commands: tuple[str, dict[str, Any]]) -> Any:
            def say(prompt: str) -> str:
                prompts.append(prompt)
                return block(*commands, prose=f"I look, the {len(prompts)}th time.")

            return say

        tick = await m.tick(
            asks(
                *(("note.show", {"ids": [one]}) for one in ids[:8]),
                ("note.read", {"id": ids[9]}),
                ("note.tag", {"id": ids[9], "add": ["seen"]}),
                ("note.mark_read", {"ids": ids[10:12]}),
                ("note.inbox", {"limit": 1000}),
                ("note.inbox", {"quarantined": True}),
                ("note.list", {"limit": 1000}),
                ("note.counts", {}),
                ("log.show", {"limit": 1000}),
                ("note.outbox", {}),
                ("mailman.list", {}),
                ("node.status", {}),
            )
        )
        assert {one["type"]: one["status"] for one in tick["commands"]} == {
            "note.show": "denied",
            "note.read": "denied",
            "note.tag": "denied",
            "note.mark_read": "denied",
            "note.inbox": "denied",
            **dict.fromkeys(("note.list", "note.counts", "log.show", "note.outbox", "mailman.list"), "ok"),
            "node.status": "ok",
        }
        await m.tick(asks())
        await m.tick(asks())
        for prompt in prompts:
            assert "contexts" not in prompt.partition("## context_4")[2].partition("## context_5")[0]
            for line in lines():
                check_outside(line, prompt)
                assert not any(stands_in(line.text, words) for _, _, words in FENCED.findall(prompt)), line.id
        assert await m.a.value("SELECT COUNT(*) FROM notes WHERE read = 1 AND id <= :last", last=ids[-1]) == 0
        await m.nothing_left()


# --- what is no action ------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", lines(), ids=lambda line: line.id)
def test_no_control_character_reaches_a_terminal(line: Line) -> None:
    for shown in (safe(line.text), safe(line.text, lines=True), *indented(line.text)):
        bad = {char for char in shown if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")} - set("\n\t")
        bad |= set(shown) & set("\u200b\u2060\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
        assert bad == set(), ascii(shown)


@pytest.mark.parametrize("line", [line for line in lines() if line.benign], ids=lambda line: line.id)
def test_benign_words_are_all_there_after_defanging(line: Line) -> None:
    changed = [(one, other) for one, other in zip(line.text, defang(line.text), strict=True) if one != other]
    assert all(one in "#`~[<>|= _" for one, _ in changed), changed


def test_the_names_that_are_no_actions_are_known_to_be_none() -> None:
    from hmp_node.actions.registry import REGISTRY

    assert not set(NO_ACTIONS) & REGISTRY.keys()
    assert not [name for name in REGISTRY if "fetch" in name or "http" in name or "url" in name]


def test_what_repeating_means() -> None:
    """The kit itself: the three ways hold the text, and a text that is not there is missed."""
    assert load("en", Path("nowhere")).version
    said = repeated("| one\n| two")
    assert "| one" in said
    assert "> two" in said
    assert "wrote: one\ntwo" in said
    assert stands_in("one\ntwo", "| one\n| two")
    assert not stands_in("one\nthree", "| one\n| two")
