"""The graph's rows as several actions change them, each change with its trail (seed: concepts, links)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from hmp_node.actions import trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.mind_views import MAX_NAME, MAX_PAGE, Name, check_line, not_found
from hmp_node.actions.registry import RowNumber
from hmp_node.actions.send import llm_of
from hmp_node.errors import Reject, Rejected
from hmp_node.store import concepts
from hmp_node.store.concepts import Concept, Link
from hmp_node.store.database import Reader, Tx
from hmp_node.store.trail import CONCEPT, LINK

Ref: TypeAlias = RowNumber | Name  # a concept by its id or its name
_NAME = ("the name of a concept", MAX_NAME)


async def find(reader: Reader, ref: int | str) -> int:
    """The concept of this id, or of this name in any case. NOT_FOUND."""
    if isinstance(ref, int):
        if not await concepts.by_ids(reader, [ref]):
            raise not_found("concept", [ref])
        return ref
    concept_id = await named(reader, ref)
    if concept_id is None:
        raise Rejected(Reject.NOT_FOUND, f"there is no concept {ref[:80]!r}", remedy="`concept.search` looks for words")
    return concept_id


async def spellings(reader: Reader, refs: Iterable[int | str]) -> dict[str, str]:
    """For each name of no concept that differs from a concept's in case only: that concept's name.

    It goes through all names there are, which is why it is done before a write and not in it.
    """
    found: dict[str, str] = {}
    for ref in refs:
        if isinstance(ref, str) and (concept_id := await named(reader, ref)) is not None:
            found.update((check_line(ref, *_NAME), one.name) for one in await concepts.by_ids(reader, [concept_id]))
    return found


async def find_or_add(ctx: Context, tx: Tx, actor: Actor, ref: int | str, known: Mapping[str, str]) -> int:
    """The concept of this id or name, ``known`` from `spellings`; a name of none becomes one. NOT_FOUND for an id."""
    if isinstance(ref, int):
        return await find(tx, ref)
    name = check_line(ref, *_NAME)
    concept_id = await concepts.named(tx, name)
    if concept_id is None and name in known:
        concept_id = await concepts.named(tx, known[name])
    return await create(ctx, tx, actor, name, None) if concept_id is None else concept_id


async def link_up(ctx: Context, tx: Tx, actor: Actor, triple: tuple[int, int, str]) -> int:
    """The link (from, to, relation); one that is there already stays as it is."""
    source, target, relation = triple
    link_id = await concepts.linked(tx, source, target, relation)
    if link_id is None:
        link_id = await concepts.add_link(
            tx, source=source, target=target, relation=relation, llm_id=llm_of(actor), now=ctx.now()
        )
        await wrote_link(ctx, tx, actor, link_id, None)
    return link_id


async def unlink(ctx: Context, tx: Tx, actor: Actor, link_id: int) -> None:
    """Delete a link, with its trail."""
    was = await trail.before(tx, LINK, link_id)
    await concepts.delete_link(tx, link_id)
    await trail.wrote(ctx, tx, actor, (LINK, link_id), was)


async def wrote_link(ctx: Context, tx: Tx, actor: Actor, link_id: int, was: dict[str, object] | None) -> None:
    """Keep the trail of a link that was made or changed."""
    (link,) = await concepts.links_by_ids(tx, [link_id])
    said = f"{link.from_name} {link.relation} {link.to_name}"
    await trail.wrote(ctx, tx, actor, (LINK, link_id), was, text=said)


async def named(reader: Reader, name: str) -> int | None:
    """The id of the concept of this name, in any case; None if there is none. BAD_ARGUMENT for what is no name."""
    return await concepts.called(reader, check_line(name, *_NAME))


async def create(ctx: Context, tx: Tx, actor: Actor, name: str, description: str | None) -> int:
    """A new concept, with its trail; gives its id."""
    concept_id = await concepts.add(tx, name=name, description=description, llm_id=llm_of(actor), now=ctx.now())
    await trail.wrote(ctx, tx, actor, (CONCEPT, concept_id), None, text=_said(name, description))
    return concept_id


async def change(ctx: Context, tx: Tx, actor: Actor, concept_id: int, words: tuple[str, str | None]) -> None:
    """Give a concept this name and description, if they are others than now."""
    was = await trail.before(tx, CONCEPT, concept_id)
    if was is not None and (was["name"], was["description"]) != words:
        name, description = words
        await concepts.change(tx, concept_id, name=name, description=description)
        await trail.wrote(ctx, tx, actor, (CONCEPT, concept_id), was, text=_said(name, description))


async def delete(ctx: Context, tx: Tx, actor: Actor, concept_id: int) -> None:
    """Delete a concept whose links are gone, with its trail."""
    was = await trail.before(tx, CONCEPT, concept_id)
    await concepts.delete(tx, concept_id)
    await trail.wrote(ctx, tx, actor, (CONCEPT, concept_id), was)


async def move_links(ctx: Context, tx: Tx, actor: Actor, old: Concept, kept: Concept) -> tuple[int, int]:
    """Links of ``old`` to ``kept``: (moved, dropped)."""
    moved = dropped = 0
    for link in await links_of(tx, old.id):
        source, target = (kept.id if end == old.id else end for end in (link.from_id, link.to_id))
        between = {link.from_id, link.to_id} == {old.id, kept.id}
        if between or await concepts.linked(tx, source, target, link.relation) is not None:
            await unlink(ctx, tx, actor, link.id)
            dropped += 1
            continue
        was = await trail.before(tx, LINK, link.id)
        await concepts.change_link(tx, link.id, source=source, target=target, relation=link.relation)
        await wrote_link(ctx, tx, actor, link.id, was)
        moved += 1
    return moved, dropped


async def links_of(tx: Tx, concept_id: int) -> list[Link]:
    """All links from and to a concept."""
    found: list[Link] = []
    while page := await concepts.links(
        tx, concept=concept_id, relation=None, before=found[-1].id if found else None, limit=MAX_PAGE
    ):
        found += page
    return found


def _said(name: str, description: str | None) -> str:
    return f"{name}: {description}" if description else name


def joined(kept: str | None, old: str | None) -> str | None:
    """Both descriptions; one, if it holds the other."""
    if not old or (kept and old in kept):
        return kept
    return f"{kept}\n\n{old}" if kept else old
