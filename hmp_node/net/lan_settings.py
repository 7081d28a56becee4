"""Settings of finding peers nearby: by multicast DNS on the networks this machine is in, and on the machine itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LanSettings:
    """Section ``lan`` of node.yaml; seconds.

    Without ``interfaces`` (names or IPs) every interface counts that is up and passes multicast, but for tunnels and
    the bridges of containers and virtual machines on this host. ``peers``: names heard and remembered at once, and
    new ones taken a minute; ``peers_per_address``: of one IP. ``host_folder``: where the nodes of one user on this
    machine leave word for one another; empty is ``hmp-node`` in the user's runtime folder.
    """

    enabled: bool = True
    interfaces: tuple[str, ...] = ()
    announce_every: float = 45.0
    interfaces_every: float = 5.0
    peers: int = 256
    peers_per_address: int = 4
    host_folder: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot work, as `ValueError`, so that the config names the section."""
        for name in ("peers", "peers_per_address"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in ("announce_every", "interfaces_every"):
            if getattr(self, name) < 1:  # a tenth of a second would be a flood of everybody's network
                raise ValueError(f"{name} must be at least 1 second")
