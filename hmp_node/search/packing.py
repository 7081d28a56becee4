"""Hits into a token budget for a prompt, without saying a thing twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hmp_node.search.words import fold, typed

Id = TypeVar("Id")

SAME = 0.8
"""The share of a text's three-word runs that another has to hold to count as saying it too."""

BYTES_PER_TOKEN = 3
_RUN = 3


@dataclass(frozen=True, slots=True)
class Passage(Generic[Id]):
    """A hit on its way into a prompt. ``place``: (conversation, number of the turn) of a turn, by which neighbours are
    known."""

    id: Id
    text: str
    place: tuple[str, int] | None = None


_Places = dict[tuple[str, int], Passage[Id]]


@dataclass(frozen=True, slots=True)
class Packed(Generic[Id]):
    """``passages`` fit the budget: best first, but turns of one conversation that follow each other stand together.

    ``repeats``: (id of a passage left out, id of the one that says it too). ``unfit``: ids that were left out for want
    of room. ``tokens``: what the passages take.
    """

    passages: tuple[Passage[Id], ...]
    repeats: tuple[tuple[Id, Id], ...]
    unfit: tuple[Id, ...]
    tokens: int


def tokens_of(text: str) -> int:
    """A careful guess, for when the model's own count is not to be had."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def pack(
    passages: Sequence[Passage[Id]],
    budget: int,
    *,
    count: Callable[[str], int] = tokens_of,
    overhead: int = 0,
) -> Packed[Id]:
    """Take passages, best first, while ``budget`` tokens last; one that is too long lets shorter ones after it in.

    ``overhead``: tokens each passage costs beside its text, for its heading and separators.
    """
    taken: list[_Taken[Id]] = []
    repeats: list[tuple[Id, Id]] = []
    unfit: list[Id] = []
    left = budget
    for passage in passages:
        one = _Taken(passage, _runs(passage.text), count(passage.text) + overhead)
        said = next((other for other in taken if _holds(other, one)), None)
        part = next((at for at, other in enumerate(taken) if _holds(one, other)), None)
        if said is not None:
            repeats.append((passage.id, said.passage.id))
        elif part is not None and one.cost - taken[part].cost <= left:
            left -= one.cost - taken[part].cost
            repeats.append((taken[part].passage.id, passage.id))
            taken[part] = one
        elif one.cost <= left:
            left -= one.cost
            taken.append(one)
        else:
            unfit.append(passage.id)
    return Packed(tuple(_joined([one.passage for one in taken])), tuple(repeats), tuple(unfit), budget - left)


@dataclass(frozen=True, slots=True)
class _Taken(Generic[Id]):
    passage: Passage[Id]
    runs: frozenset[tuple[str, ...]]
    cost: int


def _joined(passages: Sequence[Passage[Id]]) -> list[Passage[Id]]:
    """Turns that follow each other brought together, where the best of them stands."""
    at: _Places[Id] = {one.place: one for one in passages if one.place is not None}
    done: set[int] = set()
    joined: list[Passage[Id]] = []
    for passage in passages:
        for one in _row(passage, at):
            if id(one) not in done:
                done.add(id(one))
                joined.append(one)
    return joined


def _row(passage: Passage[Id], at: _Places[Id]) -> list[Passage[Id]]:
    if passage.place is None or at.get(passage.place) is not passage:
        return [passage]
    conversation, first = passage.place
    while (conversation, first - 1) in at:
        first -= 1
    row = []
    while (conversation, first) in at:
        row.append(at[conversation, first])
        first += 1
    return row


def _holds(one: _Taken[Id], other: _Taken[Id]) -> bool:
    """Whether the first says what the second does."""
    return len(other.runs & one.runs) >= SAME * len(other.runs)


def _runs(text: str) -> frozenset[tuple[str, ...]]:
    """Runs of three words; of a shorter text its words; of one without words the text itself."""
    said = [fold(word) for word in typed(text)]
    if len(said) < _RUN:
        return frozenset([tuple(said) or (text.strip(),)])
    return frozenset(tuple(said[start : start + _RUN]) for start in range(len(said) - _RUN + 1))
