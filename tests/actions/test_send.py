"""note.send: one container a send, one row a recipient, everything in one transaction."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from hmp_node.actions import queries, send
from hmp_node.actions.actors import Llm, Mcp, User
from hmp_node.errors import Denied, Deny, HmpError, Reject, Rejected
from hmp_node.mesh.events import OutboxChanged, OutboxDue
from hmp_node.store.database import Tx
from hmp_node.wire.container import Draft, load_verified, open_payload
from hmp_node.wire.limits import Limits
from tests.actions.sides import Key, Side, carry, foreign, meet, side


def opened(by: Side, raw: bytes) -> dict[str, object]:
    return open_payload(load_verified(raw), me=by.did, open_envelope=by.key.open_envelope)


async def test_one_send_is_note_container_outbox_and_log_together(alice: Side, bob: Side) -> None:
    sent = await alice.do(
        "note.send",
        to=[bob.did],
        text="привет",
        tags=["a", "b", "a"],
        links=["did:hmp:container:" + "0" * 64],
        priority=2,
        ttl_s=60,
    )
    assert sent.recipients[0].state == "queued"
    note = await alice.rows("SELECT id, text, tags, source, links, read, hidden, priority, llm_id FROM notes")
    assert note == [(sent.note_id, "привет", "a,b", "user", '["did:hmp:container:' + "0" * 64 + '"]', 1, 0, 2, None)]
    assert await alice.rows("SELECT tag FROM note_tags ORDER BY tag") == [("a",), ("b",)]
    assert await alice.value("SELECT COUNT(*) FROM note_links") == 1
    assert await alice.rows("SELECT direction, author_did, container_did, position FROM mail") == [
        ("out", alice.did, sent.container_did, 1)
    ]
    rows = await alice.rows(
        "SELECT recipient_did, seq, state, reason, draft, priority, expires_at IS NOT NULL FROM outbox"
    )
    assert rows == [(bob.did, 1, "queued", None, None, 2, 1)]
    raw, expires = (await alice.rows("SELECT raw, expires_at FROM containers WHERE direction = 'out'"))[0]
    container = load_verified(raw)
    assert container.did == sent.container_did
    assert container.recipients == (bob.did,)
    assert container.head["recipient"] == [bob.did]
    assert container.head["ttl"] == expires
    assert "привет".encode() not in raw
    payload = opened(bob, raw)
    assert payload == {
        "text": "привет",
        "tags": ["a", "b"],
        "links": ["did:hmp:container:" + "0" * 64],
        "priority": 2,
        "source": "user",
        "order": {"stream": alice.context.log.chain_id, "seq": {bob.did: 1}},
    }
    assert alice.taken(OutboxChanged) == [OutboxChanged((bob.did,))]


async def test_the_log_has_a_row_for_each_recipient(alice: Side, bob: Side) -> None:
    eve = Key("eve")
    sent = await alice.do("note.send", to=[bob.did, eve.did], text="both", tags=["news"])
    rows = await alice.rows(
        "SELECT m.sender_type, s.did_or_name, m.receiver_type, r.did_or_name, m.role, m.content, m.ambient"
        " FROM log_messages m JOIN core_players s ON s.hash = m.sender_id JOIN core_players r ON r.hash = m.receiver_id"
        " ORDER BY m.id"
    )
    assert [row[:6] for row in rows] == [
        ("user", alice.did, "agent", bob.did, "note", "both"),
        ("user", alice.did, "agent", eve.did, "note", "both"),
    ]
    assert all(json.loads(row[6]) == {"action": "note.send", "container_did": sent.container_did} for row in rows)
    assert await alice.value("SELECT COUNT(DISTINCT session_hash) FROM log_messages") == 2
    assert await alice.rows("SELECT tag FROM core_hashtags") == [("news",)]


async def test_several_recipients_share_one_container(alice: Side, bob: Side) -> None:
    eve = Key("eve")
    await alice.do("note.send", to=[bob.did], text="first")
    sent = await alice.do("note.send", to=[bob.did, eve.did], text="both")
    assert await alice.value("SELECT COUNT(*) FROM containers") == 2
    rows = await alice.rows("SELECT recipient_did, container_did, seq FROM outbox ORDER BY id")
    assert rows[1:] == [(bob.did, sent.container_did, 2), (eve.did, sent.container_did, 1)]
    raw = await alice.value("SELECT raw FROM containers WHERE did = :did", {"did": sent.container_did})
    head = load_verified(raw).head
    assert [member["recipient"] for member in head["group_recipient"]] == [bob.did, eve.did]
    assert "recipient" not in head
    assert opened(bob, raw)["order"] == {"stream": alice.context.log.chain_id, "seq": {bob.did: 2, eve.did: 1}}


async def test_two_equal_texts_are_two_notes(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    first = await alice.do("note.send", to=[bob.did], text="ok")
    second = await alice.do("note.send", to=[bob.did], text="ok")
    assert first.container_did != second.container_did
    assert await carry(alice, bob) == 2
    assert [note.text for note in await bob.inbox(quarantined=True)] == ["ok", "ok"]


async def test_who_wrote_a_note_stands_in_its_source(alice: Side, bob: Side) -> None:
    for actor in (None, Llm("core"), Mcp("editor")):
        await alice.do("note.send", actor, to=[bob.did], text="x")
    assert await alice.rows("SELECT source, llm_id FROM notes ORDER BY id") == [
        ("user", None),
        ("llm", "core"),
        ("llm", "mcp:editor"),
    ]
    assert await alice.rows("SELECT sender_type FROM log_messages ORDER BY id") == [("user",), ("agent",), ("agent",)]


async def test_a_reply_names_the_container_it_answers(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
    first = await alice.do("note.send", to=[bob.did], text="question")
    await carry(alice, bob)
    note = (await bob.inbox())[0]
    await bob.do("note.send", to=[alice.did], text="answer", reply_to=note.id)
    await bob.do("note.send", to=[alice.did], text="more", reply_to=first.container_did)
    await carry(bob, alice)
    answers = await alice.inbox(quarantined=True)
    assert [answer.reply_to for answer in answers] == [first.container_did] * 2
    for bad, expected in ((99, Reject.NOT_FOUND), ("nonsense", Reject.BAD_ARGUMENT)):
        with pytest.raises(Rejected) as caught:
            await bob.do("note.send", to=[alice.did], text="x", reply_to=bad)
        assert caught.value.code is expected


async def test_a_text_that_fits_no_container_is_refused_before_anything(tmp_path: Path, bob: Side) -> None:
    limits = Limits(container_bytes=4096)
    async with side(tmp_path / "a", "alice", limits=limits) as one:
        for text in ("x" * 4097, "ж" * 2049):
            with pytest.raises(Rejected, match=r"4096.*limits\.container_bytes") as caught:
                await one.do("note.send", to=[bob.did], text=text)
            assert caught.value.code is Reject.TOO_LARGE

        with pytest.raises(Rejected, match=r"limits\.container_bytes") as caught:
            await one.do("note.send", to=[bob.did], text=base64.b64encode(os.urandom(2900)).decode())
        assert caught.value.code is Reject.TOO_LARGE
        assert await one.value("SELECT COUNT(*) FROM notes") == 0
        assert await one.value("SELECT COUNT(*) FROM outbound_order") == 0
        await one.do("note.send", to=[bob.did], text="x" * 4000)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"text": ""}, Reject.BAD_ARGUMENT),
        ({"network": "wan"}, Reject.BAD_ARGUMENT),
        ({"network": "lan:10.0.0.0/8,"}, Reject.BAD_ARGUMENT),
        ({"tags": ["a,b"]}, Reject.BAD_ARGUMENT),
        ({"tags": [" "]}, Reject.BAD_ARGUMENT),
    ],
)
async def test_what_cannot_be_sent(alice: Side, bob: Side, more: dict[str, object], expected: Reject) -> None:
    with pytest.raises(Rejected) as caught:
        await alice.actions.perform(User(), "note.send", {"to": [bob.did], "text": "x"} | more)
    assert caught.value.code is expected


async def test_links_alone_are_a_note_and_a_scope_travels(alice: Side, bob: Side) -> None:
    sent = await alice.do("note.send", to=[bob.did], text="", links=["did:x:y"], network="localhost")
    raw = await alice.value("SELECT raw FROM containers WHERE did = :did", {"did": sent.container_did})
    assert load_verified(raw).network == "localhost"
    assert opened(bob, raw)["links"] == ["did:x:y"]


async def test_not_to_oneself(alice: Side) -> None:
    with pytest.raises(Rejected) as caught:
        await alice.do("note.send", to=[alice.did], text="x")
    assert caught.value.code is Reject.BAD_ARGUMENT


async def test_not_to_the_blocked_the_revoked_or_those_who_take_none(alice: Side, bob: Side) -> None:
    eve, mallory = Key("eve"), Key("mallory")
    await alice.do("peer.block", peer=bob.did)
    await alice.take(
        foreign(bob, eve.did, Draft("peer_announce", {"key_is_falsified": True, "addresses": []}), key=eve),
        "peer.announced",
    )
    await alice.take(
        foreign(bob, mallory.did, Draft("peer_announce", {"capabilities": ["sync"]}), key=mallory), "peer.announced"
    )
    for did, expected in ((bob.did, Deny.BLOCKED), (eve.did, Reject.KEY_REVOKED), (mallory.did, Deny.PEER_EXCLUDES)):
        with pytest.raises(HmpError) as caught:
            await alice.do("note.send", to=[did], text="x")
        assert caught.value.code is expected
    assert await alice.value("SELECT COUNT(*) FROM notes") == 0


async def test_a_node_that_gave_up_its_key_sends_nothing(alice: Side, bob: Side) -> None:
    await alice.do("note.send", to=[bob.did], text="before")
    await alice.do("node.revoke", confirm=alice.did)
    with pytest.raises(Rejected) as caught:
        await alice.do("note.send", to=[bob.did], text="after")
    assert caught.value.code is Reject.KEY_REVOKED
    assert await alice.value("SELECT COUNT(*) FROM outbox") == 1


async def test_models_send_where_a_grant_lets_them(alice: Side, bob: Side) -> None:
    eve = Key("eve")
    await alice.do("grant.remove", subject="*", kind="notes", direction="out")
    for actor in (Llm("core"), Mcp("editor")):
        with pytest.raises(Denied) as caught:
            await alice.do("note.send", actor, to=[bob.did], text="x")
        assert caught.value.code is Deny.NO_CAPABILITY
    await alice.do("note.send", to=[bob.did], text="the owner is not held to it")
    await alice.do("peer.trust", peer=bob.did, tags=["Friend"])
    await alice.do("note.send", Llm("core"), to=[bob.did], text="x")
    with pytest.raises(Denied):
        await alice.do("note.send", Llm("core"), to=[bob.did, eve.did], text="all or none")
    await alice.do("grant.add", subject=bob.did, kind="notes", direction="out", allow=False)
    with pytest.raises(Denied):
        await alice.do("note.send", Llm("core"), to=[bob.did], text="x")


# --- a key that is not known yet -------------------------------------------------------------------------

FOREIGN = "did:hmp:uuid-7f3a"


async def test_a_note_waits_sealed_for_a_key_and_goes_when_it_is_announced(alice: Side, bob: Side) -> None:
    sent = await alice.do("note.send", to=[FOREIGN], text="secret words", ttl_s=3600, tags=["t"])
    assert sent.container_did is None
    assert [(row.state, row.reason) for row in sent.recipients] == [("queued", "key_unknown")]
    second = await alice.do("note.send", to=[FOREIGN], text="second")
    draft = await alice.value("SELECT draft FROM outbox ORDER BY id LIMIT 1")
    assert b"secret words" not in draft
    assert await alice.due(FOREIGN) == []
    expires = await alice.value("SELECT expires_at FROM outbox ORDER BY id LIMIT 1")

    await alice.take(foreign(bob, FOREIGN, Draft("peer_announce", {"capabilities": ["notes"]})), "peer.announced")
    assert alice.taken(OutboxChanged)[-1] == OutboxChanged((FOREIGN,))
    due = await alice.due(FOREIGN)
    payloads = [open_payload(c, me=FOREIGN, open_envelope=bob.key.open_envelope) for _, _, c in due]
    assert [payload["text"] for payload in payloads] == ["secret words", "second"]
    assert [payload["order"]["seq"] for payload in payloads] == [{FOREIGN: 1}, {FOREIGN: 2}]
    assert payloads[0]["tags"] == ["t"]
    assert due[0][2].head["ttl"] == expires
    assert await alice.rows("SELECT draft, reason FROM outbox") == [(None, None)] * 2
    row = await alice.value("SELECT container_did FROM mail WHERE note_id = :id", {"id": second.note_id})
    assert row == due[1][1]
    third = await alice.do("note.send", to=[FOREIGN], text="third")
    assert third.container_did is not None
    assert third.recipients[0].reason is None


async def test_of_several_only_the_one_without_a_key_waits(alice: Side, bob: Side) -> None:
    sent = await alice.do("note.send", to=[bob.did, FOREIGN], text="both")
    assert sent.container_did is not None
    rows = await alice.rows("SELECT recipient_did, container_did, reason FROM outbox ORDER BY id")
    assert rows == [(bob.did, sent.container_did, None), (FOREIGN, None, "key_unknown")]
    raw = await alice.value("SELECT raw FROM containers WHERE did = :did", {"did": sent.container_did})
    assert load_verified(raw).recipients == (bob.did,)


async def test_a_draft_keeps_its_scope(alice: Side, bob: Side) -> None:
    """Conformance 41: the mesh is told the scope of the container it became."""
    sent = await alice.do("note.send", to=[bob.did, FOREIGN], text="near", network="lan:192.0.2.0/24")
    assert sent.container_did is not None
    assert await alice.rows("SELECT network FROM outbox") == [("lan:192.0.2.0/24",)] * 2
    await alice.take(foreign(bob, FOREIGN, Draft("peer_announce", {"capabilities": ["notes"]})), "peer.announced")
    rows = await queries.answer(alice.context, OutboxDue(FOREIGN, 0, 9))
    assert [row[3] for row in rows] == ["lan:192.0.2.0/24"]
    ((_, _, container),) = await alice.due(FOREIGN)
    assert container.network == "lan:192.0.2.0/24"


async def test_a_waiting_draft_survives_a_restart(tmp_path: Path, bob: Side) -> None:
    async with side(tmp_path / "a", "alice") as one:
        await one.do("note.send", to=[FOREIGN], text="kept")
    async with side(tmp_path / "a", "alice") as one:
        await one.take(foreign(bob, FOREIGN, Draft("peer_announce", {"capabilities": ["notes"]})), "peer.announced")
        ((_, _, container),) = await one.due(FOREIGN)
        assert open_payload(container, me=FOREIGN, open_envelope=bob.key.open_envelope)["text"] == "kept"


async def test_more_drafts_than_one_transaction_takes(alice: Side, bob: Side, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(send, "DRAFTS_AT_ONCE", 3)
    for number in range(8):
        await alice.do("note.send", to=[FOREIGN], text=str(number))
    await alice.take(foreign(bob, FOREIGN, Draft("peer_announce", {"capabilities": ["notes"]})), "peer.announced")
    assert len(await alice.due(FOREIGN)) == 8


async def test_a_new_installation_numbers_from_one_in_a_stream_of_its_own(tmp_path: Path, bob: Side) -> None:
    async with side(tmp_path / "a", "alice") as one:
        for _ in range(3):
            await one.do("note.send", to=[bob.did], text="x")
    async with side(tmp_path / "a", "alice") as one:
        await one.do("note.send", to=[bob.did], text="x")
        assert await one.value("SELECT MAX(seq) FROM outbox") == 4
        one.context.log.chain_id = "another"  # as after a restore from a backup
        await one.actions.start()
        await one.do("note.send", to=[bob.did], text="x")
        assert await one.value("SELECT seq FROM outbox ORDER BY id DESC LIMIT 1") == 1


async def test_a_draft_that_cannot_become_a_container_fails_alone(alice: Side, bob: Side) -> None:
    """It must not keep its recipient from announcing itself, nor the drafts behind it."""
    await alice.do("note.send", to=[FOREIGN], text="spoilt")
    await alice.do("note.send", to=[FOREIGN], text="good")
    broken = bob.note(bob, "sealed to somebody else").to_mesh()

    async def spoil(tx: Tx) -> None:
        await tx.execute("UPDATE outbox SET draft = :draft WHERE id = 1", {"draft": broken})

    await alice.db.write(spoil)
    await alice.take(foreign(bob, FOREIGN, Draft("peer_announce", {"capabilities": ["notes"]})), "peer.announced")
    assert await alice.rows("SELECT state, reason FROM outbox ORDER BY id") == [
        ("failed", "not_recipient"),
        ("queued", None),
    ]
    assert len(await alice.due(FOREIGN)) == 1
