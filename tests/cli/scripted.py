"""Actions that answer as a test scripts them, held to the real table: arguments and results are of its types."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from hmp_node.actions import perform  # noqa: F401 fills the table
from hmp_node.actions.registry import REGISTRY
from hmp_node.actions.views import NoteView, Who
from hmp_node.errors import Reject, Rejected

BOB = "did:hmp:agent:Bob111"
EVE = "did:hmp:agent:Eve111"
NOW = "2026-11-30T12:00:00.000001Z"


class Scripted:
    """``answers``: by action, what to give or raise, or a list of them to go through; ``asked``: what came.

    What to give may be a dict of the result's fields.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, Any], str | None]] = []

    async def perform(self, actor: Any, name: str, args: Mapping[str, Any], *, key: str | None = None) -> Any:
        assert actor.kind == "user"
        if name not in REGISTRY:
            raise Rejected(Reject.UNKNOWN_ACTION, f"there is no action {name!r}")
        self.asked.append((name, dict(args), key))
        try:
            given = msgspec.convert(args, REGISTRY[name].args)
        except msgspec.ValidationError as error:
            raise Rejected(Reject.BAD_ARGUMENT, str(error)) from error
        answer = self.answers[name]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if callable(answer):
            answer = answer(given)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Mapping):
            answer = msgspec.convert(answer, REGISTRY[name].result)
        assert isinstance(answer, REGISTRY[name].result)
        return answer

    def args(self, name: str) -> dict[str, Any]:
        """The arguments of the last call of ``name``."""
        return next(args for asked, args, _ in reversed(self.asked) if asked == name)


def note(number: int, text: str = "привет", **more: Any) -> NoteView:
    """A note as it came from Bob."""
    fields: dict[str, Any] = {
        "id": number,
        "text": text,
        "tags": [],
        "links": [],
        "source": "user",
        "priority": 0,
        "read": False,
        "hidden": False,
        "quarantined": False,
        "direction": "in",
        "author": Who(BOB, "bob", "Bob"),
        "container_did": f"did:hmp:container:{number:064x}",
        "reply_to": None,
        "position": number,
        "timestamp": NOW,
        "received_at": NOW,
        "llm_id": None,
    }
    return NoteView(**(fields | more))


def row(number: int, state: str, recipient: str = BOB, **more: Any) -> dict[str, Any]:
    """A row of the outbox."""
    fields: dict[str, Any] = {
        "id": number,
        "note_id": number,
        "container_did": "did:hmp:container:" + "a" * 64,
        "recipient_did": recipient,
        "name": "bob" if recipient == BOB else None,
        "announced": None,
        "state": state,
        "reason": None,
        "text": "привет",
        "created_at": NOW,
        "updated_at": NOW,
        "expires_at": None,
        "sent_at": None,
        "attempts": 0,
        "next_attempt_at": None,
        "receipt_did": None,
        "route": None,
        "relays": [],
    }
    return fields | more


def mailmen(**more: Any) -> dict[str, Any]:
    """What `mailman.list` gives: nobody is used, nobody served."""
    fields = {"own": [], "serving": False, "clients": 0, "held": {"count": 0, "bytes": 0}, "scores": []}
    return fields | more
