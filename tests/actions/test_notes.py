"""The notebook: pages, marks, tags, hiding, deleting, notes to oneself; every word beside its author."""

from __future__ import annotations

from typing import Any

import pytest

from hmp_node.actions.actors import Llm
from hmp_node.actions.registry import REGISTRY
from hmp_node.errors import HmpError, Reject, Rejected
from hmp_node.store import notes
from hmp_node.store.notes import split_links
from hmp_node.wire.container import Draft
from tests.actions.sides import Key, Side, carry, foreign, meet


async def full(alice: Side, bob: Side, count: int = 5) -> None:
    await meet(alice, bob)
    await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
    for number in range(count):
        await alice.do("note.send", to=[bob.did], text=str(number), tags=["even" if number % 2 == 0 else "odd"])
    await carry(alice, bob)


async def test_the_inbox_in_pages_newest_first(alice: Side, bob: Side) -> None:
    await full(alice, bob)
    first = await bob.do("note.inbox", limit=3)
    rest = await bob.do("note.inbox", limit=3, before=first.notes[-1].position)
    assert [note.text for note in (*first.notes, *rest.notes)] == ["4", "3", "2", "1", "0"]
    assert (first.more, rest.more) == (True, False)


async def test_the_inbox_by_sender_tag_and_unread(alice: Side, bob: Side) -> None:
    await full(alice, bob)
    await bob.do("peer.alias", name="Alice", did=alice.did)
    await bob.do("note.mark_read", ids=[1, 2, 2])
    assert [note.text for note in await bob.inbox(unread=True)] == ["4", "3", "2"]
    assert [note.text for note in await bob.inbox(tag="odd")] == ["3", "1"]
    assert await bob.inbox(tag="od") == []
    assert len(await bob.inbox(sender="alice")) == 5
    assert await bob.inbox(sender=bob.did) == []
    with pytest.raises(Rejected) as caught:
        await bob.inbox(sender="nobody")
    assert caught.value.code is Reject.UNKNOWN_NAME


async def test_a_view_names_the_author_by_our_name_and_the_claimed_one_apart(alice: Side, bob: Side) -> None:
    await bob.take(alice.announcement(name="The Real Bank"), "peer.announced")
    await bob.take(alice.note(bob, "x"))
    note = (await bob.inbox(quarantined=True))[0]
    assert (note.author.did, note.author.name, note.author.announced) == (alice.did, None, "The Real Bank")
    await bob.do("peer.alias", name="Алиса", did=alice.did)
    note = (await bob.inbox(quarantined=True))[0]
    assert (note.author.name, note.author.announced) == ("Алиса", "The Real Bank")


async def test_all_notes_by_tag_source_and_hidden(alice: Side, bob: Side) -> None:
    await full(alice, bob, 2)
    await bob.do("note.add", text="mine", tags=["even"], priority=1)
    await bob.do("note.add", Llm("core"), text="its")
    await bob.do("note.send", to=[alice.did], text="answer")

    async def listed(**args: Any) -> list[str]:
        return [note.text for note in (await bob.do("note.list", **args)).notes]

    assert await listed() == ["answer", "its", "mine", "1", "0"]
    assert await listed(tag="even") == ["mine", "0"]
    assert await listed(source="llm") == ["its"]
    await bob.do("note.hide", id=1)
    assert await listed() == ["answer", "its", "mine", "1"]
    assert [note.text for note in await bob.inbox()] == ["1"]
    assert await listed(hidden=True) == ["answer", "its", "mine", "1", "0"]
    await bob.do("note.hide", id=1, hidden=False)
    page = await bob.do("note.list", limit=2)
    assert page.more
    assert await listed(before=page.notes[-1].id) == ["mine", "1", "0"]
    views = {note.text: note for note in (await bob.do("note.list")).notes}
    assert {text: (note.direction, note.read, note.llm_id) for text, note in views.items()} == {
        "answer": ("out", True, None),
        "its": ("local", True, "core"),
        "mine": ("local", False, None),
        "1": ("in", False, None),
        "0": ("in", False, None),
    }
    assert views["mine"].author.did == bob.did


async def test_tags_are_put_on_and_taken_off_here_only(alice: Side, bob: Side) -> None:
    await full(alice, bob, 1)
    note = await bob.do("note.tag", id=1, add=["todo", "Ночь", "todo"], remove=["even"])
    assert note.tags == ["todo", "Ночь"]
    assert [note.text for note in await bob.inbox(tag="Ночь")] == ["0"]
    assert await bob.inbox(tag="even") == []
    for bad in (["a,b"], [""], ["x" * 65]):
        with pytest.raises(Rejected):
            await bob.do("note.tag", id=1, add=bad)
    with pytest.raises(Rejected):
        await bob.do("note.tag", id=1, add=[f"t{number}" for number in range(63)])
    assert (await bob.do("note.read", id=1)).tags == ["todo", "Ночь"]


async def test_a_deleted_note_is_gone_from_every_list(alice: Side, bob: Side) -> None:
    await full(alice, bob, 2)
    await bob.do("note.delete", id=1)
    assert [note.text for note in await bob.inbox()] == ["1"]
    assert [note.text for note in (await bob.do("note.list", hidden=True)).notes] == ["1"]
    assert await bob.rows("SELECT text, tags, links FROM notes WHERE id = 1") == [("", "", "")]
    assert await bob.value("SELECT COUNT(*) FROM note_tags WHERE note_id = 1") == 0
    for name in ("note.read", "note.delete", "note.hide", "note.tag"):
        with pytest.raises(Rejected) as caught:
            await bob.do(name, id=1)
        assert caught.value.code is Reject.NOT_FOUND
    assert "0" in [row.content for row in (await bob.do("log.show")).rows], "the log keeps what was said"


async def test_a_deleted_note_on_its_way_out_goes_on(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    sent = await alice.do("note.send", to=[bob.did], text="x")
    await alice.do("note.delete", id=sent.note_id)
    assert (await alice.do("note.outbox")).rows[0].text == ""
    await carry(alice, bob)
    assert await alice.states(sent.container_did) == {bob.did: "delivered"}


async def test_marking_is_all_or_nothing(alice: Side, bob: Side) -> None:
    await full(alice, bob, 2)
    bob.receipts()
    with pytest.raises(Rejected):
        await bob.do("note.mark_read", ids=[1, 2, 99])
    assert await bob.value("SELECT COUNT(*) FROM notes WHERE read = 1") == 0
    assert bob.receipts() == []
    assert (await bob.do("note.mark_read", ids=[1, 2])).marked == 2
    assert (await bob.do("note.mark_read", ids=[1, 2])).marked == 0


async def test_a_held_note_is_not_there_yet(alice: Side, bob: Side) -> None:
    await bob.take(alice.note(bob, "early", seq=2))
    with pytest.raises(HmpError) as caught:
        await bob.do("note.read", id=1)
    assert caught.value.code is Reject.NOT_FOUND
    assert (await bob.do("note.list")).notes == []


def test_links_are_written_as_json_and_read_both_ways() -> None:
    assert split_links('["a","b,c"]') == ["a", "b,c"]
    assert split_links("a, b,,c") == ["a", "b", "c"]
    assert split_links("[broken") == ["[broken"]
    assert split_links("") == []


@pytest.mark.parametrize("few", [1, 5000])
async def test_filters_find_the_same_by_either_way(
    alice: Side, bob: Side, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Few matches are looked up first, many are met while walking; the answer may not depend on which."""
    monkeypatch.setattr(notes, "_FEW", few)
    await full(alice, bob, 6)
    eve = Key("eve")
    payload = {"text": "stranger", "tags": ["even"]}
    await bob.take(foreign(alice, eve.did, Draft("note", payload, recipients=(bob.did,)), key=eve))
    await bob.do("note.mark_read", ids=[1])
    assert [note.text for note in await bob.inbox(tag="even")] == ["4", "2", "0"]
    assert [note.text for note in await bob.inbox(tag="even", unread=True)] == ["4", "2"]
    assert [note.text for note in await bob.inbox(unread=True, limit=2)] == ["5", "4"]
    assert [note.text for note in await bob.inbox(quarantined=True, tag="even")] == ["stranger"]
    assert await bob.inbox(quarantined=True, tag="odd") == []
    assert [note.text for note in (await bob.do("note.list", tag="odd")).notes] == ["5", "3", "1"]


def test_what_help_promises_of_deleting_and_blocking_is_so() -> None:
    """The log keeps what was said until it is redacted, and a blocked peer is told that it is."""
    for name in ("note.delete", "peer.purge"):
        assert "the log keeps" in REGISTRY[name].help
        assert "for good" not in REGISTRY[name].help
    assert "answer nothing" not in REGISTRY["peer.block"].help
