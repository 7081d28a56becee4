"""The tools that a coding assistant is shown, in the order of the list.

Every tool is one action of the node or two, asked for by name; a tool adds words for a model, and takes away what would
only fill its context. The list is the same for every client and stays under 3,000 tokens: schemas are written by hand,
short, and tests hold them to the types of the actions.
"""

from __future__ import annotations

from hmp_node.mcp_server.documents import FETCH
from hmp_node.mcp_server.mail import LOG_VERIFY, NOTE_INBOX, NOTE_SEND, PEERS
from hmp_node.mcp_server.memory import (
    MEMORY_ADD,
    MEMORY_GET,
    MEMORY_LINK,
    MEMORY_SUPERSEDE,
    SESSION_RESUME,
    SESSION_SAVE,
)
from hmp_node.mcp_server.mind import CONCEPTS_TOOL, DIARY_TOOL
from hmp_node.mcp_server.search import SEARCH
from hmp_node.mcp_server.tool import Tool

TOOLS: tuple[Tool, ...] = (
    *(MEMORY_ADD, MEMORY_GET, MEMORY_LINK, MEMORY_SUPERSEDE, SESSION_SAVE, SESSION_RESUME),
    *(NOTE_SEND, NOTE_INBOX, PEERS),
    *(DIARY_TOOL, CONCEPTS_TOOL, LOG_VERIFY),
    *(SEARCH, FETCH),
)
