"""mailman list|use|drop|serve."""

from __future__ import annotations

from typing import Any

from hmp_node.actions.registry import Done
from hmp_node.errors import Reject, Rejected
from tests.cli.conftest import Cli
from tests.cli.scripted import BOB, EVE, NOW, Scripted, mailmen


def test_mailmen_are_listed(cli: Cli, node: Scripted) -> None:
    used = {"did": BOB, "name": "bob", "announced": None, "connected": True, "since": NOW}
    other = {"did": EVE, "name": None, "announced": "E", "connected": False, "since": NOW}
    held = {"count": 1, "bytes": 2048}
    scores = [
        score("did:hmp:agent:Dave1", brought=1, lost=5, demoted=True),
        score(BOB, name="bob", brought=12, lost=0),
        score(EVE),
    ]
    node.answers["mailman.list"] = [
        mailmen(own=[used, other], serving=True, clients=3, held=held, scores=scores),
        mailmen(),
    ]
    assert cli("mailman", "list").out.splitlines() == [
        f"bob ({BOB}): connected, used since 2026-11-30 12:00:00Z, delivered 12, lost 0",
        f"{EVE}: not connected, used since 2026-11-30 12:00:00Z",
        "others use did:hmp:agent:Dave1, delivered 1, lost 5: it gets new mail only when there is no other",
        "serving 3 clients: 1 note, 2048 bytes held",
    ]
    assert cli("mailman", "list").out.splitlines() == [
        "no mailman is used: hmp-node find --role mailman, then hmp-node mailman use PEER",
        "not serving as a mailman",
    ]


def score(did: str, **more: Any) -> dict[str, Any]:
    return {"did": did, "name": None, "announced": None, "brought": 0, "lost": 0, "demoted": False} | more


def test_the_other_verbs_pass_their_words_on(cli: Cli, node: Scripted) -> None:
    node.answers |= dict.fromkeys(("mailman.use", "mailman.drop", "mailman.serve"), Done())
    for words in ("use bob", "drop bob", "serve", "serve --off"):
        done = cli("mailman", *words.split())
        assert done.code == 0, done.err
    assert [(name, args) for name, args, _ in node.asked] == [
        ("mailman.use", {"peer": "bob"}),
        ("mailman.drop", {"peer": "bob"}),
        ("mailman.serve", {"on": True}),
        ("mailman.serve", {"on": False}),
    ]
    node.answers["mailman.use"] = Rejected(Reject.BAD_ARGUMENT, "it is no mailman")
    assert cli("mailman", "use", "bob").code == 2
