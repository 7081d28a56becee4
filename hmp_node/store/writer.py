"""The one writer of an SQLite store: a thread that owns its connection and commits in groups (DESIGN 6).

Whatever waits is taken into one ``BEGIN IMMEDIATE`` transaction and committed once with ``synchronous=FULL``;
then the results go back to the event loop in one call. If one of the works fails they are all undone and run
again with a savepoint each, so that it undoes itself alone. A work is a coroutine over `Tx` whose methods never
suspend, so the thread drives it with a single ``send(None)``: no loop in the thread, no hand-over between
statements.

One group costs one fsync, whatever its size.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from hmp_node.errors import Failed, Failure
from hmp_node.store.database import Facts, Finisher, Listener, Work
from hmp_node.store.sqlite_tx import Group, SqliteTx, drive, explain

logger = logging.getLogger("hmp_node.store")

Probe = Callable[[str], None]


@dataclass(slots=True, eq=False)
class _Job:
    """One waiting work and the future of whoever waits for it."""

    work: Work[Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Space(Protocol):
    """Knows whether there is room to write."""

    def check(self) -> None:
        """Raise `Failed` (``disk_full``) while there is too little room."""
        ...

    def forget(self) -> None:
        """Look again next time."""
        ...


class Writer:
    """The thread. Made and closed on the event loop; hooks are registered before the first write.

    ``connect`` is called in the thread, at the start and again after the connection was lost. Raises from
    `start` whatever it raises.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        group_max: int,
        space: Space,
        probe: Probe,
        on_health: Callable[[Failed | None], None],
    ) -> None:
        self.finishers: list[Finisher] = []
        self.hooks: list[Listener] = []
        self.listeners: list[Listener] = []
        self._connect = connect
        self._group_max = group_max
        self._space = space
        self._probe = probe
        self._on_health = on_health
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        # Not a daemon's work, but a store that nobody closed must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._stopped: asyncio.Future[None] = self._loop.create_future()

    async def start(self) -> None:
        """Start the thread; returns once its connection is open (and the schema up to date)."""
        self._thread.start()
        await asyncio.shield(self._started)

    def submit(self, work: Work[Any]) -> asyncio.Future[Any]:
        """Queue ``work``; the future resolves after the commit of its group."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put(_Job(work, future))
        return future

    async def stop(self) -> None:
        """Commit what is queued, close the connection, end the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            await asyncio.shield(self._stopped)
        self._thread.join()

    # --- in the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._connection = self._connect()
        except BaseException as error:  # whoever opens the store gets it
            self._post(_settle, self._started, None, error)
            return
        self._post(_settle, self._started, None, None)
        try:
            while (jobs := self._take()) is not None:
                self._run_group(jobs)
        finally:
            if self._connection is not None:
                self._connection.close()
            self._post(_settle, self._stopped, None, None)

    def _take(self) -> list[_Job] | None:
        """Wait for a job, then take what else is waiting; None when the writer is to stop."""
        first = self._queue.get()
        if first is None:
            return None
        jobs = [first]
        while len(jobs) < self._group_max:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._queue.put(None)  # nothing is queued behind the stop: finish this group, then stop
                break
            jobs.append(job)
        return jobs

    def _run_group(self, jobs: list[_Job]) -> None:
        group: Group | None = None
        try:
            self._space.check()
            if self._connection is None:
                self._connection = self._connect()
            group = Group(self._connection)
            self._connection.execute("BEGIN IMMEDIATE")
            committed = self._run_jobs(jobs, group)
        except BaseException as error:  # one bad group must not end the writer
            self._fail(jobs, group, error)
            return
        facts = group.facts
        if committed:
            self._on_health(None)
            for hook in self.hooks:
                try:
                    hook(facts)
                except Exception:
                    logger.exception("a hook failed after the commit")
            self._probe("store.after_commit")
        self._post(self._announce, jobs, facts if committed else None)

    def _run_jobs(self, jobs: list[_Job], group: Group) -> bool:
        """Run all works and finishers and end the transaction; gives whether anything was committed."""
        if not self._run_plainly(jobs, group):
            for job in jobs:
                self._run_job(job, group)
        if all(job.error is not None for job in jobs):
            group.connection.execute("ROLLBACK")
            return False
        for finisher in self.finishers:
            tx = SqliteTx(group, group.facts)
            drive(finisher(tx, group.facts))
            tx.end()
            if group.broken is not None:
                raise group.broken
        self._probe("store.before_commit")
        group.connection.execute("COMMIT")
        return True

    def _run_plainly(self, jobs: list[_Job], group: Group) -> bool:
        """Run all works with no savepoints: they make SQLite copy each page that a work touches first.

        If one fails, the transaction is begun anew and False given: the works are run again, a savepoint each.
        """
        try:
            for job in jobs:
                tx = SqliteTx(group, group.facts)
                try:
                    job.result = drive(job.work(tx))
                finally:
                    tx.end()
                if group.broken is not None:
                    raise group.broken
        except BaseException as error:
            if group.broken is not None:
                raise
            logger.debug("a work failed: its group is run again, each work by itself", exc_info=error)
            group.connection.execute("ROLLBACK")
            group.forget(0)
            group.facts.clear()
            group.connection.execute("BEGIN IMMEDIATE")
            return False
        return True

    def _run_job(self, job: _Job, group: Group) -> None:
        connection = group.connection
        connection.execute("SAVEPOINT work")
        mark = len(group.undo)
        tx = SqliteTx(group, {})
        try:
            job.result = drive(job.work(tx))
        except BaseException as error:  # the work's own: it goes to whoever asked
            job.error = error
        tx.end()
        if group.broken is not None:
            raise group.broken
        if job.error is None:
            for topic, facts in tx.facts.items():
                group.facts.setdefault(topic, []).extend(facts)
        else:
            connection.execute("ROLLBACK TO work")
            group.forget(mark)
        connection.execute("RELEASE work")

    def _fail(self, jobs: list[_Job], group: Group | None, error: BaseException) -> None:
        """Nothing of the group was written: say so to everyone whose own work had not failed already."""
        self._rollback()
        if group is not None:
            group.forget(0)
        self._space.forget()
        failed = _typed(error)
        self._on_health(failed)
        for job in jobs:
            if job.error is None:
                job.error = Failed(cast(Failure, failed.code), failed.message, remedy=failed.remedy)
                job.error.__cause__ = error
        self._post(self._announce, jobs, None)

    def _rollback(self) -> None:
        """Leave no transaction open; a connection that cannot even do that is replaced."""
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            logger.warning("the writer's connection was lost and will be opened again", exc_info=True)
            self._connection = None
            connection.close()

    def _post(self, call: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop is gone, and with it everyone who waited
            logger.debug("the event loop closed before the store did")

    # --- back on the loop ------------------------------------------------------------------------------

    def _announce(self, jobs: list[_Job], facts: Facts | None) -> None:
        """``facts`` is None when nothing was committed."""
        if facts is not None:
            for listener in self.listeners:
                try:
                    listener(facts)
                except Exception:
                    logger.exception("a listener failed after the commit")
        for job in jobs:
            _settle(job.future, job.result, job.error)


def _typed(error: BaseException) -> Failed:
    if isinstance(error, Failed):
        return error
    if isinstance(error, sqlite3.Error):
        return explain(error)
    return Failed(Failure.INTERNAL, f"the group of writes failed: {error!r}")


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # cancelled: the caller has gone, the commit stands
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
