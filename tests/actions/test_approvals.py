"""Commands that wait for a person: how they come to wait, what decides them, and that each runs once or never."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions.actors import Llm, Mcp
from hmp_node.actions.mind_settings import MindSettings
from hmp_node.agent.commands import Cause, Commands
from hmp_node.errors import HmpError
from hmp_node.store import approvals, ticks, trail
from hmp_node.store.database import Tx
from hmp_node.store.ticks import CommandRow
from hmp_node.store.trail import Taint
from tests.actions.minds import EVE
from tests.actions.sides import Clock, Side, side

HOUR_S = 3600.0


async def planned(side: Side, tick: int, *commands: tuple[str, dict[str, Any]], taint: tuple[Taint, ...] = ()) -> Cause:
    """A tick whose commands are written down and not done yet."""
    rows = [
        CommandRow(tick, at, f"t{tick}-{at}", name, json.dumps(args), "", ticks.PENDING, None, None)
        for at, (name, args) in enumerate(commands)
    ]
    told = json.dumps(taint)
    now = side.context.now()

    async def work(tx: Tx) -> None:
        await ticks.begin(tx, tick=tick, mode="manual", llm_id="m1", prompt_hash="", manifest="{}", taint=told, now=now)
        await ticks.plan(tx, tick, reflex="{}", error=None, commands=rows)

    await side.db.write(work)
    return Cause("m1", frozenset(taint), (), {}, {})


async def run(side: Side, tick: int, cause: Cause) -> list[str]:
    """As state 7 does."""
    commands = Commands(side.actions)
    return [await commands.run(row, cause) for row in await ticks.commands(side.db, tick)]


async def tainted(side: Side, tick: int, *commands: tuple[str, dict[str, Any]]) -> list[str]:
    return await run(side, tick, await planned(side, tick, *commands, taint=(EVE,)))


async def run_approved(side: Side) -> list[str]:
    """As state 1 does."""
    commands = Commands(side.actions)
    return [await commands.run_approved(one) for one in await approvals.to_run(side.db)]


async def refused(side: Side, name: str, /, **args: Any) -> str:
    with pytest.raises(HmpError) as caught:
        await side.do(name, **args)
    return str(caught.value.code)


async def listed(side: Side, state: str | None = "waiting") -> list[Any]:
    return list((await side.do("approval.list", state=state)).approvals)


async def told(side: Side, tick: int, ordinal: int = 0) -> dict[str, Any]:
    """What is kept of a command."""
    row = await ticks.command(side.db, tick, ordinal)
    assert row is not None
    assert row.result is not None
    return dict(json.loads(row.result))


@pytest.fixture
async def waiting(alice: Side) -> Side:
    """Alice with entry 1, whose deletion waits as approval 1."""
    await alice.do("diary.add", text="keep me")
    assert await tainted(alice, 1, ("diary.delete", {"ids": [1]})) == ["queued"]
    return alice


async def entries(side: Side) -> int:
    return int(await side.value("SELECT COUNT(*) FROM diary_entries"))


async def test_a_command_waits_with_all_that_a_person_has_to_know(waiting: Side) -> None:
    (one,) = await listed(waiting)
    assert (one.id, one.tick, one.ordinal, one.llm_id) == (1, 1, 0, "m1")
    assert (one.action, one.args, one.state) == ("diary.delete", {"ids": [1]}, "waiting")
    assert one.taint == [(EVE.author, "stranger")]
    assert EVE.author in one.reason
    assert len(one.args_hash) == 64
    assert one.created_at < one.expires_at
    assert (one.decided_at, one.decided_by) == (None, None)
    assert await entries(waiting) == 1
    assert (await told(waiting, 1))["result"]["approval"] == 1
    status = await waiting.value("SELECT status FROM process_log WHERE name = 'diary.delete'")
    assert status == "pending", "the model sees it in context 2"


async def test_an_approved_command_runs_once_with_the_approver_and_its_result_is_told(waiting: Side) -> None:
    decided = await waiting.do("approval.approve", ids=[1])
    assert [(one.id, one.state) for one in decided.decided] == [(1, "approved")]
    assert await entries(waiting) == 1, "the loop runs it, not the door"
    assert await run_approved(waiting) == ["ok"]
    assert await entries(waiting) == 0
    assert await run_approved(waiting) == []
    kept = await told(waiting, 1)
    assert (kept["approved_by"], kept["status"], kept["result"]) == ("user", "ok", {"deleted": 1})
    (one,) = await listed(waiting, None)
    assert (one.state, one.decided_by) == ("approved", "user")
    rows = await waiting.rows("SELECT status, value FROM process_log WHERE name = 'diary.delete'")
    assert [(status, json.loads(value)["approved_by"]) for status, value in rows] == [("ok", "user")]
    assert await waiting.value("SELECT COUNT(*) FROM row_taint WHERE kind = 'process'") == 1
    assert (await waiting.do("log.verify")).ok


async def test_what_was_decided_is_not_decided_again(waiting: Side) -> None:
    await waiting.do("approval.approve", ids=[1, 1])
    for name in ("approval.approve", "approval.refuse"):
        assert await refused(waiting, name, ids=[1]) == "stale_approval"
    assert await run_approved(waiting) == ["ok"]
    assert await refused(waiting, "approval.approve", ids=[1]) == "stale_approval"
    assert await refused(waiting, "approval.approve", ids=[7]) == "not_found"


async def test_a_refusal_tells_the_model_and_nothing_runs(waiting: Side) -> None:
    await waiting.do("approval.refuse", ids=[1])
    assert await run_approved(waiting) == []
    assert await entries(waiting) == 1
    kept = await told(waiting, 1)
    assert (kept["status"], kept["error"]["code"]) == ("denied", "refused")
    assert await waiting.value("SELECT status FROM process_log WHERE name = 'diary.delete'") == "error"
    assert await refused(waiting, "approval.approve", ids=[1]) == "stale_approval"


async def test_it_expires_and_the_model_is_told(waiting: Side) -> None:
    waiting.clock.pass_s(waiting.context.mind_settings.approval_hours * HOUR_S - 60)
    assert (await waiting.system("approval.expire")).expired == 0
    waiting.clock.pass_s(120)
    assert await refused(waiting, "approval.approve", ids=[1]) == "stale_approval", "before anybody swept it, too"
    assert (await waiting.system("approval.expire")).expired == 1
    assert (await waiting.system("approval.expire")).expired == 0
    (one,) = await listed(waiting, "expired")
    assert one.decided_by == "system"
    assert (await told(waiting, 1))["error"]["code"] == "expired"
    assert await run_approved(waiting) == []
    assert await entries(waiting) == 1


async def test_what_was_approved_in_time_runs_after_it(waiting: Side) -> None:
    await waiting.do("approval.approve", ids=[1])
    waiting.clock.pass_s(1000 * HOUR_S)
    assert (await waiting.system("approval.expire")).expired == 0
    assert await run_approved(waiting) == ["ok"]


async def test_many_are_decided_together_or_none(waiting: Side) -> None:
    await tainted(waiting, 2, ("diary.delete", {"ids": [2]}), ("thought.delete", {"ids": [3]}))
    assert await refused(waiting, "approval.approve", ids=[1, 2, 9]) == "not_found"
    assert [one.id for one in await listed(waiting)] == [3, 2, 1]
    await waiting.do("approval.refuse", ids=[2])
    assert await refused(waiting, "approval.approve", ids=[1, 2]) == "stale_approval"
    assert [one.id for one in await listed(waiting)] == [3, 1]


@pytest.mark.parametrize("seen", [("0" * 64,), ("",)])
async def test_what_was_looked_at_is_what_runs(waiting: Side, seen: tuple[str, ...]) -> None:
    assert await refused(waiting, "approval.approve", ids=[1], args_hash=seen) == "stale_approval"
    assert await refused(waiting, "approval.approve", ids=[1], args_hash=[*seen, *seen]) == "bad_argument"
    (one,) = await listed(waiting)
    await waiting.do("approval.approve", ids=[1], args_hash=[one.args_hash])
    assert await run_approved(waiting) == ["ok"]


async def test_another_ids_hash_does_not_serve(waiting: Side) -> None:
    await tainted(waiting, 2, ("thought.delete", {"ids": [3]}))
    hashes = {one.id: one.args_hash for one in await listed(waiting)}
    assert hashes[1] != hashes[2]
    swapped = [hashes[2], hashes[1]]
    assert await refused(waiting, "approval.approve", ids=[1, 2], args_hash=swapped) == "stale_approval"
    assert len(await listed(waiting)) == 2


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE approvals SET args = '{\"ids\": [2]}'",
        "UPDATE approvals SET action = 'thought.delete'",
        "UPDATE approvals SET args_hash = 'x'",
    ],
)
async def test_an_approval_of_other_arguments_approves_nothing(waiting: Side, change: str) -> None:
    async def work(tx: Tx) -> None:
        await tx.execute(change)

    await waiting.db.write(work)
    assert await refused(waiting, "approval.approve", ids=[1]) == "stale_approval"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE approvals SET args = '{\"ids\": [2]}'",
        "UPDATE tick_commands SET args = '{\"ids\": [2]}'",
        "UPDATE tick_commands SET type = 'thought.delete'",
    ],
)
async def test_arguments_changed_after_the_approval_do_not_run(waiting: Side, change: str) -> None:
    for text in ("two", "three"):
        await waiting.do("diary.add", text=text)
    await waiting.do("thought.add", content="mine")
    await waiting.do("approval.approve", ids=[1])

    async def work(tx: Tx) -> None:
        await tx.execute(change)

    await waiting.db.write(work)
    assert await run_approved(waiting) == ["error"]
    assert (await told(waiting, 1))["error"]["code"] == "stale_approval"
    assert await entries(waiting) == 3
    assert await waiting.value("SELECT COUNT(*) FROM llm_memory") == 1


@pytest.mark.parametrize("actor", [Llm("m1"), Mcp("helper")])
@pytest.mark.parametrize("name", ["approval.approve", "approval.refuse", "approval.clear", "approval.tainted"])
async def test_only_the_owner_decides(waiting: Side, actor: Any, name: str) -> None:
    args: dict[str, Any] = {"rows": [{"kind": "diary", "id": 1}]} if name == "approval.clear" else {"ids": [1]}
    with pytest.raises(HmpError) as caught:
        await waiting.do(name, actor, **args)
    assert str(caught.value.code) == "no_capability"
    assert len(await listed(waiting)) == 1


async def test_a_model_that_asks_to_approve_is_denied_and_does_not_even_wait(waiting: Side) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("approval.approve", {"ids": [1]}),
        ("approval.clear", {"rows": [{"kind": "diary", "id": 1}]}),
    ]
    assert await tainted(waiting, 2, *asked) == ["denied", "denied"]
    assert await run(waiting, 3, await planned(waiting, 3, *asked)) == ["denied", "denied"]
    assert [one.id for one in await listed(waiting, None)] == [1]


async def test_only_so_many_wait(tmp_path: Path) -> None:
    async with side(tmp_path / "a", "alice") as alice:
        alice.context.mind_settings = MindSettings(approvals=2)
        asked = [("diary.delete", {"ids": [number]}) for number in range(1, 5)]
        assert await tainted(alice, 1, *asked) == ["queued", "queued", "denied", "denied"]
        assert (await told(alice, 1, 2))["error"]["code"] == "too_many"
        await alice.do("approval.refuse", ids=[1])
        assert await tainted(alice, 2, ("diary.delete", {"ids": [9]})) == ["queued"]
        assert len(await listed(alice)) == 2


async def test_it_outlasts_a_restart_decided_or_not(tmp_path: Path, clock: Clock) -> None:
    async with side(tmp_path / "a", "alice", clock=clock) as alice:
        await alice.do("diary.add", text="one")
        await alice.do("diary.add", text="two")
        await tainted(alice, 1, ("diary.delete", {"ids": [1]}), ("diary.delete", {"ids": [2]}))
        await alice.do("approval.approve", ids=[1])
    async with side(tmp_path / "a", "alice", clock=clock) as alice:
        assert [one.id for one in await listed(alice)] == [2]
        assert await run_approved(alice) == ["ok"]
        await alice.do("approval.approve", ids=[2])
    async with side(tmp_path / "a", "alice", clock=clock) as alice:
        assert await run_approved(alice) == ["ok"]
        assert await run_approved(alice) == []
        assert await entries(alice) == 0


async def test_an_external_one_that_a_crash_cut_off_is_unknown_and_not_repeated(alice: Side) -> None:
    assert await tainted(alice, 1, ("process.start", {"argv": ["true"]})) == ["queued"]
    await alice.do("approval.approve", ids=[1])
    await alice.db.write(lambda tx: ticks.start(tx, 1, 0))
    assert await run_approved(alice) == ["unknown"]
    assert await run_approved(alice) == []
    assert "not known" in (await told(alice, 1))["result"]["message"]


async def test_an_approved_command_that_fails_is_told_and_is_over(alice: Side) -> None:
    await tainted(alice, 1, ("diary.delete", {"ids": [99]}), ("shell.run", {"argv": ["true"]}))
    await alice.do("approval.approve", ids=[2, 1])
    assert sorted(await run_approved(alice)) == ["denied", "error"]
    assert await run_approved(alice) == []
    assert (await told(alice, 1))["error"]["code"] == "not_found"
    assert (await told(alice, 1, 1))["error"]["code"] == "switched_off", "an approval opens no switch"


async def test_what_an_approved_command_writes_keeps_the_taint(alice: Side) -> None:
    await tainted(alice, 1, ("script.add", {"name": "s", "version": "1", "code": "print()", "language": "python"}))
    await alice.do("approval.approve", ids=[1])
    alice.context.sandbox = type(alice.context.sandbox)(scripts=True)
    assert await run_approved(alice) == ["ok"]
    assert await alice.rows("SELECT kind, author FROM row_taint WHERE kind = 'script'") == [("script", EVE.author)]


async def test_bad_arguments_do_not_wait(alice: Side) -> None:
    """A person is asked only about what could run at all."""
    asked: list[tuple[str, dict[str, Any]]] = [
        ("diary.delete", {"ids": "all"}),
        ("no.such", {}),
        ("note.send", {"to": [], "text": 1}),
    ]
    assert await tainted(alice, 1, *asked) == ["error", "error", "error"]
    assert await listed(alice, None) == []


# --- rows -------------------------------------------------------------------------------------------------


async def test_rows_are_cleared_by_a_person_and_tainted_again_by_new_words(alice: Side) -> None:
    await tainted(alice, 1, ("diary.add", {"text": "from her"}), ("thought.add", {"content": "of hers"}))
    listed_rows = (await alice.do("approval.tainted")).rows
    assert {(row.kind, row.id) for row in listed_rows} >= {("diary", 1), ("thought", 1)}
    assert {tuple(row.authors) for row in listed_rows} == {(EVE.author,)}
    assert "from her" in {row.text for row in listed_rows}
    cleared = await alice.do("approval.clear", rows=[{"kind": "diary", "id": 1}])
    assert cleared.cleared == 1
    assert await trail.tainted(alice.db, "diary", [1]) == {}
    assert set(await trail.tainted(alice.db, "thought", [1])) == {1}
    await tainted(alice, 2, ("diary.update", {"id": 1, "text": "her newer words"}))
    assert set(await trail.tainted(alice.db, "diary", [1])) == {1}


@pytest.mark.parametrize(
    ("row", "code"), [({"kind": "diary", "id": 9}, "not_found"), ({"kind": "secrets", "id": 1}, "bad_argument")]
)
async def test_what_is_no_row_is_not_cleared_nor_anything_beside_it(alice: Side, row: Any, code: str) -> None:
    await tainted(alice, 1, ("diary.add", {"text": "from her"}))
    assert await refused(alice, "approval.clear", rows=[{"kind": "diary", "id": 1}, row]) == code
    assert set(await trail.tainted(alice.db, "diary", [1])) == {1}


@pytest.mark.parametrize("most", [1, 3])
async def test_a_tainted_tick_writes_only_so_many_rows(alice: Side, most: int) -> None:
    alice.context.mind_settings = MindSettings(tainted_writes=most)
    asked = [("diary.add", {"text": f"entry {number}"}) for number in range(5)]
    assert await tainted(alice, 1, *asked) == ["ok"] * most + ["denied"] * (5 - most)
    assert await entries(alice) == most
    assert (await told(alice, 1, most))["error"]["code"] == "too_many"
    links = [{"to": f"c{number}", "relation": "is"} for number in range(5)]
    assert await tainted(alice, 2, ("concept.add", {"name": "c", "links": links})) == ["denied"]
    assert await alice.value("SELECT COUNT(*) FROM concepts") == 0, "one command writes all of it or nothing"
    assert await run(alice, 3, await planned(alice, 3, *asked)) == ["ok"] * 5, "a tick without taint has no such cap"


async def test_undo_takes_back_what_a_tainted_tick_wrote_and_no_taint_is_washed_off(alice: Side) -> None:
    await alice.do("diary.add", text="mine")
    await tainted(alice, 1, ("diary.add", {"text": "hers"}), ("diary.update", {"id": 1, "text": "hers too"}))
    await run(alice, 2, await planned(alice, 2, ("diary.delete", {"ids": [2]})))
    assert (await alice.do("tick.undo", tick=2)).undone == 1
    assert set(await trail.tainted(alice.db, "diary", [2])) == {2}, "the row is back, and so is whose words it holds"
    assert (await alice.do("tick.undo", tick=1)).undone == 2
    assert await alice.rows("SELECT id, text FROM diary_entries") == [(1, "mine")]


async def test_merging_and_linking_carry_the_taint_on(alice: Side) -> None:
    await alice.do("concept.add", name="mine")
    await tainted(alice, 1, ("concept.add", {"name": "hers", "description": "her words"}))
    merge = ("concept.merge", {"from": "hers", "into": "mine"})
    assert await run(alice, 2, await planned(alice, 2, merge)) == ["ok"]
    assert set(await trail.tainted(alice.db, "concept", [1])) == {1}


async def test_the_model_is_told_of_its_wait_in_few_words(waiting: Side) -> None:
    shown = json.loads(str(await waiting.value("SELECT value FROM process_log WHERE name = 'diary.delete'")))
    assert shown["status"] == "queued"
    assert set(shown["result"]) == {"approval", "reason", "hint"}


async def test_all_rows_are_cleared_at_once(alice: Side) -> None:
    async def work(tx: Tx) -> None:
        for number in (1, 2):
            await trail.taint(tx, trail.DIARY, number, [EVE, Taint("outside", "data")])

    await alice.db.write(work)
    assert len((await alice.do("approval.tainted")).rows) == 2
    with pytest.raises(HmpError, match="name the rows"):
        await alice.do("approval.clear")
    assert (await alice.do("approval.clear", all=True)).cleared == 2
    assert (await alice.do("approval.tainted")).rows == []
