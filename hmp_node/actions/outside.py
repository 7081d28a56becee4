"""What actions ask of the rooms above them: to run something on this machine, to ask a model, to wake the mind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hmp_node.errors import Failed, Failure


@dataclass(frozen=True, slots=True)
class Job:
    """A process to start in the sandbox: ``argv`` without a shell, seconds it may take, and texts by name that are
    put into its work folder first."""

    process_id: int
    argv: tuple[str, ...]
    timeout_s: float
    files: Mapping[str, str] = field(default_factory=dict)


class Machine(Protocol):
    """Runs processes in the sandbox (`agent.processes`)."""

    def problem(self) -> str:
        """Why the sandbox cannot be had, or ""."""
        ...

    async def start(self, job: Job) -> None:
        """Start it; its row of process_log follows what becomes of it. `Failed` NO_SANDBOX, INTERNAL."""
        ...

    async def stop(self, process_id: int) -> bool:
        """TERM, then KILL, to its whole group; False if it does not run."""
        ...

    async def output(self, process_id: int, tail: int) -> str:
        """The last ``tail`` bytes of what it wrote, live ones too."""
        ...

    async def file(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One file operation inside the sandbox: {op, path, ...} -> its result, or {error: {code, message}}."""
        ...


class NoMachine:
    """There is no running node: nothing can be started."""

    def problem(self) -> str:
        """Why."""
        return "no node is running"

    async def start(self, job: Job) -> None:
        """Refuse."""
        raise self._no(f"start process {job.process_id}")

    async def stop(self, process_id: int) -> bool:
        """Refuse."""
        raise self._no(f"stop process {process_id}")

    async def output(self, process_id: int, tail: int) -> str:  # noqa: ARG002 of the protocol
        """Refuse."""
        raise self._no(f"read process {process_id}")

    async def file(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse."""
        raise self._no(f"touch the file {request.get('path', '')!s:.200}")

    def _no(self, what: str) -> Failed:
        return Failed(Failure.NO_NODE, f"only a running node can {what}", remedy="start it with `hmp-node run`")


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """How a model's endpoint answers: ``ok``, what it said in words, what would help, models it lists, milliseconds."""

    ok: bool
    detail: str
    remedy: str = ""
    models: Sequence[str] = ()
    ms: int = 0


class Mind(Protocol):
    """The loop, as actions see it (`agent.loop`)."""

    def status(self) -> dict[str, Any]:
        """State, tick, model, budgets; JSON."""
        ...

    def wake(self) -> None:
        """End the pause or the idling now."""
        ...

    async def think(self) -> dict[str, Any]:
        """Run one tick now, also while stopped; its number and phase."""
        ...

    async def prompt(self) -> dict[str, Any]:
        """What the next prompt would be: {messages, manifest}; nothing is called or stored."""
        ...

    async def check(self, llm_id: str, *, reply: bool) -> ModelCheck:
        """Ask a registered model's endpoint for its models, and with ``reply`` for a word."""
        ...


class NoMind:
    """A node without a loop: nothing runs, or no model was configured."""

    def status(self) -> dict[str, Any]:
        """That there is none."""
        return {"state": "none", "why": "no node is running"}

    def wake(self) -> None:
        """There is nobody to wake."""

    async def think(self) -> dict[str, Any]:
        """Refuse."""
        raise _no_mind()

    async def prompt(self) -> dict[str, Any]:
        """Refuse."""
        raise _no_mind()

    async def check(self, llm_id: str, *, reply: bool) -> ModelCheck:  # noqa: ARG002 of the protocol
        """Refuse."""
        raise _no_mind()


def _no_mind() -> Failed:
    return Failed(Failure.NO_NODE, "only a running node thinks", remedy="start it with `hmp-node run`")
