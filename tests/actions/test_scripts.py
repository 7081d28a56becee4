"""Scripts: kept by name and version, run in the sandbox only."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hmp_node.actions.mind_settings import SandboxSettings
from hmp_node.actions.registry import REGISTRY
from hmp_node.store import trail
from tests.actions.minds import EVE, ask, code, command
from tests.actions.sides import Side
from tests.agent.machines import end, machine, needs_sandbox


@pytest.fixture
async def runner(alice: Side) -> AsyncIterator[Side]:
    async with machine(alice, SandboxSettings(scripts=True, script_bytes=1000)):
        yield alice


async def test_versions_are_kept_beside_each_other(alice: Side) -> None:
    one = await alice.do("script.add", name="sum", code="print(1)", tags=["math"], description="adds")
    two = await alice.do("script.add", name="sum", code="print(2)", version="2")
    assert (one.version, two.version, one.language, one.tags) == ("1", "2", "python", ["math"])
    assert [row.version for row in (await alice.do("script.list")).scripts] == ["2", "1"]
    assert [row.version for row in (await alice.do("script.list", tag="math")).scripts] == ["1"]
    assert (await alice.do("script.read", name="sum")).code == "print(2)"
    assert (await alice.do("script.read", name="sum", version="1")).code == "print(1)"
    assert await code(alice, "script.add", name="sum", code="x") == "name_taken"
    await alice.do("script.delete", name="sum", version="2")
    assert (await alice.do("script.read", name="sum")).code == "print(1)"
    assert await code(alice, "script.read", name="sum", version="2") == "not_found"
    assert await code(alice, "script.delete", name="sum", version="2") == "not_found"


async def test_pages(alice: Side) -> None:
    for number in range(5):
        await alice.do("script.add", name=f"s{number}", code="x")
    page = await alice.do("script.list", limit=3)
    assert ([row.name for row in page.scripts], page.more) == (["s4", "s3", "s2"], True)
    page = await alice.do("script.list", limit=3, before=page.scripts[-1].id)
    assert ([row.name for row in page.scripts], page.more) == (["s1", "s0"], False)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".x", "-x", "a b", "x" * 65])
async def test_bad_names_are_refused(alice: Side, name: str) -> None:
    assert await code(alice, "script.add", name=name, code="x") == "bad_argument"
    assert await code(alice, "script.add", name="x", code="x", version=name) == "bad_argument"


@needs_sandbox
async def test_code_is_bounded(runner: Side) -> None:
    assert await code(runner, "script.add", name="x", code="ж" * 501) == "bad_argument"


@needs_sandbox
async def test_a_script_runs_with_its_arguments(runner: Side) -> None:
    await runner.do("script.add", name="p", code="import sys; print('жук', sys.argv[1:])")
    await runner.do("script.add", name="s", code='echo "$1-$#"', language="sh")
    started = await runner.do("script.run", name="p", args=["a b", "$x"])
    status, value = await end(runner, started.process_id)
    assert (status, value["tail"]) == ("ok", "жук ['a b', '$x']\n")
    assert (value["script"], value["version"]) == ("p", "1")
    started = await runner.do("script.run", name="s", args=["a", "b"])
    assert (await end(runner, started.process_id))[1]["tail"] == "a-2\n"
    started = await runner.do("process.start", script="s", argv=["c"])
    assert (await end(runner, started.process_id))[1]["tail"] == "c-1\n"
    assert await code(runner, "script.run", name="none") == "not_found"


@needs_sandbox
async def test_a_script_that_fails_says_where(runner: Side) -> None:
    await runner.do("script.add", name="p", code="1/0")
    status, value = await end(runner, (await runner.do("script.run", name="p")).process_id)
    assert status == "error"
    assert "ZeroDivisionError" in value["tail"]


@needs_sandbox
async def test_switched_off_scripts_can_be_kept_but_not_run(alice: Side) -> None:
    async with machine(alice, SandboxSettings(shell=True)):
        await alice.do("script.add", name="p", code="print(1)")
        assert await code(alice, "script.run", name="p") == "switched_off"
        assert await code(alice, "process.start", script="p") == "switched_off"
    assert await alice.rows("SELECT * FROM process_log") == []


async def test_under_taint_adding_deleting_and_running_wait(alice: Side) -> None:
    await alice.do("script.add", name="p", code="print(1)")
    by = command(3, EVE)
    assert await code(alice, "script.add", by=by, name="q", code="x") == "needs_approval"
    assert await code(alice, "script.delete", by=by, name="p", version="1") == "needs_approval"
    assert await code(alice, "script.run", by=by, name="p") == "needs_approval"
    assert (await ask(alice, by, "script.read", name="p")).code == "print(1)"


async def test_what_was_approved_keeps_whose_words_it_goes_back_to(alice: Side) -> None:
    view = await ask(alice, command(3, EVE, approved=True), "script.add", name="q", code="x")
    assert view.taint == [EVE.author]
    page = await alice.do("script.list")
    assert list(REGISTRY["script.list"].authors(page)) == [EVE.author]
    assert list(REGISTRY["script.read"].authors(await alice.do("script.read", name="q"))) == [EVE.author]
    writes = await trail.writes_of(alice.db, 3)
    assert [(write.kind, write.row_id, write.before) for write in writes] == [("script", view.id, None)]
