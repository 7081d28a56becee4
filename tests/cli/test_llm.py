"""llm list, register, update, remove, select, test."""

from __future__ import annotations

from typing import Any

from hmp_node.actions import llm as actions  # noqa: F401 enters its actions
from hmp_node.actions.registry import Done
from tests.cli.conftest import Cli
from tests.cli.scripted import NOW, Scripted

USED = {"calls": 3, "prompt_tokens": 1000, "reply_tokens": 50}
BUDGETS = {"calls_per_hour": 240, "calls_per_day": 0, "tokens_per_hour": 500_000, "tokens_per_day": 0}


def model(llm_id: str = "one", **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": llm_id,
        "name": llm_id,
        "description": None,
        "url": "http://127.0.0.1:11434/v1",
        "model": "qwen",
        "key_env": None,
        "key_file": None,
        "window": 16_384,
        "reply_tokens": 2_048,
        "rank": 0,
        "enabled": True,
        "tools": "yes",
        "json_mode": "unknown",
        "state": "ok",
        "state_at": NOW,
        "registered_at": NOW,
        "hour": USED,
        "day": USED,
    }
    return fields | more


def table(*models: dict[str, Any]) -> dict[str, Any]:
    return {"llms": list(models), "usage": {"hour": USED, "day": USED}, "budgets": BUDGETS}


def test_models_are_listed_with_what_they_used(cli: Cli, node: Scripted) -> None:
    node.answers["llm.list"] = table(model(), model("two", enabled=False, model="a\x1b[2J", tools="no"))
    done = cli("llm", "list")
    assert [line.split() for line in done.out.splitlines()] == [
        ["ID", "MODEL", "URL", "STATE", "TOOLS", "WINDOW", "CALLS", "TOKENS"],
        ["one", "qwen", "http://127.0.0.1:11434/v1", "ok", "yes", "16384", "3", "1050"],
        ["two", "a\\x1b[2J", "http://127.0.0.1:11434/v1", "off", "no", "16384", "3", "1050"],
        ["this", "hour:", "3", "of", "240", "calls,", "1050", "of", "500000", "tokens"],
        ["this", "day:", "3", "calls,", "1050", "tokens"],
    ]
    assert [one["id"] for one in cli("llm", "list", "--json").value["llms"]] == ["one", "two"]
    node.answers["llm.list"] = table()
    assert "no model is registered" in cli("llm", "list").out


def test_words_are_passed_on(cli: Cli, node: Scripted) -> None:
    node.answers |= {
        "llm.register": model(),
        "llm.update": model(),
        "llm.remove": Done(),
        "llm.select": Done(),
    }
    url = "http://127.0.0.1:11434/v1"
    for words in (
        ["register", "one", url, "--model", "qwen", "--key-env", "K", "--window", "4096", "--rank", "2"],
        ["update", "one", "--off", "--key-env", "", "--tools", "unknown"],
        ["select", "one"],
        ["remove", "one"],
    ):
        assert cli("llm", *words).code == 0
    assert [(name, args) for name, args, _ in node.asked] == [
        (
            "llm.register",
            {
                "id": "one",
                "url": url,
                "model": "qwen",
                "name": "",
                "description": "",
                "key_env": "K",
                "key_file": "",
                "window": 4096,
                "reply_tokens": 2048,
                "rank": 2,
            },
        ),
        ("llm.update", {"id": "one", "enabled": False, "key_env": "", "tools": "unknown"}),
        ("llm.select", {"id": "one"}),
        ("llm.remove", {"id": "one"}),
    ]


def test_a_test_tells_and_exits_by_what_it_found(cli: Cli, node: Scripted) -> None:
    node.answers["llm.test"] = {"ok": True, "detail": "qwen answered\x07", "remedy": "", "models": ["qwen"], "ms": 7}
    done = cli("llm", "test")
    assert (done.code, done.out.splitlines()) == (0, ["ok qwen answered\\x07", "   it lists: qwen"])
    assert node.asked[-1][1] == {"id": "default", "reply": True}
    node.answers["llm.test"] = {"ok": False, "detail": "refused", "remedy": "is it running?", "models": [], "ms": 7}
    done = cli("llm", "test", "one", "--no-reply")
    assert (done.code, done.out.splitlines()) == (1, ["!! refused", "   is it running?"])
    assert node.asked[-1][1] == {"id": "one", "reply": False}
    assert cli("llm", "test", "one", "--json").value["ok"] is False
