"""Settings: the example file is the defaults, the environment wins, and every mistake names key, value and remedy."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hmp_node import config
from hmp_node.errors import Reject, Rejected

EXAMPLE = Path(__file__).parents[1] / "node.example.yaml"


def test_the_example_names_every_setting_with_its_default(tmp_path: Path) -> None:
    text = re.sub(r"(?m)^  #(\w+:)", r"  \1", EXAMPLE.read_text(encoding="utf-8"))
    (tmp_path / "node.yaml").write_text(text, encoding="utf-8")
    assert config.load(tmp_path / "node.yaml", {}) == config.Config()
    named = {section: set(values) for section, values in yaml.safe_load(text).items()}
    wanted = {section.name: _plain_keys(getattr(config.Config(), section.name)) for section in fields(config.Config)}
    assert named == wanted


def _plain_keys(section: Any) -> set[str]:
    return {
        item.name
        for item in fields(section)
        if not is_dataclass(getattr(section, item.name)) and "section" not in item.metadata
    }


def test_the_example_as_it_stands_is_all_defaults() -> None:
    assert config.load(EXAMPLE, {}) == config.Config()


def test_no_file_is_all_defaults(tmp_path: Path) -> None:
    assert config.load(tmp_path / "node.yaml", {}) == config.Config()


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text("node: {name: Ада, network: lab}\nmail: {order_hold_s: 3}\n", encoding="utf-8")
    read = config.load(
        tmp_path / "node.yaml",
        {
            "HMP_NODE__NETWORK": "x-1",
            "HMP_STORE__READERS": "4",
            "HMP_HOME": "/x",
            "HMP_NODE__LISTEN": '["127.0.0.1:0"]',
        },
    )
    assert (read.node.name, read.node.network, read.node.listen) == ("Ада", "x-1", ("127.0.0.1:0",))
    assert (read.store.readers, read.mail.order_hold_s) == (4, 3.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stoer: {}", ["stoer", "did you mean 'store'"]),
        ("store: {reader: 2}", ["store.reader", "did you mean 'readers'"]),
        ("store: {readers: many}", ["store.readers", "'many'", "the default is 2"]),
        ("store: {readers: -1}", ["store.readers", "-1", "below zero"]),
        ("store: 3", ["store", "3", "section"]),
        ("mail: {read_receipts: 'yes'}", ["mail.read_receipts", "'yes'"]),
        ("net: {trusted_proxies: [nowhere]}", ["net", "nowhere"]),
        ("a: 1\na: 2", ["'a' stands twice"]),
        ("1: 2", ["not text"]),
        ("node: {network: Bad Net}", ["node", "Bad Net"]),
        ('node: {name: "\\e[31mred"}', ["node", "control character"]),
        (f"node: {{name: {'x' * 65}}}", ["node", "at most 64"]),
        ("mesh: {lost_after: .nan}", ["mesh.lost_after", "finite"]),
        ("limits: {frame_bytes: 0}", ["limits", "frame_bytes"]),
        ("- list", ["sections"]),
        ("node: {", ["not valid YAML"]),
        ("logger: {level: loud}", ["logger", "'loud'", "warning"]),
        ("node: {listen: '127.0.0.1:0'}", ["node.listen"]),
        ("mesh: {limits: {depth: 3}}", ["mesh.limits"]),
    ],
)
def test_a_mistake_names_itself(tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "node.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(Rejected) as caught:
        config.load(tmp_path / "node.yaml", {})
    assert caught.value.code is Reject.BAD_CONFIG
    assert all(word in str(caught.value) for word in [*words, "node.yaml"]), str(caught.value)


def test_the_environment_fills_an_empty_section(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text("store:\n  #readers: 2\n", encoding="utf-8")
    assert config.load(tmp_path / "node.yaml", {"HMP_STORE__READERS": "3"}).store.readers == 3


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_bytes(b"node: {name: \xff}")
    with pytest.raises(Rejected, match="cannot be read"):
        config.load(tmp_path / "node.yaml", {})


def test_a_mistake_in_the_environment_names_the_key() -> None:
    with pytest.raises(Rejected, match=r"store\.readrs"):
        config.load(Path("/nonexistent/node.yaml"), {"HMP_STORE__READRS": "4"})


def test_a_prompt_too_small_for_its_own_instructions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="budget_tokens must be at least 1000"):
        config.load(tmp_path / "node.yaml", {"HMP_MIND__BUDGET_TOKENS": "200"})
