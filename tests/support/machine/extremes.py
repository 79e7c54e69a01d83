"""The settings that a deployment may have: whatever the environment's check accepts, at its edges.

What it refuses is left out, so that who makes the check stricter narrows this, and who makes it laxer widens it.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from unittest import mock

from forwarder.settings import BadSettings, read_settings
from forwarder.worker.parts import WorkerSettings
from tests.support.machine.worlds.pms import PUSH_SECONDS

_LEASES = (30.0, 30.5, 31.0, 45.0, 60.0, 61.0, 75.0, 90.0, 91.0, 105.0, 120.0)
"""From no longer than a push to four times as long."""
_GRACES = (0.0, 20.0, 60.0)
HELD = (6, 2, 1)
"""Rows that a worker may hold."""


@cache
def leases() -> Sequence[float]:
    """Lease seconds: the shortest two that are accepted, and the default where it is."""
    accepted = islice((seconds for seconds in _LEASES if _accepts(lease_seconds=seconds)), 2)
    default = WorkerSettings().lease_seconds
    return [*accepted, *([default] if _accepts(lease_seconds=default) else [])]


@cache
def graces() -> Sequence[float]:
    """Grace seconds."""
    return [seconds for seconds in _GRACES if _accepts(lease_seconds=leases()[-1], grace_seconds=seconds)]


@cache
def worker_settings(
    *, lease_seconds: float, grace_seconds: float, max_held: int, sweep_seconds: float
) -> WorkerSettings:
    """As a deployment with these settings has it; what is no setting is as a machine needs it."""
    return replace(
        _read(lease_seconds=lease_seconds, grace_seconds=grace_seconds, max_held=max_held),
        sweep_seconds=sweep_seconds,
        intake_batch=3,
        intake_wait_seconds=2.0,
        record_batch=3,
        republish_seconds=60.0,
    )


def _accepts(**environment: float) -> bool:
    try:
        _read(**environment)
    except BadSettings:
        return False
    return True


def _read(**environment: float) -> WorkerSettings:
    values = {f"FORWARDER_{name.upper()}": str(value) for name, value in environment.items()}
    with mock.patch.dict(os.environ, values | {"FORWARDER_PUSH_TIMEOUT_SECONDS": str(PUSH_SECONDS)}, clear=True):
        return read_settings().worker
