"""``hmp-node [--home DIR] VERB``: reads the words, runs the verb, turns what came of it into an exit code.

The rule of the exit codes stands in docs/reference/exit-codes.md.
Nothing heavy is imported here or by the verb modules: each verb imports what it needs when it runs.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

import hmp_node
from hmp_node.cli import (
    actions,
    assistant,
    find,
    grants,
    health,
    join,
    lifecycle,
    llm,
    log,
    mail,
    mailman,
    memory,
    mind,
    notes,
    peers,
    process,
    search,
    shell,
    think,
    transfer,
)
from hmp_node.cli.console import Console, unwritable, use_utf8
from hmp_node.cli.session import Session, home_of
from hmp_node.cli.verb import Verbs
from hmp_node.errors import Denied, Failed, Failure, HmpError, Reject, Rejected

USAGE = (
    Reject.BAD_ARGUMENT,
    Reject.UNKNOWN_ACTION,
    Reject.TOO_LARGE,
    Reject.TOO_DEEP,
    Reject.BAD_UTF8,
    Reject.BAD_JSON,
    Reject.BAD_STRING,
    Reject.BAD_NUMBER,
    Reject.DUPLICATE_KEY,
    Reject.KEY_REUSED,
    Reject.BAD_ADDRESS,
    Reject.BAD_CARD,
)
"""What the words of the command are to blame for: the same words would never do."""

EXIT_OF: dict[str, int] = {Failure.NO_NODE: 3, Failure.TIMED_OUT: 5} | dict.fromkeys(USAGE, 2)


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    example="hmp-node run\nhmp-node join 192.0.2.7:7440 --name bob\nhmp-node send bob 'привет'",
)
@click.version_option(hmp_node.__version__, prog_name="hmp-node")
@click.option("--home", metavar="DIR", help="The node's folder; else HMP_HOME, else ~/.hmp-node.")
@click.pass_context
def cli(ctx: click.Context, home: str | None) -> None:
    """A node of the HyperCortex Mesh: your agent's mind, mail and peers on your own machine."""
    if home == "":
        raise click.UsageError("--home names no folder")
    ctx.obj = Session(home_of(home), ctx.obj)


for module in (
    *(lifecycle, health, mail, notes, join, find, peers, mailman, grants),
    *(search, memory, transfer, llm, think, mind, process, shell, log, assistant, actions),
):
    for command in module.VERBS:
        cli.add_command(command)


def run(words: Sequence[str]) -> int:
    """Run one command line and give its exit code; every outcome is told on the streams."""
    use_utf8()
    console = Console()
    code = _run(words, console)
    unwritten = console.finish()
    if unwritten is not None:
        console.error(unwritten)
    return code if unwritten is None else code or 1


def _run(words: Sequence[str], console: Console) -> int:
    try:
        code = cli.main(args=list(words), prog_name="hmp-node", standalone_mode=False, obj=console)
    except click.exceptions.NoArgsIsHelpError as shown:
        shown.show()
        return 2
    except click.ClickException as error:
        console.as_json = "--json" in words  # the words may have failed before the option was read
        context = getattr(error, "ctx", None)
        remedy = f"see {context.command_path} --help" if context else ""
        console.error(Rejected(Reject.BAD_ARGUMENT, error.format_message(), remedy=remedy))
        return 2
    except (click.Abort, KeyboardInterrupt):
        return 130
    except SystemExit:  # click's way out when nobody reads the help any more
        return 0
    except Exception as error:
        told = _typed(error) or unwritable(error)
        if told is None:  # a fault of ours: tell it like any other, with the place
            traceback.print_exc()
            told = Failed(Failure.INTERNAL, f"{type(error).__name__}: {error}")
        console.error(told)
        return exit_code(told)
    return code if isinstance(code, int) else 0


def _typed(error: BaseException) -> HmpError | None:
    """The typed error this is, or that a group of jobs ended with; None if anything else is in it."""
    if isinstance(error, BaseExceptionGroup):
        _, strange = error.split(HmpError)
        return None if strange else _typed(error.exceptions[0])
    return error if isinstance(error, HmpError) else None


def exit_code(error: HmpError) -> int:
    """The exit code that tells an error's kind."""
    return EXIT_OF.get(error.code, 4 if isinstance(error, Denied) else 1)


def main(words: Sequence[str] | None = None) -> NoReturn:
    """The program."""
    sys.exit(run(list(map(_as_utf8, sys.argv[1:])) if words is None else words))


def _as_utf8(word: str) -> str:
    """A word of the command line as UTF-8, where the locale made Python read it as something less."""
    return word if word.isascii() else os.fsencode(word).decode("utf-8", "surrogateescape")
