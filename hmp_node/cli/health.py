"""Verbs that tell how the node fares: status, doctor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from hmp_node.cli.render import REVOKED, who
from hmp_node.cli.session import Session
from hmp_node.cli.text import safe
from hmp_node.cli.verb import verb

SAID = ("problem", "note")  # what a finder says in words
DOCTOR_S = 180.0  # every address of a peer and of its mailmen is dialled, and the slowest answer counts


@verb("status", example="hmp-node status --json")
def status(session: Session) -> None:
    """Show how the node fares, and whether others reach it; with --json every figure there is."""
    result = session.read("node.status")
    session.show(result | {"mailmen": session.read("mailman.list")}, _status_lines)


def _status_lines(result: dict[str, Any]) -> Iterator[str]:
    """What a person looks for: who, whether others reach us, who is there, what waits, and what is wrong."""
    node = result["node"]
    if result.get("revoked"):
        yield REVOKED
    yield f"reachable: {_reach(result['reach'])}"
    yield f"did: {safe(result['did'])}"
    if "uptime_s" in node:
        up = round(node["uptime_s"])
        yield f"node: up for {safe(up)} s, network {safe(node['network'])}, api {safe(node['api'])}"
    yield f"peers: {safe(result['peers_online'])} connected, {safe(result['peers_known'])} known"
    for link in result["connections"]:
        error = f": {safe(link['last_error'])}" if link["last_error"] else ""
        yield f"  {safe(link['state'])} {safe(link['did'])} {safe(link['address'])}{error}"
    yield f"mail: {safe(result['unread'])} unread, {safe(result['quarantined'])} in quarantine"
    yield f"outbox: {_counts(result['outbox'])}"
    mind = result["mind"]
    waiting = f"; {safe(mind['approvals'])} commands wait for you: `hmp-node approve`" if mind["approvals"] else ""
    yield f"mind: {safe(mind['state'])}: {safe(mind['why'])}{waiting}"
    finders = result["node"].get("finders", {})
    for name, facts in finders.items():
        yield f"finder {safe(name)}: {_finder(facts)}"
    mailmen = result["mailmen"]
    own = [f"{who(one['did'], one['name'])}{'' if one['connected'] else ', not connected'}" for one in mailmen["own"]]
    yield f"mailmen: {'; '.join(own) or 'none'}"
    yield f"serving as a mailman: {'yes' if mailmen['serving'] else 'no'}"
    store = result["store"]
    yield f"store: {safe(store['state'])}" + (f" since {safe(store['since'])}" if store.get("since") else "")
    yield from _jobs(node.get("jobs", {}))
    yield f"refused since the start: {_counts(result['refused'])}"


def _counts(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{safe(name)} {safe(count)}" for name, count in counts.items() if count) or "nothing"


def _jobs(jobs: Mapping[str, Any]) -> Iterator[str]:
    """Only those that are not as they should be, or were not once."""
    died = {name: job for name, job in jobs.items() if job["restarts"] or job["state"] != "running"}
    yield f"jobs: {safe(len(jobs) - len(died))} running" if jobs else "jobs: no node is running"
    for name, job in died.items():
        told = f"{safe(job['state'])}, restarted {safe(job['restarts'])} times"
        yield f"  {safe(name)}: {told}: {safe(job['last_error'])}"


def _reach(reach: Mapping[str, Any]) -> str:
    at = ", ".join(map(safe, reach["addresses"]))
    why = safe(reach["why"])
    if reach["reachable"]:
        return f"yes, at {at}" if at else "yes"
    return ("not known yet" if reach["reachable"] is None else "no") + (f": {why}" if why else "")


def _finder(facts: Mapping[str, Any]) -> str:
    """The trouble it has, if any, and its figures but for zeros; counts by reason or family as their sum."""
    figures = [f"{safe(name)} {told}" for name, value in facts.items() if name not in SAID and (told := _figure(value))]
    return ", ".join([*(safe(facts[name]) for name in SAID if facts.get(name)), *figures]) or "at work"


def _figure(value: Any) -> str:
    if isinstance(value, Mapping):
        counts = list(value.values())
        value = sum(counts) if all(type(count) is int for count in counts) else None
    if isinstance(value, bool):
        return "yes" if value else "no"
    return safe(value) if value and isinstance(value, str | int | float) else ""


@verb("doctor", example="hmp-node doctor bob")
@click.argument("peer", required=False)
def doctor(session: Session, *, peer: str | None) -> int:
    """Find out what is wrong, and what would help.

    With PEER: look for it, dial every address and every mailman of it now, and tell how each went. Exits 1 if
    something is wrong; of a peer, if neither it nor a mailman of it can be reached.
    """
    session.console.progress(f"trying every way to {peer}" if peer else "looking at the node")
    result = session.read("node.doctor", {"peer": peer} if peer else {}, timeout=DOCTOR_S)
    session.show(result, _findings)
    found = result["findings"]
    return 0 if all(finding["ok"] or _is_minor(finding, found) for finding in found) else 1


def _is_minor(finding: dict[str, Any], others: Sequence[dict[str, Any]]) -> bool:
    """Whether it decides nothing: one way to a peer of several, or no direct one where a mailman has its mail."""
    check = str(finding["check"])
    if check == "connection":
        return any(other["ok"] and str(other["check"]).startswith("mailman ") for other in others)
    return check.startswith(("address", "mailman "))


def _findings(result: dict[str, Any]) -> Iterator[str]:
    for finding in result["findings"]:
        mark = "ok  " if finding["ok"] else "warn" if _is_minor(finding, result["findings"]) else "BAD "
        yield f"{mark} {safe(finding['check'])}: {safe(finding['detail'])}"
        if finding["remedy"]:
            yield f"     {safe(finding['remedy'])}"


VERBS = (status, doctor)
