"""Verbs for coding assistants and the node they bring with them: mcp, stop."""

from __future__ import annotations

from hmp_node.cli.session import Session
from hmp_node.cli.verb import verb


@verb("mcp", example="hmp-node mcp")
def mcp(session: Session) -> None:
    """Serve MCP on standard input and output, for a coding assistant.

    To add it to Claude Code: `claude mcp add hmp -- hmp-node mcp`; others take the command `hmp-node` with the
    argument `mcp`. The assistant gets the memory, the mail and the log of this home as tools, and acts as itself,
    never as you. If no node runs on the home, one is started in the background; it stays, also for mail, until
    `hmp-node stop`. Standard output carries the protocol alone. Needs `pip install 'hmp-node[mcp]'`.
    """
    from hmp_node import extras
    from hmp_node.cli import bridge

    bridge.serve(session.home, extras.load("hmp_node.mcp_server.server", "mcp"))


@verb("stop", example="hmp-node stop")
def stop(session: Session) -> None:
    """Stop the node that runs on this home, in the background or not, and wait until it has."""
    from hmp_node.cli import background

    pid = background.stop(session.home)
    told = "no node was running" if pid is None else f"stopped (process {pid})"
    session.show({"stopped": pid is not None}, lambda _: [told])


VERBS = (mcp, stop)
