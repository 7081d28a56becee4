"""A worker for tests: it answers, waits, dies or babbles, as it is asked; its threads and frames are the real ones."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmp_node.index import child


class Tasks:
    """Does what the test says."""

    def __init__(self, cache: Path) -> None:
        pass

    def do(self, operation: str, argument: Mapping[str, Any]) -> Any:
        if operation == "echo":
            return argument["text"]
        if operation == "hold":  # until the file is gone
            while Path(argument["file"]).exists():
                time.sleep(0.005)
            return "released"
        if operation == "die":
            os.kill(os.getpid(), 9)
        if operation == "die_once":
            mark = Path(argument["file"])
            if not mark.exists():
                mark.touch()
                os._exit(3)
            return "second life"
        if operation == "print":
            print("between the answers")
            sys.stderr.write("a word for the log\n")
            sys.stderr.flush()
            return "printed"
        if operation == "large":
            return b"x" * (33 * 1024 * 1024)
        if operation == "nice":
            import threading

            return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        raise ValueError(operation)


if __name__ == "__main__":
    vars(child)["Tasks"] = Tasks
    sys.exit(child.main())
