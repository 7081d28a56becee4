"""Models that the mind may use, in the order they are tried, and what they were asked (seed: llm_registry)."""

from __future__ import annotations

from typing import NamedTuple

from hmp_node.store.database import Reader, Tx


class LlmRow(NamedTuple):
    """A row of llm_registry with its llm_endpoints."""

    id: str
    name: str
    description: str | None
    registered_at: str
    url: str
    model: str
    key_env: str | None
    key_file: str | None
    window: int
    reply_tokens: int
    rank: int = 0
    enabled: bool = True
    tools: str = "unknown"
    json_mode: str = "unknown"
    state: str = "unknown"
    state_at: str | None = None

    def reached_as(self, other: LlmRow) -> bool:
        """Whether both are the same model at the same place with the same key."""
        return (self.url, self.model, self.key_env, self.key_file) == (
            other.url,
            other.model,
            other.key_env,
            other.key_file,
        )


class Used(NamedTuple):
    """Calls, and tokens of prompts and replies."""

    calls: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.prompt_tokens + self.reply_tokens


_SELECT = (
    "SELECT r.id, r.name, r.description, r.registered_at, e.url, e.model, e.key_env, e.key_file, e.window,"
    " e.reply_tokens, e.rank, e.enabled, e.tools, e.json_mode, e.state, e.state_at"
    " FROM llm_registry r JOIN llm_endpoints e ON e.id = r.id"
)
_ENDPOINT = (
    "url",
    "model",
    "key_env",
    "key_file",
    "window",
    "reply_tokens",
    "rank",
    "enabled",
    "tools",
    "json_mode",
    "state",
    "state_at",
)


def _row(values: tuple[object, ...]) -> LlmRow:
    row = LlmRow(*values)  # type: ignore[arg-type]
    return row._replace(enabled=bool(row.enabled))


async def listing(reader: Reader) -> list[LlmRow]:
    """All of them, in the order they are tried."""
    return [_row(row) for row in await reader.fetch_all(f"{_SELECT} ORDER BY e.rank, r.registered_at, r.id")]


async def find(reader: Reader, llm_id: str) -> LlmRow | None:
    """One of them."""
    row = await reader.fetch_one(f"{_SELECT} WHERE r.id = :id", {"id": llm_id})
    return None if row is None else _row(row)


async def put(tx: Tx, row: LlmRow) -> None:
    """Enter a model, or write its row anew; only when it was registered stays."""
    await tx.execute(
        "INSERT INTO llm_registry (id, name, description, registered_at)"
        " VALUES (:id, :name, :description, :registered_at)"
        " ON CONFLICT (id) DO UPDATE SET name = excluded.name, description = excluded.description",
        {"id": row.id, "name": row.name, "description": row.description, "registered_at": row.registered_at},
    )
    names = ", ".join(_ENDPOINT)
    values = ", ".join(f":{name}" for name in _ENDPOINT)
    changes = ", ".join(f"{name} = excluded.{name}" for name in _ENDPOINT)
    await tx.execute(
        f"INSERT INTO llm_endpoints (id, {names}) VALUES (:id, {values}) ON CONFLICT (id) DO UPDATE SET {changes}",
        row._asdict() | {"enabled": int(row.enabled)},
    )


async def remove(tx: Tx, llm_id: str) -> bool:
    """Forget a model; False if there is none. What it was asked stays counted."""
    await tx.execute("DELETE FROM llm_endpoints WHERE id = :id", {"id": llm_id})
    return await tx.execute("DELETE FROM llm_registry WHERE id = :id", {"id": llm_id}) == 1


async def to_front(tx: Tx, llm_id: str) -> None:
    """Have this model tried first; those before it move back by one."""
    row = await find(tx, llm_id)
    if row is not None:
        await tx.execute(
            "UPDATE llm_endpoints SET rank = CASE WHEN id = :id THEN 0 ELSE rank + 1 END"
            " WHERE id = :id OR rank <= :rank",
            {"id": llm_id, "rank": row.rank},
        )


async def tell(tx: Tx, llm_id: str, *, state: str, tools: str | None, json_mode: str | None, now: str) -> None:
    """How the last call went, and what was learnt of what the endpoint can; None: nothing."""
    await tx.execute(
        "UPDATE llm_endpoints SET state = :state, state_at = :now, tools = COALESCE(:tools, tools),"
        " json_mode = COALESCE(:json_mode, json_mode) WHERE id = :id",
        {"id": llm_id, "state": state, "tools": tools, "json_mode": json_mode, "now": now},
    )


async def use(tx: Tx, llm_id: str, more: Used, *, now: str) -> None:
    """Count what a model was asked, in the hour of ``now``."""
    await tx.execute(
        "INSERT INTO llm_usage (hour, llm_id, calls, prompt_tokens, reply_tokens)"
        " VALUES (:hour, :id, :calls, :prompt, :reply)"
        " ON CONFLICT (hour, llm_id) DO UPDATE SET calls = llm_usage.calls + excluded.calls,"
        " prompt_tokens = llm_usage.prompt_tokens + excluded.prompt_tokens,"
        " reply_tokens = llm_usage.reply_tokens + excluded.reply_tokens",
        {
            "hour": now[:13],
            "id": llm_id,
            "calls": more.calls,
            "prompt": more.prompt_tokens,
            "reply": more.reply_tokens,
        },
    )


async def used(reader: Reader, *, since: str, llm_id: str | None = None) -> Used:
    """What was asked since this time, from its full hour or day on: ``since`` begins a day (10 characters of a time)
    or an hour (13); of one model or of all."""
    row = await reader.fetch_one(
        "SELECT COALESCE(SUM(calls), 0), COALESCE(SUM(prompt_tokens), 0), COALESCE(SUM(reply_tokens), 0)"
        " FROM llm_usage WHERE hour >= :since AND (:id IS NULL OR llm_id = :id)",
        {"since": since, "id": llm_id},
    )
    return Used() if row is None else Used(*map(int, row))


async def any_enabled(reader: Reader) -> bool:
    """Whether a model is registered and switched on."""
    return await reader.fetch_one("SELECT 1 FROM llm_endpoints WHERE enabled = 1 LIMIT 1") is not None
