"""The pages of protocol/ against the code: codes, examples, links, and no sentence that points nowhere."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import pytest

from hmp_node.errors import Reject
from hmp_node.wire import canonical, card, classes, frames, pow, seal, seeds  # noqa: A004 the module of proof of work
from hmp_node.wire.draft import SCHEMA
from hmp_node.wire.limits import DEFAULT_LIMITS
from hmp_node.wire.text import agent_did, did_key
from tests.conformance import reference, reference_classes, reference_json
from tests.conformance.crafting import ALICE, BOB
from tests.conformance.pages import PAGES, PROTOCOL, documented_codes, page
from tests.conformance.test_vectors import SCHEMAS

MARKDOWN = sorted(PROTOCOL.rglob("*.md"))


def wire_codes() -> set[str]:
    """The codes of the enum that cross the wire: all that stand before those of doors and config."""
    source = inspect.getsource(Reject).split("# doors")[0]
    return {Reject[name].value for name in re.findall(r"^    ([A-Z_]+) = ", source, re.MULTILINE)}


def test_every_code_is_documented_and_every_documented_code_exists() -> None:
    codes = [code for _, code in documented_codes()]
    assert sorted(codes) == sorted(set(codes)), "a code stands in two rows"
    assert set(codes) == wire_codes()


def test_the_stages_of_the_table_run_in_the_order_of_the_reference() -> None:
    stages = list(dict.fromkeys(stage for stage, _ in documented_codes()))
    assert stages == [*reference.STAGES, "channel", "delivery", "finding"]


def test_the_example_of_canonical_json() -> None:
    text, expected = re.findall(r"^Example: `(.+)` has the canonical bytes `(.+)`\.$", page("container"), re.MULTILINE)[
        0
    ]
    value, faults = reference_json.read_json(text.encode())
    assert not faults
    assert reference_json.canonical(value) == expected.encode()
    assert canonical.encode(canonical.decode(text.encode())) == expected.encode()


def test_the_example_of_a_prologue() -> None:
    network, expected = re.findall(r"for network\s+`(\w+)`: `([0-9a-f]+)`", page("channel"))[0]
    assert frames.prologue(network).hex() == expected


EXAMPLES = {
    "note": "delivery",
    "receipt": "delivery",
    "peer_query": "finding",
    "container_request": "finding",
    "container_response": "finding",
    "seed_list": "finding",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_payloads(name: str) -> None:
    (example,) = re.findall(rf"^Example of a {name}: `(.+)`$", page(EXAMPLES[name]), re.MULTILINE)
    value: dict[str, Any] = json.loads(example)
    SCHEMAS[name].validate(value)
    classes.check_payload(name, value)
    tree, faults = reference_json.read_json(example.encode())
    assert not faults | reference_classes.payload_faults(name, tree)
    assert reference_json.canonical(tree) == example.encode()


def test_the_example_of_work() -> None:
    ((example, bits, did),) = re.findall(
        r"^Example of an entry: `(\{.+\})`\s+is (\d+) bits of work by `(.+)`\.$", page("finding"), re.MULTILINE
    )
    found = pow.check_address(did, did_key(did) or b"", json.loads(example))
    assert found == pow.Work("v5", int(bits))


def test_the_line_of_a_card_is_the_cards() -> None:
    (line,) = re.findall(r"^    (hmp:KEY\S+)$", page("finding"), re.MULTILINE)
    key, other = (person.did.rpartition(":")[2] for person in (ALICE, BOB))
    line = line.replace("mail=KEY", f"mail={other}").replace("KEY", key).replace("addr=...", "addr=a:2")
    read = card.decode(line.replace("NETWORK", "net").replace("ADDRESS", "a:1"))
    assert read == card.Card(ALICE.did, ("a:1", "a:2"), "NAME", "net", (f"{other}@a:1",))


def test_the_example_of_associated_data() -> None:
    (example,) = re.findall(r"^Example: `(\{.+\})`$", page("seal"), re.MULTILINE)
    made = seal.associated_data("note", ALICE.did, [BOB.did], "2026-03-01T11:59:30.000000Z", "lan:192.168.1.0/24")
    assert made == example.encode()


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Any) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_citations_of_the_errata_exist() -> None:
    rulings = set(re.findall(r"^\| (E\d+) \|", (PROTOCOL / "errata.md").read_text(encoding="utf-8"), re.MULTILINE))
    for name in PAGES:
        assert set(re.findall(r"\bE\d+\b", page(name))) <= rulings, name


def test_numbers_of_the_pages_are_those_of_the_code() -> None:
    limits = DEFAULT_LIMITS
    for name, number in (
        ("container", limits.container_bytes),
        ("channel", limits.container_bytes),
        ("channel", limits.frame_bytes),
        ("seal", limits.inflated_bytes),
        ("channel", frames.MAX_ITEMS),
        ("container", canonical.MAX_NUMBER),
        ("finding", seeds.MAX_BYTES),
        ("finding", card.MAX_CARD),
    ):
        assert f"{number:,}" in page(name), f"{name}.md does not say {number:,}"
    assert f"deeper than {limits.depth}." in " ".join(page("container").split())
    assert f"skew is {limits.skew_us // 1_000_000} s" in " ".join(page("container").split())
    assert SCHEMA in page("container")
    assert f"We write {pow.DEFAULT_BITS} bits; the minimum is {pow.MIN_BITS} by default." in page("finding")
    assert f"array of at most {classes.MAX_QUERY_DIDS} DIDs" in page("finding")
    assert f"array of 1 to {classes.MAX_SEEDS} of" in page("finding")


def test_the_schema_ids_are_distinct_and_no_addresses() -> None:
    contents = [validator.schema for validator in SCHEMAS.values()]
    ids = [content["$id"] for content in contents if isinstance(content, dict)]
    assert len(set(ids)) == len(ids) == len(SCHEMAS)
    assert all(identifier.startswith("urn:") for identifier in ids)


def test_the_people_of_the_vectors_have_the_dids_of_their_keys() -> None:
    people = json.loads((PROTOCOL / "vectors" / "keys.json").read_text(encoding="utf-8"))["keys"]
    for name, person in people.items():
        own = agent_did(bytes.fromhex(person["public_key_hex"]))
        assert (person["did"] == own) is (name != "olga")
