"""Builds every room of a node, supervises its jobs, and takes it down again.

Only this module (and the command line) reads the config and opens the identity: rooms get plain values and
three callables of the identity. `run` is the whole life of a process; `opened` is a node inside another program.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hmac
import itertools
import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hmp_node import __version__, config, extras, identity, searching
from hmp_node.actions import book, queries
from hmp_node.actions.actors import Actor, Mcp, System, User, from_mesh
from hmp_node.actions.context import Context, Me, now_us
from hmp_node.actions.feed import DROPPED, Feed, FeedEvent
from hmp_node.actions.perform import Actions
from hmp_node.actions.registry import REGISTRY
from hmp_node.agent.loop import Loop
from hmp_node.errors import Failed, Failure, HmpError, Reject, Rejected
from hmp_node.finding import Finding
from hmp_node.home import Home
from hmp_node.identity import Identity
from hmp_node.index.index import Index
from hmp_node.joining import keep_joined
from hmp_node.logs import log_to
from hmp_node.mesh.events import Now
from hmp_node.mesh.machine import Mesh
from hmp_node.metrics import Metrics
from hmp_node.miner import Miner
from hmp_node.net.driver import Driver
from hmp_node.net.fetch import fetch
from hmp_node.net.interfaces import Lately
from hmp_node.net.transport import Transport
from hmp_node.presence import Announcer
from hmp_node.store import log_audit, log_redact, memory_purge
from hmp_node.store import restore as restoring
from hmp_node.store import settings as store_settings
from hmp_node.store.agent_tables import AgentTables
from hmp_node.store.copies import copy_store
from hmp_node.store.database import Tx
from hmp_node.store.log import CHAIN_ID_KEY, Chain, HeadFile, keep_head, open_chain, tell_damage
from hmp_node.store.sqlite import SqliteDatabase, open_sqlite
from hmp_node.supervise import Job, Supervisor
from hmp_node.thinking import put_together
from hmp_node.web import server
from hmp_node.web.api import build_app
from hmp_node.web.limits import ApiLimits
from hmp_node.web.mcp import Application
from hmp_node.wire.address import parse_listen
from hmp_node.wire.card import Card, encode
from hmp_node.wire.text import did_key

MESH_PORT = 7440
API_PORT = 7441
UPKEEP_SECONDS = 1.0
UPKEEP_TURNS = 3600
SWITCH_SECONDS = 0.001
OWNER_KEY = "node.did"
CARD_ADDRESSES = 8
CARD_MAILMEN = 2
REVOKED = "node.revoked"
ANNOUNCE_AGAIN = ("node.reach", "node.mailmen", REVOKED)

logger = logging.getLogger(__name__)
Probe = Callable[[str], None]
T = TypeVar("T")


def no_probe(point: str) -> None:
    """Pass a named commit point of a fault test without doing anything."""


def clock() -> Now:
    """Both clocks, now."""
    return Now(time.monotonic(), now_us())


class Node:
    """A running node: what the doors and other programs may use of it."""

    def __init__(self, home: Home, settings: config.Config, me: Identity, feed: Feed) -> None:
        self.home, self.settings, self.feed = home, settings, feed
        self.did, self.public_key = me.did, me.public_key
        self.started = clock()
        self.actions: Actions
        self.context: Context
        self.database: SqliteDatabase
        self.transport: Transport
        self.driver: Driver
        self.supervisor: Supervisor
        self.finding = Finding(settings, me, home)
        self.miner = Miner()
        self.announcer: Announcer
        self.mind: Loop
        self.index: Index
        self.api: server.Listening

    @property
    def mesh_addresses(self) -> tuple[str, ...]:
        """Where peers may connect, with real ports."""
        return self.transport.addresses

    @property
    def ready_line(self) -> str:
        """The one line that says the node is up."""
        mesh = self.mesh_addresses[0] if self.mesh_addresses else "none"
        return f"ready did={self.did} mesh={mesh} api={self.api.url}"

    def card(self) -> str:
        """Our contact card: one line to hand to a friend."""
        node, announcer = self.settings.node, self.announcer
        spots = tuple(announcer.addresses[:CARD_ADDRESSES])
        return encode(Card(self.did, spots, node.name, node.network, announcer.standpoint.mailmen_at[:CARD_MAILMEN]))

    def status(self) -> dict[str, Any]:
        """The node's own facts for `hmp-node status`."""
        jobs = self.supervisor.jobs.values()
        return {
            "version": __version__,
            "name": self.settings.node.name,
            "network": self.settings.node.network,
            "uptime_s": round(clock().mono - self.started.mono, 1),
            "api": self.api.url,
            "home": str(self.home.path),
            "store": self.database.health,
            "jobs": {
                job.name: {"state": job.state, "restarts": job.restarts, "last_error": job.last_error} for job in jobs
            },
            "net": self.transport.stats() | self.driver.stats(),
            "finders": self.finding.finders.status(),
            "mining": self.miner.status(),
            "search": self.index.status(),
        }

    def healthy(self) -> dict[str, Any]:
        """For ``/healthz``: whether the node accepts work."""
        state = self.database.health["state"]
        restarting = [job.name for job in self.supervisor.jobs.values() if job.state != "running"]
        return {"ok": state == "ok" and not restarting, "store": state, "restarting": restarting}


@contextlib.asynccontextmanager
async def opened(
    path: Path,
    *,
    listen: Sequence[str] | None = None,
    api: str | None = None,
    name: str | None = None,
    probe: Probe = no_probe,
    environment: dict[str, str] | None = None,
) -> AsyncIterator[Node]:
    """A node for the length of the block; the home is made if it is new, and held against a second process."""
    home = Home(path)
    home.prepare()
    with home.locked():
        made = _make(home, name)
        settings = config.load(home.config, os.environ if environment is None else environment)
        me = made or identity.load(home.key, _passphrase(settings))
        async with contextlib.AsyncExitStack() as stack:
            node = Node(home, settings, me, Feed())
            stack.callback(log_to(home.logs, settings.logger))
            await _build(node, me, probe, stack)
            await _serve(node, listen, api, probe, stack)
            logger.info("ready: %s %s", node.did, " ".join(node.mesh_addresses))
            yield node
            logger.info("stopping")


async def _build(node: Node, me: Identity, probe: Probe, stack: contextlib.AsyncExitStack) -> None:
    """Store, log, actions and mesh; nothing listens yet."""
    settings = node.settings
    head = HeadFile(node.home.head, probe=probe)
    stack.callback(head.close)
    node.database = await open_sqlite(node.home.store, settings=settings.store, now_us=now_us, probe=probe)
    stack.push_async_callback(node.database.close)
    await _check_owner(node.database, me, node.home)
    chain = await open_chain(node.database, random=os.urandom, public_key=me.public_key, head_file=head)
    for damage in chain.damage:
        logger.warning("the log was changed while no node ran, see `hmp-node log verify`: %s", damage.detail)
    node.transport = Transport(
        settings.net,
        network=settings.node.network,
        clock=clock,
        limits=settings.limits,
        probe=probe,
        pinned=lambda did: node.actions.pinned(did),  # noqa: PLW0108 the actions come later
    )
    node.context = Context(
        db=node.database,
        me=Me(me.did, me.public_key, settings.node.name),
        sign=me.sign,
        open_envelope=me.open_envelope,
        log=chain,
        home=node.home.path,
        settings=settings.mail,
        limits=settings.limits,
        network=settings.node.network,
        now_us=now_us,
        feed=node.feed,
        ask=lambda question, timeout: node.driver.ask(question, timeout),  # noqa: PLW0108 the driver comes later
        post=lambda event: node.driver.post(event),  # noqa: PLW0108
        status=node.status,
        card=node.card,
        mailman=settings.mailman,
        book=settings.book,
        mind_settings=settings.mind,
        llm=settings.llm,
        sandbox=settings.sandbox,
        search_settings=settings.search,
        search=node.finding.finders.search,
        look_up=node.finding.finders.look_up,
        fetch=fetch,
        is_near=Lately().is_near,
        free_bytes=node.home.free_bytes,
    )
    node.actions = Actions(node.context)
    keep_head(node.database, chain, sign=me.sign, now_us=now_us, file=head)
    await tell_damage(node.database, chain, now_us=now_us, salt=os.urandom)
    mesh = Mesh(
        me.did,
        me.public_key,
        me.static,
        settings.node.network,
        replace(
            settings.mesh,
            limits=settings.limits,
            relay_after=settings.mail.relay_after_s,
            stamp_bits=settings.mail.work_bits,
        ),
        random.SystemRandom(),
        lambda: os.urandom(32),
    )
    node.driver = Driver(
        mesh,
        node.transport,
        perform=lambda actor, action, argument: node.actions.perform(from_mesh(actor), action, argument),
        answer=lambda query: queries.answer(node.context, query),
        tell=lambda topic, data: node.feed.publish(FeedEvent(None, topic, data)),
        clock=clock,
        look_up=node.finding.look_up,
        mine=node.miner.mine,
        probe=probe,
    )
    await node.actions.start()
    for address in await book.given_names(node.context):
        node.transport.give(address)


async def _check_owner(database: SqliteDatabase, me: Identity, home: Home) -> None:
    """A store belongs to one identity for good: under another key its mail and log would be told as somebody else's."""

    async def claim(tx: Tx) -> str:
        owner = await store_settings.get(tx, OWNER_KEY)
        if owner is None:
            await store_settings.put(tx, OWNER_KEY, me.did)
        return owner or me.did

    owner = await database.write(claim)
    if owner != me.did:
        raise Failed(
            Failure.HOME_MISMATCH,
            f"The store in {home.path} belongs to {owner}, but {home.key.name} is that of {me.did}",
            remedy="put the right identity.key back, or take node.db out of the way",
        )


async def _serve(
    node: Node,
    listen: Sequence[str] | None,
    api: str | None,
    probe: Probe,
    stack: contextlib.AsyncExitStack,
) -> None:
    """Open the doors and start the jobs; undone in the reverse order."""
    settings = node.settings
    await _listen(node.transport, listen or settings.node.listen)
    stack.push_async_callback(node.transport.stop)
    finding = node.finding
    await finding.start(node.actions, node.driver.post, node.mesh_addresses)
    stack.push_async_callback(finding.stop)
    node.index = await searching.put_together(node.home, settings.search, node.context, stack=stack)
    node.database.after_commit(node.index.heard)
    node.mind = await put_together(node.home, settings, node.actions, stack=stack, probe=probe)
    node.announcer = Announcer(
        node.context,
        settings,
        bound=node.mesh_addresses,
        post=node.driver.post,
        present=finding.present,
        mine=node.miner.mine,
        leave=node.transport.leave,
    )
    group = await stack.enter_async_context(_jobs())
    node.supervisor = Supervisor(group, lambda job: _tell_job(node, job))
    await node.announcer.look()
    if node.announcer.standpoint.revoked:
        finding.revoke()
    jobs = [
        ("mesh", node.driver.run),
        ("upkeep", lambda: _upkeep(node)),
        ("announcing", node.announcer.run),
        ("proving", node.announcer.prove),
        ("following", lambda: _follow(node)),
        ("thinking", node.mind.run),
        ("indexing", node.index.run),
        ("joining", lambda: keep_joined(_as_owner(node), settings.node.join, folder=node.home.path)),
        *finding.jobs,
    ]
    tasks = [node.supervisor.keep(name, job) for name, job in jobs]
    stack.push_async_callback(_cancel, tasks)
    stack.push_async_callback(node.transport.stop)
    tokens = node.home.read_tokens()
    app = build_app(
        node.actions,
        node.feed,
        registry=REGISTRY,
        tokens=lambda given: _actor(tokens, given),
        replay=lambda after: queries.replay(node.context, after),
        health=node.healthy,
        metrics=Metrics(node.status).registry,
        version=__version__,
        mcp=lambda: _mcp(node),
        limits=ApiLimits(body_bytes=settings.api.body_bytes),
        probe=probe,
    )
    node.api = await _open_api(app, api or settings.api.listen, allow_remote=settings.api.allow_remote)
    stack.push_async_callback(node.api.close)
    node.home.publish_endpoint({"url": node.api.url, "pid": os.getpid()})
    stack.callback(node.home.withdraw_endpoint)


@contextlib.asynccontextmanager
async def _mcp(node: Node) -> AsyncIterator[Application]:
    """What answers at ``/mcp``; its SDK is imported beside the event loop. `Failed` NO_EXTRA."""

    async def call(client: str, action: str, args: dict[str, Any]) -> Any:
        return msgspec.to_builtins(await node.actions.perform(Mcp.named(client), action, args))

    door = await asyncio.to_thread(extras.load, "hmp_node.mcp_server.server", "mcp")
    async with door.application(call, body_bytes=node.settings.api.body_bytes) as application:
        yield application


@contextlib.asynccontextmanager
async def _jobs() -> AsyncIterator[asyncio.TaskGroup]:
    """One TaskGroup; what the block raises comes out as it is, not wrapped in a group of one."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _listen(transport: Transport, listen: Sequence[str]) -> None:
    """Listen where told; told nothing, on every address at our port, or at any port if another node has it."""
    if listen:
        await transport.start([parse_listen(spot) for spot in listen])
        return
    everywhere = ("::", "0.0.0.0")  # noqa: S104 peers come from anywhere; a machine without IPv6 has no "::"
    *choices, last = [(host, port) for host in everywhere for port in (MESH_PORT, 0)]
    for choice in choices:
        try:
            await transport.start([choice])
        except (Failed, Rejected):
            continue
        return
    await transport.start([last])


async def _open_api(app: Any, listen: str, *, allow_remote: bool) -> server.Listening:
    if listen:
        host, port = parse_listen(listen)
        return await server.start(app, host, port, allow_remote=allow_remote)
    try:
        return await server.start(app, "127.0.0.1", API_PORT)
    except Failed as error:
        if error.code != Failure.PORT_IN_USE:
            raise
        return await server.start(app, "127.0.0.1", 0)


def _as_owner(node: Node) -> Callable[[str, dict[str, Any]], Awaitable[object]]:
    """What stands in node.yaml is the owner's word."""
    return lambda action, args: node.actions.perform(User(), action, args)


async def _follow(node: Node) -> None:
    """Hear what happens, for those who have to do something about it."""
    async with node.feed.subscribe() as events:
        async for event in events:
            if event.topic in ANNOUNCE_AGAIN or event.data.get("did") in node.announcer.standpoint.own_mailmen:
                node.announcer.change()
            if event.topic == REVOKED:
                node.finding.revoke()
            node.finding.heard(event.topic, event.data)
            if event.topic == DROPPED:
                node.announcer.change()
                return


async def _upkeep(node: Node) -> None:
    """Once a second: show held notes that are due, close outbox rows past their time. Once an hour: tidy up."""
    for second in itertools.count():
        await asyncio.sleep(UPKEEP_SECONDS)
        actions = ["note.release", "outbox.expire"]
        actions += ["mail.upkeep", "approval.expire"] if second % 60 == 0 else []
        actions += ["node.upkeep"] if second % UPKEEP_TURNS == 0 else []
        for action in actions:
            try:
                await node.actions.perform(System(), action, {})
            except HmpError as error:  # a full disk: said by the store, tried again
                logger.warning("%s: %s", action, error)


def _tell_job(node: Node, job: Job) -> None:
    data = {"job": job.name, "state": job.state, "restarts": job.restarts, "error": job.last_error}
    node.feed.publish(FeedEvent(None, "node.health", data))


def _actor(tokens: tuple[str, str], given: str) -> Actor | None:
    is_user, is_mcp = (hmac.compare_digest(token.encode(), given.encode()) for token in tokens)
    return User() if is_user else Mcp.named("") if is_mcp else None


# --- whole processes ------------------------------------------------------------------------------------


def run(
    path: Path,
    *,
    listen: list[str] | None,
    api: str | None,
    name: str | None,
    probe: Probe = no_probe,
) -> int:
    """Run a node until SIGTERM or SIGINT; the exit code."""
    # The writer's thread asks for the interpreter at every statement; at the default 5 ms a busy loop starves it.
    sys.setswitchinterval(SWITCH_SECONDS)
    return asyncio.run(_run(path, listen=listen, api=api, name=name, probe=probe))


async def _run(path: Path, *, listen: list[str] | None, api: str | None, name: str | None, probe: Probe) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with opened(path, listen=listen, api=api, name=name, probe=probe) as node:
        # What exists now lives as long as the node: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        print(node.ready_line, flush=True)  # noqa: T201 the one line a node says on stdout
        await stop.wait()
    return 0


def init(path: Path, *, name: str | None) -> dict[str, Any]:
    """Make a home: settings, identity, store, token. Never overwrites: `Failed` HOME_EXISTS if there is an identity."""
    home = Home(path)
    home.prepare()
    with home.locked():
        me = _make(home, name)
        if me is None:
            raise Failed(
                Failure.HOME_EXISTS,
                f"There is an identity already: {identity.public_did(home.key)} in {home.path}",
                remedy="use it with `hmp-node run`, or make another home with --home DIR",
            )
        asyncio.run(_make_store(home, me))
        home.read_tokens()
    return {"did": me.did, "home": str(home.path), "config": str(home.config)}


async def _make_store(home: Home, me: Identity) -> None:
    database = await open_sqlite(home.store, settings=config.load(home.config).store, now_us=now_us)
    try:
        await _check_owner(database, me, home)
    finally:
        await database.close()


def _make(home: Home, name: str | None) -> Identity | None:
    """Write what a new home lacks; the identity if one was made."""
    if name is not None:
        _check_name(name)
    if not home.key.exists() and home.store.exists():
        raise Failed(
            Failure.KEY_MISSING,
            f"There is a store in {home.path} but no {home.key.name}: a new identity would be somebody else",
            remedy="put the identity back from a backup, or take node.db out of the way",
        )
    if not home.config.exists():
        text = _example().read_text(encoding="utf-8")
        home.config.write_text(_named(text, name), encoding="utf-8")
    if home.key.exists():
        return None
    return identity.create(home.key, os.environ.get("HMP_PASSPHRASE"))


def _check_name(name: str) -> None:
    try:
        config.NodeSettings(name=name)
    except ValueError as error:
        raise Rejected(Reject.BAD_ARGUMENT, f"{name[:80]!r} cannot be announced: {error}") from error


def _example() -> Path:
    """In an installed package beside this file, in a checkout at its top."""
    packaged = Path(__file__).parent / "node.example.yaml"
    return packaged if packaged.exists() else Path(__file__).parents[1] / "node.example.yaml"


def _named(text: str, name: str | None) -> str:
    return text if name is None else text.replace('  name: ""', f"  name: {json.dumps(name, ensure_ascii=False)}", 1)


def _passphrase(settings: config.Config) -> str | None:
    if settings.node.passphrase_file:
        return Path(settings.node.passphrase_file).read_text(encoding="utf-8").rstrip("\n")
    return os.environ.get("HMP_PASSPHRASE")


@contextlib.asynccontextmanager
async def offline(path: Path) -> AsyncIterator[Actions]:
    """Actions over the store of a home with no node running: reading only, no key opened, no mesh."""
    home = Home(path)
    did = identity.public_did(home.key)
    settings = config.load(home.config)
    database = await open_sqlite(home.store, read_only=True, settings=settings.store, now_us=now_us)
    tables = AgentTables(home.tables, settings.tables)
    stack = contextlib.AsyncExitStack()
    try:
        chain = Chain(await store_settings.get(database, CHAIN_ID_KEY) or "")
        me = Me(did, did_key(did) or b"", settings.node.name)
        context = Context(
            db=database,
            me=me,
            sign=_no_key,
            open_envelope=_no_key,
            log=chain,
            home=home.path,
            settings=settings.mail,
            limits=settings.limits,
            network=settings.node.network,
            ask=_no_mesh,
            running=False,
            tables=tables,
            status=lambda: {"running": False, "version": __version__, "home": str(home.path)},
            card=lambda: encode(Card(did, (), settings.node.name, settings.node.network)),
        )
        await searching.put_together(home, settings.search, context, stack=stack)
        yield Actions(context)
    finally:
        await stack.aclose()
        await tables.close()
        await database.close()


def _no_key(_: bytes) -> bytes:
    raise Failed(Failure.NO_NODE, "Only a running node signs and opens", remedy="start it with `hmp-node run`")


def _no_mesh(*_: Any) -> Awaitable[Any]:
    raise Failed(Failure.NO_NODE, "Only a running node reaches peers", remedy="start it with `hmp-node run`")


def backup(path: Path, target: Path) -> None:
    """Copy a home's store to ``target`` (new, 0600), consistent also while a node runs; the tables that its mind made
    for itself, if it did, to ``target`` with ``.tables`` behind."""
    home = Home(path)
    copy_store(home.store, target)
    if home.tables.exists():
        copy_store(home.tables, target.with_name(target.name + ".tables"))


def restore(path: Path, backup_file: Path, *, probe: Probe = no_probe) -> dict[str, Any]:
    """Put a backup in the place of a home's store, node stopped, after checking it; what was there is kept aside.

    Raises `Rejected` NOT_FOUND; `Failed` STORE_DAMAGED, STORE_NEWER, HOME_MISMATCH, HOME_LOCKED, and others.
    """
    home = Home(path)
    if not home.path.exists():
        raise Failed(Failure.HOME_UNUSABLE, f"There is no home at {home.path}", remedy="give it with --home DIR")
    with home.locked():
        settings = config.load(home.config)
        me = identity.load(home.key, _passphrase(settings))
        copy = restoring.take_copy(backup_file, home.store)
        try:
            rows = asyncio.run(_check_backup(copy, home, me, settings))
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + f".{now_us() % 1_000_000:06d}Z"
            aside = home.store.with_name(f"{home.store.name}.before-restore-{stamp}")
            had = home.store.exists()
            restoring.put_in_place(copy, home.store, aside, probe)
        finally:
            restoring.clear(copy)
    return {"rows": rows, "aside": str(aside) if had else None}


async def _check_backup(copy: Path, home: Home, me: Identity, settings: config.Config) -> int:
    """Whether the copy of a backup is this identity's and its log is whole; gives the rows of the log."""
    database = await open_sqlite(copy, settings=settings.store, now_us=now_us)
    try:
        await _check_owner(database, me, home)
        report = await log_audit.verify(database, public_key=me.public_key)
    finally:
        await database.close()
    if not report.ok:
        raise Failed(
            Failure.STORE_DAMAGED,
            f"the log of the backup does not verify: {report.damage[0].detail}",
            remedy="nothing was changed; take another backup",
        )
    return report.rows


def redact(path: Path, *, digest: str, reason: str) -> dict[str, Any]:
    """Take the content out of the log row with this hash, node stopped; the chain still verifies (DESIGN 6)."""
    done = _taken_out(path, lambda store, **means: log_redact.redact(store, digest, reason, **means))
    return {"seq": done.seq, "hash": done.hash}


def purge_memories(path: Path, *, ids: Sequence[int], reason: str) -> dict[str, Any]:
    """Take memories out of the store for good, node stopped, with every message of the log that holds their words."""
    done = _taken_out(path, lambda store, **means: memory_purge.purge(store, ids, reason, **means))
    return {"purged": done.memories, "redacted": done.messages}


def _taken_out(path: Path, take: Callable[..., Coroutine[Any, Any, T]]) -> T:
    """Do to the store of a home what only the owner does while no node runs, and write it into the log."""
    home = Home(path)
    if not home.path.exists():
        raise Failed(Failure.HOME_UNUSABLE, f"There is no home at {home.path}", remedy="give it with --home DIR")
    with home.locked():
        settings = config.load(home.config)
        me = identity.load(home.key, _passphrase(settings))
        head = HeadFile(home.head)
        try:
            return asyncio.run(
                take(
                    home.store,
                    by=me.did,
                    sign=me.sign,
                    head_file=head,
                    settings=settings.store,
                    now_us=now_us,
                    random=os.urandom,
                )
            )
        finally:
            head.close()
