"""Agent tables: names, columns, values and conditions as a model would give them; once-only effects; taint."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions import table, table_checks
from hmp_node.actions.actors import Llm, Mcp, Peer, System
from hmp_node.actions.context import Command
from hmp_node.actions.registry import REGISTRY
from hmp_node.errors import Deny, Failed, Failure, HmpError
from hmp_node.store import trail
from hmp_node.store.agent_tables import AgentTables, TableSettings
from hmp_node.store.database import Tx
from hmp_node.store.trail import Taint
from tests.actions.sides import Clock, Side, side

MODEL = Llm("m1")
EVE = Taint("did:hmp:agent:Eve", "stranger")
QSO = [{"name": "call", "type": "text"}, {"name": "count", "type": "integer"}, {"name": "freq", "type": "real"}]


@pytest.fixture
async def node(alice: Side, tmp_path: Path) -> AsyncIterator[Side]:
    """Alice, whose tables stand beside her store."""
    alice.context.tables = AgentTables(tmp_path / "alice" / "tables.db")
    yield alice
    await alice.context.tables.close()


@pytest.fixture
async def qso(node: Side) -> Side:
    await node.do("table.create", name="qso", columns=QSO, description="contacts by radio")
    return node


def command(tick: int, ordinal: int, *taint: Taint, approved: bool = False) -> Command:
    return Command(tick, ordinal, f"t{tick}-{ordinal}", "m1", frozenset(taint), "user" if approved else None)


async def ask(node: Side, by: Command, name: str, /, **args: Any) -> Any:
    """As the loop does for a command of the model's."""
    return await node.actions.perform(MODEL, name, args, command=by)


async def code(node: Side, name: str, /, **args: Any) -> str:
    with pytest.raises(HmpError) as caught:
        await node.do(name, **args)
    return str(caught.value.code)


async def rows(node: Side, **args: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await node.do("table.select", name="qso", **args)).rows
    return found


# --- tables ---------------------------------------------------------------------------------------------


async def test_a_table_is_made_listed_and_dropped(node: Side) -> None:
    made = await node.do("table.create", MODEL, name="qso", columns=QSO, description="contacts")
    assert (made.name, made.description, made.llm_id, made.taint) == ("agent_x_qso", "contacts", "m1", [])
    assert [(column.name, column.type) for column in made.columns] == [tuple(column.values()) for column in QSO]
    assert await node.rows("SELECT table_name, description, schema FROM agent_tables") == [
        ("agent_x_qso", "contacts", made.schema)
    ]
    assert made.schema.startswith('CREATE TABLE "agent_x_qso"')
    assert (await node.do("table.list")).tables == [made]
    assert await code(node, "table.create", name="agent_x_qso", columns=QSO) == "name_taken"
    assert (await node.do("table.drop", name="agent_x_qso")).dropped == "agent_x_qso"
    assert (await node.do("table.list")).tables == []
    for name in ("table.drop", "table.select"):
        assert await code(node, name, name="qso") == "not_found"
    again = await node.do("table.create", name="qso", columns=QSO[:1])
    assert again.id > made.id
    assert await rows(node) == []


async def test_the_list_turns_its_pages(node: Side) -> None:
    for number in range(5):
        await node.do("table.create", name=f"t{number}", columns=QSO[:1])
    page = await node.do("table.list", limit=2)
    assert ([view.name for view in page.tables], page.more) == (["agent_x_t4", "agent_x_t3"], True)
    page = await node.do("table.list", limit=3, before=page.tables[-1].id)
    assert ([view.name for view in page.tables], page.more) == (["agent_x_t2", "agent_x_t1", "agent_x_t0"], False)


async def test_both_spellings_mean_the_same_table(qso: Side) -> None:
    await qso.do("table.insert", name="agent_x_qso", rows=[{"call": "a"}])
    await qso.do("table.insert", name=" qso ", rows=[{"call": "b"}])
    assert [row["call"] for row in await rows(qso)] == ["a", "b"]


HOSTILE = [
    'x"; DROP TABLE notes; --',
    "notes; DELETE FROM log_messages",
    "x' OR '1'='1",
    "sqlite_master; --",
    "agent_x_agent-x",
    "main.notes",
    "../node",
    "QSO",
    "таблица",
    "1st",
    "_id",
    "",
    "a" * 42,
    "x\u202e",
    "pragma user_version",
]


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_names_are_refused_everywhere(qso: Side, name: str) -> None:
    """Behaviour 39 (loop: 7): no name reaches anything but the agent's own tables."""
    before = await qso.rows("SELECT name, sql FROM sqlite_master ORDER BY name")
    for verb, args in (
        ("table.create", {"columns": QSO}),
        ("table.drop", {}),
        ("table.insert", {"rows": [{}]}),
        ("table.select", {}),
        ("table.update", {"where": {}, "set": {"call": "x"}}),
        ("table.delete", {"where": {}}),
    ):
        assert await code(qso, verb, name=name, **args) == "bad_argument"
    hostile: tuple[tuple[str, dict[str, Any]], ...] = (
        ("table.create", {"name": "other", "columns": [{"name": name, "type": "text"}]}),
        ("table.insert", {"name": "qso", "rows": [{name: "x"}]}),
        ("table.select", {"name": "qso", "columns": [name]}),
        ("table.select", {"name": "qso", "order": [name]}),
        ("table.select", {"name": "qso", "where": {name: 1}}),
        ("table.update", {"name": "qso", "where": {}, "set": {name: 1}}),
        ("table.update", {"name": "qso", "where": {}, "add": {name: 1}}),
        ("table.delete", {"name": "qso", "where": {name: 1}}),
    )
    for verb, args in hostile:
        assert await code(qso, verb, **args) == "bad_argument"
    assert await qso.rows("SELECT name, sql FROM sqlite_master ORDER BY name") == before


@pytest.mark.parametrize("name", ["notes", "log_messages", "agent_tables", "agent_log", "sqlite_master", "identity"])
async def test_tables_of_the_core_cannot_be_touched(qso: Side, name: str) -> None:
    """Behaviour 39 (loop: 7): the core's names are names in the other file only."""
    await qso.do("note.add", text="mine")
    for verb, args in (
        ("table.select", {}),
        ("table.drop", {}),
        ("table.insert", {"rows": [{}]}),
        ("table.delete", {"where": {}}),
        ("table.update", {"where": {}, "set": {"text": "x"}}),
    ):
        assert await code(qso, verb, name=name, **args) == "not_found"
    assert (await qso.do("table.create", name=name, columns=QSO)).name == f"agent_x_{name}"
    await qso.do("table.delete", name=name, where={})
    await qso.do("table.drop", name=name)
    assert [note.text for note in (await qso.do("note.list")).notes] == ["mine"]


async def test_no_sql_in_a_value_or_condition_is_run(qso: Side) -> None:
    evil = "x'); DROP TABLE agent_x_qso; ATTACH 'node.db' AS core; --"
    await qso.do("table.insert", name="qso", rows=[{"call": evil, "count": 1}, {"call": "other", "count": 2}])
    assert [row["id"] for row in await rows(qso, where={"call": {"=": evil}})] == [1]
    assert [row["id"] for row in await rows(qso, where={"call": {"in": [evil, "' OR 1=1 --"]}})] == [1]
    for test in ({"like": "%"}, {"= 1 OR 1 =": 1}, {"glob": "*"}, {"in": {"a": 1}}, {"is not": 1}, {"": 1}):
        assert await code(qso, "table.select", name="qso", where={"count": test}) == "bad_argument"


@pytest.mark.parametrize(
    "columns",
    [
        [],
        [{"name": "id", "type": "integer"}],
        [{"name": "a", "type": "text"}, {"name": "a", "type": "real"}],
        [{"name": "a", "type": "blob"}],
        [{"name": "a", "type": "TEXT PRIMARY KEY"}],
        [{"name": "a"}],
        [{"name": "a", "type": "text", "default": "x"}],
        [{"name": f"c{number}", "type": "text"} for number in range(33)],
    ],
)
async def test_columns_that_cannot_be(node: Side, columns: list[dict[str, str]]) -> None:
    assert await code(node, "table.create", name="qso", columns=columns) == "bad_argument"
    assert not (node.context.home / "tables.db").exists()


# --- rows -----------------------------------------------------------------------------------------------


async def test_rows_in_every_script_come_back_as_they_were(qso: Side) -> None:
    calls = ["Привет, ёлка", "🚀👩‍🔬", "שלום", "line\nline", "\u202eevil", " spaces ", ""]
    inserted = await qso.do("table.insert", name="qso", rows=[{"call": call} for call in calls])
    assert inserted.ids == list(range(1, len(calls) + 1))
    assert [row["call"] for row in await rows(qso)] == calls
    assert [row["id"] for row in await rows(qso, where={"call": "Привет, ёлка"})] == [1]


@pytest.mark.parametrize(
    ("row", "refusal"),
    [
        ({"call": 5}, "bad_argument"),
        ({"call": True}, "bad_argument"),
        ({"call": ["x"]}, "bad_argument"),
        ({"call": {"x": 1}}, "bad_argument"),
        ({"count": "5"}, "bad_argument"),
        ({"count": 5.0}, "bad_argument"),
        ({"count": True}, "bad_argument"),
        ({"freq": "7.1"}, "bad_argument"),
        ({"id": 7}, "bad_argument"),
        ({"nowhere": 7}, "bad_argument"),
        ({"count": 2**63}, "bad_number"),
        ({"count": -(2**63) - 1}, "bad_number"),
        ({"count": 10**400}, "bad_number"),
        ({"freq": 10**400}, "bad_number"),
        ({"freq": float("inf")}, "bad_number"),
        ({"freq": float("nan")}, "bad_number"),
        ({"call": "a\0b"}, "bad_string"),
        ({"call": "\ud800"}, "bad_string"),
        ({"call": "ж" * 32_769}, "too_large"),
    ],
)
async def test_values_of_the_wrong_type_are_refused_and_nothing_is_stored(qso: Side, row: Any, refusal: str) -> None:
    assert await code(qso, "table.insert", name="qso", rows=[{"call": "good"}, row]) == refusal
    assert await rows(qso) == []
    if "id" not in row:
        await qso.do("table.insert", name="qso", rows=[{}])
        assert await code(qso, "table.update", name="qso", where={}, set=row) == refusal


async def test_conditions_update_and_delete(qso: Side) -> None:
    given = [("a", 1, 7.0), ("b", 2, 14.1), ("c", None, None), ("d", 4, 21.2)]
    await qso.do(
        "table.insert", name="qso", rows=[dict(zip(("call", "count", "freq"), row, strict=True)) for row in given]
    )
    for where, ids in (
        ({"freq": {">": 7, "<=": 14.1}}, [2]),
        ({"count": None}, [3]),
        ({"count": {"!=": None}}, [1, 2, 4]),
        ({"count": {"!=": 2}}, [1, 3, 4]),
        ({"count": {"null": True}, "call": "c"}, [3]),
        ({"id": {"in": [1, 4, 9]}}, [1, 4]),
        ({"call": {">=": "b"}, "count": {"<": 3.5}}, [2]),
        ({"call": "nobody"}, []),
    ):
        assert [row["id"] for row in await rows(qso, where=where)] == ids
    changed = await qso.do("table.update", name="qso", where={"id": {"<": 4}}, set={"call": "z"}, add={"count": 10})
    assert changed.updated == 3
    assert [(row["call"], row["count"]) for row in await rows(qso)] == [("z", 11), ("z", 12), ("z", 10), ("d", 4)]
    assert (await qso.do("table.delete", name="qso", where={"call": "z"})).deleted == 3
    assert (await qso.do("table.delete", name="qso", where={})).deleted == 1


@pytest.mark.parametrize(
    "where",
    [
        {"count": {}},
        {"count": {"<": None}},
        {"count": {"null": 1}},
        {"count": {"in": []}},
        {"count": {"in": [None]}},
        {"count": {"in": 5}},
        {"count": {"=": [1]}},
        {"count": "x"},
        {"call": 5},
        {"count": {"in": list(range(501))}},
        {"count": [1]},
        {"count": True},
    ],
)
async def test_conditions_that_are_not_understood(qso: Side, where: Any) -> None:
    await qso.do("table.insert", name="qso", rows=[{"count": 1}])
    assert await code(qso, "table.delete", name="qso", where=where) == "bad_argument"
    assert len(await rows(qso)) == 1


async def test_select_orders_pages_and_picks_columns(qso: Side) -> None:
    await qso.do("table.insert", name="qso", rows=[{"call": call, "count": n % 2} for n, call in enumerate("abcde")])
    page = await qso.do("table.select", name="qso", columns=["call"], order=["-count", "call"], limit=2, offset=1)
    assert (page.table, page.rows, page.more) == ("agent_x_qso", [{"call": "d"}, {"call": "a"}], True)
    assert list((await rows(qso, limit=1))[0]) == ["id", "call", "count", "freq"]
    for bad in ({"limit": 0}, {"limit": 101}, {"offset": -1}, {"order": ["--call"]}):
        assert await code(qso, "table.select", name="qso", **bad) == "bad_argument"


async def test_what_update_cannot_do(qso: Side) -> None:
    await qso.do("table.insert", name="qso", rows=[{"call": "a", "count": 2**63 - 1}])
    for args in (
        {},
        {"set": {"call": "x"}, "add": {"call": 1}},
        {"set": {"count": 1}, "add": {"count": 1}},
        {"add": {"call": 1}},
        {"add": {"id": 1}},
        {"add": {"count": 1.5}},
        {"add": {"count": 1}},
        {"set": {"id": 9}},
    ):
        assert await code(qso, "table.update", name="qso", where={}, **args) == "bad_argument"
    assert (await rows(qso))[0]["count"] == 2**63 - 1


async def test_limits_are_settings(alice: Side, tmp_path: Path) -> None:
    tables = AgentTables(tmp_path / "t.db", TableSettings(tables=1, columns=3, rows=2, cell_bytes=4))
    alice.context.tables = tables
    assert await code(alice, "table.create", name="a", columns=[*QSO, {"name": "x", "type": "text"}]) == "bad_argument"
    await alice.do("table.create", name="a", columns=QSO)
    assert await code(alice, "table.create", name="b", columns=QSO) == "too_many"
    assert await code(alice, "table.insert", name="a", rows=[{}] * 3) == "bad_argument"
    assert await code(alice, "table.insert", name="a", rows=[{"call": "12345"}]) == "too_large"
    await alice.do("table.insert", name="a", rows=[{"call": "жж"}] * 2)
    await tables.close()


async def test_a_node_without_tables_says_so(alice: Side) -> None:
    alice.context.tables = None
    with pytest.raises(Failed) as caught:
        await alice.do("table.create", name="a", columns=QSO)
    assert caught.value.code is Failure.NO_NODE
    assert (await alice.do("table.list")).tables == []


# --- the registry ---------------------------------------------------------------------------------------


def test_what_is_declared_of_the_actions() -> None:
    ours = {name: action for name, action in REGISTRY.items() if name.startswith("table.")}
    assert set(ours) == {"table.list", "table.select", *table.IDEMPOTENT}
    for name, action in ours.items():
        assert not action.undoable
        assert action.kind == ("external" if name in table.IDEMPOTENT else "read")
        assert action.capability == ("mind.write" if name in table.IDEMPOTENT else "mind.read")


@pytest.mark.parametrize("actor", [Peer("did:hmp:agent:x"), System()])
async def test_peers_and_the_node_itself_have_no_tables(qso: Side, actor: Peer | System) -> None:
    for name in sorted(table.IDEMPOTENT | {"table.list", "table.select"}):
        with pytest.raises(HmpError) as caught:
            await qso.actions.perform(actor, name, {"name": "qso"})
        assert caught.value.code is Deny.NO_CAPABILITY


async def test_a_coding_assistant_may_use_them(qso: Side) -> None:
    await qso.do("table.insert", Mcp("editor"), name="qso", rows=[{"call": "a"}])
    assert (await qso.do("table.list", Mcp("editor"))).tables[0].name == "agent_x_qso"


async def test_a_table_of_a_person_stands_in_the_log(qso: Side) -> None:
    await qso.do("table.drop", name="qso")
    logged = await qso.rows("SELECT sender_type, content FROM log_messages WHERE role = 'table' ORDER BY id")
    assert [kind for kind, _ in logged] == ["user", "user"]
    assert logged[0][1].startswith('contacts by radio\nCREATE TABLE "agent_x_qso"')
    assert logged[1][1] == "DROP TABLE agent_x_qso"


def test_names_are_normalised() -> None:
    assert table_checks.full_name("qso") == table_checks.full_name("agent_x_qso") == "agent_x_qso"
    with pytest.raises(HmpError):
        table_checks.full_name("agent_x_")


# --- once -----------------------------------------------------------------------------------------------


async def test_a_command_run_again_has_its_first_effect_only(node: Side) -> None:
    made = [await ask(node, command(1, 0), "table.create", name="qso", columns=QSO) for _ in range(2)]
    assert made[0] == made[1]
    inserted = [await ask(node, command(1, 1), "table.insert", name="qso", rows=[{"count": 0}]) for _ in range(3)]
    assert [one.ids for one in inserted] == [[1]] * 3
    for _ in range(3):
        changed = await ask(node, command(1, 2), "table.update", name="qso", where={"id": 1}, add={"count": 1})
        assert changed.updated == 1
    await ask(node, command(2, 0), "table.update", name="qso", where={"id": 1}, add={"count": 1})
    assert (await rows(node))[0]["count"] == 2
    assert [(await ask(node, command(3, 0), "table.delete", name="qso", where={})).deleted for _ in range(2)] == [1, 1]
    assert [(await ask(node, command(3, 1), "table.drop", name="qso")).dropped for _ in range(2)] == ["agent_x_qso"] * 2
    with pytest.raises(HmpError):
        await ask(node, command(3, 2), "table.drop", name="qso")


async def test_a_crash_between_file_and_list_is_repaired_by_the_next_try(alice: Side, tmp_path: Path) -> None:
    points: list[str] = []

    def probe(point: str) -> None:
        if point in points:
            points.remove(point)
            raise RuntimeError(point)

    tables = AgentTables(tmp_path / "tables.db", probe=probe)
    alice.context.tables = tables
    create, drop = command(1, 0), command(1, 1)
    points.append("tables.after_commit")  # the file has it, the list has not
    with pytest.raises(Failed):
        await ask(alice, create, "table.create", name="qso", columns=QSO)
    assert points == (await alice.do("table.list")).tables == []
    await ask(alice, create, "table.create", name="qso", columns=QSO)
    await alice.do("table.insert", name="qso", rows=[{"call": "kept"}])
    await ask(alice, create, "table.create", name="qso", columns=QSO)
    assert [row["call"] for row in await rows(alice)] == ["kept"]
    points.append("tables.before_commit")  # the list has it no more, the file still has
    with pytest.raises(Failed):
        await ask(alice, drop, "table.drop", name="qso")
    assert await code(alice, "table.select", name="qso") == "not_found"
    assert (await ask(alice, drop, "table.drop", name="qso")).dropped == "agent_x_qso"
    await tables.close()
    with sqlite3.connect(tables.path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'agent%'").fetchall() == []
    connection.close()


async def test_a_leftover_of_a_crash_gives_its_name_free(node: Side) -> None:
    tables = node.context.tables
    assert tables is not None
    await tables.create("agent_x_qso", {"old": "text"})
    await tables.insert("agent_x_qso", [{"old": "x"}])
    assert await code(node, "table.select", name="qso") == "not_found"
    await node.do("table.create", name="qso", columns=QSO)
    assert await rows(node) == []


async def test_rows_outlive_a_restart(tmp_path: Path) -> None:
    for run in range(2):
        async with side(tmp_path / "alice", "alice", clock=Clock()) as node:
            node.context.tables = AgentTables(tmp_path / "alice" / "tables.db")
            if not run:
                await node.do("table.create", name="qso", columns=QSO)
                await node.do("table.insert", name="qso", rows=[{"call": "R1AA"}])
            assert [row["call"] for row in await rows(node)] == ["R1AA"]
            await node.context.tables.close()


# --- taint ----------------------------------------------------------------------------------------------


async def test_under_taint_writing_waits_and_reading_does_not(qso: Side) -> None:
    writes: list[tuple[str, dict[str, Any]]] = [
        ("table.create", {"name": "x", "columns": QSO}),
        ("table.insert", {"name": "qso", "rows": [{"call": "x"}]}),
        ("table.update", {"name": "qso", "where": {}, "set": {"call": "x"}}),
        ("table.delete", {"name": "qso", "where": {}}),
        ("table.drop", {"name": "qso"}),
    ]
    for number, (name, args) in enumerate(writes):
        with pytest.raises(HmpError) as caught:
            await ask(qso, command(1, number, EVE), name, **args)
        assert caught.value.code is Deny.NEEDS_APPROVAL
    assert (await ask(qso, command(1, 9, EVE), "table.select", name="qso")).rows == []
    assert len((await ask(qso, command(1, 10, EVE), "table.list")).tables) == 1


async def test_what_a_tainted_tick_wrote_is_known_by_its_authors(qso: Side) -> None:
    await ask(qso, command(1, 0, EVE, approved=True), "table.insert", name="qso", rows=[{"call": "x"}])
    reads: list[tuple[str, dict[str, Any]]] = [("table.select", {"name": "qso"}), ("table.list", {})]
    for name, args in reads:
        result = await qso.do(name, **args)
        assert list(REGISTRY[name].authors(result)) == [EVE.author]
    made = await ask(qso, command(1, 1, EVE, approved=True), "table.create", name="other", columns=QSO)
    assert made.taint == [EVE.author]

    async def work(tx: Tx) -> None:
        await trail.clear(tx, "table", 1, now="t")

    await qso.db.write(work)
    assert (await qso.do("table.select", name="qso")).taint == []
    untouched = await qso.do("table.create", name="third", columns=QSO)
    assert untouched.taint == []
