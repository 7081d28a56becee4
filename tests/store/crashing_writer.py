"""A process that writes until it is killed: ``python crashing_writer.py HOME FIRST [POINT HITS]``.

Each work makes a note and the log row that records it. A number is printed once its write has returned. With
POINT it kills itself when that commit point is reached for the HITS-th time.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from pathlib import Path

from hmp_node.store.database import Tx
from hmp_node.store.log import HeadFile, append, keep_head, open_chain
from hmp_node.store.sqlite import open_sqlite
from tests.store.kit import PUBLIC, SMALL, entry, sign


def now_us() -> int:
    return time.time_ns() // 1000


async def main(home: Path, first: int, point: str, hits: int) -> None:
    left = itertools.count(hits, -1)

    def probe(name: str) -> None:
        if name == point and next(left) <= 1:
            os.kill(os.getpid(), signal.SIGKILL)

    database = await open_sqlite(home / "node.db", settings=SMALL, now_us=now_us, probe=probe)
    head = HeadFile(home / "log.head", probe=probe)
    chain = await open_chain(database, random=os.urandom, public_key=PUBLIC, head_file=head)
    keep_head(database, chain, sign=sign, now_us=now_us, file=head)
    numbers = itertools.count(first)

    async def write_on(peer: int) -> None:
        while True:
            number = next(numbers)

            async def work(tx: Tx, number: int = number) -> None:
                await tx.insert(
                    "INSERT INTO notes (text, source, timestamp) VALUES (:text, 'user', 't')", {"text": str(number)}
                )
                await append(tx, chain, entry(str(number), peer=f"did:hmp:agent:{peer}"), salt=os.urandom)
                if number % 7 == 0:
                    raise KeyError(number)  # undone with all it did

            try:
                await database.write(work)
            except KeyError:
                continue
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()

    await asyncio.gather(*(write_on(peer) for peer in range(6)))


if __name__ == "__main__":
    home, first, point, hits = [*sys.argv[1:], "", "0"][:4]
    asyncio.run(main(Path(home), int(first), point, int(hits)))
