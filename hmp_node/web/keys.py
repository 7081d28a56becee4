"""Headers of ours, for both sides of the local API. Standard library only: the client reads it too."""

from __future__ import annotations

from hmp_node.errors import Reject, Rejected

KEY_CHARS = 200
CLIENT_HEADER = "X-HMP-Client"  # what an MCP client calls itself, percent-encoded


def read_key(text: str) -> str:
    """The idempotency key as it stands. `Rejected` BAD_ARGUMENT unless 1 to 200 printable ASCII characters."""
    if not (0 < len(text) <= KEY_CHARS and text.isascii() and text.isprintable()):
        raise Rejected(
            Reject.BAD_ARGUMENT, f"An idempotency key is 1 to {KEY_CHARS} printable ASCII characters, and this is not"
        )
    return text
