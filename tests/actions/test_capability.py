"""The gate's two tables: who holds which capability, and what the grants say about a peer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions.actors import Actor, Llm, Mcp, Peer, System, User, from_mesh
from hmp_node.actions.capability import NOTHING, Rule, Verdict, choose, decide
from hmp_node.actions.perform import SUBJECTS
from hmp_node.actions.registry import REGISTRY, action
from hmp_node.errors import Deny

MATRIX = Path(__file__).parent / "matrix.json"
ACTORS: tuple[Actor, ...] = (User(), Llm("core"), Mcp("editor"), Peer("did:hmp:agent:x"), System())
YES, NO = Verdict(allow=True), Verdict(allow=False)


def judged(actor: Actor, name: str) -> str:
    """allow, deny, or: as the grants towards the peer concerned say."""
    allowed = decide(actor, REGISTRY[name], [YES]) is None
    if not allowed:
        return "deny"
    return "allow" if decide(actor, REGISTRY[name], [NO]) is None or name not in BY_GRANT else "by grant"


BY_GRANT = {"note.send", "note.receive", "container.keep"}


def test_golden_matrix_of_actors_and_actions() -> None:
    """Who may do what, compared exactly: a new action or a moved capability has to be written down here."""
    assert SUBJECTS
    table = {name: {actor.kind: judged(actor, name) for actor in ACTORS} for name in sorted(REGISTRY)}
    assert table == json.loads(MATRIX.read_text(encoding="utf-8"))


def test_models_hold_no_capability_that_changes_trust() -> None:
    for name in (
        "peer.trust",
        "peer.block",
        "peer.unblock",
        "peer.purge",
        "peer.alias",
        "peer.join",
        "seeds.join",
        "seeds.sign",
        "node.revoke",
        "grant.add",
        "grant.remove",
    ):
        for actor in (Llm("core"), Mcp("editor"), Peer("did:hmp:agent:x"), System()):
            assert decide(actor, REGISTRY[name]) is Deny.NO_CAPABILITY


def test_a_peer_reaches_these_actions_only() -> None:
    reached = {name for name in REGISTRY if decide(Peer("did:hmp:agent:x"), REGISTRY[name]) is None}
    assert reached == {
        *("note.receive", "receipt.receive", "container.keep"),
        *("peer.announced", "peer.heard", "peer.queried"),
        *("mail.keep", "mail.offered", "mail.requested"),
    }


def test_every_public_action_explains_itself() -> None:
    for entry in REGISTRY.values():
        assert entry.help.endswith(".")
        assert not entry.public or entry.example
        assert entry.args.__doc__
        assert entry.result.__doc__


def test_an_action_is_named_once_and_needs_a_known_capability() -> None:
    some = REGISTRY["note.list"]
    for name, capability in (("note.list", "notes.read"), ("note.new", "notes.fly")):
        with pytest.raises(ValueError, match=name):
            action(name, args=some.args, result=some.result, capability=capability, kind="read", help="")(some.handler)
    assert "note.new" not in REGISTRY


def test_actor_of_a_mesh_effect() -> None:
    assert from_mesh("system") == System()
    assert from_mesh("did:hmp:agent:x") == Peer("did:hmp:agent:x")
    assert [actor.label for actor in ACTORS] == ["user", "llm:core", "mcp:editor", "did:hmp:agent:x", "system"]


# --- grants ---------------------------------------------------------------------------------------------

DID = "did:hmp:agent:bob"


def chosen(*rules: Rule, tags: tuple[str, ...] = (), now_us: int = 0) -> Verdict:
    return choose(rules, did=DID, tags=tags, kind="notes", direction="in", now_us=now_us)


def rule(subject: str, *, allow: bool = True, **more: Any) -> Rule:
    return Rule(subject, more.pop("kind", "notes"), more.pop("direction", "in"), allow, **more)


def test_no_rule_allows_nothing() -> None:
    assert chosen() == NOTHING
    assert chosen(rule(DID, kind="log"), rule(DID, direction="out"), rule("did:hmp:agent:eve")) == NOTHING


def test_the_narrowest_subject_decides() -> None:
    everybody, tag, did = rule("*", allow=False), rule("tag:Friend"), rule(DID, allow=False)
    assert not chosen(everybody).allow
    assert chosen(everybody, tag, tags=("Friend",)).allow
    assert not chosen(everybody, tag, tags=("Friendly", "friend")).allow
    assert not chosen(everybody, tag, did, tags=("Friend",)).allow
    assert chosen(rule("*", allow=False), rule("tag:Friend", allow=False), rule(DID), tags=("Friend",)).allow


def test_a_refusal_beats_a_permission_beside_it() -> None:
    verdict = chosen(rule("tag:Friend"), rule("tag:Noisy", allow=False), tags=("Friend", "Noisy"))
    assert not verdict.allow


def test_only_everybodys_rule_quarantines() -> None:
    assert chosen(rule("*")).quarantined
    assert not chosen(rule("*"), rule("tag:Friend"), tags=("Friend",)).quarantined
    assert not chosen(rule("*"), rule(DID)).quarantined


def test_budgets_of_several_tags_add_up_to_the_widest() -> None:
    few, many, free = (
        rule("tag:A", count_per_day=5, bytes_per_day=100),
        rule("tag:B", count_per_day=9, bytes_per_day=50),
        rule("tag:C"),
    )
    assert chosen(few, many, tags=("A", "B")) == Verdict(allow=True, count_per_day=9, bytes_per_day=100)
    assert not chosen(few, many, free, tags=("A", "B", "C")).budgeted


def test_an_expired_rule_is_none() -> None:
    rules = (rule("*", allow=False), rule(DID, expires_us=100))
    assert chosen(*rules, now_us=99).allow
    assert not chosen(*rules, now_us=100).allow
