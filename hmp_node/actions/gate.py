"""What a model may do after it has read words that nobody vouches for (DESIGN 11: taint). Pure.

Private data, untrusted words and a way out never meet unchecked: with an untrusted author in its prompt the model
reads, and writes its own mind, which can be taken back; everything else waits for a person. One exception: a peer
whose words alone stood in the prompt may be answered, if the owner granted it ``converse``.
"""

from __future__ import annotations

from collections.abc import Collection

from hmp_node.actions.registry import Action
from hmp_node.store.trail import Taint

_SHOWN = 3


def why_wait(
    action: Action, taint: Collection[Taint], *, recipients: Collection[str | None], conversers: Collection[str]
) -> str | None:
    """Why this command has to wait for a person; None if it need not.

    ``recipients``: DIDs it would send to, None for one that is not known. ``conversers``: peers with ``converse``.
    """
    authors = {one.author for one in taint}
    if not authors or action.kind == "read" or action.undoable:
        return None
    if len(authors) == 1 and recipients and set(recipients) == authors and authors <= set(conversers):
        return None
    some = ", ".join(sorted(authors)[:_SHOWN])
    more = f" and {len(authors) - _SHOWN} more" if len(authors) > _SHOWN else ""
    return f"the prompt held words of {some}{more}"
