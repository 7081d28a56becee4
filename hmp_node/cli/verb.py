"""How a verb is declared: its options, ``--json``, and an example in its help."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Verb(click.Command):
    """A command whose help ends with an example."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Add the Example section."""
        _write_example(self.example, formatter)


class Verbs(click.Group):
    """A group of commands, listed in the order they were declared, whose help ends with an example."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; ``note`` means ``notes``, since both come to mind."""
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, f"{cmd_name}s")

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names in the order of declaration."""
        return list(self.commands)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Add the Example section."""
        _write_example(self.example, formatter)


def _write_example(example: str, formatter: click.HelpFormatter) -> None:
    with formatter.section("Example"):
        for line in example.splitlines():
            formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def verb(name: str, *, example: str) -> Callable[[Callable[..., int | None]], Verb]:
    """Make a `Verb` of a function that takes the `Session` first and gives an exit code, None for 0."""

    def wrap(function: Callable[..., int | None]) -> Verb:
        with_json = click.option(
            "--json",
            is_flag=True,
            expose_value=False,
            callback=_use_json,
            help="Print one JSON value on standard output, and nothing else there.",
        )(click.pass_obj(function))
        return click.command(name, cls=Verb, example=example)(with_json)

    return wrap


def _use_json(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        ctx.obj.console.as_json = True


class Seconds(click.FloatRange):
    """A number of seconds within its range; what is no number at all (``nan``) is in no range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The seconds as a float."""
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


class Duration(click.ParamType[int]):
    """Seconds, or a number with s, m, h or d behind it: ``90``, ``15m``, ``7d``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The duration in whole seconds."""
        text = str(value)
        number, unit = (text[:-1], text[-1]) if text[-1:] in set("smhd") else (text, "s")
        if not (number.isascii() and number.isdigit() and 0 < len(number) < 10):
            self.fail(f"{text!r} is not a duration like 90, 15m, 12h or 7d", param, ctx)
        return int(number) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit]


PEER = click.argument("peer", metavar="PEER")
TIMEOUT = click.option("--timeout", type=Seconds(0.1, 3600), default=15.0, show_default=True, help="Seconds to try.")
