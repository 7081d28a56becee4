"""Hypothesis for this room: no deadlines, since the machine may be busy with other things."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("wire", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("wire")
