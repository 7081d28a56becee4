"""Settings of the mind that actions hold arguments to: sections ``mind``, ``llm`` and ``sandbox`` of node.yaml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

LEAST_PROMPT = 1000  # tokens


@dataclass(frozen=True, slots=True)
class MindSettings:
    """Section ``mind``: the think-act loop.

    ``goal`` and ``role`` stand in the prompt. ``responses``: own replies that it shows (K). ``budget_tokens``: the
    prompt's size at most, whatever the model could take. ``shown_rows``: rows of one context at most, the newest
    errors among them. ``value_bytes``: of a command's result, kept and shown. ``tainted_writes``: rows that a tick
    with untrusted words in its prompt may write. ``parse_failures``: unreadable replies in a row before the loop rests.
    """

    enabled: bool = True
    language: Literal["en", "ru", "uk", "es"] = "en"
    goal: str = ""
    role: str = ""
    responses: int = 10
    responses_max: int = 50
    mode: Literal["manual", "auto"] = "manual"
    pause_s: float = 10.0
    pause_max_s: float = 3600.0
    idle_default_s: float = 600.0
    idle_max_s: float = 86_400.0
    budget_tokens: int = 12_000
    shown_rows: int = 50
    value_bytes: int = 65_536
    reply_bytes: int = 262_144
    commands: int = 32
    depth: int = 32
    parse_failures: int = 3
    rest_s: float = 300.0
    tainted_writes: int = 10
    approval_hours: int = 72
    approvals: int = 100
    undo_days: int = 30

    def __post_init__(self) -> None:
        """Refuse, as `ValueError`, a prompt that could not hold what it is for."""
        if self.budget_tokens < LEAST_PROMPT:
            raise ValueError(f"budget_tokens must be at least {LEAST_PROMPT}: the instructions alone take as much")


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """Section ``llm``: the model that node.yaml names, and how every model is called.

    ``url``: base address of an OpenAI-compatible endpoint, up to ``/v1``; empty: the node does not think. ``model``
    empty: the first that the endpoint lists. The key is named, never written here: ``key_env`` is an environment
    variable, ``key_file`` a file of mode 0600. Budgets are for all models together; 0 is no limit.
    """

    url: str = ""
    model: str = ""
    key_env: str = ""
    key_file: str = ""
    window: int = 16_384
    reply_tokens: int = 2_048
    temperature: float = 0.7
    top_p: float = 0.9
    tools: bool = True
    connect_s: float = 10.0
    silence_s: float = 120.0
    call_s: float = 600.0
    judge_s: float = 20.0
    tries: int = 3
    retry_max_s: float = 300.0
    calls_per_hour: int = 240
    calls_per_day: int = 3_000
    tokens_per_hour: int = 500_000
    tokens_per_day: int = 5_000_000


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """Section ``sandbox``: what the mind may run on this machine. All of it is off, and needs bubblewrap when on.

    ``allow``: programs that may be named, one an entry: a name in /usr/bin or a path under /usr; after a space a
    pattern that every argument has to match whole: ``head -c|[0-9]+``. Without a pattern arguments are plain words that
    are no options. Do not list what runs other programs (env, sh, xargs) without a narrow pattern. ``read``, ``write``:
    folders for files; list a folder in both to have both. ``file_bytes`` also bounds the work folder of a process.
    """

    shell: bool = False
    files: bool = False
    scripts: bool = False
    allow: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    timeout_s: float = 60.0
    timeout_max_s: float = 3600.0
    term_s: float = 5.0
    processes: int = 4
    cpu_s: int = 60
    memory_bytes: int = 1_073_741_824
    file_bytes: int = 67_108_864
    output_bytes: int = 1_048_576
    tail_bytes: int = 65_536
    open_files: int = 64
    tasks: int = 64
    script_bytes: int = 65_536

    def __post_init__(self) -> None:
        """Refuse, as `ValueError`, a pattern that is none."""
        for entry in self.allow:
            _, _, pattern = entry.partition(" ")
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"allow: {entry[:80]!r} holds no pattern: {error}") from error
