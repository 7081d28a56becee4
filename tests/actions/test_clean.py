"""Tidying up: only closed processes, never the newest replies, nothing on a dry run."""

from __future__ import annotations

from typing import Any

import pytest

from hmp_node.actions import clean
from hmp_node.actions.registry import REGISTRY
from hmp_node.store import process_log, replies, trail
from hmp_node.store.trail import REPLY
from tests.actions.minds import EVE, ask, code, command, dump, undo
from tests.actions.sides import Side

CLEANING: dict[str, dict[str, Any]] = {"process.clean": {}, "reply.clean": {"keep": 1}}


async def say(side: Side, count: int) -> None:
    async def work(tx: Any) -> None:
        for number in range(count):
            role = replies.USER if number == 1 else replies.ASSISTANT
            await replies.add(tx, role=role, content=f"said {number}", llm_id="m1", now=side.context.now())
        await trail.taint(tx, REPLY, 1, [EVE])

    await side.db.write(work)


async def run(side: Side, *statuses: str) -> None:
    async def work(tx: Any) -> None:
        for status in statuses:
            now = side.context.now()
            await process_log.add(tx, name="x", value=status, status=status, now=now, llm_id=None)

    await side.db.write(work)


async def test_replies_in_pages_with_whose_words_they_go_back_to(alice: Side) -> None:
    assert (await alice.do("reply.list")).replies == []
    await say(alice, 5)
    page = await alice.do("reply.list", limit=3)
    assert ([one.content for one in page.replies], page.more) == (["said 4", "said 3", "said 2"], True)
    rest = await alice.do("reply.list", before=page.replies[-1].id)
    assert [(one.role, one.taint) for one in rest.replies] == [("user", []), ("assistant", [EVE.author])]
    assert not rest.more
    assert list(REGISTRY["reply.list"].authors(rest)) == [EVE.author]
    assert [one.content for one in await replies.last(alice.db, 2)] == ["said 3", "said 4"]
    assert await replies.count(alice.db) == 5


async def test_the_newest_replies_stay(alice: Side) -> None:
    await say(alice, 5)
    assert (await alice.do("reply.clean", keep=2)).deleted == 0, "as many as the model is shown stay"
    await alice.do("cycle.set", responses=1)
    before = await dump(alice, "llm_recent_responses")
    assert (await alice.do("reply.clean", keep=2, dry_run=True)).deleted == 3
    assert await dump(alice, "llm_recent_responses") == before
    done = await ask(alice, command(1), "reply.clean", keep=2)
    assert (done.deleted, done.more) == (3, False)
    assert [one.content for one in await replies.last(alice.db, 9)] == ["said 3", "said 4"]
    assert (await alice.do("reply.clean", keep=2)).deleted == 0
    assert (await alice.do("reply.clean", keep=5)).deleted == 0
    assert await code(alice, "reply.clean", keep=0) == "bad_argument"
    assert await code(alice, "reply.clean") == "bad_argument"
    await undo(alice, 1)
    assert await dump(alice, "llm_recent_responses") == before


async def test_only_closed_rows_of_the_process_log_go(alice: Side) -> None:
    await run(alice, "close", "ok", "error", "in_progress", "close", "timeout", "offline", "pending", "warning")
    assert (await alice.do("process.clean", dry_run=True)).deleted == 2
    assert await alice.value("SELECT COUNT(*) FROM process_log") == 9
    done = await alice.do("process.clean")
    assert (done.deleted, done.more) == (2, False)
    left = [status for (status,) in await alice.rows("SELECT status FROM process_log ORDER BY id")]
    assert left == ["ok", "error", "in_progress", "timeout", "offline", "pending", "warning"]


async def test_much_is_cleaned_in_parts(alice: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "MAX_CLEANED", 2)
    await run(alice, "close", "close", "close")
    await alice.do("cycle.set", responses=1)
    await say(alice, 4)
    for name, args in CLEANING.items():
        first, second = await alice.do(name, **args), await alice.do(name, **args)
        assert [(first.deleted, first.more), (second.deleted, second.more)] == [(2, True), (1, False)]
    assert [one.content for one in await replies.last(alice.db, 9)] == ["said 3"]


async def test_cleaning_waits_in_a_tainted_tick(alice: Side) -> None:
    await run(alice, "close")
    for name, args in CLEANING.items():
        assert await code(alice, name, by=command(2, EVE), **args) == "needs_approval"
    assert await alice.value("SELECT COUNT(*) FROM process_log WHERE status = 'close'") == 1
    assert (await ask(alice, command(2, EVE, approved=True), "process.clean")).deleted == 1
