"""send, inbox, outbox, notes."""

from __future__ import annotations

import io
import json
import sys
import threading
from typing import Any

import pytest

from hmp_node.actions.feed import FeedEvent
from hmp_node.actions.note import NotePage
from hmp_node.actions.registry import Done
from hmp_node.actions.send import Sent, SentTo
from hmp_node.actions.views import Who
from hmp_node.errors import Denied, Deny, Failed, Failure, Reject, Rejected
from tests.cli.conftest import Cli
from tests.cli.scripted import BOB, EVE, NOW, Scripted, note, row
from tests.web.served import Served

CONTAINER = "did:hmp:container:" + "a" * 64
SENT = Sent(7, CONTAINER, [SentTo(BOB, "bob", "queued"), SentTo(EVE, None, "queued")])


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


# --- send -----------------------------------------------------------------------------------------------


def test_send_says_what_is_known_of_each_recipient(cli: Cli, node: Scripted) -> None:
    node.answers["note.send"] = SENT
    done = cli("send", "bob", EVE, "привет")
    assert (done.code, done.out, done.err) == (0, f"queued to bob ({BOB})\nqueued to {EVE}\n", "")
    assert node.args("note.send") == {"to": ["bob", EVE], "text": "привет", "tags": [], "priority": 0, "links": []}


def test_send_passes_every_option_on(cli: Cli, node: Scripted) -> None:
    node.answers["note.send"] = SENT
    words = "send bob x --tag a --tag b --priority -1 --reply-to 12 --link did:x --ttl 2h --key k-1"
    assert cli(*words.split()).code == 0
    name, args, key = node.asked[0]
    assert (name, key) == ("note.send", "k-1")
    assert args == {
        "to": ["bob"],
        "text": "x",
        "tags": ["a", "b"],
        "priority": -1,
        "links": ["did:x"],
        "reply_to": 12,
        "ttl_s": 7200,
    }
    cli("send", "bob", "x", "--reply-to", CONTAINER)
    assert node.args("note.send")["reply_to"] == CONTAINER


def test_a_text_that_looks_like_an_option_goes_behind_two_dashes(cli: Cli, node: Scripted) -> None:
    node.answers["note.send"] = SENT
    done = cli("send", "bob", "--", "--json")
    assert done.out.startswith("queued to bob")
    assert node.args("note.send")["text"] == "--json"


@pytest.mark.parametrize(
    ("data", "text"),
    [("один\nдва\n".encode(), "один\nдва"), (b"no newline", "no newline"), (b"two\n\n", "two\n"), (b"", "")],
)
def test_a_dash_reads_standard_input(
    cli: Cli, node: Scripted, monkeypatch: pytest.MonkeyPatch, data: bytes, text: str
) -> None:
    stdin(monkeypatch, data)
    node.answers["note.send"] = SENT
    assert cli("send", "bob", "-").code == 0
    assert node.args("note.send")["text"] == text


@pytest.mark.parametrize(("data", "code"), [(b"\xff\xfe", "bad_utf8"), (b"x" * (2 * 1024 * 1024 + 1), "too_large")])
def test_bad_standard_input_is_told(
    cli: Cli, node: Scripted, monkeypatch: pytest.MonkeyPatch, data: bytes, code: str
) -> None:
    stdin(monkeypatch, data)
    done = cli("send", "bob", "-", "--json")
    assert (done.code, done.value["error"]["code"]) == (2, code)
    assert not node.asked


def waited(met: bool, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"met": met, "rows": list(rows)}


def test_send_waits_for_a_state(cli: Cli, node: Scripted) -> None:
    node.answers["note.send"] = SENT
    node.answers["note.wait"] = waited(True, row(1, "delivered"), row(2, "read", EVE))
    done = cli("send", "bob", EVE, "x", "--wait", "delivered", "--timeout", "5")
    assert (done.code, done.out) == (0, f"delivered to bob ({BOB})\nread to {EVE}\n")
    assert node.args("note.wait") == {"note_id": 7, "state": "delivered", "timeout_s": 5.0}


def test_send_whose_time_runs_out_is_5_with_what_is_known(cli: Cli, node: Scripted) -> None:
    node.answers["note.send"] = SENT
    node.answers["note.wait"] = waited(False, row(1, "delivered"), row(2, "queued", EVE))
    done = cli("send", "bob", EVE, "x", "--wait", "delivered", "--timeout", "0.1")
    assert (done.code, done.out) == (5, f"delivered to bob ({BOB})\nqueued to {EVE}\n")
    assert "not delivered within 0.1 s (timed_out)" in done.err
    done = cli("send", "bob", EVE, "x", "--wait", "delivered", "--json")
    assert done.code == 5
    assert done.value["container_did"] == CONTAINER
    assert done.value["wait"]["met"] is False
    assert [to["state"] for to in done.value["recipients"]] == ["delivered", "queued"]


def test_send_that_can_never_arrive_is_1_with_the_reason(cli: Cli, node: Scripted) -> None:
    node.answers["note.send"] = SENT
    node.answers["note.wait"] = waited(False, row(1, "delivered"), row(2, "refused", EVE, reason="quarantine_full"))
    done = cli("send", "bob", EVE, "x", "--wait", "delivered")
    assert done.code == 1
    assert f"refused to {EVE}: quarantine_full" in done.out


def test_send_to_somebody_whose_key_is_unknown_does_not_claim_to_have_waited(cli: Cli, node: Scripted) -> None:
    node.answers["note.send"] = Sent(7, None, [SentTo(EVE, None, "queued", "key_unknown")])
    node.answers["note.wait"] = waited(False, row(1, "queued", EVE, reason="key_unknown"))
    done = cli("send", EVE, "x", "--wait", "sent")
    assert (done.code, done.out) == (5, f"queued to {EVE}: key_unknown\n")
    assert "key" in done.err
    node.answers["note.send"] = Sent(
        7, CONTAINER, [SentTo(BOB, "bob", "queued"), SentTo(EVE, None, "queued", "key_unknown")]
    )
    node.answers["note.wait"] = waited(False, row(1, "delivered"), row(2, "queued", EVE, reason="key_unknown"))
    assert cli("send", "bob", EVE, "x", "--wait", "sent").code == 5


@pytest.mark.parametrize(
    ("error", "exits"),
    [
        (Rejected(Reject.AMBIGUOUS_NAME, f"'bob' is not a name you gave; {BOB}, {EVE}"), 1),
        (Rejected(Reject.BAD_ARGUMENT, "text is empty"), 2),
        (Denied(Deny.BLOCKED, "blocked"), 4),
        (Failed(Failure.DISK_FULL, "no room"), 1),
    ],
)
def test_send_that_is_not_accepted(cli: Cli, node: Scripted, error: Exception, exits: int) -> None:
    node.answers["note.send"] = error
    done = cli("send", "bob", "x", "--wait", "sent")
    assert (done.code, done.out) == (exits, "")
    assert done.err == f"error: {error}\n"


# --- routes ---------------------------------------------------------------------------------------------


def by(kind: str, via: dict[str, Any] | None = None, why: str | None = None) -> dict[str, Any]:
    """How a row went."""
    return {"kind": kind, "via": via, "why": why}


CAROL = {"did": "did:hmp:agent:Carol1", "name": "carol", "announced": None}
DAVE = {"did": "did:hmp:agent:Dave1", "name": None, "announced": "D\x1b"}
RELAYS = [{"mailman": one, "state": "relayed", "reason": None, "at": NOW} for one in (CAROL, DAVE)]


@pytest.mark.parametrize(
    ("state", "more", "told"),
    [
        ("delivered", {"route": by("lan")}, "direct over LAN"),
        ("delivered", {"route": by("direct"), "relays": RELAYS}, "direct"),
        ("read", {"route": by("relayed", CAROL)}, "relayed through carol"),
        (
            "delivered",
            {"route": by("relayed", DAVE, "192.0.2.7:7440: refused\n")},
            "relayed through did:hmp:agent:Dave1 (calls itself D\\x1b) (192.0.2.7:7440: refused\\n)",
        ),
        ("delivered", {"route": by("relayed")}, "relayed"),
        ("relayed", {"relays": RELAYS[:1]}, "held by carol"),
        ("relayed", {"relays": RELAYS}, "held by carol, did:hmp:agent:Dave1 (calls itself D\\x1b)"),
        ("sent", {"relays": [RELAYS[0] | {"state": "lost"}]}, ""),
    ],
)
def test_the_route_of_a_note_is_told(cli: Cli, node: Scripted, state: str, more: dict[str, Any], told: str) -> None:
    node.answers["note.send"] = Sent(7, CONTAINER, [SentTo(BOB, "bob", "queued")])
    node.answers["note.wait"] = waited(True, row(1, state, **more))
    done = cli("send", "bob", "x", "--wait", "sent")
    assert done.out == f"{state} to bob ({BOB}){', ' if told else ''}{told}\n"
    value = cli("send", "bob", "x", "--wait", "sent", "--json").value["recipients"][0]
    assert (value["state"], value["route"]) == (state, more.get("route"))
    node.answers["note.outbox"] = {"rows": [row(1, state, **more)], "more": False}
    line = cli("outbox").out.splitlines()[1]
    assert line.partition("bob")[2].removesuffix("привет").strip() == (told or "-")


# --- inbox ----------------------------------------------------------------------------------------------


def stranger(number: int, text: str) -> Any:
    return note(number, text, quarantined=True, author=Who(EVE, None, "bob"))


def test_inbox_lists_oldest_first_and_strangers_apart(cli: Cli, node: Scripted) -> None:
    pages = [
        NotePage([note(3, "third", tags=["дом"], priority=2), note(2, "second\nline", read=True)], more=True),
        NotePage([stranger(9, "\x1b[2J buy")], more=False),
    ]
    node.answers["note.inbox"] = list(pages)
    done = cli("inbox")
    assert done.out.splitlines() == [
        "    2  2026-11-30 12:00:00Z  from bob",
        "       second line",
        "    3  2026-11-30 12:00:00Z  from bob  unread  priority 2  #дом",
        "       third",
        "older ones: --before 2",
        "quarantined, from strangers (hmp-node trust PEER Friend lets a peer in):",
        f"      9  2026-11-30 12:00:00Z  from {EVE} (calls itself bob)  unread",
        "         \\x1b[2J buy",
    ]
    assert [args["quarantined"] for _, args, _ in node.asked] == [False, True]


def test_inbox_as_json_never_mixes_strangers_in(cli: Cli, node: Scripted) -> None:
    node.answers["note.inbox"] = [NotePage([note(2)], more=False)]
    done = cli("inbox", "--json")
    assert [item["id"] for item in done.value["notes"]] == [2]
    assert len(node.asked) == 1


def test_inbox_passes_every_option_on(cli: Cli, node: Scripted) -> None:
    node.answers["note.inbox"] = NotePage([], more=False)
    words = "inbox --unread --quarantined --from bob --tag x --limit 5 --before 99"
    done = cli(*words.split())
    assert done.out == "no notes\n"
    asked = {"unread": True, "quarantined": True, "sender": "bob", "tag": "x", "limit": 5, "before": 99}
    assert [args for _, args, _ in node.asked] == [asked]


def test_inbox_follow_prints_what_is_there_and_then_what_comes(
    cli: Cli, node: Scripted, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three notes come while it follows: one event each for two, none for the third, which the page brings along."""
    answers = [
        NotePage([note(2, "second"), note(1, "first")], more=False),
        NotePage([note(4, "fourth"), note(3, "third"), note(2, "second")], more=False),
        Failed(Failure.INTERNAL, "enough"),
    ]
    node.answers["note.inbox"] = answers
    timer = threading.Timer(0.2, lambda: served.publish(*[FeedEvent(n, "note.received", {}) for n in (3, 4)]))
    timer.start()
    done = cli("inbox", "--follow", "--json")
    timer.join()
    assert done.code == 1
    *lines, error = map(json.loads, done.out.splitlines())
    assert [line["text"] for line in lines] == ["first", "second", "third", "fourth"]
    assert error["error"]["message"] == "enough"


def test_inbox_follow_turns_pages_back_to_what_it_has_seen(cli: Cli, node: Scripted, served: Served) -> None:
    node.answers["note.inbox"] = [
        NotePage([note(1)], more=False),
        NotePage([note(5), note(4)], more=True),
        NotePage([note(3), note(2)], more=True),
        NotePage([note(1)], more=False),
        Failed(Failure.INTERNAL, "enough"),
    ]
    timer = threading.Timer(0.2, lambda: served.publish(*[FeedEvent(n, "note.received", {}) for n in (1, 2)]))
    timer.start()
    done = cli("inbox", "--follow", "--limit", "2", "--json")
    timer.join()
    assert [json.loads(line).get("id") for line in done.out.splitlines()] == [1, 2, 3, 4, 5, None]


def test_inbox_follow_outlives_a_node_that_goes_down_for_a_moment(cli: Cli, node: Scripted, served: Served) -> None:
    node.answers["note.inbox"] = [
        NotePage([note(1)], more=False),
        Failed(Failure.NO_NODE, "just now"),
        NotePage([note(2)], more=False),
        Failed(Failure.INTERNAL, "enough"),
    ]
    timer = threading.Timer(0.2, lambda: served.publish(*[FeedEvent(n, "note.received", {}) for n in (1, 2, 3)]))
    timer.start()
    done = cli("inbox", "--follow", "--json")
    timer.join()
    assert [json.loads(line).get("id") for line in done.out.splitlines()] == [1, 2, None]


def test_inbox_follow_needs_a_node(cli: Cli) -> None:
    assert cli("inbox", "--follow").code == 3


# --- outbox and notes -----------------------------------------------------------------------------------


def test_outbox_shows_states_with_their_reasons(cli: Cli, node: Scripted) -> None:
    node.answers["note.outbox"] = {
        "rows": [row(2, "queued", EVE, reason="key_unknown"), row(1, "read", route=by("direct"))],
        "more": True,
    }
    done = cli("outbox", "--state", "queued", "--to", "bob", "--limit", "2")
    assert [line.split() for line in done.out.splitlines()] == [
        ["ID", "TIME", "STATE", "REASON", "TO", "ROUTE", "TEXT"],
        ["2", "2026-11-30", "12:00:00Z", "queued", "key_unknown", EVE, "-", "привет"],
        ["1", "2026-11-30", "12:00:00Z", "read", "-", "bob", "direct", "привет"],
        ["older", "ones:", "--before", "1"],
    ]
    assert node.args("note.outbox") == {"state": "queued", "to": "bob", "limit": 2, "before": None}


def test_notes_read_shows_the_whole_text_moved_in(cli: Cli, node: Scripted) -> None:
    node.answers["note.read"] = note(7, "one\nerror: two\x07", tags=["a"])
    done = cli("notes", "read", "7")
    assert done.out.startswith("author: bob\n")
    assert done.out.endswith("text:\n  one\n  error: two\\x07\n")
    assert cli("notes", "read", "7", "--json").value["text"] == "one\nerror: two\x07"


def test_notes_verbs_pass_their_words_on(cli: Cli, node: Scripted) -> None:
    node.answers |= {
        "note.list": NotePage([note(1)], more=False),
        "note.tag": note(1, tags=["a"]),
        "note.hide": Done(),
        "note.delete": Done(),
        "note.add": note(2, "buy milk", direction="local"),
    }
    for words in (
        ["list", "--tag", "t", "--source", "llm", "--hidden", "--limit", "3", "--before", "9"],
        ["tag", "1", "--add", "a", "--add", "b", "--remove", "c"],
        ["hide", "1"],
        ["hide", "1", "--show"],
        ["delete", "1"],
        ["add", "buy milk", "--tag", "home", "--priority", "1", "--key", "k"],
    ):
        assert cli("notes", *words).code == 0
    assert node.asked == [
        ("note.list", {"tag": "t", "source": "llm", "hidden": True, "limit": 3, "before": 9}, node.asked[0][2]),
        ("note.tag", {"id": 1, "add": ["a", "b"], "remove": ["c"]}, node.asked[1][2]),
        ("note.hide", {"id": 1, "hidden": True}, node.asked[2][2]),
        ("note.hide", {"id": 1, "hidden": False}, node.asked[3][2]),
        ("note.delete", {"id": 1}, node.asked[4][2]),
        ("note.add", {"text": "buy milk", "tags": ["home"], "priority": 1}, "k"),
    ]
