"""Tools for the mind's own tables: diary, concepts."""

from __future__ import annotations

from hmp_node.mcp_server.rows import PAGE, asked, given, paged, row_of
from hmp_node.mcp_server.tool import LIMIT, ROWS, TEXT, TEXTS, WHEN, WHOLE, Given, Json, Perform, Tool, alone, pick

DIARY = ("id", "text", "tags", "priority", "timestamp", "llm_id")
CONCEPT = ("id", "name", "description", "timestamp")
LINK = ("id", "from_name", "relation", "to_name")


async def _diary(perform: Perform, args: Json) -> Given:
    if "text" in args:
        alone(args, ("text", "tags", "priority"), "writes")
        row = row_of(await perform("diary.add", args), DIARY)
        return Given({"diary": [row]}, f"diary {row['id']} written")
    page = await perform("diary.search", asked(args) | pick(args, "query", "tags", "from", "to"))
    rows = [row_of(view, DIARY) for view in page["diary"]]
    last = rows[-1]["id"] if rows else None
    return given(paged("diary", rows, more=page["more"], last=last), {"diary": "diary"}, nothing="no entries")


async def _concepts(perform: Perform, args: Json) -> Given:
    if "description" in args or "links" in args:
        alone(args, ("name", "description", "links"), "writes")
        found = await perform("concept.add", args)
    elif "name" in args:
        alone(args, ("name", "depth", "limit"), "looks around")
        found = await perform("concept.expand", {"limit": PAGE} | args)
    else:
        found = await perform("concept.search", asked(args) | pick(args, "query"))
    rows = [row_of(view, CONCEPT) for view in found["concepts"]]
    turned = "name" not in args and found["more"]
    value = paged("concepts", rows, more=turned, last=rows[-1]["id"] if rows else None)
    if found.get("links"):
        value["links"] = [row_of(view, LINK) for view in found["links"]]
    return given(value, {"concepts": "concept", "links": "link"}, nothing="no concepts")


DIARY_TOOL = Tool(
    "diary",
    "With `text`: write a diary entry. Without: entries by words, tags and times, newest first.",
    {
        "text": TEXT,
        "tags": TEXTS,
        "priority": WHOLE,
        "query": TEXT,
        "from": WHEN,
        "to": WHEN,
        "limit": LIMIT,
        "cursor": TEXT,
    },
    {"diary": ROWS, "next_cursor": TEXT},
    _diary,
    optional=("next_cursor",),
)
CONCEPTS_TOOL = Tool(
    "concepts",
    "The concept graph. With `description` or `links` ({to, relation}): add to the concept `name`. "
    "With `name` alone: what is around it. With `query` or nothing: search.",
    {
        "name": TEXT,
        "description": TEXT,
        "links": ROWS,
        "depth": {"type": "integer", "minimum": 1, "maximum": 3},
        "query": TEXT,
        "limit": LIMIT,
        "cursor": TEXT,
    },
    {"concepts": ROWS, "links": ROWS, "next_cursor": TEXT},
    _concepts,
    optional=("links", "next_cursor"),
    repeats=True,
)
