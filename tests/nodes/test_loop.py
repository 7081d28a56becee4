"""The tick with whole nodes and a scripted model: what is shown, what is written down, what survives (loop: 7)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hmp_node.errors import Failed
from tests.agent.llm_server import Say, busy, overflow, wrong_key
from tests.nodes.mind import Thinker, awake, block, context, in_turn, thinker, until


def kinds(tick: dict[str, Any], number: int) -> list[tuple[str, int]]:
    """What stood in a context of a tick."""
    return [(row["kind"], row["id"]) for row in tick["manifest"]["contexts"][str(number)]]


async def test_an_empty_database_runs_one_tick_and_commits_it(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn("I am new here.")) as a:
        tick = await a.ticked()
        assert (tick["id"], tick["phase"], tick["commands"]) == (1, "committed", [])
        assert tick["reply"] == "I am new here."
        for number in range(1, 8):
            assert f"## context_{number}" in a.prompt


async def test_context_2_holds_only_rows_that_are_not_closed(tmp_path: Path) -> None:
    script = in_turn(
        block(("diary.read", {"ids": [99]}), ("diary.add", {"text": "one"})), "Then I looked.", "And again."
    )
    async with thinker(tmp_path / "a", script) as a:
        await a.tick()
        shown = await a.ticked()
        assert [name for (name,) in await a.rows("SELECT name FROM process_log WHERE status <> 'close'")] == [
            "diary.read"
        ]
        assert len(kinds(shown, 2)) == 2
        after = await a.ticked()
        assert len(kinds(after, 2)) == 1
        assert "not_found" in a.context(2)
        await a.do("process.close", ids=[kinds(after, 2)[0][1]])
        assert kinds(await a.ticked(), 2) == []


async def test_manual_mode_shows_counts_and_ids_and_no_text_of_notes(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn()) as a:
        first = await a.do("note.add", text="СЕКРЕТ-СЛОВО", priority=2)
        second = await a.do("note.add", text="plain word")
        tick = await a.ticked()
        assert kinds(tick, 4) == []
        assert "СЕКРЕТ-СЛОВО" not in a.prompt
        assert "plain word" not in a.prompt
        shown = a.context(4)
        assert str(first["id"]) in shown
        assert str(second["id"]) in shown
        assert "urgent" in shown


async def test_auto_mode_honours_tag_priority_time_and_source_together(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn()) as a:
        wanted = await a.do("note.add", text="right", tags=["home"], priority=1)
        await a.do("note.add", text="low", tags=["home"], priority=0)
        await a.do("note.add", text="other tag", tags=["away"], priority=2)
        filtered = {"tags": ["home"], "priority_min": 1, "since": "2020-01-01", "sources": ["user"]}
        await a.do("cycle.mode", mode="auto", filter=filtered)
        assert kinds(await a.ticked(), 4) == [("note", wanted["id"])]
        assert "right" in a.context(4)
        assert (await a.do("note.list"))["notes"][-1]["read"], "what was shown whole counts as read"
        await a.do("note.add", text="late", tags=["home"], priority=1)
        await a.do("cycle.mode", mode="auto", filter=filtered | {"sources": ["peer"]})
        assert kinds(await a.ticked(), 4) == []
        await a.do("cycle.mode", mode="auto", filter=filtered | {"since": "2999-01-01"})
        assert kinds(await a.ticked(), 4) == []


async def test_requested_rows_appear_in_exactly_the_next_committed_tick(tmp_path: Path) -> None:
    script = in_turn("Before.", block(("diary.read", {"ids": [1]})), wrong_key(), "After.", "Later.")
    async with thinker(tmp_path / "a", script) as a:
        await a.do("diary.add", text="remember this")
        assert kinds(await a.ticked(), 3) == []
        assert kinds(await a.ticked(), 3) == []
        failed = await a.ticked()
        assert (failed["phase"], kinds(failed, 3)) == ("failed", [("diary", 1)])
        await a.do("llm.test", id="default")
        shown = await a.ticked()
        assert (shown["phase"], kinds(shown, 3)) == ("committed", [("diary", 1)])
        assert "remember this" in context(a.prompt, 3)
        assert kinds(await a.ticked(), 3) == []


async def test_a_pinned_row_stays_until_it_is_unpinned(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn()) as a:
        await a.do("diary.add", text="keep me")
        await a.do("diary.pin", ids=[1])
        for _ in range(3):
            assert kinds(await a.ticked(), 3) == [("diary", 1)]
        await a.do("diary.pin", ids=[1], pinned=False)
        assert kinds(await a.ticked(), 3) == []


async def test_context_7_shows_what_the_reflex_found_in_the_tick_before(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn(then="The very same words, over and over again, every time.")) as a:
        await a.tick()
        second = await a.ticked()
        assert second["reflex"]["stagnant"]
        await a.tick()
        assert "tick 1" in a.context(7)


async def test_a_failed_call_leaves_notes_unread_and_history_unchanged(tmp_path: Path) -> None:
    script = in_turn("First.", wrong_key())
    async with thinker(tmp_path / "a", script) as a:
        await a.do("cycle.mode", mode="auto")
        await a.tick()
        await a.do("note.add", text="for you")
        before = await a.rows("SELECT * FROM llm_recent_responses")
        failed = await a.ticked()
        assert failed["phase"] == "failed"
        assert kinds(failed, 4) == [("note", 1)]
        assert await a.value("SELECT read FROM notes WHERE id = 1") == 0
        assert await a.rows("SELECT * FROM llm_recent_responses") == before
        assert await a.value("SELECT status FROM process_log WHERE name = 'llm'") == "error"
        assert (await a.do("diary.list"))["diary"] == [], "the API serves on"


async def test_what_an_endpoint_says_in_an_error_is_never_kept_as_a_reply(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn(busy("0"), busy("0"), busy("0"), then="Fine again.")) as a:
        assert (await a.tick())["phase"] == "failed"
        assert (await a.tick())["phase"] == "committed"
        replies = await a.rows("SELECT content FROM llm_recent_responses")
        assert replies == [("Fine again.",)]
        assert await a.value("SELECT response_text FROM agent_log WHERE id = 1") is None


async def test_a_prompt_that_is_too_long_is_halved_and_asked_once_more(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn(overflow(), "It fits.")) as a:
        tick = await a.ticked()
        assert (tick["phase"], tick["reply"]) == ("committed", "It fits.")
        assert len(a.server.requests) == 2
        assert tick["manifest"]["budget"] < 7000


async def test_a_raising_command_rolls_back_only_itself_and_the_next_one_runs(tmp_path: Path) -> None:
    script = in_turn(
        block(
            ("concept.add", {"name": "one"}),
            ("concept.update", {"id": 77, "name": "two"}),
            ("concept.add", {"name": "three"}),
        )
    )
    async with thinker(tmp_path / "a", script) as a:
        tick = await a.ticked()
        assert [one["status"] for one in tick["commands"]] == ["ok", "error", "ok"]
        assert [name for (name,) in await a.rows("SELECT name FROM concepts ORDER BY id")] == ["one", "three"]


async def test_a_command_waits_for_what_it_depends_on(tmp_path: Path) -> None:
    commands = [
        {"cmd_id": "a", "type": "concept.update", "args": {"id": 77, "name": "x"}},
        {"cmd_id": "b", "type": "concept.add", "args": {"name": "after a"}, "depends_on": "a"},
        {"cmd_id": "c", "type": "concept.add", "args": {"name": "free"}},
        {"cmd_id": "d", "type": "concept.add", "args": {"name": "after c"}, "depends_on": ["c"]},
        {"cmd_id": "e", "type": "concept.add", "args": {"name": "after nobody"}, "depends_on": ["z"]},
    ]
    async with thinker(tmp_path / "a", in_turn(f"I try.\n# Commands\n{json.dumps(commands)}")) as a:
        tick = await a.ticked()
        assert [one["status"] for one in tick["commands"]] == ["error", "skipped", "ok", "ok", "skipped"]
        assert "depends on a" in str(tick["commands"][1]["result"])
        assert [name for (name,) in await a.rows("SELECT name FROM concepts ORDER BY id")] == ["free", "after c"]


async def test_the_api_writes_while_a_call_hangs(tmp_path: Path) -> None:
    async with awake(tmp_path / "a", in_turn(Say("slow " * 50, piece=5, delay_s=0.2))) as a:
        await until("it thinks", lambda: a.server.requests)
        await a.do("note.add", text="meanwhile")
        assert await a.value("SELECT COUNT(*) FROM notes") == 1
        assert await a.value("SELECT phase FROM agent_log") == "open"


async def test_native_calls_and_text_give_the_same_commands(tmp_path: Path) -> None:
    args = {"text": "same", "tags": ["a"]}
    native = Say("I do this.", tool_calls=(("run_commands", {"commands": [{"type": "diary.add", "args": args}]}),))
    planned = []
    for name, answer in (("text", block(("diary.add", args))), ("native", native)):
        async with thinker(tmp_path / name, in_turn(answer)) as a:
            await a.tick()
            planned.append(await a.rows("SELECT type, args, args_hash, status FROM tick_commands"))
    assert planned[0] == planned[1]
    assert planned[0][0][0] == "diary.add"


async def test_unknown_types_get_a_suggestion(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn(block(("diary.ad", {"text": "x"})))) as a:
        tick = await a.ticked()
        assert tick["commands"][0]["status"] == "error"
        assert "diary.add" in str(tick["commands"][0]["result"])


async def test_an_identical_reply_adds_one_reflex_row_and_no_copy(tmp_path: Path) -> None:
    words = "I think about the river, its springs, its mouth, and about nothing else today."
    async with thinker(tmp_path / "a", in_turn(then=words)) as a:
        await a.tick()
        await a.tick()
        rows = await a.rows("SELECT role, content, llm_id FROM llm_recent_responses ORDER BY id")
        assert rows[0] == ("assistant", words, "default")
        assert rows[1][0] == "user"
        assert rows[1][1].startswith("[reflex]")
        assert rows[1][2] is None
        assert len(rows) == 2


async def test_a_repeated_diary_add_is_skipped_and_a_repeated_read_is_not(tmp_path: Path) -> None:
    script = in_turn(then=block(("diary.add", {"text": "the same entry"}), ("diary.list", {}), prose="Once more."))
    async with thinker(tmp_path / "a", script) as a:
        await a.tick()
        tick = await a.ticked()
        assert [one["status"] for one in tick["commands"]] == ["skipped", "ok"]
        assert await a.value("SELECT COUNT(*) FROM diary_entries") == 1


async def test_prose_alone_is_a_thinking_tick_and_an_unreadable_block_is_told(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn("Only thoughts.", "# Commands\n{broken", "Hm.")) as a:
        assert (await a.tick())["commands"] == 0
        broken = await a.ticked()
        assert broken["phase"] == "committed"
        assert broken["error"]
        await a.tick()
        assert "could not be read" in a.context(7)


async def test_settings_of_the_loop_survive_a_restart(tmp_path: Path) -> None:
    script = in_turn(
        block(
            ("cycle.set", {"responses": 3}),
            ("mode", {"mode": "auto", "filter": {"priority_min": 1}}),
            ("pause", {"seconds": 7}),
            ("idle", {"seconds": 500}),
        )
    )
    async with thinker(tmp_path / "a", script) as a:
        assert [one["status"] for one in (await a.ticked())["commands"]] == ["ok"] * 4
        before = await a.do("cycle.show")
    async with thinker(tmp_path / "a", in_turn()) as a:
        assert await a.do("cycle.show") == before
        assert before["responses"] == 3
        assert before["pause_s"] == 7
        assert before["idle"] is not None


async def walk_back(a: Thinker, digest: str) -> set[str]:
    """All messages of the log that a message goes back to."""
    found: set[str] = set()
    todo = [digest]
    rows = {row["hash"]: row for row in (await a.do("log.show", limit=1000))["rows"]}
    while todo:
        for one in rows[todo.pop()]["context_hashes"]:
            if one not in found:
                found.add(one)
                todo.append(one)
    return {rows[one]["content"] for one in found}


async def test_from_a_reply_one_walks_back_to_what_the_model_was_shown(tmp_path: Path) -> None:
    script = in_turn(block(("note.show", {"ids": [1]})), block(("diary.add", {"text": "noted"})), "Done.")
    async with thinker(tmp_path / "a", script) as a:
        await a.do("note.add", text="a wish of mine")
        await a.do("cycle.mode", mode="auto")
        for _ in range(3):
            await a.tick()
        rows = (await a.do("log.show", tick=3))["rows"]
        reply = next(row for row in rows if row["role"] == "assistant")
        assert reply["content"] == "Done."
        shown = await walk_back(a, reply["hash"])
        assert "a wish of mine" in shown
        assert any("noted" in content for content in shown)
        assert (await a.do("log.verify"))["ok"]


async def test_a_note_of_the_owner_reaches_the_next_tick_and_the_answer_is_a_note(tmp_path: Path) -> None:
    answer = block(("note.add", {"text": "42"}), ("note.mark_read", {"ids": [1]}))
    async with awake(tmp_path / "a", in_turn("Nothing yet.", answer, then="Rest."), mind__pause_s="60") as a:
        await until("the first tick", lambda: a.value("SELECT 1 FROM agent_log WHERE phase = 'committed'"))
        await a.do("note.add", text="what is it?")
        await until("the answer", lambda: a.value("SELECT 1 FROM notes WHERE source = 'llm' AND text = '42'"))


async def test_undo_takes_back_what_a_tick_wrote(tmp_path: Path) -> None:
    script = in_turn(
        block(("diary.add", {"text": "first", "tags": ["t"]}), ("concept.add", {"name": "c"})),
        block(("diary.update", {"id": 1, "text": "changed"}), prose="I change my mind."),
    )
    async with thinker(tmp_path / "a", script) as a:
        await a.tick()
        await a.tick()
        assert (await a.do("tick.undo", tick=2))["undone"] == 1
        assert await a.value("SELECT text FROM diary_entries") == "first"
        assert (await a.do("tick.undo", tick=1)) == {"tick": 1, "undone": 2, "kept": []}
        assert await a.rows("SELECT id FROM diary_entries UNION ALL SELECT id FROM concepts") == []
        assert await a.rows("SELECT tag FROM row_tags") == []


async def test_the_owner_stops_the_loop_and_starts_it_again(tmp_path: Path) -> None:
    async with awake(tmp_path / "a", in_turn(), mind__pause_s="0.05") as a:
        await until("some ticks", lambda: a.server.calls > 2)
        await a.do("cycle.stop")
        await until("it stopped", lambda: a.node.context.mind.status()["state"] == "stopped")
        await a.tick()  # what the stop left in the middle, if it did
        calls = a.server.calls
        assert (await a.tick())["phase"] == "committed", "the owner's own wish runs all the same"
        assert a.server.calls == calls + 1
        await a.do("cycle.start")
        await until("it thinks again", lambda: a.server.calls > calls + 2)


async def test_a_node_without_a_model_is_whole_but_for_the_loop(tmp_path: Path) -> None:
    async with awake(tmp_path / "a", in_turn(), llm__url='""') as a:
        await until("it says so", lambda: "no model" in a.node.context.mind.status()["why"])
        assert (await a.do("node.status"))["mind"]["state"] == "off"
        await a.do("diary.add", text="by hand")
        with pytest.raises(Failed, match="no model"):
            await a.tick()


async def test_undo_names_what_it_cannot_take_back(tmp_path: Path) -> None:
    script = in_turn(
        block(
            ("diary.add", {"text": "kept by a trail"}),
            ("table.create", {"name": "t", "columns": [{"name": "n", "type": "integer"}]}),
            ("table.insert", {"name": "t", "rows": [{"n": 1}]}),
            ("diary.list", {}),
        )
    )
    async with thinker(tmp_path / "a", script) as a:
        await a.tick()
        undone = await a.do("tick.undo", tick=1)
        assert undone["undone"] == 1
        assert [(one["kind"], one["id"]) for one in undone["kept"]] == [("table.create", 1), ("table.insert", 2)]


async def test_nobody_waits_for_a_process_that_never_was(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn(block(("cycle.idle", {"processes": [99999]})))) as a:
        tick = await a.ticked()
        assert "not_found" in str(tick["commands"][0]["result"])
        assert (await a.do("cycle.show"))["idle"] is None


async def test_doctor_names_a_prompt_file_that_is_none(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn()) as a:
        assert "prompts" not in {one["check"] for one in (await a.do("node.doctor"))["findings"]}
        folder = tmp_path / "a" / "prompts" / "en"
        folder.mkdir(parents=True)
        (folder / "system.md").write_text("no version\n", encoding="utf-8")
        (found,) = [one for one in (await a.do("node.doctor"))["findings"] if one["check"] == "prompts"]
        assert not found["ok"]
        assert "system.md" in found["detail"]


async def test_undo_gives_back_settings_and_whose_words_a_row_held(tmp_path: Path) -> None:
    script = in_turn(block(("cycle.mode", {"mode": "auto"}), ("cycle.set", {"responses": 1})))
    async with thinker(tmp_path / "a", script) as a:
        before = await a.do("cycle.show")
        await a.tick()
        assert (await a.do("tick.undo", tick=1)) == {"tick": 1, "undone": 2, "kept": []}
        assert await a.do("cycle.show") == before
