"""A node that kills itself with SIGKILL the n-th time it passes a named commit point.

Takes the words of ``hmp-node run`` through the environment (``CRASH_POINT``, ``CRASH_PASS``) and the command line, so
that it is the real program in all but the probe. ``CRASH_AFTER``: a point from whose first pass on they are counted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from hmp_node import node


class Bomb:
    """Counts passes of one point, in whatever thread it is passed."""

    def __init__(self, point: str, passes: int, after: str = "") -> None:
        self.point, self.left, self.after = point, passes, after

    def __call__(self, point: str) -> None:
        if point == self.after:
            self.after = ""
        if point == self.point and not self.after:
            self.left -= 1
            if self.left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    words = argparse.ArgumentParser()
    words.add_argument("--home", type=Path, required=True)
    words.add_argument("verb", choices=["run"])
    words.add_argument("--listen", action="append")
    words.add_argument("--api")
    given = words.parse_args()
    bomb = Bomb(os.environ["CRASH_POINT"], int(os.environ["CRASH_PASS"]), os.environ.get("CRASH_AFTER", ""))
    return node.run(given.home, listen=given.listen, api=given.api, name=None, probe=bomb)


if __name__ == "__main__":
    sys.exit(main())
