"""The gate of ticks that have read untrusted words: what runs, what waits, and whose words every result holds."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any

import pytest

from hmp_node.actions import gate, perform
from hmp_node.actions.registry import OUTSIDE, REGISTRY, Action, Done, Nothing, action, nobody
from hmp_node.store.trail import Taint

EVE, MALLORY, FRIEND = "did:hmp:agent:Eve", "did:hmp:agent:Mallory", "did:hmp:agent:Friend"
STRANGE, OTHER, FRIENDLY = Taint(EVE, "stranger"), Taint(MALLORY, "stranger"), Taint(FRIEND, "friend")
FILE, OUTPUT = Taint("file:/srv/a.txt", "data"), Taint("process:7", "data")

for _subject in ("file", "process", "script", "shell"):  # those that only a machine imports
    importlib.import_module(f"hmp_node.actions.{_subject}")
assert perform.SUBJECTS


def _names(text: str) -> list[str]:
    return text.split()


# Every action that a model holds has its place here; a new one has to be placed.
READS = _names("""
    approval.list concept.expand concept.list concept.read concept.search cycle.show cycle.status diary.list
    diary.read diary.relations diary.search diary.tag_stats file.list file.read grant.list link.list link.read
    llm.list log.head log.show log.verify mailman.list memory.as_of memory.get memory.history memory.links memory.list
    memory.recall memory.search node.help node.id node.status note.counts note.inbox note.list note.outbox note.show
    note.wait peer.list peer.show peer.verify process.list process.output project.get project.list reply.list
    script.list script.read session.list session.resume table.list table.select thought.list thought.read
    thought.search tick.list
""")
WRITES_ITS_OWN_MIND = _names("""
    concept.add concept.merge concept.pin concept.update cycle.idle cycle.mode cycle.pause cycle.set diary.add
    diary.link diary.pin diary.update link.add link.update memory.add memory.link memory.restore memory.supersede
    memory.unlink memory.update note.add note.mark_read note.read note.tag process.close project.add project.update
    session.save thought.add thought.pin thought.update
""")
WAITS = _names("""
    concept.delete diary.archive diary.delete diary.unlink file.write link.delete llm.select memory.archive
    node.doctor note.clean note.delete note.hide note.send note.update peer.find process.clean process.start
    process.stop project.archive reply.clean script.add script.delete script.run shell.run table.create table.delete
    table.drop table.insert table.update thought.delete
""")
# Results that hold nothing but rows whose taint the store knows by their kind and id (`once_command.RECORDS`, the note
# of a view), or facts of this node: they name no author themselves.
NAMES_NOBODY = _names("""
    concept.delete concept.list concept.merge concept.pin concept.read concept.search diary.add diary.archive
    diary.delete diary.list diary.pin diary.read diary.search diary.unlink file.write grant.list link.delete llm.list
    llm.select log.head log.verify memory.archive memory.link memory.restore memory.unlink node.help node.id
    node.status note.add note.clean note.counts note.delete note.hide note.mark_read note.send note.update peer.verify
    process.clean process.close process.start process.stop reply.clean script.add script.delete script.run shell.run
    table.delete table.drop table.insert table.update thought.add thought.delete thought.pin
""")
ITS_OWN_MATTERS = ("llm.update", "llm.register", "llm.remove", "grant.add", "grant.remove", "peer.trust", "peer.join")


def of_a_model() -> dict[str, Action]:
    return {name: one for name, one in REGISTRY.items() if "llm" in one.actors}


def waits(
    name: str, *taint: Taint, to: Collection[str | None] = (), conversers: Collection[str] = (EVE, FRIEND)
) -> bool:
    return gate.why_wait(REGISTRY[name], taint, recipients=to, conversers=conversers) is not None


def test_every_action_that_a_model_holds_is_placed() -> None:
    assert sorted(of_a_model()) == sorted([*READS, *WRITES_ITS_OWN_MIND, *WAITS])


@pytest.mark.parametrize("taint", [STRANGE, FRIENDLY, FILE, OUTPUT])
def test_what_runs_and_what_waits_after_untrusted_words(taint: Taint) -> None:
    held = [name for name in of_a_model() if waits(name, taint)]
    assert sorted(held) == sorted(WAITS)
    assert not [name for name in of_a_model() if waits(name)], "nothing waits if nobody's words were read"


def test_kinds_are_what_they_were_placed_for() -> None:
    for name in READS:
        assert REGISTRY[name].kind == "read", name
    for name in WRITES_ITS_OWN_MIND:
        assert REGISTRY[name].kind == "write", f"{name}: an effect beyond the store cannot be undone"
        assert REGISTRY[name].capability in ("mind.write", "notes.write", "loop.set"), name
    assert not [name for name in WRITES_ITS_OWN_MIND if name.endswith((".delete", ".clean", ".drop", ".send"))]


@pytest.mark.parametrize(
    ("taint", "to", "conversers", "passes"),
    [
        ([STRANGE], [EVE], [EVE], True),
        ([FRIENDLY], [FRIEND], [FRIEND], True),
        ([STRANGE, Taint(EVE, "friend")], [EVE], [EVE], True),
        ([STRANGE], [EVE, EVE], [EVE], True),
        ([STRANGE], [EVE], [], False),
        ([STRANGE], [EVE], [MALLORY], False),
        ([STRANGE], [MALLORY], [EVE, MALLORY], False),
        ([STRANGE], [EVE, MALLORY], [EVE, MALLORY], False),
        ([STRANGE], [None], [EVE], False),
        ([STRANGE], [EVE, None], [EVE], False),
        ([STRANGE], [], [EVE], False),
        ([STRANGE, OTHER], [EVE], [EVE, MALLORY], False),
        ([STRANGE, OTHER], [EVE, MALLORY], [EVE, MALLORY], False),
        ([STRANGE, FILE], [EVE], [EVE], False),
        ([STRANGE, OUTPUT], [EVE], [EVE], False),
        ([FILE], ["file:/srv/a.txt"], ["file:/srv/a.txt"], True),  # no file holds a grant, so nobody gets here
    ],
)
def test_whom_one_may_answer(taint: list[Taint], to: list[str | None], conversers: list[str], *, passes: bool) -> None:
    assert waits("note.send", *taint, to=to, conversers=conversers) is not passes


@pytest.mark.parametrize("name", [name for name in WAITS if name != "note.send"])
def test_converse_opens_nothing_but_sending(name: str) -> None:
    assert REGISTRY[name].recipients is nobody
    assert waits(name, STRANGE, to=list(REGISTRY[name].recipients(None)))


def test_the_reason_names_a_few_authors_and_counts_the_rest() -> None:
    many = [Taint(f"did:hmp:agent:{number}", "stranger") for number in range(5)]
    why = gate.why_wait(REGISTRY["note.send"], many, recipients=[EVE], conversers=[EVE])
    assert why is not None
    assert "did:hmp:agent:0, did:hmp:agent:1, did:hmp:agent:2 and 2 more" in why


def test_what_belongs_to_the_owner_is_not_even_held_by_a_model() -> None:
    for name in (*ITS_OWN_MATTERS, "approval.approve", "approval.refuse", "approval.clear", "tick.undo", "tick.show"):
        assert REGISTRY[name].actors == {"user"}, name
    for name in ("cycle.stop", "cycle.start", "cycle.think", "cycle.prompt", "log.export", "peer.block"):
        assert "llm" not in REGISTRY[name].actors, name
    for name in ("fetch", "render_html", "terminal_control", "sql", "log.delete", "config.set", "trust", "approve"):
        assert name not in REGISTRY


def test_whose_words_results_hold_is_declared() -> None:
    silent = {name for name, one in of_a_model().items() if one.authors is nobody}
    assert silent == set(NAMES_NOBODY)


def test_a_read_that_says_nothing_counts_as_somebodys_outside() -> None:
    """The default is on the safe side."""
    unknown: Any = object()

    @action("test.silent", args=Nothing, result=Done, capability="mind.read", kind="read", help="Say nothing.")
    async def silent(_ctx: Any, _actor: Any, _args: Nothing) -> Done:
        return Done()

    assert silent is not None
    assert list(REGISTRY.pop("test.silent").authors(unknown)) == [OUTSIDE]
    assert list(REGISTRY["node.doctor"].authors(unknown)) == [OUTSIDE]
