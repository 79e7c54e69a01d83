"""The conformance kit on a PMS that is mapped: no adapter of its own, and held to the same."""

from dataclasses import replace

import pytest

from forwarder.pms.kinds.generic import GENERIC
from forwarder_pms_kit.conformance import CHECKS, Check, averify
from forwarder_pms_kit.runs import simulated_site
from tests.support.pms.kinds.mapped import CLOUDBEDS_LIKE


@pytest.mark.parametrize("check", CHECKS, ids=str)
async def test_a_mapped_pms_keeps_its_word(check: Check) -> None:
    async with simulated_site("cloudbeds") as site:
        await averify(check, GENERIC, replace(site, options={"mapping": CLOUDBEDS_LIKE}))
