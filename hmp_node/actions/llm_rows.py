"""What a registered model's row may hold, and the row that node.yaml makes."""

from __future__ import annotations

from urllib.parse import urlsplit

from hmp_node.actions.mind_settings import LlmSettings
from hmp_node.errors import Reject, Rejected
from hmp_node.store import llms
from hmp_node.store.database import Tx
from hmp_node.store.llms import LlmRow

DEFAULT = "default"  # the row that node.yaml's section llm makes
MAX_URL = 500


async def ensure_default(tx: Tx, settings: LlmSettings, now: str) -> None:
    """Have the row ``default`` be what node.yaml says, or not be. Its rank, and whether it is on, are the owner's
    once it is there. BAD_CONFIG names the key that is wrong."""
    if not settings.url:
        await llms.remove(tx, DEFAULT)
        return
    was = await llms.find(tx, DEFAULT)
    try:
        row = LlmRow(
            id=DEFAULT,
            name=DEFAULT,
            description="set in node.yaml",
            registered_at=now if was is None else was.registered_at,
            url=check_url(settings.url),
            model=settings.model,
            key_env=settings.key_env or None,
            key_file=settings.key_file or None,
            window=settings.window,
            reply_tokens=settings.reply_tokens,
        )
        check_row(row)
    except Rejected as error:
        raise Rejected(Reject.BAD_CONFIG, f"section llm of node.yaml: {error.message}", remedy=error.remedy) from error
    if was is not None:
        row = row._replace(name=was.name, description=was.description, rank=was.rank, enabled=was.enabled)
        if row.reached_as(was):
            row = row._replace(tools=was.tools, json_mode=was.json_mode, state=was.state, state_at=was.state_at)
    await llms.put(tx, row)


def check_row(row: LlmRow) -> None:
    """BAD_ARGUMENT for a window without room for a prompt, and for two keys."""
    if row.reply_tokens >= row.window:
        raise Rejected(
            Reject.BAD_ARGUMENT,
            f"a reply of {row.reply_tokens} tokens leaves no room for a prompt in a window of {row.window}",
            remedy="window holds both",
        )
    if row.key_env and row.key_file:
        raise Rejected(Reject.BAD_ARGUMENT, "key_env and key_file are both given", remedy="one of them names the key")


def check_url(text: str) -> str:
    """An endpoint's address as it is kept: up to ``/v1``, which a bare host gets. BAD_ARGUMENT for anything else.

    It holds no credentials, and no query, where some would stand.
    """
    url = text.strip().rstrip("/").removesuffix("/chat/completions").removesuffix("/models")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _bad_url("its host or port is none") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise _bad_url("it is no http or https address")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise _bad_url("it holds credentials or a query: a key is named by key_env or key_file")
    if len(url) > MAX_URL or not (url.isascii() and url.isprintable()) or " " in url:
        raise _bad_url(f"it has at most {MAX_URL} characters, ASCII and no spaces")
    return url if parts.path else f"{url}/v1"


def _bad_url(why: str) -> Rejected:
    """Without the address: there may be a secret in it."""
    return Rejected(
        Reject.BAD_ARGUMENT, f"the address of a model cannot be used: {why}", remedy="http://127.0.0.1:11434/v1"
    )
