"""Verbs of a network's door: join, and ``bootstrap sign|verify`` of the lists that open it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hmp_node.cli.files import bad_path, read_text, replace_text
from hmp_node.cli.render import counted, done, fields, when, who
from hmp_node.cli.session import Session
from hmp_node.cli.text import safe
from hmp_node.cli.verb import TIMEOUT, Duration, Verbs, verb
from hmp_node.errors import Reject, Rejected

SLACK_S = 45.0  # what the node may take beyond the time it was given: a list is fetched first
LIST_BYTES = 262_144  # of a file with seeds, signed or to be signed
TTL_S = 90 * 86_400
LEAST_TTL_S, MOST_TTL_S = 60, 315_360_000
SIGNER = click.option("--signer", metavar="DID", help="Take the list only if this agent signed it.")


@verb(
    "join",
    example="hmp-node join 192.0.2.7:7440 --name bob\n"
    "hmp-node join https://seeds.example.org/main.json --signer did:hmp:agent:6Mk...\n"
    "hmp-node join ./seeds.json",
)
@click.argument("where", metavar="WHERE")
@click.option("--name", help="What you call this peer from now on; not with a seed list.")
@SIGNER
@TIMEOUT
def join(session: Session, *, where: str, name: str | None, signer: str | None, timeout: float) -> int:
    """Enter a network through any one address, or connect to a peer.

    WHERE is an address (HOST:PORT, ws:// or wss://), the card that `hmp-node id` prints on the other node, or a
    seed list: a file, an https URL, or the name of a built-in list. Exits 5 if no seed of a list answered in time;
    they are tried again for ever.
    """
    action, args = _plan(where, signer)
    session.console.progress(f"connecting to {where}")
    if action == "peer.join":
        args |= {"name": name, "timeout_s": timeout}
        session.show(session.perform(action, args, timeout=timeout + SLACK_S), done)
        return 0
    if name is not None:
        raise click.UsageError("--name is for one peer, and this is a seed list")
    result = session.perform(action, args | {"timeout_s": timeout}, timeout=timeout + SLACK_S)
    session.show(result, _joined_lines)
    if result["reached"] is not None:
        return 0
    session.console.hint(
        f"error: no seed answered within {timeout:g} s (timed_out): "
        "they are tried again for ever, see hmp-node peers --why"
    )
    return 5


def _plan(where: str, signer: str | None) -> tuple[str, dict[str, Any]]:
    from hmp_node.joining import plan

    try:
        return plan(where, folder=Path.cwd(), signer=signer)
    except OSError as error:  # a file that may not be read, a name that is too long for one
        raise bad_path(Path(where), error) from error


def _joined_lines(result: dict[str, Any]) -> Iterator[str]:
    signer = f"signed by {safe(result['signer'])}" if result["signer"] else "not signed"
    until = f", good until {when(result['expires_at'])}" if result["expires_at"] else ""
    yield f"{counted(result['seeds'], 'seed')}, {signer}{until}"
    for left in result["dropped"]:
        yield f"  left out {safe(left['address'])} of {who(left['did'])}: {safe(left['reason'])}"
    if result["reached"] is not None:
        yield f"connected to {who(result['reached'])}"


# --- lists ----------------------------------------------------------------------------------------------


@click.group("bootstrap", cls=Verbs, example="hmp-node bootstrap sign seeds.yaml --out seeds.json")
def bootstrap() -> None:
    """Sign the list of nodes to begin with, and check one.

    bootstrap/README.md tells how to run such a node and publish its list.
    """


@verb("sign", example="hmp-node bootstrap sign seeds.yaml --ttl 90d --out seeds.json")
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--ttl", type=Duration(), default=TTL_S, metavar="TIME", help="The list is good for so long: 12h, 90d.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write there, not to standard output.")
def sign(session: Session, *, path: Path, ttl: int, out: Path | None) -> None:
    """Sign a seed list with this node's key.

    FILE is a YAML or JSON list of {did, name, addresses}; the name may be left out. The default of --ttl is 90d.
    """
    if not LEAST_TTL_S <= ttl <= MOST_TTL_S:
        raise click.UsageError("--ttl is from one minute to ten years, such as 12h or 90d")
    result = session.perform("seeds.sign", {"seeds": _seeds(path), "ttl_s": ttl})
    if out is None:
        session.show(result, lambda signed: [safe(signed["text"])])
        return
    replace_text(out.absolute(), result["text"] + "\n")
    session.show({"path": str(out.absolute())}, lambda written: [f"signed list written to {safe(written['path'])}"])


def _seeds(path: Path) -> list[Any]:
    import yaml

    text = read_text(path, LIST_BYTES, what="a list of seeds")
    try:
        value = yaml.safe_load(text)  # JSON is YAML
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        said = " ".join(str(error).split())
        raise Rejected(Reject.BAD_ARGUMENT, f"{str(path)[:100]!r} is neither YAML nor JSON: {said}") from error
    if not isinstance(value, list) or not value or not all(isinstance(seed, dict) for seed in value):
        raise Rejected(
            Reject.BAD_ARGUMENT, f"{str(path)[:100]!r} holds no list of seeds", remedy="- {did: ..., addresses: [...]}"
        )
    return value


@verb("verify", example="hmp-node bootstrap verify seeds.json --signer did:hmp:agent:6Mk...")
@click.argument("file", metavar="FILE")
@SIGNER
def verify(session: Session, *, file: str, signer: str | None) -> None:
    """Check a signed seed list: signature, signer, end, addresses. Nothing is joined.

    A list that does not hold is told with its reason, and is exit 1.
    """
    if "://" in file:
        raise click.UsageError("a file is verified: fetch the list first, such as by curl -fO URL")
    text = read_text(Path(file), LIST_BYTES, what="a signed seed list")
    session.show(session.read("seeds.verify", {"text": text, "signer": signer}), fields)


for command in (sign, verify):
    bootstrap.add_command(command)

VERBS = (join, bootstrap)
