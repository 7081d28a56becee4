"""Processes: exits, deadlines, output, restarts (loop: 7, items 34, 35, 37)."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions.mind_settings import SandboxSettings
from hmp_node.actions.outside import Job
from hmp_node.agent.child import Output, descendants, identity, kill, last
from hmp_node.agent.processes import Processes
from hmp_node.agent.sandbox import Launch
from hmp_node.errors import Failed, Failure
from hmp_node.store import process_log, process_runs, trail
from hmp_node.store.database import Tx
from tests.actions.sides import Side, side
from tests.agent.machines import PATIENCE_S, end, is_there, machine, needs_sandbox, row, until

SETTINGS = SandboxSettings(shell=True, term_s=0.5, output_bytes=20_000, tail_bytes=1000)


@pytest.fixture
async def alice(tmp_path: Path) -> AsyncIterator[Side]:
    async with side(tmp_path / "alice", "alice") as made:
        yield made


async def enter(alice: Side, argv: tuple[str, ...] = (), *, seconds: float = 60, **run: Any) -> int:
    """The row of a process, as an action makes it before the start."""

    async def work(tx: Tx) -> int:
        moment = alice.context.moment()
        process_id = await process_log.add(
            tx, name="shell.run", value='{"argv": []}', status="pending", now=moment.text, llm_id=None
        )
        await process_runs.add(tx, process_id, argv="[]", now=moment.text, deadline=moment.plus(seconds))
        if run:
            await process_runs.started(tx, process_id, **run)
            await process_log.settle(tx, process_id, status="in_progress", value='{"argv": [], "tail": "so far"}')
        return process_id

    return await alice.db.write(work)


async def start(alice: Side, made: Processes, script: str, *, timeout_s: float = 60) -> int:
    process_id = await enter(alice)
    await made.start(Job(process_id, ("/bin/sh", "-c", script), timeout_s))
    return process_id


async def pid_of(alice: Side, process_id: int) -> int:
    run = await process_runs.find(alice.db, process_id)
    assert run is not None
    assert run.pid is not None
    return run.pid


@needs_sandbox
async def test_a_process_is_in_progress_then_ok(alice: Side) -> None:
    async with machine(alice, SETTINGS) as made:
        process_id = await start(alice, made, "echo hello; echo world >&2; read line || echo closed")
        assert (await row(alice, process_id)).status in ("in_progress", "ok")
        status, value = await end(alice, process_id)
        assert status == "ok"
        assert value["exit_code"] == 0
        assert value["tail"] == "hello\nworld\nclosed\n"
        assert value["truncated"] is False
        assert value["seconds"] >= 0
        await until(lambda: made.ended == [(process_id, "ok")])  # type: ignore[attr-defined]
        assert made.running == ()
        run = await process_runs.find(alice.db, process_id)
        assert run is not None
        assert (run.exit_code, run.finished_at is not None) == (0, True)
        assert await made.output(process_id, 6) == "losed\n"
        assert (alice.context.home / "processes").stat().st_mode & 0o777 == 0o700
        assert run.output_path is not None
        assert Path(run.output_path).stat().st_mode & 0o777 == 0o600
        taints = await trail.tainted(alice.db, trail.PROCESS, [process_id])
        assert {one.author for one in taints[process_id]} == {f"process:{process_id}"}


@needs_sandbox
@pytest.mark.parametrize(
    ("script", "code", "name"), [("exit 3", 3, None), ("kill -SEGV $$", 139, "SIGSEGV"), ("exec /no/such", 127, None)]
)
async def test_another_exit_is_an_error(alice: Side, script: str, code: int, name: str | None) -> None:
    async with machine(alice, SETTINGS) as made:
        status, value = await end(alice, await start(alice, made, script))
    assert (status, value["exit_code"], value["signal"]) == ("error", code, name)


@needs_sandbox
async def test_deadline_kills_the_whole_group(alice: Side) -> None:
    """Those too that ignore TERM and those that made sessions of their own."""
    script = (
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 301 & sleep 302' & sleep 303 & echo up; sleep 304; sleep 305"
    )
    async with machine(alice, SETTINGS) as made:
        process_id = await start(alice, made, script, timeout_s=1.5)
        pid = await pid_of(alice, process_id)
        family: list[int] = []
        for _ in range(1000):
            family = [pid, *descendants(pid)]
            if len(family) >= 7:
                break
            await asyncio.sleep(0.005)
        assert len(family) >= 7
        status, value = await end(alice, process_id)
        assert (status, value["cause"], value["tail"]) == ("timeout", "deadline", "up\n")
        await until(lambda: not any(is_there(one) for one in family), "somebody lives on")


@needs_sandbox
async def test_before_kill_it_is_asked_to_end(alice: Side) -> None:
    async with machine(alice, replace(SETTINGS, term_s=30)) as made:
        process_id = await start(alice, made, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
        while "up" not in await made.output(process_id, 100):
            await asyncio.sleep(0.01)
        assert await made.stop(process_id)
        status, value = await end(alice, process_id)
        assert (status, value["cause"], value["exit_code"]) == ("warning", "stopped", 0)
        assert value["tail"].endswith("bye\n")
        assert not await made.stop(process_id)


@needs_sandbox
async def test_what_it_left_behind_ends_with_it(alice: Side) -> None:
    async with machine(alice, SETTINGS) as made:
        process_id = await start(alice, made, "setsid sleep 300 & setsid sleep 300 & sleep 0.3; exit 0")
        pid = await pid_of(alice, process_id)
        family = [pid, *descendants(pid)]
        status, value = await end(alice, process_id)
        assert (status, value["cause"]) == ("ok", "")
        await until(lambda: not any(is_there(one) for one in family))


@needs_sandbox
@pytest.mark.slow
async def test_1_gb_of_output_keeps_memory_and_value_bounded(alice: Side) -> None:
    async with machine(alice, SETTINGS) as made:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        process_id = await start(alice, made, "echo first; head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo last")
        status, value = await end(alice, process_id)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        kept = (alice.context.home / "processes" / f"{process_id}.out").read_text()
    assert status == "ok"
    assert len(value["tail"]) == SETTINGS.tail_bytes
    assert value["tail"].endswith("xxx\nlast\n")
    assert value["truncated"] is True
    assert kept.startswith("first\nxxx")
    assert "bytes left out" in kept
    assert len(kept) < SETTINGS.output_bytes + 100
    assert grown < 64 * 1024  # KiB


@needs_sandbox
async def test_what_is_no_text_grows_nothing(alice: Side) -> None:
    async with machine(alice, SETTINGS) as made:
        process_id = await start(alice, made, "head -c 50000 /dev/zero; head -c 50000 /dev/urandom")
        status, value = await end(alice, process_id)
        size = (alice.context.home / "processes" / f"{process_id}.out").stat().st_size
    assert status == "ok"
    assert len(value["tail"].encode()) <= SETTINGS.tail_bytes
    assert "\0" not in value["tail"]
    assert size < SETTINGS.output_bytes + 100


@needs_sandbox
async def test_a_tick_sees_what_a_live_one_wrote(alice: Side) -> None:
    async with machine(alice, SETTINGS) as made:
        process_id = await start(alice, made, "echo one; sleep 300")
        while "one" not in await made.output(process_id, 100):
            await asyncio.sleep(0.01)
        await made.refresh()
        found = await row(alice, process_id)
        assert found.status == "in_progress"
        assert '"tail": "one\\n"' in (found.value or "")
        changes = await alice.value("SELECT total_changes()")
        await made.refresh()
        assert await alice.value("SELECT total_changes()") == changes
        assert await row(alice, process_id) == found
        assert made.running == (process_id,)


@needs_sandbox
async def test_secrets_are_struck_from_all_that_is_kept(alice: Side) -> None:
    alice.context.secrets = lambda: ("sesame-open",)
    async with machine(alice, SETTINGS) as made:
        process_id = await start(alice, made, "echo sesame-open; sleep 300")
        while "secret" not in await made.output(process_id, 100):
            await asyncio.sleep(0.01)
        assert await made.output(process_id, 6) == "cret]\n"
        await made.stop(process_id)
        _, value = await end(alice, process_id)
        kept = (alice.context.home / "processes" / f"{process_id}.out").read_text()
    assert value["tail"] == kept == "[secret]\n"
    assert not [name for (name,) in await alice.rows("SELECT value FROM process_log") if "sesame" in name]


async def test_missing_sandbox_denies_shell(alice: Side, tmp_path: Path) -> None:
    async with machine(alice, replace(SETTINGS, allow=("true",)), bwrap=str(tmp_path / "bwrap")) as made:
        assert "there is no" in made.problem()
        with pytest.raises(Failed) as caught:
            await alice.do("shell.run", argv=["true"])
        assert caught.value.code == Failure.NO_SANDBOX
        assert await alice.rows("SELECT * FROM process_log") == []
        with pytest.raises(Failed) as caught:
            await start(alice, made, "true")
        assert caught.value.code == Failure.NO_SANDBOX


# --- the end of the node ----------------------------------------------------------------------------------


@needs_sandbox
async def test_the_end_of_the_node_ends_its_children(alice: Side) -> None:
    async with machine(alice, SETTINGS) as made:
        process_id = await start(alice, made, "trap '' TERM; echo up; sleep 300")
        while "up" not in await made.output(process_id, 100):
            await asyncio.sleep(0.01)
        pid = await pid_of(alice, process_id)
        family = [pid, *descendants(pid)]
    status, value = await end(alice, process_id)
    assert (status, value["cause"], value["tail"]) == ("error", "node_stopped", "up\n")
    await until(lambda: not any(is_there(one) for one in family))


@needs_sandbox
async def test_one_that_has_only_begun_can_be_killed(alice: Side) -> None:
    """Bubblewrap ties its child to itself a moment after it made it."""
    chance = random.Random(5)
    for _ in range(40):
        async with machine(alice, SETTINGS) as made:
            await made.sandbox.probe()
            process = await made.sandbox.start(Launch(("/bin/sleep", "4711"), {}))
            await asyncio.sleep(chance.random() * 0.004)
            await asyncio.wait_for(kill(process), PATIENCE_S)
            assert process.returncode is not None
    await until(lambda: not [one for one in _pids() if b"sleep\x004711" in _line(one)], "a child lives on")


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


_NODE = """
import asyncio, sys
from pathlib import Path
from tests.actions.sides import side
from tests.agent.machines import machine
from tests.agent.test_processes import SETTINGS, pid_of, start
async def main():
    async with side(Path(sys.argv[1]), "alice") as alice, machine(alice, SETTINGS) as made:
        process_id = await start(alice, made, "echo up; sleep 300")
        while "up" not in await made.output(process_id, 100):
            await asyncio.sleep(0.01)
        await made.refresh()
        print(process_id, await pid_of(alice, process_id), flush=True)
        await asyncio.sleep(300)
asyncio.run(main())
"""


@needs_sandbox
async def test_after_sigkill_of_the_node_its_processes_are_offline(tmp_path: Path) -> None:
    node = subprocess.Popen(
        [sys.executable, "-c", _NODE, str(tmp_path / "alice")],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    )
    with node:
        assert node.stdout is not None
        process_id, pid = map(int, (await asyncio.to_thread(node.stdout.readline)).split())
        family = [pid, *descendants(pid)]
        assert len(family) >= 3
        node.kill()
    await until(lambda: not any(is_there(one) for one in family), "a child outlives the node")
    async with side(tmp_path / "alice", "alice") as alice, machine(alice, SETTINGS) as made:
        status, value = await end(alice, process_id)
        assert (status, value["exit_code"], value["tail"]) == ("offline", None, "up\n")
        assert made.ended == [(process_id, "offline")]  # type: ignore[attr-defined]
        assert await made.output(process_id, 100) == "up\n"


async def test_a_number_used_again_is_another_process(alice: Side) -> None:
    with subprocess.Popen(["sleep", "300"]) as other:
        try:
            boot = str(identity(other.pid)).partition(":")[0]
            reused = await enter(alice, pid=other.pid, pid_start=f"{boot}:1")
            gone = await enter(alice, pid=2**22 + 1, pid_start=f"{boot}:1")
            rebooted = await enter(alice, pid=other.pid, pid_start=f"0:{str(identity(other.pid)).partition(':')[2]}")
            never = await enter(alice)
            async with machine(alice, SETTINGS) as made:
                assert made.running == ()
            for process_id in (reused, gone, rebooted, never):
                assert (await end(alice, process_id))[0] == "offline"
            assert is_there(other.pid)
        finally:
            other.kill()


@pytest.mark.parametrize("way", ["deadline", "stop", "gone"])
async def test_the_same_process_still_there_is_watched_on(alice: Side, way: str) -> None:
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as still:
        try:
            seconds = 0.5 if way == "deadline" else 60
            process_id = await enter(alice, seconds=seconds, pid=still.pid, pid_start=identity(still.pid))
            async with machine(alice, replace(SETTINGS, term_s=0)) as made:
                assert made.running == (process_id,)
                if way == "stop":
                    assert await made.stop(process_id)
                elif way == "gone":
                    os.kill(still.pid, signal.SIGKILL)
                status, value = await end(alice, process_id)
            assert status == {"deadline": "timeout", "stop": "warning", "gone": "offline"}[way]
            assert value["tail"] == "so far"
            assert not is_there(still.pid)
        finally:
            still.kill()


async def test_a_node_that_stops_leaves_the_adopted_to_the_next(alice: Side) -> None:
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as still:
        try:
            process_id = await enter(alice, pid=still.pid, pid_start=identity(still.pid))
            async with machine(alice, SETTINGS):
                pass
            assert (await row(alice, process_id)).status == "in_progress"
            assert is_there(still.pid)
        finally:
            still.kill()


# --- upkeep -----------------------------------------------------------------------------------------------


class _FailingOnce:
    """A store whose disk is full for one write, after so many that succeed."""

    def __init__(self, db: Any, good: int) -> None:
        self._db, self._left = db, good

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    async def write(self, work: Any) -> Any:
        self._left -= 1
        if self._left == -1:
            raise Failed(Failure.DISK_FULL, "no space")
        return await self._db.write(work)


@needs_sandbox
async def test_an_end_that_could_not_be_stored_is_stored_by_the_next_tick(alice: Side) -> None:
    async with machine(alice, SETTINGS) as made:
        made._db = _FailingOnce(alice.db, good=1)
        process_id = await start(alice, made, "echo hello")
        await until(lambda: made._unsaved)
        assert (await row(alice, process_id)).status == "in_progress"
        assert made.ended == []  # type: ignore[attr-defined]
        await made.refresh()
        assert (await end(alice, process_id))[0] == "ok"
        assert made.ended == [(process_id, "ok")]  # type: ignore[attr-defined]


@needs_sandbox
async def test_a_start_that_could_not_be_stored_leaves_nothing_running(alice: Side) -> None:
    async with machine(alice, SETTINGS) as made:
        made._db = _FailingOnce(alice.db, good=0)
        with pytest.raises(Failed, match="no space"):
            await start(alice, made, "sleep 300")
        assert made.running == ()
        assert not [one for one in descendants(os.getpid()) if b"sleep\x00300" in _line(one)]


def _line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_outputs_of_rows_that_are_gone_are_deleted(alice: Side) -> None:
    folder = alice.context.home / "processes"
    folder.mkdir()
    process_id = await enter(alice)
    for name in (f"{process_id}.out", "4711.out", "notes.txt"):
        (folder / name).write_text("x")
    async with machine(alice, SETTINGS):
        pass
    assert sorted(path.name for path in folder.iterdir()) == sorted([f"{process_id}.out", "notes.txt"])


@pytest.mark.parametrize("step", [1, 3, 10, 100, 5000])
def test_output_keeps_beginning_and_end(step: int) -> None:
    written = b"".join(b"%05d " % number for number in range(500))
    output = Output(300, 120)
    for at in range(0, len(written), step):
        output.add(written[at : at + step])
    left_out = b"\n[... %d bytes left out ...]\n" % (len(written) - 300)
    assert output.whole() == written[:180] + left_out + written[-120:]
    assert output.is_full
    short = Output(300, 120)
    short.add(written[:300])
    assert short.whole() == written[:300]
    assert not short.is_full


def test_a_tail_begins_with_a_whole_character() -> None:
    text = "a🙂жб".encode()
    assert [last(text, most) for most in range(10)] == ["", "", "б", "б", "жб", "жб", "жб", "жб", "🙂жб", "a🙂жб"]
