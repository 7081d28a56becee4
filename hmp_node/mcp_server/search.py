"""The tool `search`: everything the node knows, in the form that goes with `fetch` by convention."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hmp_node.mcp_server.memory import ORDINARY, in_project
from hmp_node.mcp_server.rows import CAUTION, PAGE, line, row_of
from hmp_node.mcp_server.tool import LIMIT, ROWS, TEXT, TEXTS, THING, WHEN, Given, Json, Perform, Tool, number, pick

HIT = ("project", "type", "author", "at", "state", "trust", "score")
TITLE_CHARS = 80


async def _search(perform: Perform, args: Json) -> Given:
    start = number(args["cursor"], "cursor") if "cursor" in args else 0
    narrowed = pick(args, "query", "kinds", "project", "types", "tags", "authors", "since", "until")
    narrowed |= {"limit": args.get("limit", PAGE), "offset": start}
    page = await in_project(perform, args, perform("memory.search", narrowed))
    value: Json = {"results": [_row(hit) for hit in page["hits"]]}
    if any("outside" in row for row in value["results"]):
        value["caution"] = CAUTION
    if page["more"]:
        value["next_cursor"] = str(start + len(page["hits"]))
    if page["nothing"]:
        value["nothing"] = page["nothing"]
    searched = page["searched"]
    value["searched"] = {name: searched[name] for name in searched if searched[name] not in ("", 0, [])}
    return Given(value, json.dumps(value, ensure_ascii=False))


def _row(hit: Mapping[str, Any]) -> Json:
    told = {name: value for name, value in row_of(hit, HIT).items() if ORDINARY.get(name) != value}
    return {
        "id": f"{hit['kind']}:{hit['id']}",
        "title": hit["title"] or line(hit["snippet"])[:TITLE_CHARS],
        "url": f"memory://{hit['kind']}/{hit['id']}",
        "text": hit["snippet"],
    } | told


SEARCH = Tool(
    "search",
    "Search memories, notes, diary, concepts, thoughts (and the log) by any form of a word and by meaning, in any "
    'language; "quoted words" must stand so. Take the id of a result to fetch or memory_get.',
    {
        "query": TEXT,
        "kinds": {"type": "array", "items": TEXT, "description": "of memory, note, diary, concept, thought, log"},
        "project": TEXT,
        "types": TEXTS,
        "tags": TEXTS,
        "authors": TEXTS,
        "since": WHEN,
        "until": WHEN,
        "limit": LIMIT,
        "cursor": TEXT,
    },
    {"results": ROWS, "next_cursor": TEXT, "nothing": TEXT, "searched": THING, "caution": TEXT},
    _search,
    needs=("query",),
    optional=("next_cursor", "nothing", "caution"),
    reads=True,
)
