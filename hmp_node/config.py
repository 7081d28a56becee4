"""``node.yaml``: every key has a default, a comment in `node.example.yaml`, and an environment override.

Precedence: command line, then environment (``HMP_STORE__URL`` for ``store.url``), then the file, then the
default. The settings of a room are the room's own dataclass, so that a default stands in one place.
"""

from __future__ import annotations

import difflib
import os
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hmp_node.actions.context import ActionSettings, BookSettings, MailmanSettings
from hmp_node.actions.mind_settings import LlmSettings, MindSettings, SandboxSettings
from hmp_node.agent.reflex import ReflexSettings
from hmp_node.errors import Reject, Rejected
from hmp_node.index.settings import IndexSettings
from hmp_node.logs import LoggerSettings
from hmp_node.mesh.settings import MeshSettings
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.lan_settings import LanSettings
from hmp_node.net.settings import NetSettings
from hmp_node.store.agent_tables import TableSettings
from hmp_node.store.database import StoreSettings
from hmp_node.wire.frames import subprotocol
from hmp_node.wire.limits import Limits

PREFIX = "HMP_"
NAME_MAX = 64
WORD_MAX = 64
MAILMAN = "mailman"


@dataclass(frozen=True)
class NodeSettings:
    """Who this node is to others, and which network it belongs to."""

    name: str = ""
    network: str = "main"
    listen: tuple[str, ...] = ()
    announce: tuple[str, ...] = ()
    join: tuple[str, ...] = ()
    interests: tuple[str, ...] = ()
    expertise: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    passphrase_file: str = ""

    def __post_init__(self) -> None:
        """Refuse, as `ValueError`, what peers or cards would refuse later."""
        if len(self.name) > NAME_MAX or not self.name.isprintable():
            raise ValueError(f"name must be at most {NAME_MAX} characters, none of them a control character")
        subprotocol(self.network)
        for kind in ("interests", "expertise", "topics", "roles"):
            for word in getattr(self, kind):
                if not 0 < len(word) <= WORD_MAX or not word.isprintable():
                    raise ValueError(
                        f"{kind} are words of 1 to {WORD_MAX} characters, none of them a control character"
                    )
        if MAILMAN in self.roles:
            raise ValueError("the role mailman comes with mailman.serve")


@dataclass(frozen=True)
class ApiSettings:
    """The local API: one loopback address, unless remote use is allowed in so many words."""

    listen: str = ""
    allow_remote: bool = False
    body_bytes: int = 2 * 1024 * 1024


@dataclass(frozen=True)
class Config:
    """All settings of a node."""

    node: NodeSettings = field(default_factory=NodeSettings)
    api: ApiSettings = field(default_factory=ApiSettings)
    logger: LoggerSettings = field(default_factory=LoggerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    limits: Limits = field(default_factory=Limits)
    mail: ActionSettings = field(default_factory=ActionSettings)
    mesh: MeshSettings = field(default_factory=MeshSettings)
    net: NetSettings = field(default_factory=NetSettings)
    lan: LanSettings = field(default_factory=LanSettings)
    dht: DhtSettings = field(default_factory=DhtSettings)
    book: BookSettings = field(default_factory=BookSettings)
    mailman: MailmanSettings = field(default_factory=MailmanSettings)
    llm: LlmSettings = field(default_factory=LlmSettings)
    mind: MindSettings = field(default_factory=MindSettings)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    reflex: ReflexSettings = field(default_factory=ReflexSettings)
    tables: TableSettings = field(default_factory=TableSettings)
    search: IndexSettings = field(default_factory=IndexSettings)

    def __post_init__(self) -> None:
        """Refuse, as `ValueError`, limits that not even an announcement would fit."""
        limits = self.limits
        if limits.container_bytes < 4096 or limits.inflated_bytes < 4096 or limits.depth < 8:
            raise ValueError("limits.container_bytes and .inflated_bytes must be at least 4096, .depth at least 8")
        if limits.frame_bytes < limits.container_bytes + 64:
            raise ValueError("limits.frame_bytes must have room for a container: container_bytes + 64 or more")


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """Read ``node.yaml`` (absent: all defaults) and the environment.

    Raises `Rejected` BAD_CONFIG, which names key, value and remedy.
    """
    values = _read(path)
    for name, text in environment.items():
        if name.startswith(PREFIX) and "__" in name:
            section, _, key = name.removeprefix(PREFIX).lower().partition("__")
            keys = values.get(section) or {}
            if not isinstance(keys, dict):
                raise _bad(section, keys, "a section of keys is expected", str(path))
            values[section] = keys | {key: _scalar(text, name)}
    built: Config = _build(Config, values, "", str(path))
    return built


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key may stand once."""


def _no_duplicates(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.MarkedYAMLError(None, None, f"the key {key!r} is not text", key_node.start_mark)
        if key in seen:
            raise yaml.MarkedYAMLError(None, None, f"the key {key!r} stands twice", key_node.start_mark)
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _no_duplicates)


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise Rejected(Reject.BAD_CONFIG, f"{path} cannot be read: {error}") from error
    try:
        values = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 a subclass of SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise Rejected(Reject.BAD_CONFIG, f"{path} is not valid YAML: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise Rejected(Reject.BAD_CONFIG, f"{path} must hold sections like `node:`, not {type(values).__name__}")
    return values


def _scalar(text: str, name: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Rejected(Reject.BAD_CONFIG, f"The environment variable {name} is not valid YAML: {error}") from error


def _build(kind: Any, values: Any, where: str, source: str) -> Any:
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise _bad(where, values, "a section of keys is expected", source)
    hints = typing.get_type_hints(kind)
    # What a room shares with others is set by the node: the section `limits`, and what another section says.
    known = {
        item.name: item
        for item in fields(kind)
        if kind is Config or not (is_dataclass(hints[item.name]) or "section" in item.metadata)
    }
    built: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{where}.{key}" if where else str(key)
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(sorted(known))}"
            raise Rejected(Reject.BAD_CONFIG, f"Unknown key {name} in {source}", remedy=remedy)
        if is_dataclass(hints[key]):
            built[key] = _build(hints[key], value, name, source)
            continue
        built[key] = _convert(value, hints[key], name, source, known[key])
    try:
        return kind(**built)
    except (ValueError, Rejected) as error:
        why = error.message if isinstance(error, Rejected) else error
        raise Rejected(Reject.BAD_CONFIG, f"Section {where or 'top level'} in {source}: {why}") from error


def _convert(value: Any, kind: Any, name: str, source: str, item: Any) -> Any:
    default = item.default if item.default is not MISSING else item.default_factory()
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _bad(name, value, str(error), source, default) from error
    numeric = isinstance(converted, int | float) and not isinstance(converted, bool)
    if numeric and not 0 <= converted < float("inf"):
        raise _bad(name, value, "it must be a finite number, and not below zero", source, default)
    return converted


def _bad(name: str, value: Any, why: str, source: str, default: Any = None) -> Rejected:
    remedy = "" if default is None else f"the default is {default!r}"
    return Rejected(Reject.BAD_CONFIG, f"{name} = {value!r} in {source}: {why}", remedy=remedy)
