"""Minds that converse, for endpoints in processes of their own: all they know is what stands in the prompt.

A turn is a note ``turn N: ...``. The mind is in manual mode: it sees ids of unread notes, asks for their words in one
tick, and answers in the next; between notes it idles until one comes from a peer. At the end it writes a diary entry
and a concept.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.agent.llm_server import Answer, Request

TURNS = 50
DIARY = "Мы беседовали, и беседа кончилась: we talked to the end of it."
CONCEPT = "conversation"
IDLE = ("cycle.idle", {"notes": {"sources": ["peer"]}, "seconds": 3600})
_THINGS = ("rivers", "bridges", "the sea", "вода", "мосты", "small lamps", "old maps", "the wind", "reeds", "лодки")
_WAYS = ("carry", "remember", "divide", "join", "shape", "hide", "measure", "outlive", "сторожат", "name")
_TURN = re.compile(r"turn (\d+):")


def words(turn: int) -> str:
    """What is said in a turn: each unlike the ones before it."""
    one, two = _THINGS[turn % 10], _THINGS[(turn // 10 + turn * 3 + 1) % 10]
    return f"turn {turn}: {one} {_WAYS[(turn // 10 + turn) % 10]} {two}, {turn * 7919} times 🌊"


def alice(request: Request) -> Answer:
    """Begins: says the odd turns."""
    return _mind(request, begins=True)


def bob(request: Request) -> Answer:
    """Answers: says the even turns."""
    return _mind(request, begins=False)


def _mind(request: Request, *, begins: bool) -> Answer:
    prompt = request.prompt
    if "## context_1" not in prompt:  # the reflex asks whether two replies say the same
        return json.dumps({"identical": False, "new_ideas": ["another turn"], "refined": [], "discarded": []})
    said = _newest(_context(prompt, 1))
    heard, by = _heard(_context(prompt, 2))
    unread = _unread(_context(prompt, 4))
    if unread:
        return _block(f"Unread: {unread}.", ("note.show", {"ids": unread}), ("note.mark_read", {"ids": unread}))
    if heard > said and heard < TURNS:
        answer = heard + 1
        sent = ("note.send", {"to": [by], "text": words(answer)})
        last = _keep(answer) if answer >= TURNS - 1 else ()
        return _block(f"I heard turn {heard}, and say turn {answer}:", sent, *last, IDLE)
    if heard == TURNS:
        return _block("That was the last.", IDLE)
    if begins and not said:
        return _block("I begin with turn 1:", ("note.send", {"to": ["bob"], "text": words(1)}), IDLE)
    return _block(f"Nothing new in tick {request.number}.", IDLE)


def _keep(turn: int) -> tuple[tuple[str, dict[str, Any]], ...]:
    link = {"to": _THINGS[turn % 10], "relation": "is about"}
    return (
        ("diary.add", {"text": f"{DIARY} ({turn})", "tags": ["talk"]}),
        ("concept.add", {"name": CONCEPT, "description": f"{turn} turns", "links": [link]}),
    )


def _context(prompt: str, number: int) -> str:
    return prompt.partition(f"## context_{number}")[2].partition("\n## context_")[0]


def _newest(text: str) -> int:
    return max(map(int, _TURN.findall(text)), default=0)


def _heard(text: str) -> tuple[int, str]:
    """The newest turn among the notes that were shown, and the DID of who said it."""
    found = [
        (int(_TURN.match(note["text"])[1]), note["author"]["did"])  # type: ignore[index]
        for line in text.splitlines()
        if line.startswith("| {")
        for note in json.loads(line.removeprefix("| ")).get("result", {}).get("notes", ())
    ]
    return max(found, default=(0, ""))


def _unread(text: str) -> list[int]:
    return [int(one) for one in re.findall(r"\b\d+\b", text.partition("Their ids:")[2].partition("\n")[0])]


def _block(prose: str, *commands: tuple[str, dict[str, Any]]) -> str:
    listed = [{"type": name, "args": args} for name, args in commands]
    return f"{prose}\n\n# Команды:\n{json.dumps(listed, ensure_ascii=False)}\n# Конец команд\n"
