"""The worker process: reads questions from standard input, answers them on standard output, ends when input ends.

Two threads work, one for searches and one for the background, so that a question of a search never waits for more than
the piece of Python that the other is in. What is big is imported and loaded by whoever first needs it.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, BinaryIO

from hmp_node.index import frames
from hmp_node.index.tasks import Refused, Tasks

FOREGROUND, BACKGROUND = LANES = ("foreground", "background")
SWITCH_S = 0.0005  # a search takes the interpreter from the background so soon


def main() -> int:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it is for the parent, whose end we follow
    sys.setswitchinterval(SWITCH_S)
    # What a library prints must not come between the answers.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    server = _Server(out, Tasks(Path(sys.argv[2])), nice=int(sys.argv[1]))
    try:
        while (message := frames.read(sys.stdin.buffer)) is not None:
            server.lanes[message["lane"]].put(message)
    finally:
        os._exit(0)  # the node is gone or wants no more: nobody waits for what the threads are at


class _Server:
    """The two threads and what they share."""

    def __init__(self, out: BinaryIO, tasks: Tasks, *, nice: int) -> None:
        self._out, self._nice = out, nice
        self._tasks, self._writing = tasks, threading.Lock()
        self.lanes: dict[str, queue.SimpleQueue[dict[str, Any]]] = {lane: queue.SimpleQueue() for lane in LANES}
        for lane in LANES:
            threading.Thread(target=self._serve, args=(lane,), name=lane, daemon=True).start()

    def _serve(self, lane: str) -> None:
        if lane == BACKGROUND:
            _stand_back(self._nice)
        while True:
            answer = self._answer(self.lanes[lane].get())
            try:
                frame = frames.packed(answer)
            except frames.TooLarge as error:
                frame = frames.packed({"id": answer["id"], "error": "fault", "why": str(error)})
            try:
                with self._writing:
                    self._out.write(frame)
                    self._out.flush()
            except OSError:
                os._exit(0)

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"id": message["id"], "result": self._tasks.do(message["do"], message["with"])}
        except Refused as refused:
            return {"id": message["id"], "error": refused.kind, "why": str(refused)}
        except Exception as error:
            traceback.print_exc()
            return {"id": message["id"], "error": "fault", "why": f"{type(error).__name__}: {error}"}


def _stand_back(nice: int) -> None:
    """Lower the priority of this thread alone, where the system knows such; else of all."""
    if sys.platform == "linux":
        own = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, own, min(19, os.getpriority(os.PRIO_PROCESS, own) + nice))
    elif hasattr(os, "nice"):
        os.nice(nice)


if __name__ == "__main__":
    sys.exit(main())
