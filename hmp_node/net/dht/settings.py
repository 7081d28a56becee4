"""Settings of the DHT: every limit an outsider can run into, and every delay."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["auto", "server", "client", "off"]


@dataclass(frozen=True)
class DhtSettings:
    """Section ``dht`` of node.yaml; seconds. An address is an IPv4 host or an IPv6 /64, a subnet a /24 or a /48."""

    mode: Mode | bool = "auto"
    """auto serves others once this node is reachable; a client only asks; off opens no socket."""
    allow_private: bool = False
    """Whether peers and addresses that are not of the internet take part: for a network of your own."""

    # the table
    bucket_size: int = 20
    """Contacts in a bucket, spare ones beside them, and holders of a record."""
    contacts_per_subnet: int = 2
    """Of one subnet in one bucket, in one answer, and among the holders of one record."""
    retries: int = 2
    """Further questions to a contact that did not answer, before another takes its place."""

    # asking
    paths: int = 2
    """Walks of one lookup that never ask the same contact."""
    parallel: int = 2
    """Questions of one walk under way, those left aside that are slow."""
    call_timeout: float = 0.8
    slow_after: float = 0.2
    lookup_timeout: float = 5.0
    """The whole of a lookup, whatever answers or does not."""
    lookup_calls: int = 96
    """Questions of one lookup."""
    lookup_calls_per_subnet: int = 8
    """The same, to one subnet: strangers could name a victim's addresses."""
    confirmations: int = 3
    """Subnets whose holders agree, after which a lookup of a DID ends."""
    calls: int = 1024
    """Questions under way, of all lookups together."""
    lookups: int = 32
    """Lookups at once; more wait their turn within their own time."""
    search_words: int = 8
    """Words of one search that are looked up."""
    search_providers: int = 64
    """Agents that one searched word may bring."""

    # answering
    requests_per_second: float = 1000.0
    """Of all who have shown that they are where they say; twice as many in a burst."""
    requests_unproven: float = 250.0
    """Of all others; twice as many in a burst."""
    requests_per_address: float = 50.0
    """Of one address; four times as many in a burst."""
    token_life: float = 300.0
    """For once to twice as long, whoever has answered us need not show again where it is."""

    # keeping for others
    keys: int = 8192
    records: int = 16_384
    records_per_key: int = 32
    records_per_key_per_subnet: int = 4
    records_per_address: int = 64
    records_per_subnet: int = 256
    stores_per_address: float = 1.0
    """Records a second offered by one address; 64 times as many in a burst."""

    # our own records
    words: int = 32
    """Interests and roles of ours that can be found."""
    record_life: float = 86_400.0
    republish_first: float = 60.0
    """Until the second time; then twice as long each time, up to ``republish_every``."""
    republish_every: float = 3600.0

    # staying in
    joined_at: int = 4
    """Contacts below which known addresses are tried again, with growing pauses, for ever."""
    join_first: float = 1.0
    join_every: float = 300.0
    refresh_every: float = 900.0
    hints: int = 256
    """Addresses of possible contacts that are remembered."""
    saved_contacts: int = 64
    save_every: float = 300.0

    def __post_init__(self) -> None:
        """Refuse what cannot work, as `ValueError`, so that the config names the section."""
        if isinstance(self.mode, bool):  # in YAML the word off means False
            object.__setattr__(self, "mode", "auto" if self.mode else "off")
        least = {"retries": 0, "lookup_calls": self.paths * self.parallel, "record_life": 60.0, "token_life": 10.0}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, bool | str):
                continue
            if isinstance(value, int) and value < least.get(item.name, 1):
                raise ValueError(f"{item.name} must be at least {least.get(item.name, 1)}")
            if isinstance(value, float) and (value <= 0 or value < least.get(item.name, 0)):
                raise ValueError(f"{item.name} must be above {least.get(item.name, 0):g}")
        if self.record_life > 86_400.0:
            raise ValueError("record_life must be at most 86400: nobody keeps a record for longer")
        if self.republish_every >= self.record_life:
            raise ValueError("republish_every must be below record_life")
