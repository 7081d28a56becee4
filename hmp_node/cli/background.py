"""A node in the background: started for whoever needs one and finds none, and stopped again by `hmp-node stop`.

The home's lock decides: of several that start one at once, one node gets the home, and all find it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

from hmp_node.client import Client, rebuild
from hmp_node.errors import Failed, Failure, HmpError

START_S = 60.0
STOP_S = 15.0
POLL_S = 0.05


def ensure(home: Path) -> None:
    """Have a node run on ``home``: the one that does, or a new one that outlives this process.

    Raises what kept the new one from starting, or `Failed` TIMED_OUT.
    """
    if running(home) is not None:
        return
    with tempfile.TemporaryFile() as output:
        process = _start(home, output)
        _await(home, process, output)
    threading.Thread(target=process.wait, daemon=True).start()  # else it would stay a zombie for as long as we live


def running(home: Path) -> int | None:
    """The process of the node that answers on ``home``, None when none does."""
    try:
        Client(home).call("node.id")
        return int(json.loads((home / "api.json").read_text(encoding="utf-8"))["pid"])
    except Failed as error:
        if error.code != Failure.NO_NODE:
            raise
    except (OSError, ValueError):  # it went meanwhile
        pass
    return None


def stop(home: Path) -> int | None:
    """End the node on ``home`` as SIGTERM does and wait until it is gone; its process, None when none ran.

    Raises `Failed` TIMED_OUT.
    """
    pid = running(home)
    if pid is None:
        return None
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while _is_alive(pid):
        if time.monotonic() > deadline:
            raise Failed(Failure.TIMED_OUT, f"Process {pid} did not end within {STOP_S:g} s")
        time.sleep(POLL_S)
    return pid


def _start(home: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """``hmp-node run`` in a session of its own: neither the terminal nor the assistant takes it along."""
    return subprocess.Popen(  # noqa: S603 our own program
        [sys.executable, "-P", "-m", "hmp_node", "--home", str(home), "run", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.DEVNULL,  # its log is in the home
        cwd="/",  # whatever folder this was called in may go
        start_new_session=True,
    )


def _await(home: Path, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while running(home) is None:
        if time.monotonic() > deadline:
            raise Failed(Failure.TIMED_OUT, f"No node answered within {START_S:g} s", remedy="see logs/node.log")
        if process.poll() is not None and (error := _why(output)).code != Failure.HOME_LOCKED:
            raise error
        time.sleep(POLL_S)


def _why(output: IO[bytes]) -> HmpError:
    """Why the node ended, in its own words."""
    output.seek(0)
    try:
        told = json.loads(output.read())["error"]
        return rebuild(told["code"], told["message"], told["remedy"])
    except (ValueError, KeyError, TypeError):
        return Failed(Failure.INTERNAL, "The node did not start", remedy="see why with hmp-node run")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
