"""Timers and reads: the common ground of the mesh's parts."""

from __future__ import annotations

import random

from hmp_node.mesh.board import Board, Timers
from hmp_node.mesh.events import PeersToDial
from hmp_node.mesh.settings import MeshSettings


def test_timers_are_due_in_order_and_once() -> None:
    timers = Timers()
    timers.set(("b", 1), 2.0)
    timers.set(("a", 1), 1.0)
    timers.set(("c", 1), 3.0)
    assert timers.next() == 1.0
    assert list(timers.due(2.0)) == [("a", 1), ("b", 1)]
    assert list(timers.due(2.0)) == []
    assert timers.next() == 3.0


def test_a_timer_set_again_moves_and_a_cancelled_one_sleeps() -> None:
    timers = Timers()
    timers.set(("a", 1), 1.0)
    timers.set(("a", 1), 5.0)
    timers.set(("b", 1), 2.0)
    timers.cancel(("b", 1))
    assert list(timers.due(4.0)) == []
    assert timers.next() == 5.0
    timers.set(("a", 1), 3.0)
    assert list(timers.due(4.0)) == [("a", 1)]
    assert timers.next() is None


def test_timers_set_while_due_ones_run_are_run_too() -> None:
    timers = Timers()
    timers.set(("a", 1), 1.0)
    seen = []
    for key in timers.due(2.0):
        seen.append(key)
        if key == ("a", 1):
            timers.set(("b", 1), 0.5)
    assert seen == [("a", 1), ("b", 1)]


def test_timers_moved_many_times_do_not_grow() -> None:
    timers = Timers()
    for at in range(100_000):
        timers.set(("a", at % 10), float(at))
    assert len(timers) == 10
    assert len(timers._heap) < 200


def test_an_answer_goes_to_its_reader_once_and_an_unwanted_one_nowhere() -> None:
    board = Board(MeshSettings(), random.Random(0))
    got: list[object] = []
    first = board.read(PeersToDial(1), lambda rows: got.append(("first", rows)))
    second = board.read(PeersToDial(1), lambda rows: got.append(("second", rows)))
    board.unread(first)
    board.answer(first, [(1,)])
    board.answer(second, [(2,)])
    board.answer(second, [(3,)])
    assert got == [("second", [(2,)])]
    assert board.reading == 0
