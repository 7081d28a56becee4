"""Verbs of the models that the mind may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from hmp_node.cli.render import columns, done, fields
from hmp_node.cli.session import Session
from hmp_node.cli.text import safe
from hmp_node.cli.verb import Verbs, verb

NAMES = ("id", "model", "url", "state", "tools", "window", "calls", "tokens")
TEST_S = 120.0  # a server may have to load the model first
ID = click.argument("llm_id", metavar="ID")
_HAS = click.Choice(["unknown", "yes", "no"])


@click.group("llm", cls=Verbs, example="hmp-node llm list")
def llm() -> None:
    """See and change the models that think.

    The one of node.yaml is called default. Keys are never given here: --key-env names a variable of the node's
    environment, --key-file a file that only you can read.
    """


@verb("list", example="hmp-node llm list")
def list_models(session: Session) -> None:
    """List the models, in the order they are asked, and what they have used."""
    session.show(session.read("llm.list"), lambda value: _table(value, session.console.columns))


def _table(value: Mapping[str, Any], room: int | None) -> Iterator[str]:
    empty = "no model is registered: set llm.url in node.yaml, or `hmp-node llm register`"
    yield from columns([_row(one) for one in value["llms"]], NAMES, room=room, empty=empty)
    for name, used in value["usage"].items():
        calls = _of(used["calls"], value["budgets"][f"calls_per_{name}"])
        tokens = _of(_tokens(used), value["budgets"][f"tokens_per_{name}"])
        yield f"this {safe(name)}: {calls} calls, {tokens} tokens"


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    state = one["state"] if one["enabled"] else "off"
    return {**one, "state": state, "calls": one["day"]["calls"], "tokens": _tokens(one["day"])}


def _tokens(used: Mapping[str, int]) -> int:
    return used["prompt_tokens"] + used["reply_tokens"]


def _of(used: int, budget: int) -> str:
    return safe(f"{used} of {budget}" if budget else used)


@verb("register", example="hmp-node llm register local http://127.0.0.1:11434/v1 --model qwen3:4b")
@ID
@click.argument("url", metavar="URL")
@click.option("--model", default="", help="Its name there; the first that is listed.")
@click.option("--name", default="", help="What to call it.")
@click.option("--description", default="", help="What it is good for; the mind reads it.")
@click.option("--key-env", default="", metavar="NAME", help="The variable that holds its key.")
@click.option("--key-file", default="", metavar="PATH", help="The file, of mode 0600, that holds its key.")
@click.option("--window", type=click.IntRange(min=1), default=16_384, show_default=True, help="Tokens it takes.")
@click.option("--reply-tokens", type=click.IntRange(min=1), default=2_048, show_default=True, help="Of them a reply's.")
@click.option("--rank", type=click.IntRange(min=0), default=100, show_default=True, help="Smaller is asked first.")
def register(session: Session, *, llm_id: str, **args: Any) -> None:
    """Register a model at URL, the address of an OpenAI-compatible server up to /v1."""
    session.show(session.perform("llm.register", {"id": llm_id, **args}), fields)


@verb("update", example="hmp-node llm update local --window 32768")
@ID
@click.option("--url", help="Its address.")
@click.option("--model", help="Its name there.")
@click.option("--name", help="What to call it.")
@click.option("--description", help="What it is good for.")
@click.option("--key-env", metavar="NAME", help="The variable that holds its key; '' for none.")
@click.option("--key-file", metavar="PATH", help="The file that holds its key; '' for none.")
@click.option("--window", type=click.IntRange(min=1), help="Tokens it takes.")
@click.option("--reply-tokens", type=click.IntRange(min=1), help="Of them a reply's.")
@click.option("--rank", type=click.IntRange(min=0), help="Smaller is asked first.")
@click.option("--on/--off", "enabled", default=None, help="Whether it is asked.")
@click.option("--tools", type=_HAS, help="Whether it has native tool calls; unknown: try again.")
@click.option("--json-mode", type=_HAS, help="Whether it has a JSON mode; unknown: try again.")
def update(session: Session, *, llm_id: str, **args: Any) -> None:
    """Change a registered model, or switch it off and on."""
    given = {name: value for name, value in args.items() if value is not None}
    session.show(session.perform("llm.update", {"id": llm_id, **given}), fields)


@verb("remove", example="hmp-node llm remove local")
@ID
def remove(session: Session, *, llm_id: str) -> None:
    """Forget a registered model."""
    session.show(session.perform("llm.remove", {"id": llm_id}), done)


@verb("select", example="hmp-node llm select local")
@ID
def select(session: Session, *, llm_id: str) -> None:
    """Have a model asked first."""
    session.show(session.perform("llm.select", {"id": llm_id}), done)


@verb("test", example="hmp-node llm test default")
@click.argument("llm_id", metavar="ID", default="default")
@click.option("--no-reply", is_flag=True, help="Only ask what the server lists; costs nothing.")
def test(session: Session, *, llm_id: str, no_reply: bool) -> int:
    """Ask a model's server what it lists, and the model for a word.

    Exits with 1 if it does not answer.
    """
    result = session.perform("llm.test", {"id": llm_id, "reply": not no_reply}, timeout=TEST_S)
    session.show(result, _tested)
    return 0 if result["ok"] else 1


def _tested(value: Mapping[str, Any]) -> Iterator[str]:
    yield f"{'ok' if value['ok'] else '!!'} {safe(value['detail'])}"
    if value["remedy"]:
        yield f"   {safe(value['remedy'])}"
    if value["models"]:
        yield f"   it lists: {', '.join(map(safe, value['models']))}"


for command in (list_models, register, update, remove, select, test):
    llm.add_command(command)

VERBS = (llm,)
