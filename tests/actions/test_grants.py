"""The owner's rules in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hmp_node.errors import HmpError
from tests.actions.sides import Side, side


async def table(side_: Side) -> set[tuple[str, str, str, bool, int | None, int | None]]:
    grants = (await side_.do("grant.list")).grants
    return {(g.subject, g.kind, g.direction, g.allow, g.count_per_day, g.bytes_per_day) for g in grants}


FIRST = {
    ("*", "notes", "in", True, 20, 262_144),
    ("*", "notes", "out", True, None, None),
    ("*", "containers", "in", True, 20, 262_144),
    ("tag:Friend", "notes", "in", True, None, None),
    ("tag:Friend", "notes", "out", True, None, None),
}


async def test_the_first_grants_are_given_once(tmp_path: Path) -> None:
    async with side(tmp_path / "a", "alice") as one:
        assert await table(one) == FIRST
        await one.do("grant.remove", subject="*", kind="notes", direction="out")
    async with side(tmp_path / "a", "alice") as one:
        assert await table(one) == FIRST - {("*", "notes", "out", True, None, None)}


async def test_a_grant_replaces_the_one_there_was(alice: Side, bob: Side) -> None:
    await alice.do("peer.alias", name="bob", did=bob.did)
    await alice.do("grant.add", subject="bob", kind="notes", direction="in", count_per_day=5)
    await alice.do("grant.add", subject=bob.did, kind="notes", direction="in", allow=False)
    assert await table(alice) - FIRST == {(bob.did, "notes", "in", False, None, None)}
    await alice.do("grant.remove", subject="BOB", kind="notes", direction="in")
    assert await table(alice) == FIRST


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"subject": "nobody"}, "unknown_name"),
        ({"subject": "tag:"}, "bad_argument"),
        ({"subject": "tag:a,b"}, "bad_argument"),
        ({"subject": "*", "kind": "Notes"}, "bad_argument"),
        ({"subject": "*", "kind": ""}, "bad_argument"),
        ({"subject": "*", "direction": "both"}, "bad_argument"),
        ({"subject": "*", "count_per_day": -1}, "bad_argument"),
        ({"subject": "*", "ttl_s": 0}, "bad_argument"),
    ],
)
async def test_bad_grants(alice: Side, args: dict[str, Any], code: str) -> None:
    with pytest.raises(HmpError) as caught:
        await alice.do("grant.add", **{"kind": "notes", "direction": "in"} | args)
    assert str(caught.value.code) == code
    assert await table(alice) == FIRST


async def test_an_unknown_kind_is_told_the_known_ones(alice: Side, bob: Side) -> None:
    """A grant that nothing asks for would only look like one."""
    with pytest.raises(HmpError) as caught:
        await alice.do("grant.add", subject=bob.did, kind="bogus", direction="in", allow=False)
    assert str(caught.value.code) == "bad_argument"
    assert "notes, containers" in caught.value.message
    assert await table(alice) == FIRST


async def test_removing_what_is_not_there(alice: Side) -> None:
    with pytest.raises(HmpError) as caught:
        await alice.do("grant.remove", subject="tag:X", kind="notes", direction="in")
    assert str(caught.value.code) == "not_found"
