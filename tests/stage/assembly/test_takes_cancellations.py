"""Whether an account's PMS takes cancellations, as the ingress learns it: by the kind and the options, without talking to it."""

from typing import Any

import pytest

from forwarder.pms.registry import registered, takes_cancellations
from forwarder_pms_kit.simulators import SITES
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.worker.works import account


@for_each("kind", sorted(registered().kinds))
def test_every_kind_says(kind: str) -> None:
    site = SITES.get(kind)
    set_up = account(kind=kind, options={} if site is None else site.options)
    assert takes_cancellations(set_up, ManualClock()) is registered().kinds[kind].capabilities.cancel


@pytest.mark.parametrize(("kind", "options"), [("fax", {}), ("generic", {"nonsense": 1})])
def test_what_an_operator_can_repair_is_no_refusal(kind: str, options: dict[str, Any]) -> None:
    assert takes_cancellations(account(kind=kind, options=options), ManualClock())
