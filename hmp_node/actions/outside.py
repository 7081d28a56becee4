"""What actions ask of the rooms above them: to run something on this machine, to ask a model, to wake the
mind, to search by meaning."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from hmp_node.errors import Failed, Failure

if TYPE_CHECKING:  # the stemmers behind them are loaded by whoever searches
    from hmp_node.search.document import Document, Fields
    from hmp_node.search.query import Query


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


@dataclass(frozen=True, slots=True)
class Nearest:
    """What lies near a text: ``hits`` (document, cosine), the nearest first; the ``model`` of the vectors; how well it
    knows each language, 0..1 (``qualities``); why there are no vectors, or not of everything, or "" (``degraded``).

    ``also``: cosines of the documents that were asked about besides. ``deviation``: the standard deviation of the
    cosines of all documents that were compared.
    """

    hits: tuple[tuple[int, float], ...]
    model: str
    qualities: Mapping[str, float]
    degraded: str
    also: tuple[tuple[int, float], ...] = ()
    deviation: float = 0.0


class Index(Protocol):
    """Knows words' forms and texts' neighbours, and indexes what is written (`hmp_node.index.index`)."""

    async def analyse(self, documents: Sequence[Document]) -> list[Fields]:
        """What goes into the full-text index of each document. `Failed`."""
        ...

    async def query(self, text: str) -> Query:
        """What a question looks for. `Failed`."""
        ...

    async def nearest(
        self, text: str, *, limit: int, among: Collection[int] | None = None, also: Collection[int] = ()
    ) -> Nearest:
        """The documents nearest to a text, of all or ``among`` these, and how near those ``also`` asked about are; if
        they cannot be had it says why."""
        ...

    def status(self) -> dict[str, Any]:
        """How far it is; JSON."""
        ...

    async def settled(self, timeout_s: float) -> bool:
        """Wait until all that waits now is indexed by its words; False if that takes longer."""
        ...

    def kick(self) -> None:
        """Look now whether something waits."""


class NoIndex:
    """Nothing is indexed and nothing found."""

    async def analyse(self, documents: Sequence[Document]) -> list[Fields]:
        """Refuse."""
        raise _no_index(f"index {len(documents)} rows")

    async def query(self, text: str) -> Query:
        """Refuse."""
        raise _no_index(f"search for {text:.80}")

    async def nearest(
        self,
        text: str,  # noqa: ARG002 of the protocol
        *,
        limit: int,  # noqa: ARG002
        among: Collection[int] | None = None,  # noqa: ARG002
        also: Collection[int] = (),  # noqa: ARG002
    ) -> Nearest:
        """Give none."""
        return Nearest((), "", {}, "no node is running")

    def status(self) -> dict[str, Any]:
        """That there is none."""
        return {"state": "none", "why": "no node is running"}

    async def settled(self, timeout_s: float) -> bool:  # noqa: ARG002 of the protocol
        """Nothing is being indexed."""
        return False

    def kick(self) -> None:
        """There is nobody to wake."""


def _no_index(what: str) -> Failed:
    return Failed(Failure.NO_NODE, f"only a running node can {what}", remedy="start it with `hmp-node run`")
