"""Dialling back: only where the request comes from, only for work, and nobody is believed about a third address."""

from __future__ import annotations

import itertools

import pytest

from hmp_node.mesh.events import Dial, DialFailed, Effect, Mine, Mined, Opened, Perform, Send, SendHandshake, Started
from hmp_node.mesh.handshake import Introduction
from hmp_node.mesh.probes import Probes
from hmp_node.mesh.reach import Budgets, Reach, global_ip
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.frames import DialBack, DialledBack, decode, encode
from hmp_node.wire.limits import Limits
from hmp_node.wire.pow import dial_text, prove, search
from tests.mesh.desk import Desk
from tests.mesh.kit import Bench, Person, closes, ephemerals, frames, of, performs, tells

ME, ALICE, BOB, CAROL, DAVE = (Person(name) for name in ("me", "alice", "bob", "carol", "dave"))
OURS, THEIRS, V6 = "8.8.4.4", "9.9.9.9", "2600::1"  # global ones; nothing is ever sent
PRIVATE = ("127.0.0.1", "localhost", "10.1.2.3", "192.168.1.1", "100.64.0.1", "169.254.1.1", "::1", "fe80::1%eth0")
NOWHERE = ("fd00::1", "192.0.2.1", "0.0.0.0", "224.0.0.1", "::ffff:10.0.0.1", "global", "", "example.org")


def work(asker: Person, responder: Person, port: int, bits: int = 16) -> int:
    """The work for one request."""
    nonce = search(dial_text(asker.did, responder.did, port), 0, 10_000_000, bits)
    assert nonce is not None
    return nonce


class Station:
    """`Reach` and its probes on a board."""

    def __init__(self, settings: MeshSettings | None = None, me: Person = ME) -> None:
        self.me = me
        self.desk = Desk(settings or MeshSettings(), fire=self._fire)
        self.probes = Probes(self.desk.board, me.myself(), ephemerals(1))
        self.reach = Reach(self.desk.board, me.did, self.probes)
        self.conns = itertools.count(100)
        self.works: dict[tuple[str, int], int] = {}

    def _fire(self, kind: str, key: int | str) -> None:
        {"probe": self.probes.fire, "reach": self.reach.fire}[kind](int(key))

    # --- as the one that is asked ---

    def ask(
        self, peer: Person = BOB, arrival: str = THEIRS, port: int = 7000, nonce: int | None = None, conn: int = 1
    ) -> list[Effect]:
        """Let a peer ask to be dialled back, with good work unless ``nonce``."""
        if nonce is None:
            key = (peer.did, port)
            if key not in self.works:
                self.works[key] = work(peer, self.me, port)
            nonce = self.works[key]
        self.reach.frame(peer.did, conn, arrival, DialBack(5, port, nonce))
        return self.desk.take()

    def answer(self, dial: Dial, peer: Person) -> list[Effect]:
        """Let a peer answer at a dialled address."""
        conn = next(self.conns)
        assert self.probes.opened(Opened(conn, True, dial.address, THEIRS, dial.want, dial.probe))
        theirs = Introduction(peer.myself(), initiator=False, want=None, ephemeral=ephemerals(2)())
        (first,) = of(self.desk.take(), SendHandshake)
        reply = theirs.receive(first.data)
        assert reply is not None
        assert self.probes.handshake(conn, reply)
        return self.desk.take()

    def fail(self, dial: Dial, reason: str = "refused: nothing listens there") -> list[Effect]:
        assert self.probes.dial_failed(DialFailed(dial.address, dial.want, reason, dial.probe))
        return self.desk.take()

    # --- as the one that asks ---

    def up(self, peer: Person, arrival: str = THEIRS, conn: int = 1) -> list[Effect]:
        self.reach.peer_up(peer.did, conn, arrival)
        return self.desk.take()

    def mine(self, mine: Mine) -> list[Effect]:
        """Let the work for one question be done."""
        assert mine.bits == 16
        nonce = search(mine.text, 0, 10_000_000, 4)  # whoever is asked would see that it is too little; nobody does
        assert self.reach.mined(mine.id, nonce)
        return self.desk.take()

    def hear(self, peer: Person, number: int, address: str = f"{OURS}:7000", code: str = "ok") -> list[Effect]:
        self.reach.frame(peer.did, 1, THEIRS, DialledBack(number, address, code))
        return self.desk.take()


def codes(effects: list[Effect]) -> list[tuple[str, str]]:
    return [(frame.address, frame.code) for frame in frames(effects) if isinstance(frame, DialledBack)]


def reached(effects: list[Effect]) -> list[object]:
    return [perform.argument for perform in performs(effects, "node.reached")]


def asked(effects: list[Effect]) -> list[Mine]:
    return of(effects, Mine)


# --- dialling back for others ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrival", "address"), [(THEIRS, "9.9.9.9:7000"), (V6, "[2600::1]:7000"), ("::ffff:9.9.9.9", "9.9.9.9:7000")]
)
def test_a_peer_that_paid_is_dialled_where_it_comes_from(arrival: str, address: str) -> None:
    here = Station()
    here.up(BOB, arrival)
    (dial,) = of(here.ask(arrival=arrival), Dial)
    assert (dial.address, dial.want) == (address, BOB.did)
    assert dial.probe
    effects = here.answer(dial, BOB)
    assert codes(effects) == [(address, "ok")]
    assert [(send.conn, send.frame) for send in of(effects, Send)] == [(1, DialledBack(5, address, "ok"))]
    assert set(closes(effects).values()) == {"probed"}


@pytest.mark.parametrize("arrival", PRIVATE + NOWHERE)
def test_no_private_address_is_dialled_for_anybody(arrival: str) -> None:
    here = Station()
    here.up(BOB, arrival)
    effects = here.ask(arrival=arrival)
    assert codes(effects) == [("", "private_address")]
    assert of(effects, Dial) == []


def test_a_request_without_work_or_with_work_for_another_purpose_is_refused() -> None:
    here = Station()
    here.up(BOB)
    nonce = work(BOB, ME, 7000)
    for wrong in (0, nonce + 1, 2**63 - 1, work(ALICE, ME, 7000), work(BOB, ALICE, 7000)):
        if not prove(dial_text(BOB.did, ME.did, 7000), wrong, 16):
            assert codes(here.ask(nonce=wrong)) == [("", "weak_work")]
    assert codes(here.ask(port=7001, nonce=nonce)) == [("", "weak_work")], "each port costs work of its own"
    assert of(here.desk.effects, Dial) == []
    assert of(here.ask(nonce=nonce), Dial), "and nothing of it counts against whoever pays at last"


def test_one_request_of_a_peer_at_a_time_and_so_many_in_an_hour() -> None:
    here = Station()
    here.up(BOB)
    for _ in range(6):
        (dial,) = of(here.ask(), Dial)
        assert codes(here.ask()) == [("", "busy")]
        assert codes(here.fail(dial)) == [("9.9.9.9:7000", "refused")]
        here.desk.wait(60)
    assert codes(here.ask()) == [("", "budget_count")]
    here.desk.wait(3600 - 6 * 60)
    assert of(here.ask(), Dial), "an hour after the first"
    here.desk.wait(30)
    assert codes(here.ask()) == [("", "budget_count")]


def test_many_peers_of_one_host_share_a_budget_and_many_hosts_the_places() -> None:
    here = Station(MeshSettings(dial_backs_per_host=3))
    crowd = [Person(f"p{n}") for n in range(8)]
    for n, peer in enumerate(crowd):
        here.up(peer, f"2600::{n + 1:x}")
        effects = here.ask(peer, f"2600::{n + 1:x}", nonce=work(peer, ME, 7000))
        if n < 3:
            (dial,) = of(effects, Dial)
            here.fail(dial)
        else:
            assert codes(effects) == [("", "budget_count")], "one /64"
    here = Station()
    for n, peer in enumerate(crowd):
        here.up(peer, f"9.9.9.{n}")
        effects = here.ask(peer, f"9.9.9.{n}", nonce=work(peer, ME, 7000))
        assert len(of(effects, Dial)) == (n < 4)
    assert codes(here.desk.effects) == [("", "busy")] * 4


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("refused: nothing listens there", ("9.9.9.9:7000", "refused")),
        ("wrong_network: it speaks another", ("9.9.9.9:7000", "wrong_network")),
        ("Something Nobody Foresaw", ("9.9.9.9:7000", "not_reached")),
        ("", ("9.9.9.9:7000", "not_reached")),
        ("busy: too many dials at once", ("", "busy")),
    ],
)
def test_the_answer_says_why_it_failed_in_a_word_and_nothing_if_we_did_not_try(
    reason: str, told: tuple[str, str]
) -> None:
    here = Station()
    here.up(BOB)
    (dial,) = of(here.ask(), Dial)
    effects = here.fail(dial, reason)
    assert codes(effects) == [told]
    (frame,) = frames(effects)
    assert decode(encode(frame), Limits()) == frame


def test_another_node_at_that_address_is_not_the_peer() -> None:
    here = Station()
    here.up(BOB)
    (dial,) = of(here.ask(), Dial)
    assert codes(here.answer(dial, ALICE)) == [("9.9.9.9:7000", "wrong_peer")]


def test_a_port_that_swallows_all_is_given_up_in_time() -> None:
    here = Station()
    here.up(BOB)
    here.ask()
    assert codes(here.desk.wait(15.1)) == [("9.9.9.9:7000", "timeout")]


def test_the_answer_goes_by_the_newest_channel_and_nowhere_if_there_is_none() -> None:
    here = Station()
    here.up(BOB)
    (dial,) = of(here.ask(), Dial)
    here.up(BOB, conn=2)
    assert [send.conn for send in of(here.fail(dial), Send)] == [2]
    (dial,) = of(here.ask(), Dial)
    here.reach.peer_down(BOB.did)
    assert of(here.fail(dial), Send) == []
    here.up(BOB, conn=3)
    assert of(here.ask(conn=3), Dial), "and its place is free again"


def test_no_free_probe_is_an_answer() -> None:
    here = Station(MeshSettings(max_probes=0))
    here.up(BOB)
    assert codes(here.ask()) == [("", "busy")]


def test_budgets_forget_whom_they_have_not_seen_for_longest() -> None:
    budgets = Budgets(3)
    for n in range(10):
        budgets.spend(f"p{n}", float(n))
    assert len(budgets._spent) == 3
    assert budgets.has("p0", 1, 10.0)
    assert not budgets.has("p9", 1, 10.0)
    assert budgets.has("p9", 1, 3609.0)


# --- asking to be dialled back --------------------------------------------------------------------------


def test_peers_with_a_global_address_are_asked_after_the_work_is_done() -> None:
    here = Station()
    here.reach.started(7000)
    (mine,) = asked(here.up(BOB))
    assert mine.text == dial_text(ME.did, BOB.did, 7000)
    effects = here.mine(mine)
    ((send, frame),) = [(send, send.frame) for send in of(effects, Send)]
    assert isinstance(frame, DialBack)
    assert (send.conn, frame.port) == (1, 7000)
    effects = here.hear(BOB, frame.number)
    assert reached(effects) == [{"address": "8.8.4.4:7000", "by": BOB.did, "code": "ok"}]
    assert here.hear(BOB, frame.number) == [], "once"


def test_a_refused_connection_is_news_too_but_a_refusal_to_try_is_not() -> None:
    here = Station()
    here.reach.started(7000)
    (mine,) = asked(here.up(BOB))
    here.mine(mine)
    assert reached(here.hear(BOB, mine.id, code="refused")) == [
        {"address": "8.8.4.4:7000", "by": BOB.did, "code": "refused"}
    ]
    (mine,) = asked(here.up(ALICE))
    here.mine(mine)
    assert here.hear(ALICE, mine.id, "", "busy") == []


@pytest.mark.parametrize("arrival", PRIVATE + NOWHERE)
def test_peers_of_our_own_network_are_not_asked(arrival: str) -> None:
    here = Station()
    here.reach.started(7000)
    assert here.up(BOB, arrival) == []
    assert global_ip(arrival) is None


def test_nobody_is_asked_where_there_is_no_need() -> None:
    here = Station()
    assert here.up(BOB) == []
    here.reach.started(0)
    assert here.desk.wait(4000) == []
    here.reach.started(7000)
    (mine,) = asked(here.desk.take())
    here.reach.started(0)
    assert not here.reach.mined(mine.id, 5)
    assert here.hear(BOB, mine.id) == []
    assert here.desk.wait(4000) == []


@pytest.mark.parametrize(
    "address",
    [
        "8.8.4.4:7001",  # another port
        "[2600::5]:7000",  # another family
        "10.0.0.1:7000",
        "127.0.0.1:7000",
        "169.254.169.254:7000",
        "ws://8.8.4.4:7000/mesh",
        "ws://8.8.4.4:7000/other",
        "008.8.4.4:7000",
        "example.org:7000",
        "8.8.4.4",
        "[::ffff:8.8.4.4]:7000",
        "x" * 255,
        "",
    ],
)
def test_no_peer_is_believed_about_an_address_it_cannot_have_dialled(address: str) -> None:
    here = Station()
    here.reach.started(7000)
    (mine,) = asked(here.up(BOB))
    here.mine(mine)
    assert here.hear(BOB, mine.id, address) == []
    assert here.hear(BOB, mine.id) == [], "nor given a second try"


def test_answers_without_a_question_are_ignored() -> None:
    here = Station()
    here.reach.started(7000)
    (mine,) = asked(here.up(BOB))
    here.up(ALICE)
    here.mine(mine)
    assert here.hear(BOB, mine.id + 1000) == []
    assert here.hear(ALICE, mine.id) == [], "another's question"
    here.reach.peer_down(BOB.did)
    assert here.hear(BOB, mine.id) == []


def test_three_peers_of_each_family_are_asked_and_again_after_half_an_hour() -> None:
    here = Station()
    here.reach.started(7000)
    fours = [Person(f"four{n}") for n in range(5)]
    sixes = [Person(f"six{n}") for n in range(2)]
    mines = [mine for n, peer in enumerate(fours) for mine in asked(here.up(peer, f"9.9.9.{n}"))]
    assert len(mines) == 3
    mines += [mine for n, peer in enumerate(sixes) for mine in asked(here.up(peer, f"2600:{n}::1"))]
    assert len(mines) == 5
    for mine in mines[:1] + mines[3:4]:
        here.mine(mine)
    here.hear(fours[0], mines[0].id)
    here.hear(sixes[0], mines[3].id, "[2600::1]:7000")
    assert len(reached(here.desk.effects)) == 2
    assert asked(here.desk.wait(1799)) == []
    again = asked(here.desk.wait(2))
    assert len(again) == 5
    texts = {mine.text for mine in again}
    for peer in (*fours[3:], *sixes):
        assert dial_text(ME.did, peer.did, 7000) in texts, "those asked longest ago come first"


def test_while_nobody_answers_others_are_asked_soon_and_then_less_often() -> None:
    here = Station()
    here.reach.started(7000)
    people = [Person(f"p{n}") for n in range(4)]
    for n, peer in enumerate(people):
        here.up(peer, f"9.9.9.{n}")
    assert asked(here.desk.wait(59)) == []
    texts = {mine.text for mine in asked(here.desk.wait(2))}
    assert len(texts) == 3
    assert dial_text(ME.did, people[3].did, 7000) in texts
    gaps: list[float] = []
    last = here.desk.mono
    while len(gaps) < 7:
        if asked(here.desk.wait(1)):
            gaps.append(round(here.desk.mono - last))
            last = here.desk.mono
    assert gaps == pytest.approx([120, 240, 480, 960, 1800, 1800, 1800], abs=1)
    mine = asked(here.desk.effects)[-1]
    here.mine(mine)
    whom = next(peer for peer in people if dial_text(ME.did, peer.did, 7000) == mine.text)
    assert reached(here.hear(whom, mine.id))
    here.desk.wait(1800)
    assert asked(here.desk.wait(61)), "a word in between brings the pace back"


def test_after_we_have_moved_the_first_peer_that_is_back_is_asked() -> None:
    here = Station()
    here.reach.started(7000)
    (mine,) = asked(here.up(BOB))
    here.mine(mine)
    here.hear(BOB, mine.id)
    here.desk.wait(300)
    here.reach.peer_down(BOB.did)
    assert asked(here.desk.take()) == []
    assert len(asked(here.up(BOB))) == 1
    assert len(asked(here.desk.wait(61))) == 1, "it does not answer"
    here.reach.peer_down(BOB.did)
    here.desk.wait(4000)
    assert len(asked(here.up(BOB))) == 1
    assert len(asked(here.desk.wait(61))) == 1, "nobody was there who could have answered meanwhile"


def test_a_peer_that_comes_and_goes_all_the_time_is_not_asked_all_the_time() -> None:
    here = Station()
    here.reach.started(7000)
    for _ in range(600):
        here.up(BOB)
        here.desk.wait(0.5)
        here.reach.peer_down(BOB.did)
        here.desk.wait(0.5)
    assert 1 <= len(asked(here.desk.effects)) <= 11
    assert here.reach._questions == {}
    assert here.reach._last_asked == {}


def test_another_port_begins_anew() -> None:
    here = Station()
    here.reach.started(7000)
    (old,) = asked(here.up(BOB))
    here.reach.started(7000)
    assert here.desk.take() == [], "a repeated start is none"
    here.reach.started(7001)
    (new,) = asked(here.desk.take())
    assert new.text == dial_text(ME.did, BOB.did, 7001)
    assert not here.reach.mined(old.id, 1)


def test_work_that_came_to_nothing_or_too_late_is_no_question() -> None:
    here = Station()
    here.reach.started(7000)
    (mine,) = asked(here.up(BOB))
    assert here.reach.mined(mine.id, None)
    assert here.desk.take() == []
    assert here.hear(BOB, mine.id) == []
    (late,) = asked(here.desk.wait(61))
    (mine,) = asked(here.desk.wait(121))
    assert not here.reach.mined(late.id, 1)
    here.reach.peer_down(BOB.did)
    assert not here.reach.mined(mine.id, 1)
    assert not here.reach.mined(4711, 1)
    assert here.desk.take() == []


def test_two_nodes_find_out_that_one_of_them_is_reachable() -> None:
    """Both sides together, through real frames: what one asks, the other takes."""
    asker, helper = Station(me=BOB), Station(me=ME)
    helper.up(BOB, OURS)
    asker.reach.started(7000)
    (mine,) = asked(asker.up(ME))
    assert asker.reach.mined(mine.id, search(mine.text, 0, 10_000_000, mine.bits))
    (question,) = frames(asker.desk.take())
    assert isinstance(question, DialBack)
    helper.reach.frame(BOB.did, 1, OURS, question)
    (dial,) = of(helper.desk.take(), Dial)
    (answer,) = [frame for frame in frames(helper.answer(dial, BOB)) if isinstance(frame, DialledBack)]
    asker.reach.frame(ME.did, 1, THEIRS, answer)
    assert reached(asker.desk.take()) == [{"address": f"{OURS}:7000", "by": ME.did, "code": "ok"}]


def test_a_whole_mesh_asks_and_is_asked() -> None:
    bench = Bench()
    bench.do(Started((bench.me.announce(),), 7000))
    conn = bench.connect(BOB, arrival=THEIRS)
    (mine,) = asked(bench.effects)
    assert mine.text == dial_text(bench.me.did, BOB.did, 7000)
    (question,) = frames(bench.do(Mined(mine.id, search(mine.text, 0, 10_000_000, 16))), conn)
    assert isinstance(question, DialBack)
    effects = bench.frame(conn, DialledBack(question.number, f"{OURS}:7000", "ok"))
    assert [(type(effect), effect.actor) for effect in of(effects, Perform)] == [(Perform, "system")]
    assert reached(effects) == [{"address": f"{OURS}:7000", "by": BOB.did, "code": "ok"}]
    effects = bench.frame(conn, DialBack(9, 7000, work(BOB, bench.me, 7000)))
    (dial,) = of(effects, Dial)
    effects = bench.do(DialFailed(dial.address, dial.want, "refused: nothing listens there", dial.probe))
    assert frames(effects, conn) == [DialledBack(9, "9.9.9.9:7000", "refused")]
    assert not tells(effects, "dial.failed"), "what we do for others is no trouble of ours"
    assert not performs(effects, "peer.unreached")
