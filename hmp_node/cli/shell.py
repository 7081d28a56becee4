"""The verb shell: a prompt for people over the same table of actions that the model and the API use."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click

from hmp_node.cli.console import Unwritable
from hmp_node.cli.lines import (
    BLOCK_BYTES,
    LEAVE,
    Table,
    as_json,
    canonical,
    completions,
    explained,
    marker,
    read_block,
    read_line,
    unknown,
)
from hmp_node.cli.render import columns, counted, fields
from hmp_node.cli.session import Session
from hmp_node.cli.verb import verb
from hmp_node.errors import HmpError, Reject, Rejected

HISTORY = "shell_history"
HISTORY_LINES = 1000
LINE_BYTES = 1024 * 1024
WAIT_S = 3600.0
PROMPT, MORE = "hmp> ", "...> "

Ask: TypeAlias = Callable[[str], str | None]  # shows a prompt, gives a line; None at the end


@verb("shell", example="""hmp-node shell\necho 'note.add text="buy milk" tags=home' | hmp-node shell""")
@click.option("--yes", is_flag=True, help="Run a block of commands without asking.")
def shell(session: Session, *, yes: bool) -> int:
    """Type actions at a prompt: NAME key=value ..., or NAME {JSON}.

    `help` lists the actions, `help NAME` explains one; Tab completes names and arguments. A block as a model writes
    it, from `# Commands:` to `# End of commands`, is shown and runs once you say y. Ctrl-D leaves. With standard
    input from elsewhere every line of it is run, and the first error ends it with that error's exit code.
    """
    from hmp_node.client import Client

    table = {str(row["name"]): row for row in Client(session.home).table()}
    typed = sys.stdin is not None and sys.stdin.isatty() and sys.stdout is not None and sys.stdout.isatty()
    if typed:
        _Shell(session, table, _typing(session, table), yes=yes, asks=True).talk()
    else:
        _Shell(session, table, _reading(), yes=yes, asks=False).run()
    return 0


class _Shell:
    """Lines in, results out."""

    def __init__(self, session: Session, table: Table, ask: Ask, *, yes: bool, asks: bool) -> None:
        self._session, self._console, self._table = session, session.console, table
        self._ask, self._yes, self._asks = ask, yes, asks
        self._number = 0

    def talk(self) -> None:
        """With a person: an error, or Ctrl-C, ends a line and never the prompt."""
        self._console.progress(f"{counted(len(self._table), 'action')}: help lists them, Ctrl-D leaves")
        while not self._console.gone:
            try:
                if not self._step():
                    return
            except Unwritable:
                raise
            except HmpError as error:
                self._console.error(error)
            except KeyboardInterrupt:
                self._console.hint("\ninterrupted")

    def run(self) -> None:
        """Without one: the first error ends it, and its line is named."""
        try:
            while not self._console.gone and self._step():
                pass
        except HmpError:
            self._console.hint(f"line {self._number}:")
            raise

    def _step(self) -> bool:
        """One line, or one block; False when there is no more."""
        line = self._line(PROMPT)
        if line is None or line.strip() in LEAVE:
            return False
        if marker(line) == "open":
            self._block(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            self._do(line)
        return True

    def _line(self, prompt: str) -> str | None:
        self._number += 1
        return self._ask(prompt)

    def _do(self, line: str) -> None:
        word, _, rest = line.strip().partition(" ")
        if word == "help":
            self._help(rest.strip())
            return
        name, args = read_line(line, self._table)
        self._perform(name, args)

    def _perform(self, name: str, args: Mapping[str, Any]) -> None:
        self._session.show(self._session.perform(name, args, timeout=WAIT_S), fields)

    def _help(self, wanted: str) -> None:
        rows = [row for name, row in self._table.items() if not wanted or name.startswith(wanted + ".")]
        if not rows:
            name, _ = canonical(wanted, {}, self._table)
            if name not in self._table:
                raise unknown(wanted, self._table)
            self._session.show(self._table[name], explained)
            return
        self._session.show(
            {"actions": rows},
            lambda value: columns(value["actions"], ("name", "help"), room=self._console.columns, empty="no actions"),
        )

    # --- a block as a model writes it -------------------------------------------------------------------

    def _block(self, first: str) -> None:
        commands = read_block(self._lines_of(first), self._table, self._console.hint)
        for number, (name, args) in enumerate(commands, 1):
            self._console.hint(f"{number}: {name} {as_json(args)}")
        if not self._agreed(len(commands)):
            self._console.hint("nothing was run")
            return
        for done, (name, args) in enumerate(commands):
            try:
                self._perform(name, args)
            except HmpError:
                self._console.hint(f"{name}: failed; not run: {len(commands) - done - 1}")
                raise

    def _lines_of(self, first: str) -> str:
        lines, size = [first], len(first)
        while (line := self._line(MORE)) is not None:
            lines.append(line)
            size += len(line.encode("utf-8", "replace")) + 1
            if size > BLOCK_BYTES:
                raise Rejected(Reject.TOO_LARGE, f"A block of commands is at most {BLOCK_BYTES} bytes")
            if marker(line) == "close":
                break
        return "\n".join(lines)

    def _agreed(self, commands: int) -> bool:
        if self._yes:
            return True
        if not self._asks:
            raise Rejected(Reject.BAD_ARGUMENT, "Nobody is asked where no terminal is", remedy="give --yes")
        answer = self._ask(f"run {'it' if commands == 1 else f'these {commands}'}? [y/N] ")
        return (answer or "").strip().lower() in {"y", "yes", "д", "да"}


# --- where lines come from ------------------------------------------------------------------------------


def _reading() -> Ask:
    """Lines of standard input, UTF-8, with no prompt."""

    def ask(_prompt: str) -> str | None:
        line = sys.stdin.buffer.readline(LINE_BYTES + 1) if sys.stdin is not None else b""
        if len(line) > LINE_BYTES:
            raise Rejected(Reject.TOO_LARGE, f"A line is at most {LINE_BYTES} bytes")
        try:
            return line.decode("utf-8").rstrip("\r\n") if line else None
        except UnicodeDecodeError as error:
            raise Rejected(Reject.BAD_UTF8, f"The line is not UTF-8 at byte {error.start}") from error

    return ask


def _typing(session: Session, table: Table) -> Ask:
    """Lines that a person types, with history and completion where Python has readline."""
    remember = _edit(session.home / HISTORY, table, session.console.hint)

    def ask(prompt: str) -> str | None:
        try:
            line = input(prompt)
        except EOFError:
            print()
            return None
        except UnicodeDecodeError as error:
            raise Rejected(Reject.BAD_UTF8, "That is not UTF-8") from error
        remember()
        return line

    return ask


def _edit(history: Path, table: Table, say: Callable[[str], None]) -> Callable[[], None]:
    """Set readline up; gives what keeps the newest line, readable for the owner only."""
    try:
        import readline
    except ImportError:
        return lambda: None
    readline.set_completer_delims(" \t\n=")
    readline.parse_and_bind("tab: complete")
    readline.set_completer(_completer(readline.get_line_buffer, readline.get_begidx, table))
    readline.set_history_length(HISTORY_LINES)
    try:
        os.close(os.open(history, os.O_CREAT | os.O_RDONLY, 0o600))
        history.chmod(0o600)
        readline.read_history_file(history)
    except OSError as error:
        say(f"no history: {history} cannot be used: {error.strerror or error}")
        return lambda: None
    kept = readline.get_current_history_length()

    def remember() -> None:
        nonlocal kept
        now = readline.get_current_history_length()
        if now > kept:
            with contextlib.suppress(OSError):  # the disk is full: the line was run all the same
                readline.append_history_file(now - kept, history)
        kept = now

    return remember


def _completer(line: Callable[[], str], begins: Callable[[], int], table: Table) -> Callable[[str, int], str | None]:
    found: Sequence[str] = ()

    def complete(text: str, state: int) -> str | None:
        nonlocal found
        if state == 0:
            found = completions(line()[: begins()], text, table)
        return found[state] if state < len(found) else None

    return complete


VERBS = (shell,)
