"""What the pages tell people to type, and the files of a bootstrap node, are as the program has them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hmp_node import config
from hmp_node.wire.address import reach
from hmp_node.wire.seeds import read_signed
from hmp_node.wire.text import did_key, time_us
from tests.cli.test_main import parses

TOP = Path(__file__).parents[2]
BOOTSTRAP = TOP / "bootstrap"
PAGES = [TOP / "README.md", BOOTSTRAP / "README.md", *sorted((TOP / "docs" / "howto").glob("*.md"))]
# A line of a code block: what stands before the program's name is a prompt's business.
_LINE = re.compile(r"^ {4}(?:sudo -u \S+ )?(?:\S*/)?hmp-node (.*?)(?:\s[#&].*)?$", re.MULTILINE)


def command_lines() -> list[Any]:
    return [
        pytest.param(line, id=f"{page.stem}: {line}")
        for page in PAGES
        for line in _LINE.findall(page.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("line", command_lines())
def test_the_command_lines_of_the_pages_are_real(line: str) -> None:
    parses("hmp-node " + re.sub(r"^--home \S+ ", "", line))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_links_of_the_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_profile_of_a_bootstrap_node_only_changes_settings_there_are() -> None:
    settings = config.load(BOOTSTRAP / "node.bootstrap.yaml", {})
    assert (settings.dht.mode, settings.lan.enabled, settings.mailman.serve) == ("server", False, False)
    assert settings.node.listen == ("[::]:7440",)
    assert settings.net.connections >= 500
    assert settings.mesh.max_links >= settings.net.connections


def test_the_compose_file_runs_the_profile_without_privileges() -> None:
    service = yaml.safe_load((BOOTSTRAP / "compose.yaml").read_text(encoding="utf-8"))["services"]["bootstrap"]
    assert (TOP / service["build"]["dockerfile"]).exists()
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert any(mount.startswith("./node.bootstrap.yaml:") and mount.endswith(":ro") for mount in service["volumes"])
    settings = config.load(BOOTSTRAP / "none.yaml", {"HMP_NODE__NETWORK": "main", "HMP_NODE__ANNOUNCE": "[]"})
    assert settings.node.announce == ()


def test_the_unit_runs_the_home_that_the_readme_makes() -> None:
    unit = (BOOTSTRAP / "hmp-node-bootstrap.service").read_text(encoding="utf-8")
    readme = (BOOTSTRAP / "README.md").read_text(encoding="utf-8")
    for path in re.findall(r"(?:HMP_HOME|ExecStart)=(\S+)", unit):
        assert path.removesuffix("/bin/hmp-node") in readme
    assert "RestartForceExitStatus" not in unit
    assert {"NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet="} <= set(unit.splitlines())


def test_the_list_named_test_is_signed_ends_and_stays_on_this_machine() -> None:
    data = (BOOTSTRAP / "seeds" / "test.json").read_bytes()
    made = time_us(json.loads(data)["hmp_container"]["head"]["timestamp"])
    seeds = read_signed(data, now_us=made)
    assert seeds.network == "test"
    assert made < seeds.expires_us <= made + 2 * 366 * 86_400 * 1_000_000
    assert {reach(address) for seed in seeds.seeds for address in seed.addresses} == {"loopback"}
    key = json.loads((BOOTSTRAP / "test-seed.key").read_text(encoding="utf-8"))
    assert key["did"] == seeds.seeds[0].did == seeds.signer
    assert "PUBLIC" in key["warning"]
    assert did_key(seeds.seeds[1].did) is not None
    written = yaml.safe_load((BOOTSTRAP / "test-seeds.yaml").read_text(encoding="utf-8"))
    assert [(seed["did"], tuple(seed["addresses"])) for seed in written] == [
        (seed.did, seed.addresses) for seed in seeds.seeds
    ]
