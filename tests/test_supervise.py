"""A job that dies is started again, counted and told of."""

from __future__ import annotations

import asyncio

import pytest

from hmp_node import supervise


async def test_a_dying_job_is_restarted_counted_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """LXMF 31."""
    monkeypatch.setattr(supervise, "FIRST_PAUSE", 0.001)
    lives, told, steady = 0, list[str](), asyncio.Event()

    async def job() -> None:
        nonlocal lives
        lives += 1
        if lives == 1:
            raise RuntimeError("the first life")
        if lives == 2:
            return
        steady.set()
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        supervisor = supervise.Supervisor(group, lambda job: told.append(f"{job.state}: {job.last_error}"))
        task = supervisor.keep("mesh", job)
        async with asyncio.timeout(5):
            await steady.wait()
        shown = supervisor.jobs["mesh"]
        assert (shown.state, shown.restarts, shown.last_error) == ("running", 2, "it ended by itself")
        assert told[0] == "restarting: RuntimeError: the first life"
        task.cancel()


async def test_other_jobs_live_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "FIRST_PAUSE", 0.001)
    turns = 0

    async def good() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def bad() -> None:
        raise OSError("again")

    async with asyncio.TaskGroup() as group:
        supervisor = supervise.Supervisor(group)
        tasks = [supervisor.keep("good", good), supervisor.keep("bad", bad)]
        async with asyncio.timeout(5):
            while supervisor.jobs["bad"].restarts < 3:
                before = turns
                await asyncio.sleep(0.001)
                assert turns > before
        assert supervisor.jobs["good"].restarts == 0
        for task in tasks:
            task.cancel()
