"""Secrets and the log, with whole nodes that think (loop: 5; behaviours 40 to 42)."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.agent.llm_server import Answer, Events, Raw, Request, Say, Status
from tests.agent.machines import needs_sandbox
from tests.nodes.mind import block, in_turn, thinker, until

KEY = "sk-live-4f9a/77Zz+Q=="
VARIABLE = "TEST_PAID_KEY"
KEYED = {"llm__key_env": VARIABLE}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)


def cells(database: Path) -> Iterator[tuple[str, str]]:
    """Every value of every table of a file, as text: (table, value)."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in db.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    yield table, value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def spellings(key: str) -> list[str]:
    """The key as it may stand in text and in JSON."""
    return [key, key.replace("/", "\\/"), "".join(f"\\u{ord(sign):04x}" for sign in key)]


def assert_nowhere(home: Path, key: str) -> None:
    """No table, no log and no file of a home that has been left holds the key."""
    databases = list(home.rglob("*.db"))
    assert databases
    found = [(one.name, table) for one in databases for table, value in cells(one) if key in value]
    assert found == []
    for file in home.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert not [one for one in spellings(key)[:2] if one.encode() in data], file


def echoing(say: Callable[[str], Answer]) -> Callable[[Request], Answer]:
    """An endpoint that says in every reply the key that it was given."""

    def script(request: Request) -> Answer:
        return say(request.key or "") if request.number == 0 else f"Round {request.number}."

    return script


def _escaped(key: str) -> Answer:
    """Commands whose JSON spells the key in escapes: it is whole only once it is read."""
    text = "".join(f"\\u{ord(sign):04x}" for sign in key)
    told = [
        f'{{"type": "{name}", "args": {{"{field}": "{text}"}}}}'
        for name, field in (
            ("diary.add", "text"),
            ("concept.add", "name"),
            ("note.add", "text"),
            ("thought.add", "content"),
        )
    ]
    return "# Commands\n[" + ", ".join([*told, f'{{"type": "{text}", "args": {{}}}}']) + "]"


def _chunk(**more: Any) -> str:
    return "data: " + json.dumps({"object": "chat.completion.chunk", **more})


def _in_the_frame(key: str) -> Answer:
    """A reply whose frame, not its text, holds the key: name of the model, finish, usage, ids of calls."""
    call = {"index": 0, "id": key, "type": "function", "function": {"name": "diary__list", "arguments": "{}"}}
    return Events(
        [
            _chunk(id=key, model=key, choices=[{"index": 0, "delta": {"content": "Hm.", "tool_calls": [call]}}]),
            _chunk(model=key, choices=[{"index": 0, "delta": {}, "finish_reason": key}]),
            _chunk(model=key, choices=[], usage={"prompt_tokens": 1, "completion_tokens": 1, key: 1}),
            "data: [DONE]",
        ]
    )


ECHOES: dict[str, Callable[[str], Answer]] = {
    "prose": lambda key: f"My key is {key}, and again {key}.",
    "thought": lambda key: f"<think>{key}</think> I say nothing of it.",
    "command": lambda key: block(
        ("diary.add", {"text": f"key {key}", "tags": [key[:10]]}),
        ("note.add", {"text": key}),
        ("table.create", {"name": "keys", "columns": [{"name": "v", "type": "text"}], "description": key}),
        ("table.insert", {"name": "keys", "rows": [{"v": key}]}),
        (key, {key: key}),
    ),
    "escaped": _escaped,
    "native": lambda key: Say("So.", tool_calls=(("diary__add", {"text": key}),)),
    "native text": lambda key: Say("So.", tool_calls=(("diary__add", json.dumps({"text": key})),)),
    "broken": lambda key: f"# Commands\n{{{key}",
    "frame": _in_the_frame,
    "error": lambda key: Status(500, {"error": {"message": f"bad key {key}"}}),
    "refused": lambda key: Status(401, f"Incorrect API key provided: {key}", {"X-Key": key}),
    "html": lambda key: Raw(f"<html>{key}</html>".encode(), "text/html"),
    "in stream": lambda key: Events([_chunk(error={"message": f"bad key {key}"})]),
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
async def test_40_a_key_that_a_model_echoes_is_kept_nowhere(
    tmp_path: Path, echo: Callable[[str], Answer], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    home = tmp_path / "a"
    async with thinker(home, echoing(echo), llm__tries="1", **KEYED) as a:
        told: list[str] = []
        await a.do("cycle.mode", mode="auto")
        await a.tick()
        assert a.server.requests[0].key == KEY, "the endpoint did get it"
        await a.do("llm.test", id="default")  # so that one that refused is asked again
        assert (await a.tick())["phase"] == "committed"
        told += [request.prompt for request in a.server.requests]
        for action, args in (("tick.list", {}), ("tick.show", {"id": 1}), ("node.status", {}), ("llm.list", {})):
            told.append(json.dumps(await a.do(action, **args), ensure_ascii=False))
        told.append(json.dumps(await a.do("log.show", limit=1000), ensure_ascii=False))
        told.append(json.dumps(await a.do("node.doctor"), ensure_ascii=False))
        assert not [text for text in told if KEY in text]
        assert (await a.do("log.verify"))["ok"]
    assert_nowhere(home, KEY)
    assert KEY not in caplog.text
    out, err = capfd.readouterr()
    assert KEY not in out + err


@needs_sandbox
async def test_40_a_process_neither_has_the_key_nor_can_write_it_into_the_store(tmp_path: Path) -> None:
    home = tmp_path / "a"
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "f").write_text(f"the key is {KEY}\n")
    script = in_turn(
        block(
            ("shell.run", {"argv": ["env"]}),
            ("shell.run", {"argv": ["echo", KEY]}),
            ("script.add", {"name": "s", "code": f"import sys\nprint({KEY!r})\nsys.exit(1)\n"}),
            ("script.run", {"name": "s"}),
            ("file.read", {"path": str(folder / "f")}),
        ),
        then="Seen.",
    )
    settings = {
        "sandbox__shell": "true",
        "sandbox__scripts": "true",
        "sandbox__files": "true",
        "sandbox__read": json.dumps([str(folder)]),
        "sandbox__allow": json.dumps(["env", "echo .*"]),
    }
    async with thinker(home, script, **settings, **KEYED) as a:
        tick = await a.ticked()
        assert [one["status"] for one in tick["commands"]] == ["ok"] * 5
        await until("all ended", lambda: a.value("SELECT COUNT(*) = 3 FROM process_runs WHERE finished_at IS NOT NULL"))
        await a.tick()
        assert "[secret]" in a.context(2)
        assert not [request for request in a.server.requests if KEY in request.prompt]
        assert VARIABLE not in await a.value("SELECT value FROM process_log WHERE id = 1")
        for row in await a.rows("SELECT process_id FROM process_runs"):
            assert KEY not in (await a.do("process.output", id=row[0]))["output"]
    assert_nowhere(home, KEY)


async def test_40_a_key_from_a_file_is_struck_as_well(tmp_path: Path) -> None:
    home, kept = tmp_path / "a", tmp_path / "key"
    kept.write_text("sk-of-a-file-123456\n")
    kept.chmod(0o600)
    async with thinker(home, echoing(lambda key: f"It is {key}."), llm__key_file=str(kept)) as a:
        await a.tick()
        assert a.server.requests[0].key == "sk-of-a-file-123456"
        assert await a.value("SELECT response_text FROM agent_log") == "It is [secret]."
    assert_nowhere(home, "sk-of-a-file-123456")


# --- the log ----------------------------------------------------------------------------------------------


async def test_41_what_the_mind_wrote_into_the_log_takes_no_change(tmp_path: Path) -> None:
    home = tmp_path / "a"
    async with thinker(home, in_turn(block(("diary.add", {"text": "x"})))) as a:
        await a.tick()
        rows = await a.value("SELECT COUNT(*) FROM log_messages")
        assert rows >= 3
    with closing(sqlite3.connect(home / "node.db")) as db:
        db.execute("PRAGMA recursive_triggers = ON")
        columns = [name for _, name, *_ in db.execute("PRAGMA table_info(log_messages)")]
        listed = ", ".join(columns)
        for sql in (
            "UPDATE log_messages SET content = 'other'",
            "UPDATE OR IGNORE log_messages SET content = 'other' WHERE id = 1",
            "DELETE FROM log_messages",
            "DELETE FROM log_messages WHERE id = 2",
            f"REPLACE INTO log_messages ({listed}) SELECT {listed} FROM log_messages WHERE id = 1",
            f"INSERT OR REPLACE INTO log_messages ({listed}) SELECT {listed} FROM log_messages",
        ):
            with pytest.raises(sqlite3.DatabaseError):
                db.execute(sql)
            db.rollback()
    with closing(sqlite3.connect(home / "node.db")) as db:  # a program that knows nothing of our settings
        with pytest.raises(sqlite3.DatabaseError):
            db.execute(f"REPLACE INTO log_messages ({listed}) SELECT {listed} FROM log_messages WHERE id = 1")
        db.rollback()
        assert db.execute("SELECT COUNT(*) FROM log_messages").fetchone() == (rows,)


@pytest.mark.parametrize("role", ["prompt", "assistant", "result"])
async def test_42_one_altered_byte_of_a_tick_is_found(tmp_path: Path, role: str) -> None:
    home = tmp_path / "a"
    async with thinker(home, in_turn(block(("diary.add", {"text": "I was here"})))) as a:
        await a.tick()
        assert (await a.do("log.verify"))["ok"]
    with closing(sqlite3.connect(home / "node.db")) as db, db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f'DROP TRIGGER "{name}"')
        ((row, content),) = db.execute(
            "SELECT id, content FROM log_messages WHERE role = ? ORDER BY id LIMIT 1", (role,)
        ).fetchall()
        db.execute("UPDATE log_messages SET content = ? WHERE id = ?", (content[:-1] + chr(ord(content[-1]) ^ 1), row))
        for _, sql in triggers:
            db.execute(sql)
    async with thinker(home, in_turn()) as a:
        found = await a.do("log.verify")
        assert not found["ok"]
        assert (await a.tick())["phase"] == "committed", "the mind goes on; the damage stays told"
        assert not (await a.do("log.verify"))["ok"]


async def test_every_message_of_a_tick_stands_in_the_log_and_is_found_by_its_number(tmp_path: Path) -> None:
    script = in_turn(block(("diary.add", {"text": "one"}), ("diary.read", {"ids": [77]})), "Two.")
    async with thinker(tmp_path / "a", script) as a:
        await a.tick()
        await a.tick()
        for tick, roles in ((1, ["prompt", "assistant", "result", "result"]), (2, ["prompt", "assistant"])):
            rows = sorted((await a.do("log.show", tick=tick))["rows"], key=lambda row: row["seq"])
            assert [row["role"] for row in rows] == roles
            assert rows[0]["hash"] in rows[1]["context_hashes"]
            for result in rows[2:]:
                assert rows[1]["hash"] in result["context_hashes"]
