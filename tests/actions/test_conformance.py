"""Items of the conformance list (protocol.md 6) that actions answer for; others stand beside their subjects:
20 in test_receive, 31 to 35, 37 to 39, 44, 68 and 69 in test_announce, 36 in test_seeds, 40 to 42 in test_query."""

from __future__ import annotations

from typing import Any

import pytest

from hmp_node.errors import HmpError
from hmp_node.wire.container import Draft, load_verified, open_payload
from tests.actions.sides import Side, carry, meet


async def test_conformance_14_expired_is_not_pushed(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    await alice.do("note.send", to=[bob.did], text="x", ttl_s=5)
    assert len(await alice.due(bob.did)) == 1
    alice.clock.pass_s(6)
    assert await alice.due(bob.did) == []


async def test_conformance_16_what_fails_reaches_no_reader(alice: Side, bob: Side) -> None:
    broken = alice.container(
        Draft("note", {"text": ["not text"]}, recipients=(bob.did,), sealed=True), keys={bob.did: bob.key.public}
    )
    await bob.take(broken)
    for name in ("note.inbox", "note.list"):
        assert (await bob.do(name)).notes == []
    assert await bob.inbox(quarantined=True) == []


async def test_conformance_17_an_unknown_class_is_stored_as_it_came(alice: Side, bob: Side) -> None:
    container = alice.container(Draft("semantic_node", {"label": "x", "unknown": {"kept": [1, 2]}}))
    assert (await bob.take(container, "container.keep")).new
    assert await bob.value("SELECT raw FROM containers WHERE class = 'semantic_node'") == container.to_mesh()


async def test_conformance_18_a_known_class_with_a_bad_payload_is_rejected(alice: Side, bob: Side) -> None:
    for container, action in (
        (
            alice.container(Draft("receipt", {"items": [{"did": "x", "state": "read"}]}, recipients=(bob.did,))),
            "receipt.receive",
        ),
        (alice.container(Draft("peer_announce", {"addresses": ["x"]})), "peer.announced"),
    ):
        with pytest.raises(HmpError) as caught:
            await bob.take(container, action)
        assert str(caught.value.code) == "bad_payload"


async def test_conformance_51_a_missing_receipt_is_no_failure_and_sending_again_changes_nothing(
    alice: Side, bob: Side
) -> None:
    await meet(alice, bob)
    sent = await alice.do("note.send", to=[bob.did], text="x")
    for _ in range(4):
        ((_, _, container),) = await alice.due(bob.did)
        await bob.take(container)
        bob.receipts()
    assert await alice.states(sent.container_did) == {bob.did: "queued"}
    await carry(alice, bob)
    assert await alice.states(sent.container_did) == {bob.did: "delivered"}
    assert await bob.value("SELECT COUNT(*) FROM notes") == 1
    assert await bob.value("SELECT COUNT(*) FROM log_messages WHERE role = 'note'") == 1


async def test_conformance_62_a_note_round_trips_without_loss(alice: Side, bob: Side) -> None:
    """Every column that travels arrives as it was."""
    await meet(alice, bob)
    await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
    texts = [
        "plain",
        "Кириллица ё",
        "🚀👩‍🔬",
        "line\nline\r\n\ttab",
        '"quotes" \\ and <tags>',
        " spaces ",
        "\u2028\u007f\ufeff",
    ]
    for number, text in enumerate(texts):
        await alice.do(
            "note.send",
            to=[bob.did],
            text=text,
            tags=["тег", f"t{number}"],
            links=["did:hmp:container:" + "1" * 64, "free text, with a comma"],
            priority=number % 4 - 1,
            reply_to="did:hmp:container:" + "2" * 64,
        )
    await carry(alice, bob)
    columns = "n.text, n.tags, n.source, n.links, n.priority, n.timestamp, m.reply_to, m.container_did"
    query = f"SELECT {columns} FROM notes n JOIN mail m ON m.note_id = n.id ORDER BY n.id"
    assert await bob.rows(query) == await alice.rows(query)
    assert await bob.rows("SELECT note_id, tag FROM note_tags ORDER BY 1, 2") == await alice.rows(
        "SELECT note_id, tag FROM note_tags ORDER BY 1, 2"
    )


async def test_conformance_63_local_only_columns_never_leave(alice: Side, bob: Side) -> None:
    """``read``, ``hidden`` and ``llm_id`` are ours; so are names, tags and trust we give peers."""
    from hmp_node.actions.actors import Llm

    await meet(alice, bob)
    await alice.do("peer.alias", name="my-secret-name-for-bob", did=bob.did)
    await alice.do("peer.trust", peer=bob.did, tags=["my-secret-tag", "Friend"])
    sent = await alice.do("note.send", Llm("my-secret-model"), to=["my-secret-name-for-bob"], text="x")
    await alice.do("note.hide", id=sent.note_id)
    ((_, _, container),) = await alice.due(bob.did)
    payload: dict[str, Any] = open_payload(container, me=bob.did, open_envelope=bob.key.open_envelope)
    assert set(payload) == {"text", "priority", "source", "order"}
    everything = container.to_json() + repr(payload).encode()
    for secret in (b"my-secret", b"llm_id", b"hidden", b'"read"'):
        assert secret not in everything
    await carry(alice, bob)
    for _, receipt in alice.receipts():
        assert b"my-secret" not in receipt.to_json()
    raw = await bob.value("SELECT raw FROM receipts")
    assert b"my-secret" not in load_verified(raw).to_json()
