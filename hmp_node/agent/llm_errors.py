"""What a model's endpoint says when it does not answer, sorted into typed errors. Pure (loop: 1, LLM failure table)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from hmp_node.endpoints import clean, error_words
from hmp_node.errors import Failed, Failure

# Parts of a request that an endpoint may refuse, and can do without: in words of a refusal -> key of the request.
OPTIONAL: Mapping[str, re.Pattern[str]] = {
    "response_format": re.compile(r"response_format|json_object|json mode|structured output"),
    "stream_options": re.compile(r"stream_options|include_usage"),
    "presence_penalty": re.compile(r"presence_penalty"),
    "top_p": re.compile(r"top_p"),
    "temperature": re.compile(r"temperature"),
    "tools": re.compile(r"\btools?\b|tool_choice|tool[- ]call|function[- ]call|functions"),
    "max_tokens": re.compile(r"max_tokens.{0,80}max_completion_tokens|unsupported parameter: 'max_tokens'"),
}
_OVERFLOW = re.compile(
    r"context[ _-](?:length|window|size|overflow|shift)|exceed_context|exceeds? the (?:available )?context"
    r"|maximum (?:model|context|sequence) length|greater than the context|context the overflows"
    r"|(?:prompt|input|request) is too (?:long|large)|input length exceeds|too many (?:input )?tokens"
    r"|reduce the length|max_new_tokens|number of tokens allowed|tokens? (?:count|limit) .{0,40}exceed"
)
_NO_MODEL = re.compile(
    r"model.{0,200}(?:not found|not exist|unknown|not available|not loaded)|no such model|invalid model"
)
_NO_CREDIT = re.compile(r"insufficient_quota|insufficient (?:credit|balance|funds)|billing")
_MAY_OVERFLOW = (400, 413, 422, 500)
_MAY_LACK = (400, 404, 422, 500, 501)
# A server that fails on what the model wrote also speaks of tools: only these words say that it has none.
_LACKS = re.compile(r"support|require|unknown|unrecogni[sz]ed|not implemented|not enabled")


class ModelFailed(Failed):
    """A model gave no reply. ``retry_after_s``: seconds that it, or our own budget, asks us to wait, if it said so.

    ``llm_id``: whose endpoint it was, if it was one of the registered.
    """

    def __init__(
        self, code: Failure, message: str, *, remedy: str = "", retry_after_s: float | None = None, llm_id: str = ""
    ) -> None:
        super().__init__(code, message, remedy=remedy)
        self.retry_after_s = retry_after_s
        self.llm_id = llm_id


def droppable(status: int, words: str, present: Collection[str]) -> str | None:
    """The optional part of the request that this refusal is about; None if it is about something else."""
    lower = words.lower()
    if status not in _MAY_LACK or is_overflow(status, lower) or (status >= 500 and not _LACKS.search(lower)):
        return None
    return next((name for name, about in OPTIONAL.items() if name in present and about.search(lower)), None)


def is_overflow(status: int, words: str) -> bool:
    """Whether a refusal says that prompt and reply do not fit the model's window."""
    return status == 413 or (status in _MAY_OVERFLOW and _OVERFLOW.search(words.lower()) is not None)


def refusal(status: int, words: str, *, where: str, retry_after_s: float | None = None) -> ModelFailed:
    """The typed error of an HTTP status other than 200. ``where``: the endpoint's address, for the message."""
    told = f"{where} answered {status}" + (f": {words}" if words else "")
    lower = words.lower()
    code, remedy = _sort(status, lower, asked_to_wait=retry_after_s is not None)
    return ModelFailed(code, told, remedy=remedy, retry_after_s=retry_after_s if code is Failure.MODEL_BUSY else None)


def _sort(status: int, words: str, *, asked_to_wait: bool) -> tuple[Failure, str]:
    """What a status other than 200 means, and what would help; the first that fits."""
    limited = status in (413, 429) or (status == 503 and asked_to_wait)
    kinds = (
        (
            is_overflow(status, words) and "rate_limit" not in words,
            Failure.MODEL_OVERFLOW,
            "set llm.window to what the model really takes",
        ),
        (
            status == 402 or (status in (403, 429) and _NO_CREDIT.search(words)),
            Failure.MODEL_REFUSED,
            "the account has no credit left",
        ),
        (limited, Failure.MODEL_BUSY, "wait, or add another model"),
        (status in (401, 403), Failure.MODEL_REFUSED, "is the key right, and does it cover this model?"),
        (
            status == 404 or (status in (400, 422) and _NO_MODEL.search(words)),
            Failure.MODEL_REFUSED,
            "`hmp-node llm test` lists the models it knows; an address usually ends in /v1",
        ),
        (status in (408, 425) or status >= 500, Failure.MODEL_UNREACHABLE, "see that server's own log"),
        (300 <= status < 400, Failure.MODEL_BROKEN, "it sends us elsewhere: register that address if it stays so"),
        (400 <= status < 500, Failure.MODEL_REFUSED, "it does not take our request"),
    )
    fits = (kind[1:] for kind in kinds if kind[0])
    return next(fits, (Failure.MODEL_BROKEN, "is it an OpenAI-compatible endpoint?"))


def in_stream(error: Any, *, where: str, key: str | None) -> ModelFailed:
    """The typed error of an ``error`` that comes instead of a piece of the reply, status 200 or not."""
    value = error if isinstance(error, dict) else {"message": str(error)}
    words = clean(error_words({"error": value}), key)
    code = str(value.get("code", value.get("status")))
    status = int(code) if code.isascii() and code.isdigit() and len(code) == 3 else 0
    if not status:
        status = 429 if "rate_limit" in words.lower() else 400 if is_overflow(400, words) else 500
    return refusal(status, words, where=where)
