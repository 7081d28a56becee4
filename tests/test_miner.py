"""Proof of work beside the event loop: right, one at a time, and gone when nobody wants it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hmp_node import miner
from hmp_node.errors import Failed
from hmp_node.miner import Miner, MinerSettings
from hmp_node.wire import pow as work
from tests.e2e.harness import ROOT, environment, report, wait_for

HOPELESS = 200  # bits nobody will ever find


def children() -> set[int]:
    """Process ids of our own children that still run."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = {pid: status(pid)[:2] for pid in pids}  # state and parent
    return {pid for pid, fields in found.items() if fields[1:] == [str(os.getpid())] and fields[0] != "Z"}


def status(pid: int) -> list[str]:
    """A process's fields of /proc from its state on, [] if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


async def soon(what: str, probe: object, seconds: float = 20) -> None:
    """Let the loop run until ``probe()`` is true."""
    assert callable(probe)
    try:
        async with asyncio.timeout(seconds):
            while not probe():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what}") from None


async def test_the_smallest_nonce_is_found_and_nothing_is_left_running() -> None:
    before = children()
    text = work.stamp_text("did:hmp:agent:мир", "192.0.2.1:7000")
    nonce = await Miner().mine(text, 12)
    assert nonce == work.search(text, 0, 1_000_000, 12)
    assert nonce is not None
    assert work.prove(text, nonce, 12)
    assert children() == before


async def test_jobs_take_turns_and_status_tells_how_far_they_are() -> None:
    mining = Miner()
    assert mining.status() == {"bits": 0, "tried": 0, "waiting": 0}
    before = children()
    jobs = [asyncio.create_task(mining.mine(f"text {n}", 12)) for n in range(3)]
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, len(children() - before))
        return all(job.done() for job in jobs)

    await asyncio.sleep(0)
    assert mining.status() == {"bits": 12, "tried": 0, "waiting": 2}
    await soon("three jobs", done)
    assert most == 1
    assert [work.prove(f"text {n}", job.result() or 0, 12) for n, job in enumerate(jobs)] == [True] * 3
    assert mining.status() == {"bits": 0, "tried": 0, "waiting": 0}


async def test_progress_is_told_and_the_deadline_ends_the_search() -> None:
    before = children()
    told: list[int] = []
    mining = Miner()
    assert await mining.mine("a text", HOPELESS, progress=told.append, deadline_s=4) is None
    assert told
    assert told == sorted(told)
    assert told[0] >= miner.CHUNK
    assert children() == before


async def test_a_job_that_waits_behind_another_keeps_its_own_deadline() -> None:
    mining = Miner()
    first = asyncio.create_task(mining.mine("first", HOPELESS))
    await asyncio.sleep(0)
    assert await mining.mine("second", 1, deadline_s=0.05) is None
    first.cancel()
    await asyncio.wait([first])
    assert await mining.mine("third", 1) is not None


async def test_a_cancelled_job_takes_its_child_along_and_gives_up_its_turn() -> None:
    before = children()
    mining = Miner()
    job = asyncio.create_task(mining.mine("a text", HOPELESS))
    await soon("a child", lambda: children() - before)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert children() == before
    assert await mining.mine("a text", 8) == work.search("a text", 0, 100_000, 8)


async def test_the_child_stands_back_for_everybody_else() -> None:
    before = children()
    job = asyncio.create_task(Miner(MinerSettings(nice=7)).mine("a text", HOPELESS))
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    await soon(
        "a nice child",
        lambda: [os.getpriority(os.PRIO_PROCESS, pid) - niceness for pid in children() - before] == [7],
    )
    job.cancel()
    await asyncio.wait([job])


async def test_a_child_that_dies_is_an_error_and_the_next_job_is_not_harmed() -> None:
    before = children()
    mining = Miner()
    job = asyncio.create_task(mining.mine("a text", HOPELESS))
    await soon("a child", lambda: children() - before)
    (child,) = children() - before
    os.kill(child, 9)
    with pytest.raises(Failed, match="internal"):
        await job
    assert await mining.mine("a text", 4) is not None


async def test_more_jobs_than_may_wait_are_told_to_come_again() -> None:
    mining = Miner(MinerSettings(waiting=1))
    jobs = [asyncio.create_task(mining.mine("a text", HOPELESS)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Failed, match="busy"):
        await mining.mine("a text", 1)
    for job in jobs:
        job.cancel()
    await asyncio.wait(jobs)


async def test_secrets_in_the_environment_stay_with_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMP_PASSPHRASE", "a secret")
    before = children()
    job = asyncio.create_task(Miner().mine("a text", HOPELESS))
    await soon("a child", lambda: children() - before)
    (child,) = children() - before
    # Until its exec, the child is still a copy of ourselves.
    await soon("the miner", lambda: b"hmp_node.miner" in Path(f"/proc/{child}/cmdline").read_bytes())
    held = Path(f"/proc/{child}/environ").read_bytes()
    assert b"PYTHONPATH=" in held
    assert b"HMP_" not in held
    job.cancel()
    await asyncio.wait([job])


async def test_a_module_that_lies_in_the_current_folder_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert await Miner().mine("a text", 4) is not None


PARENT = """
import asyncio
from hmp_node.miner import Miner

async def main():
    job = asyncio.create_task(Miner().mine("a text", 200))
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def test_a_child_ends_with_its_parent_even_if_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, env=environment())
    try:
        listed = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        child = wait_for("a child", lambda: int(next(iter(listed.read_text().split()), "0")))
        wait_for("a child at work", lambda: os.getpriority(os.PRIO_PROCESS, child) > os.getpriority(os.PRIO_PROCESS, 0))
    finally:
        parent.kill()
        parent.wait()
    wait_for("the end of the child", lambda: status(child)[:1] in ([], ["Z"]))


def test_a_child_that_is_given_nothing_or_interrupted_ends_quietly() -> None:
    command = [sys.executable, "-P", "-m", "hmp_node.miner", "0"]
    env = environment(PYTHONPATH=str(ROOT))
    done = subprocess.run(command, input=b"", capture_output=True, env=env, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps({"text": "a text", "bits": HOPELESS}).encode() + b"\n")
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["tried"] > 0
        child.send_signal(2)
        assert json.loads(child.stdout.readline())["tried"] > 0, "an interrupt of the terminal is for the parent"
        child.stdin.close()
        assert child.wait(30) == 1
        assert child.stderr is not None
        assert child.stderr.read() == b""


@pytest.mark.slow
async def test_how_long_proofs_take() -> None:
    """Figures, never a verdict: seconds for 16, 20 and 22 bits, the child's start included."""
    mining = Miner()
    figures: dict[str, object] = {}
    for bits, count in ((16, 6), (20, 4), (22, 3)):
        took, tried = [], 0
        for n in range(count):
            begun = time.monotonic()
            nonce = await mining.mine(work.stamp_text(f"did:hmp:agent:{n}", "192.0.2.1:7000"), bits)
            took.append(time.monotonic() - begun)
            assert nonce is not None
            tried += nonce + 1
        figures[f"{bits} bits"] = {
            "median_s": round(sorted(took)[count // 2], 3),
            "most_s": round(max(took), 3),
            "nonces_a_second": round(tried / sum(took)),
            "expected_s": round(2**bits * sum(took) / tried, 2),
        }
    report("mining", figures)
