"""What the model is told of its commands: a page of the prompt, and native tools, both out of the table of actions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from hmp_node.actions.explain import schema
from hmp_node.actions.mind_settings import SandboxSettings
from hmp_node.actions.registry import Action
from hmp_node.agent import tools
from hmp_node.agent.context import tokens
from hmp_node.agent.tools import ToolSpec

# Of a window too small for more: enough to read, to answer and to rest.
_FEW = (
    "note.show",
    "note.mark_read",
    "note.add",
    "note.send",
    "diary.add",
    "diary.search",
    "concept.add",
    "thought.add",
    "cycle.idle",
    "node.help",
)
_PART = 3  # of the budget goes to the page at most
_SWITCHES = {"shell": ("shell.", "process.start"), "files": ("file.",), "scripts": ("script.run", "script.add")}


class Manual:
    """The commands a model may use in this node, as it is set."""

    def __init__(self, registry: Mapping[str, Action], sandbox: SandboxSettings) -> None:
        self._sandbox = sandbox
        off = tuple(prefix for name, prefixes in _SWITCHES.items() if not getattr(sandbox, name) for prefix in prefixes)
        self._actions = [
            one for name, one in sorted(registry.items()) if "llm" in one.actors and not name.startswith(off)
        ]

    def page(self, budget: int) -> str:
        """The commands with their arguments; with too small a budget their names, or a few of them."""
        for page in (self._full, self._names):
            if tokens(page) <= budget // _PART:
                return page
        return "\n".join(_line(one) for one in self._actions if one.name in _FEW)

    def tools(self) -> list[dict[str, Any]]:
        """For an endpoint with native calls."""
        return self._tools

    def facts(self) -> dict[str, Any]:
        """For context 5: which of the machine's doors are open."""
        return {name: "on" if getattr(self._sandbox, name) else "off" for name in _SWITCHES}

    @cached_property
    def _full(self) -> str:
        return "\n".join(_line(one) for one in self._actions)

    @cached_property
    def _names(self) -> str:
        subjects: dict[str, list[str]] = {}
        for one in self._actions:
            subject, _, verb = one.name.partition(".")
            subjects.setdefault(subject, []).append(verb)
        few = "\n".join(_line(one) for one in self._actions if one.name in _FEW)
        return few + "\n" + "\n".join(f"{subject}: {', '.join(verbs)}" for subject, verbs in subjects.items())

    @cached_property
    def _tools(self) -> list[dict[str, Any]]:
        return tools.tools([ToolSpec(one.name, one.help, schema(one)) for one in self._actions])


def _line(one: Action) -> str:
    """``diary.add(text, tags?, priority?): Write an entry.``"""
    wanted = schema(one)
    needed = wanted.get("required", ())
    names = [name if name in needed else f"{name}?" for name in wanted.get("properties", {})]
    return f"{one.name}({', '.join(names)}): {one.help}"
