"""One document of any kind by ``KIND:NUMBER``, in the form that `fetch` has by convention, and resources with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from hmp_node.mcp_server.mail import NOTE, note_row
from hmp_node.mcp_server.memory import MEMORY, memory_row
from hmp_node.mcp_server.mind import CONCEPT, DIARY
from hmp_node.mcp_server.rows import CAUTION, body_of, line, row_of
from hmp_node.mcp_server.tool import TEXT, THING, Given, Json, Perform, Tool, bad, number

THOUGHT = ("id", "title", "content", "tags", "created_at", "updated_at")
_KINDS: dict[str, tuple[str, str, Sequence[str]]] = {  # the action, the list in its result, the fields of a row
    "memory": ("memory.get", "memories", MEMORY),
    "note": ("note.show", "notes", NOTE),
    "diary": ("diary.read", "diary", DIARY),
    "concept": ("concept.read", "concepts", CONCEPT),
    "thought": ("thought.read", "thoughts", THOUGHT),
}
_SHAPES: dict[str, Callable[..., Json]] = {"note": note_row, "memory": memory_row}


async def document(perform: Perform, ref: str) -> Json:
    """The row of ``KIND:NUMBER``, whole. BAD_ARGUMENT, NOT_FOUND."""
    kind, _, digits = ref.partition(":")
    if kind == "log":
        raise bad("rows of the log are not fetched one by one", "the owner reads them with hmp-node log show")
    if kind not in _KINDS:
        raise bad(f"{ref[:60]!r} is no id", f"KIND:NUMBER with a kind of {', '.join(_KINDS)}")
    action, name, names = _KINDS[kind]
    (view,) = (await perform(action, {"ids": [number(digits, "id")]}))[name]
    shape = _SHAPES.get(kind)
    row = row_of(view, names, most=None) if shape is None else shape(view, most=None)
    body = body_of(row)
    text = "" if body is None else row.pop(body)
    title = row.pop("title", None) or row.pop("name", None) or line(text)[:80]
    row.pop("id", None)
    if row.get("outside"):
        row["caution"] = CAUTION
    return {"id": ref, "title": title, "text": text, "url": f"memory://{kind}/{digits}", "metadata": row}


async def _fetch(perform: Perform, args: Json) -> Given:
    value = await document(perform, args["id"])
    return Given(value, json.dumps(value, ensure_ascii=False))


FETCH = Tool(
    "fetch",
    "One document whole, by an id from a search: memory:3, note:7, diary:2, concept:5.",
    {"id": TEXT},
    {"id": TEXT, "title": TEXT, "text": TEXT, "url": TEXT, "metadata": THING},
    _fetch,
    needs=("id",),
    reads=True,
)
