"""Notes as the mind keeps them: shown, rewritten, counted, filtered, cleaned; never those that are not for it."""

from __future__ import annotations

from typing import Any

import pytest

from hmp_node.actions import note_keep
from hmp_node.actions.registry import REGISTRY
from hmp_node.store import notes
from hmp_node.wire.container import Draft
from tests.actions.minds import EVE, MODEL, ask, code, command
from tests.actions.sides import Key, Side, carry, foreign, meet


@pytest.fixture
async def full(alice: Side, bob: Side) -> Side:
    """Bob has of everything: 1 to 3 from Alice, 4 a stranger's, 5 held, 6 to 8 written here, 9 sent, 10 deleted."""
    await meet(alice, bob)
    await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
    for number, priority in enumerate((0, 2, 0)):
        await alice.do("note.send", to=[bob.did], text=f"in {number}", priority=priority, tags=[f"t{number}", "mail"])
    await carry(alice, bob)
    eve = Key("eve")
    stranger = Draft("note", {"text": "stranger", "priority": 2}, recipients=(bob.did,))
    await bob.take(foreign(alice, eve.did, stranger, key=eve))
    await bob.take(alice.note(bob, "held", seq=9, stream="other"))
    await bob.do("note.add", text="owner's", priority=1, tags=["home"])
    await bob.do("note.add", MODEL, text="model's")
    await ask(bob, command(1, EVE), "note.add", text="after reading Eve")
    await bob.do("note.send", to=[alice.did], text="out", priority=2)
    await bob.do("note.add", text="deleted", priority=2)
    await bob.do("note.delete", id=10)
    return bob


async def passing(side: Side, **wanted: Any) -> list[str]:
    return [row.text for row in await notes.unread_passing(side.db, limit=50, **wanted)]


async def test_unread_notes_are_counted_by_priority_and_named(full: Side) -> None:
    counts = await full.do("note.counts", MODEL)
    assert counts.unread == {"0": 2, "1": 1, "2": 1}
    assert [(one.id, one.priority) for one in counts.ids] == [(2, 2), (6, 1), (3, 0), (1, 0)]
    assert await notes.unread_counts(full.db) == {0: 2, 1: 1, 2: 1}
    assert await notes.unread_ids(full.db, limit=2) == [(2, 2), (6, 1)]
    await full.do("note.hide", id=2)
    assert (await full.do("note.counts")).unread["2"] == 1, "hidden from the owner's lists, not from the mind"
    await full.do("note.mark_read", ids=[1, 2])
    assert (await full.do("note.counts")).unread == {"0": 1, "1": 1}
    assert list(REGISTRY["note.counts"].authors(counts)) == []


async def test_at_most_a_hundred_are_named(alice: Side) -> None:
    for number in range(103):
        await alice.do("note.add", text=str(number))
    counts = await alice.do("note.counts")
    assert counts.unread == {"0": 103}
    assert [one.id for one in counts.ids] == list(range(103, 3, -1))


async def test_every_condition_of_a_filter_holds_together(alice: Side, full: Side) -> None:
    assert await passing(full) == ["in 1", "owner's", "in 0", "in 2"]
    assert await passing(full, tags=["t0", "t2", "none"]) == ["in 0", "in 2"]
    assert await passing(full, tags=["t"]) == []
    assert await passing(full, priority_min=1) == ["in 1", "owner's"]
    assert await passing(full, priority_min=3) == []
    received = (await notes.find(full.db, 3)).received_at  # type: ignore[union-attr]
    assert await passing(full, since=received) == ["owner's", "in 2"]
    assert await passing(full, sources=["user"]) == ["owner's"], "a peer's word for its source counts nothing"
    assert await passing(full, sources=["peer"]) == ["in 1", "in 0", "in 2"]
    assert await passing(full, sources=[f"peer:{alice.did}"]) == ["in 1", "in 0", "in 2"]
    assert await passing(full, sources=["peer:did:hmp:agent:nobody"]) == []
    assert await passing(full, sources=["user", "peer"], priority_min=1) == ["in 1", "owner's"]
    assert await passing(full, sources=["peer"], priority_min=1, tags=["mail"], since=received) == []
    assert await passing(full, sources=["llm", "system"]) == []
    assert [row.text for row in await notes.unread_passing(full.db, limit=1)] == ["in 1"]


@pytest.mark.parametrize(("source", "by"), [("cli", "user"), ("llm:task", "llm"), ("system", "system")])
async def test_sources_written_here(full: Side, source: str, by: str) -> None:
    async def work(tx: Any) -> None:
        await tx.execute("UPDATE notes SET source = :source WHERE id = 6", {"source": source})

    await full.db.write(work)
    assert await passing(full, sources=[by]) == ["owner's"]
    others = {"user", "llm", "system", "peer:x"} - {by}
    assert await passing(full, sources=sorted(others)) == []


async def test_what_arrives_stands_after_the_mark_held_notes_too(alice: Side, bob: Side) -> None:
    """The held note has the smaller id and is shown later: no id would find it."""
    assert await notes.newest_position(bob.db) == 0
    await bob.take(alice.note(bob, "first", seq=1))
    await bob.take(alice.note(bob, "third", seq=3))
    await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
    await bob.do("note.add", text="here")
    mark = await notes.newest_position(bob.db)
    assert [row.text for row in await notes.arrived_since(bob.db, mark, limit=9)] == []
    await bob.take(alice.note(bob, "second", seq=2))
    fresh = await notes.arrived_since(bob.db, mark, limit=9)
    assert [row.text for row in fresh] == ["second", "third"]
    assert [row.text for row in await notes.arrived_since(bob.db, mark, limit=1)] == ["second"]
    await bob.do("note.mark_read", ids=[row.id for row in fresh])
    assert await notes.arrived_since(bob.db, mark, limit=9) == []


async def test_notes_are_shown_whole_and_stay_unread(alice: Side, full: Side) -> None:
    shown = await full.do("note.show", MODEL, ids=[8, 1, 5, 10, 99])
    assert [one.text for one in shown.notes] == ["after reading Eve", "in 0"]
    assert shown.missing == [5, 10, 99]
    assert not shown.notes[1].read
    assert set(REGISTRY["note.show"].authors(shown)) == {full.did, alice.did, EVE.author}
    assert await code(full, "note.show", MODEL, ids=[1, 4]) == "no_capability"
    assert [one.text for one in (await full.do("note.show", ids=[4])).notes] == ["stranger"]
    for ids in ([5], [10], [99]):
        assert await code(full, "note.show", ids=ids) == "not_found"


async def test_only_notes_that_stayed_here_are_rewritten(full: Side) -> None:
    changed = await full.do("note.update", id=6, text="owner's own", priority=-1)
    assert (changed.text, changed.priority, changed.tags) == ("owner's own", -1, ["home"])
    assert (await full.do("note.update", MODEL, id=7, text="model's own")).text == "model's own"
    assert (await full.do("note.update", MODEL, id=6, priority=2)).priority == 2
    assert await code(full, "note.update", MODEL, id=6, text="not the owner's words") == "no_capability"
    for note_id, why in (
        (1, "bad_argument"),
        (9, "bad_argument"),
        (5, "not_found"),
        (10, "not_found"),
        (99, "not_found"),
    ):
        assert await code(full, "note.update", id=note_id, text="x") == why
    assert await code(full, "note.update", id=6) == "bad_argument"
    assert await code(full, "note.update", id=6, text=" ") == "bad_argument"
    assert await code(full, "note.update", id=6, text="x" * 2_000_000) == "too_large"
    assert '"text": "owner\'s"' in await full.value("SELECT before FROM mind_writes WHERE row_id = 6 ORDER BY id")


async def test_only_old_read_notes_are_cleaned(full: Side) -> None:
    await full.do("note.mark_read", ids=[1, 2, 6])
    full.clock.pass_s(86_400)
    before = full.context.now()
    await full.do("note.add", MODEL, text="new")
    tries = await full.do("note.clean", before=before, dry_run=True)
    assert (tries.deleted, tries.more) == (5, False)
    assert await full.value("SELECT COUNT(*) FROM notes WHERE text = ''") == 1
    assert (await full.do("note.clean", before=before)).deleted == 5
    assert [row[0] for row in await full.rows("SELECT id FROM notes WHERE text <> '' ORDER BY id")] == [3, 4, 5, 9, 11]
    assert (await full.do("note.clean", before=before)).deleted == 0
    kept = "SELECT COUNT(*), COUNT(raw) FROM containers WHERE direction = 'in' AND class = 'note'"
    assert await full.rows(kept) == [(5, 3)], "seen is seen for ever, the bytes are gone"
    assert (await full.do("note.counts")).unread == {"0": 1}
    assert await code(full, "note.clean", before="long ago!!") == "bad_argument"
    assert await code(full, "note.clean", by=command(2, EVE), before=before) == "needs_approval"


async def test_much_is_cleaned_in_parts(alice: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(note_keep, "MAX_CLEANED", 2)
    for number in range(3):
        await alice.do("note.add", MODEL, text=str(number))
    alice.clock.pass_s(1)
    before = alice.context.now()
    first = await alice.do("note.clean", before=before)
    second = await alice.do("note.clean", before=before)
    assert [(first.deleted, first.more), (second.deleted, second.more)] == [(2, True), (1, False)]
