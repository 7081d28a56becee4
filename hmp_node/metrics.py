"""The node's figures for Prometheus, read from `Node.status` when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector


class Metrics(Collector):
    """One registry a node, so that several nodes live in one process."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def describe(self) -> Iterable[Any]:
        """Nothing ahead of time: names depend on what there is."""
        return ()

    def collect(self) -> Iterable[Any]:
        """The present figures."""
        status = self._status()
        yield GaugeMetricFamily("hmp_uptime_seconds", "Since the ready line", value=status["uptime_s"])
        yield GaugeMetricFamily(
            "hmp_store_ok", "1 while the store accepts writes", value=status["store"]["state"] == "ok"
        )
        restarts = CounterMetricFamily("hmp_job_restarts", "Deaths of background jobs", labels=["job"])
        for name, job in status["jobs"].items():
            restarts.add_metric([name], job["restarts"])
        yield restarts
        rejects = CounterMetricFamily("hmp_rejects", "Input from peers that was not accepted", labels=["code"])
        for code, count in status["net"]["rejects"].items():
            rejects.add_metric([code], count)
        yield rejects
        for key, value in status["net"].items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield GaugeMetricFamily(f"hmp_net_{key}", "See `hmp-node status`", value=value)
