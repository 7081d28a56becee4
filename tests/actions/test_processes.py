"""shell.run and process.*: what may run, how many, and what the rows of the process log say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hmp_node.actions import shell
from hmp_node.actions.actors import Llm, Mcp, Peer
from hmp_node.actions.mind_settings import SandboxSettings
from hmp_node.actions.registry import REGISTRY
from hmp_node.errors import Denied, Deny
from hmp_node.store import process_log
from hmp_node.store.database import Tx
from tests.actions.minds import EVE, ask, code, command, undo
from tests.actions.sides import Side
from tests.agent.machines import end, machine, needs_sandbox, row

ALLOW = ("echo", "/usr/bin/sleep", "cat", "head -c|[0-9]+|/dev/[a-z]+")


@pytest.fixture
async def runner(alice: Side) -> AsyncIterator[Side]:
    async with machine(alice, SandboxSettings(shell=True, allow=ALLOW, processes=2, term_s=0.5, timeout_max_s=100)):
        yield alice


async def add(side: Side, status: str, value: str = "{}", name: str = "note.list") -> int:
    async def work(tx: Tx) -> int:
        return await process_log.add(tx, name=name, value=value, status=status, now=side.context.now(), llm_id=None)

    return await side.db.write(work)


# --- the list ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "argv"),
    [
        ("echo", ["echo"]),
        ("echo", ["echo", "hello", "молоко", "a.txt", "x/y-z", "a=b"]),
        ("echo", ["/usr/bin/echo", "x"]),
        ("/usr/bin/echo", ["echo"]),
        ("/bin/echo", ["echo"]),
        ("echo", ["/usr/bin/../bin/echo"]),
        ("echo .*", ["echo", "-n", "a b", "$(id)", ""]),
        ("git [a-z-]+", None),
        ("head -c|[0-9]+", ["head", "-c", "5"]),
    ],
)
def test_what_the_list_lets_pass(allow: str, argv: list[str] | None) -> None:
    if argv is not None:
        passed = shell.check([allow], argv)
        assert passed[0] == f"/usr/bin/{argv[0].rpartition('/')[2]}"
        assert list(passed[1:]) == argv[1:]


@pytest.mark.parametrize(
    ("allow", "argv"),
    [
        ((), ["echo"]),
        (("echo",), ["cat"]),
        (("echo",), ["echoes"]),
        (("echo",), ["echo;id"]),
        (("echo",), ["echo", "-n"]),
        (("echo",), ["echo", "--version"]),
        (("echo",), ["echo", "a b"]),
        (("echo",), ["echo", "a;id"]),
        (("echo",), ["echo", "$(id)"]),
        (("echo",), ["echo", "a\nb"]),
        (("echo",), ["echo", ""]),
        (("find",), ["find", ".", "-exec", "id", "{}", "+"]),
        (("find .",), ["find", "xy"]),
        (("head -c|[0-9]+",), ["head", "-c", "5x"]),
        (("head -c|[0-9]+",), ["head", "-c5"]),
        (("head a", "head b"), ["head", "a", "b"]),
        (("echo .*",), ["echo", "a\nb"]),
        (("echo ",), ["echo", "-n"]),
        (("echo [",), ["echo"]),
        (("",), [""]),
        (("/etc/passwd",), ["/etc/passwd"]),
        (("usr/bin/echo",), ["usr/bin/echo"]),
        (("../bin/echo",), ["../bin/echo"]),
        (("/usr/bin",), ["/usr/bin"]),
    ],
)
def test_what_it_does_not(allow: tuple[str, ...], argv: list[str]) -> None:
    with pytest.raises(Denied) as caught:
        shell.check(allow, argv)
    assert caught.value.code == Deny.NOT_ALLOWED


def test_a_program_that_leads_out_of_usr_is_none(tmp_path: Path) -> None:
    own = tmp_path / "echo"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    (tmp_path / "link").symlink_to("/usr/bin/echo")
    for path in (own, tmp_path / "link"):
        assert shell.locate(str(path)) is None
        with pytest.raises(Denied):
            shell.check([str(path)], [str(path)])


# --- running ----------------------------------------------------------------------------------------------


@needs_sandbox
@pytest.mark.parametrize("name", ["shell.run", "process.start"])
async def test_a_program_runs_and_its_row_says_so(runner: Side, name: str) -> None:
    started = await runner.do(name, argv=["echo", "hello"])
    status, value = await end(runner, started.process_id)
    assert (status, value["argv"], value["tail"]) == ("ok", ["/usr/bin/echo", "hello"], "hello\n")
    assert (await row(runner, started.process_id)).name == name
    output = await runner.do("process.output", id=started.process_id, tail=3)
    assert (output.output, output.status) == ("lo\n", "ok")
    author = f"process:{started.process_id}"
    assert list(REGISTRY["process.output"].authors(output)) == [author]
    page = await runner.do("process.list")
    assert [view.id for view in page.processes] == [started.process_id]
    assert list(REGISTRY["process.list"].authors(page)) == [author]


@needs_sandbox
async def test_a_command_of_the_model_has_that_row_for_its_own(runner: Side) -> None:
    started = await runner.actions.perform(Llm("m1"), "shell.run", {"argv": ["echo", "hi"]})
    await end(runner, started.process_id)
    assert (await row(runner, started.process_id)).llm_id == "m1"
    assert await code(runner, "shell.run", by=command(1, EVE), argv=["echo"]) == "needs_approval"
    assert await code(runner, "process.stop", by=command(1, EVE), id=started.process_id) == "needs_approval"
    page = await ask(runner, command(1, EVE), "process.list")
    assert len(page.processes) == 1


@needs_sandbox
async def test_an_approved_one_keeps_the_taint(runner: Side) -> None:
    started = await ask(runner, command(1, EVE, approved=True), "shell.run", argv=["echo", "hi"])
    await end(runner, started.process_id)
    (view,) = (await runner.do("process.list")).processes
    assert view.taint == sorted([EVE.author, f"process:{started.process_id}"])


@needs_sandbox
async def test_only_so_many_at_once(runner: Side) -> None:
    ids = [(await runner.do("process.start", argv=["sleep", "300"])).process_id for _ in range(2)]
    assert await code(runner, "process.start", argv=["sleep", "300"]) == "too_many"
    assert await code(runner, "shell.run", argv=["echo"]) == "too_many"
    stopped = await runner.do("process.stop", id=ids[0])
    assert (stopped.stopped, stopped.status) == (True, "warning")
    third = (await runner.do("process.start", argv=["sleep", "300"])).process_id
    page = await runner.do("process.list", status="in_progress")
    assert [view.id for view in page.processes] == [third, ids[1]]
    assert (await runner.do("process.stop", id=ids[0])).stopped is False
    assert await code(runner, "process.stop", id=999) == "not_found"


@needs_sandbox
async def test_a_deadline_of_its_own(runner: Side) -> None:
    started = await runner.do("process.start", argv=["sleep", "300"], timeout_s=0.2)
    assert (await end(runner, started.process_id))[0] == "timeout"
    assert await code(runner, "process.start", argv=["sleep", "1"], timeout_s=101) == "bad_argument"
    assert await code(runner, "process.start", argv=["sleep", "1"], timeout_s=0) == "bad_argument"
    assert await code(runner, "process.start") == "bad_argument"


@needs_sandbox
async def test_what_is_not_allowed_leaves_no_row(runner: Side) -> None:
    assert await code(runner, "shell.run", argv=["rm", "-rf", "/"]) == "not_allowed"
    assert await code(runner, "shell.run", argv=["echo", "-e"]) == "not_allowed"
    assert await runner.rows("SELECT * FROM process_log") == []
    assert await runner.rows("SELECT * FROM process_runs") == []


@needs_sandbox
async def test_switched_off_for_everybody(alice: Side) -> None:
    async with machine(alice, SandboxSettings(scripts=True, files=True, allow=ALLOW)):
        for actor in (None, Llm("m1")):
            for name in ("shell.run", "process.start"):
                assert await code(alice, name, actor, argv=["echo"]) == "switched_off"


async def test_who_may_use_the_machine(alice: Side) -> None:
    for actor in (Mcp("editor"), Peer("did:hmp:agent:x")):
        for name, args in (
            ("shell.run", {"argv": ["echo"]}),
            ("process.stop", {"id": 1}),
            ("file.read", {"path": "/x"}),
        ):
            assert await code(alice, name, actor, **args) == "no_capability"


# --- the rows ---------------------------------------------------------------------------------------------


async def test_closing_hides_what_has_ended(alice: Side) -> None:
    ids = [await add(alice, status) for status in (*process_log.FINAL, "in_progress", "pending")]
    closed = await alice.do("process.close", ids=ids)
    assert (closed.closed, closed.live) == (len(process_log.FINAL), ids[-2:])
    assert [view.id for view in (await alice.do("process.list")).processes] == ids[:-3:-1]
    assert len((await alice.do("process.list", status="close")).processes) == len(process_log.FINAL)
    assert (await alice.do("process.close", ids=ids[:2])).closed == 0
    assert await code(alice, "process.close", ids=[ids[0], 999]) == "not_found"


async def test_closing_under_taint_runs_and_is_taken_back(alice: Side) -> None:
    process_id = await add(alice, "error", '{"x": 1}')
    before = await row(alice, process_id)
    await ask(alice, command(2, EVE), "process.close", ids=[process_id])
    assert (await row(alice, process_id)).status == "close"
    await undo(alice, 2)
    assert await row(alice, process_id) == before


async def test_lists_page_and_cut(alice: Side) -> None:
    long = json.dumps({"text": "ж" * 5000}, ensure_ascii=False)
    ids = [await add(alice, "ok", long) for _ in range(5)]
    page = await alice.do("process.list", limit=3)
    assert ([view.id for view in page.processes], page.more) == (ids[:1:-1], True)
    assert all(view.cut and len(view.value) == 1000 and view.taint == [] for view in page.processes)
    page = await alice.do("process.list", limit=3, before=ids[2])
    assert ([view.id for view in page.processes], page.more) == (ids[1::-1], False)
    output = await alice.do("process.output", id=ids[0], tail=5)
    assert (output.output, output.taint) == ('ж"}', [])
    assert await code(alice, "process.output", id=999) == "not_found"
