"""The gate: arguments, strings, capabilities, once-only keys, and what is kept of refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hmp_node.actions import perform
from hmp_node.actions.actors import Llm, Mcp, Peer, System, User
from hmp_node.actions.perform import QUIET_US, Actions
from hmp_node.actions.registry import REGISTRY
from hmp_node.actions.send import NoteSend, Sent
from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.store.database import StoreSettings, Tx
from hmp_node.store.sqlite import open_sqlite
from tests.actions.sides import Key, Side, meet, side


async def code(side_: Side, name: str, /, **args: Any) -> str:
    with pytest.raises(HmpError) as caught:
        await side_.do(name, **args)
    return str(caught.value.code)


async def test_an_unknown_action_is_named(alice: Side) -> None:
    with pytest.raises(Rejected, match=r"note\.fly") as caught:
        await alice.do("note.fly")
    assert caught.value.code is Reject.UNKNOWN_ACTION


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({}, "to"),
        ({"to": ["x"]}, "text"),
        ({"to": "bob", "text": "x"}, "to"),
        ({"to": [], "text": "x"}, "to"),
        ({"to": ["x"] * 65, "text": "x"}, "to"),
        ({"to": ["x"], "text": 5}, "text"),
        ({"to": ["x"], "text": "x", "priority": "1"}, "priority"),
        ({"to": ["x"], "text": "x", "priority": 3}, "priority"),
        ({"to": ["x"], "text": "x", "priority": True}, "priority"),
        ({"to": ["x"], "text": "x", "ttl_s": 0}, "ttl_s"),
        ({"to": ["x"], "text": "x", "links": [""]}, "links"),
        ({"to": ["x"], "text": "x", "subject": "y"}, "subject"),
    ],
)
async def test_wrong_arguments_name_the_field(alice: Side, args: dict[str, object], named: str) -> None:
    with pytest.raises(Rejected, match=named) as caught:
        await alice.actions.perform(User(), "note.send", args)
    assert caught.value.code is Reject.BAD_ARGUMENT


async def test_arguments_come_as_a_mapping_or_as_their_struct(alice: Side, bob: Side) -> None:
    sent = await alice.actions.perform(User(), "note.send", NoteSend((bob.did,), "one"))
    assert isinstance(sent, Sent)
    for wrong in (NoteSend((bob.did,), 7), [1], "text", None, msgspec.Raw(b"")):  # type: ignore[arg-type]
        with pytest.raises(Rejected) as caught:
            await alice.actions.perform(User(), "note.send", wrong)
        assert caught.value.code is Reject.BAD_ARGUMENT


async def test_a_container_comes_with_what_the_mesh_knows_of_it(alice: Side, bob: Side) -> None:
    note = bob.note(alice)
    argument: dict[str, object] = {"container": note, "arrival": "192.0.2.1", "bringer": bob.did, "stamp": 7}
    assert (await alice.actions.perform(Peer(bob.did), "note.receive", argument)).state == "delivered"
    for bad in ({}, {"container": "x"}, {"container": None, "arrival": "x"}):
        with pytest.raises(Rejected) as caught:
            await alice.actions.perform(Peer(bob.did), "note.receive", bad)
        assert caught.value.code is Reject.BAD_ARGUMENT


async def test_a_container_goes_only_where_one_is_taken(alice: Side, bob: Side) -> None:
    note = bob.note(alice)
    with pytest.raises(Rejected) as caught:
        await alice.actions.perform(User(), "note.list", note)
    assert caught.value.code is Reject.BAD_ARGUMENT


@pytest.mark.parametrize("bad", ["a\0b", "a\ud800b", "\udfff"])
async def test_no_string_of_any_action_holds_nul_or_a_lone_surrogate(alice: Side, bob: Side, bad: str) -> None:
    attempts: list[tuple[str, dict[str, object]]] = [
        ("note.send", {"to": [bob.did], "text": bad}),
        ("note.send", {"to": [bad], "text": "x"}),
        ("note.send", {"to": [bob.did], "text": "x", "tags": ["ok", bad]}),
        ("note.send", {"to": [bob.did], "text": "x", bad: 1}),
        ("note.add", {"text": bad}),
        ("note.tag", {"id": 1, "add": [bad]}),
        ("note.inbox", {"sender": bad}),
        ("peer.alias", {"name": bad, "did": bob.did}),
        ("peer.join", {"where": bad}),
        ("grant.add", {"subject": bad, "kind": "notes", "direction": "in"}),
        ("log.export", {"path": bad}),
        ("outbox.failed", {"container_did": bad, "recipient_did": "x", "reason": "y"}),
    ]
    for name, args in attempts:
        with pytest.raises(HmpError) as caught:
            await alice.actions.perform(System() if name.startswith("outbox.") else User(), name, args)
        assert caught.value.code is Reject.BAD_STRING, name
    assert await alice.value("SELECT COUNT(*) FROM notes") == 0


async def test_a_refusal_by_capability_is_recorded_with_its_reason(alice: Side) -> None:
    for actor in (Llm("core"), Mcp("editor"), Peer("did:hmp:agent:x")):
        with pytest.raises(Denied) as caught:
            await alice.actions.perform(actor, "peer.trust", {"peer": "bob", "tags": ["Friend"]})
        assert caught.value.code is Deny.NO_CAPABILITY
    rows = await alice.rows("SELECT actor, action, code FROM refusals ORDER BY id")
    assert rows == [(actor, "peer.trust", "no_capability") for actor in ("llm:core", "mcp:editor", "did:hmp:agent:x")]
    assert alice.context.counts["peer.trust", "no_capability"] == 3


async def test_a_peers_refusals_are_recorded_once_a_minute_a_kind(alice: Side, bob: Side) -> None:
    for _ in range(5):
        with pytest.raises(Denied):
            await alice.actions.perform(Peer(bob.did), "note.list", {})
    assert await alice.value("SELECT COUNT(*) FROM refusals") == 1
    alice.clock.us += QUIET_US
    with pytest.raises(Denied):
        await alice.actions.perform(Peer(bob.did), "note.list", {})
    assert await alice.value("SELECT COUNT(*) FROM refusals") == 2
    assert alice.context.counts["note.list", "no_capability"] == 6


async def test_a_callers_own_slip_is_not_recorded(alice: Side) -> None:
    assert await code(alice, "note.read", id=7) == "not_found"
    assert await alice.value("SELECT COUNT(*) FROM refusals") == 0


async def test_a_failing_handler_is_our_fault_and_typed(alice: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise RuntimeError("no card today")

    alice.context.card = broken
    with pytest.raises(Failed, match="no card today") as caught:
        await alice.do("node.id")
    assert caught.value.code is Failure.INTERNAL
    assert alice.context.counts["node.id", "internal"] == 1


# --- once-only keys -------------------------------------------------------------------------------------


async def test_the_same_key_sends_one_note_and_gives_one_answer(alice: Side, bob: Side) -> None:
    first = await alice.do("note.send", to=[bob.did], text="hello", key="k1")
    again = await alice.do("note.send", to=[bob.did], text="hello", key="k1")
    assert first == again
    assert await alice.value("SELECT COUNT(*) FROM notes") == 1
    other = await alice.do("note.send", to=[bob.did], text="hello", key="k2")
    assert other.container_did != first.container_did


async def test_the_same_key_for_something_else_is_refused(alice: Side, bob: Side) -> None:
    await alice.do("note.send", to=[bob.did], text="hello", key="k1")
    for name, args in (("note.send", {"to": [bob.did], "text": "bye"}), ("note.add", {"text": "hello"})):
        with pytest.raises(Rejected) as caught:
            await alice.actions.perform(User(), name, args, key="k1")
        assert caught.value.code is Reject.KEY_REUSED
    assert await alice.value("SELECT COUNT(*) FROM notes") == 1


async def test_one_key_of_two_actors_is_two_keys(alice: Side, bob: Side) -> None:
    await alice.do("note.add", text="mine", key="k1")
    await alice.do("note.add", Mcp("editor"), text="its", key="k1")
    assert await alice.value("SELECT COUNT(*) FROM notes") == 2


async def test_equal_keys_at_once_have_one_effect(alice: Side, bob: Side) -> None:
    calls = [alice.do("note.send", to=[bob.did], text="hello", key="k1") for _ in range(20)]
    results = await asyncio.gather(*calls)
    assert len({result.container_did for result in results}) == 1
    assert await alice.value("SELECT COUNT(*) FROM outbox") == 1


async def test_a_key_is_kept_across_a_restart_and_dropped_in_the_end(tmp_path: Path, bob: Side) -> None:
    async with side(tmp_path / "a", "alice") as one:
        first = await one.do("note.send", to=[bob.did], text="hello", key="k1")
    async with side(tmp_path / "a", "alice") as one:
        assert await one.do("note.send", to=[bob.did], text="hello", key="k1") == first
        await one.system("node.upkeep")
        assert await one.value("SELECT COUNT(*) FROM applied") == 1
        one.clock.pass_s(8 * 86_400)
        await one.system("node.upkeep")
        assert await one.value("SELECT COUNT(*) FROM applied") == 0


async def test_a_refused_request_does_not_use_up_its_key(alice: Side, bob: Side) -> None:
    await alice.do("peer.block", peer=bob.did)
    with pytest.raises(Denied):
        await alice.do("note.send", to=[bob.did], text="hello", key="k1")
    await alice.do("peer.unblock", peer=bob.did)
    await alice.do("note.send", to=[bob.did], text="hello", key="k1")
    assert await alice.value("SELECT COUNT(*) FROM notes") == 1


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb"])
async def test_a_bad_key_is_refused(alice: Side, key: str) -> None:
    with pytest.raises(Rejected) as caught:
        await alice.do("note.add", text="hello", key=key)
    assert caught.value.code is Reject.BAD_ARGUMENT


# --- rollbacks ------------------------------------------------------------------------------------------


async def test_nothing_is_announced_that_was_rolled_back(alice: Side, bob: Side) -> None:
    """A group that fails leaves no row, no number taken, no event and no word to the mesh; the next one works."""
    await meet(alice, bob)
    broken = True

    async def fail(tx: Tx, facts: object) -> None:
        if broken:
            raise Failed(Failure.DISK_FULL, "full")

    alice.posts.clear()
    alice.db.before_commit(fail)
    async with alice.context.feed.subscribe() as events:
        with pytest.raises(Failed) as caught:
            await alice.do("note.send", to=[bob.did], text="lost")
        assert caught.value.code is Failure.DISK_FULL
        with pytest.raises(Failed):
            await alice.do("peer.trust", peer=bob.did, tags=["Friend"])
        with pytest.raises(Failed):
            await alice.take(bob.note(alice, "in", seq=1))
        assert alice.posts == []
        broken = False
        sent = await alice.do("note.send", to=[bob.did], text="kept")
        event = await anext(events)
    assert event.data["container_did"] == sent.container_did
    assert await alice.rows("SELECT text, seq FROM notes JOIN outbox ON note_id = notes.id") == [("kept", 1)]
    assert await alice.value("SELECT COUNT(*) FROM log_chain") == 1
    received = await alice.take(bob.note(alice, "in", seq=1))
    assert received.state == "delivered"
    assert (await alice.inbox(quarantined=True))[0].text == "in", "the trust that was rolled back is not remembered"


# --- nonsense -------------------------------------------------------------------------------------------

NASTY: tuple[object, ...] = (
    None, True, -1, 0, 10**30, -(10**30), 1.5, float("nan"), float("inf"), "", "x", "x" * 100_000, "\0", "\ud800", "🚀",
    "did:a:b", "hmp:", "ws://", [], [None], ["x"], [[]], {}, {"a": 1}, b"bytes", object(), {1: 2}, ["\ud800"],
)  # fmt: skip


@pytest.mark.parametrize("name", sorted(name for name, entry in REGISTRY.items() if entry.public))
async def test_no_argument_makes_an_action_fail(alice: Side, name: str, tmp_path: Path) -> None:
    """Whatever is passed: a result, a refusal that says why, or no mesh to ask; never our own failure."""
    entry = REGISTRY[name]
    good: dict[str, object] = {
        "to": [Key("bob").did],
        "text": "x",
        "timeout_s": 0.001,
        "where": "h:1",
        "path": str(tmp_path / "log"),
    }
    good |= {"peer": Key("bob").did, "name": "bob", "tags": ["a"], "id": 1, "ids": [1], "container_did": "did:a:b"}
    good |= {"subject": "*", "kind": "notes", "direction": "in"}
    fields = entry.args.__struct_fields__
    base = {field: good[field] for field in fields if field in good}
    attempts = [base | {field: nasty} for field in (*fields, "unknown") for nasty in NASTY] + [
        dict.fromkeys((1, None), 1)
    ]
    failures = [(args, error) for args in attempts if (error := await failure_of(alice, name, args)) is not None]
    assert failures == []


async def failure_of(side_: Side, name: str, args: Mapping[Any, object]) -> Failed | None:
    try:
        await side_.actions.perform(User(), name, args)
    except (Rejected, Denied):
        return None
    except Failed as error:
        return None if error.code is Failure.NO_NODE else error
    return None


async def test_a_refusal_stands_when_it_cannot_be_recorded(tmp_path: Path) -> None:
    async with side(tmp_path / "a", "alice") as one:
        actions, counts = one.actions, one.context.counts
    with pytest.raises(Denied):
        await actions.perform(Llm("core"), "peer.purge", {"peer": "bob"})
    assert counts["refusals", "internal"] == 1


async def test_what_was_recorded_of_peers_is_bounded(alice: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perform, "_TOLD", 3)
    for number in range(10):
        with pytest.raises(Denied):
            await alice.actions.perform(Peer(f"did:a:{number}"), "note.list", {})
    assert len(alice.actions._told) <= 3


async def test_a_store_open_for_reading_answers_reads(tmp_path: Path, bob: Side) -> None:
    async with side(tmp_path / "a", "alice") as one:
        await one.do("note.send", to=[bob.did], text="hello")
        context = one.context
    database = await open_sqlite(
        tmp_path / "a" / "node.db", read_only=True, settings=StoreSettings(readers=1), now_us=context.now_us
    )
    try:
        context.db = database
        offline = Actions(context)
        assert (await offline.perform(User(), "note.list")).notes[0].text == "hello"
        assert (await offline.perform(User(), "note.outbox")).rows[0].state == "queued"
        assert (await offline.perform(User(), "log.verify")).ok
        with pytest.raises(Failed) as caught:
            await offline.perform(User(), "note.add", {"text": "x"})
        assert caught.value.code is Failure.STORE_CLOSED
    finally:
        await database.close()
