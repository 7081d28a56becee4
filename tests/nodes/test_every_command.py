"""Every command that a model has, once through the loop: each ends well, and leaves all that a command has to leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hmp_node.actions.perform import SUBJECTS
from hmp_node.actions.registry import REGISTRY
from tests.nodes.mind import block, in_turn, thinker
from tests.wire.agents import Agent

PEER = Agent("somebody").did
FIRST: dict[str, dict[str, Any]] = {  # in this order: the later ones need what these make
    "diary.add": {"text": "one", "tags": ["t"]},
    "concept.add": {"name": "river", "links": [{"to": "sea", "relation": "flows_to"}]},
    "link.add": {"from": "river", "to": "stone", "relation": "holds"},
    "thought.add": {"content": "a thought", "title": "t"},
    "note.add": {"text": "for the owner"},
    "note.send": {"to": [PEER], "text": "hello"},
    "table.create": {"name": "t", "columns": [{"name": "n", "type": "integer"}]},
    "table.insert": {"name": "t", "rows": [{"n": 1}]},
    "script.add": {"name": "s", "version": "1", "code": "print(1)"},
    "diary.link": {"source": 1, "target": 2, "relation": "supports"},
    "project.add": {"name": "shop"},
    "memory.add": {"content": "the harbour is closed", "project": "shop"},
    "session.save": {"project": "shop", "summary": "begun"},
}
THEN: dict[str, dict[str, Any]] = {
    "approval.list": {},
    "concept.expand": {"name": "river"},
    "concept.list": {},
    "concept.merge": {"from": 2, "into": 1},
    "concept.pin": {"ids": [1]},
    "concept.read": {"ids": [1]},
    "concept.search": {"query": "riv"},
    "concept.update": {"id": 1, "description": "water"},
    "cycle.idle": {"seconds": 5},
    "cycle.mode": {"mode": "auto"},
    "cycle.pause": {"seconds": 5},
    "cycle.set": {"responses": 4},
    "cycle.show": {},
    "cycle.status": {},
    "diary.archive": {"ids": [1]},
    "diary.list": {},
    "diary.pin": {"ids": [1]},
    "diary.read": {"ids": [1]},
    "diary.relations": {"id": 1},
    "diary.search": {"query": "one", "archived": True},
    "diary.tag_stats": {},
    "diary.unlink": {"id": 1},
    "diary.update": {"id": 1, "text": "two"},
    "diary.delete": {"ids": [1]},
    "grant.list": {},
    "link.list": {},
    "link.read": {"ids": [2]},
    "link.update": {"id": 2, "relation": "has"},
    "link.delete": {"ids": [2]},
    "concept.delete": {"ids": [3]},
    "llm.list": {},
    "llm.select": {"id": "default"},
    "log.show": {},
    "log.verify": {},
    "mailman.list": {},
    "log.head": {},
    "memory.get": {"ids": [1]},
    "memory.list": {},
    "memory.as_of": {"at": "2100-01-01"},
    "memory.search": {"query": "harbours"},
    "memory.recall": {"query": "harbours"},
    "memory.update": {"id": 1, "content": "the harbour is open"},
    "memory.supersede": {"id": 1, "content": "the harbour moved"},
    "memory.history": {"id": 1},
    "memory.link": {"source": 2, "target": 1},
    "memory.links": {"id": 2},
    "memory.unlink": {"source": 2, "target": 1},
    "memory.archive": {"ids": [1]},
    "memory.restore": {"ids": [1]},
    "project.get": {"project": "shop"},
    "project.list": {},
    "project.update": {"project": "shop", "summary": "ours"},
    "session.list": {"project": "shop"},
    "session.resume": {"project": "shop"},
    "project.archive": {"project": "shop"},
    "node.doctor": {},
    "node.help": {"command": "diary"},
    "node.id": {},
    "node.status": {},
    "note.clean": {"before": "2020-01-01"},
    "note.counts": {},
    "note.hide": {"id": 1},
    "note.inbox": {},
    "note.list": {},
    "note.mark_read": {"ids": [1]},
    "note.outbox": {},
    "note.read": {"id": 1},
    "note.show": {"ids": [1, 2]},
    "note.tag": {"id": 1, "add": ["x"]},
    "note.update": {"id": 1, "text": "changed"},
    "note.wait": {"note_id": 2, "state": "sent", "timeout_s": 0.1},
    "note.delete": {"id": 1},
    "peer.find": {"query": "nobody", "timeout_s": 0.1},
    "peer.list": {},
    "peer.show": {"peer": PEER},
    "peer.verify": {"peer": PEER},
    "process.close": {"ids": [1]},
    "process.list": {},
    "process.output": {"id": 1},
    "process.start": {"argv": ["echo", "x"]},
    "process.stop": {"id": 1},
    "process.clean": {},
    "reply.clean": {"keep": 5},
    "reply.list": {},
    "script.list": {},
    "script.read": {"name": "s"},
    "script.run": {"name": "s"},
    "script.delete": {"name": "s", "version": "1"},
    "shell.run": {"argv": ["echo", "x"]},
    "file.list": {"path": "/nowhere"},
    "file.read": {"path": "/nowhere/x"},
    "file.write": {"path": "/nowhere/x", "text": "x"},
    "table.list": {},
    "table.select": {"name": "t"},
    "table.update": {"name": "t", "where": {}, "add": {"n": 1}},
    "table.delete": {"name": "t", "where": {}},
    "table.drop": {"name": "t"},
    "thought.list": {},
    "thought.pin": {"ids": [1]},
    "thought.read": {"ids": [1]},
    "thought.search": {"query": "thought"},
    "thought.update": {"id": 1, "content": "another"},
    "thought.delete": {"ids": [1]},
    "tick.list": {},
}
# What this node has switched off.
ELSEWHERE = {
    **dict.fromkeys(
        ("shell.run", "process.start", "script.run", "file.list", "file.read", "file.write"), "switched_off"
    ),
}
# They bring words of others, after which some of the rest would wait for a person.
FOREIGN = {
    "log.show",
    "node.doctor",
    "peer.find",
    "peer.list",
    "peer.show",
    "note.outbox",
    "note.wait",
    "file.read",
    "file.list",
}
AT_ONCE = 31


async def test_every_command_of_a_model_once(tmp_path: Path) -> None:
    assert SUBJECTS
    held = {name for name, one in REGISTRY.items() if "llm" in one.actors}
    assert held == {*FIRST, *THEN}, "a new command has to be tried here"
    commands = [("diary.add", {"text": "zero"}), *FIRST.items(), *THEN.items()]
    commands.sort(key=lambda one: (one[0] in FOREIGN, one[0] in ("note.outbox", "note.wait")))
    replies = [block(*commands[at : at + AT_ONCE], prose=f"Part {at}.") for at in range(0, len(commands), AT_ONCE)]
    async with thinker(tmp_path / "a", in_turn(*replies), mind__commands=str(AT_ONCE)) as a:
        await a.do("peer.alias", name="somebody", did=PEER)
        for _ in replies:
            assert (await a.tick())["phase"] == "committed"
        rows = await a.rows("SELECT type, status, result, process_id FROM tick_commands ORDER BY tick, ordinal")
        assert [name for name, *_ in rows] == [name for name, _ in commands]
        wrong: dict[str, str] = {
            name: result for name, status, result, _ in rows if status != "ok" and name not in ELSEWHERE
        }
        assert wrong == {}
        for name, _, result, _ in rows:
            assert name not in ELSEWHERE or f'"{ELSEWHERE[name]}"' in result, (name, result)
        logged = await a.value("SELECT COUNT(*) FROM log_messages WHERE role = 'result'")
        assert logged == len(commands)
        assert (await a.do("log.verify"))["ok"]
        assert all(job["restarts"] == 0 for job in a.node.status()["jobs"].values())
