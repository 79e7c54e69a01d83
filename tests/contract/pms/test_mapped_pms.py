"""The conformance kit on a PMS that is mapped: no adapter of its own, and held to the same."""

from dataclasses import replace

import pytest

from forwarder.assembly.commands.conformance import simulated_site
from forwarder.pms.conformance import CHECKS, Check, averify
from forwarder.pms.kinds.generic.adapter import GENERIC
from tests.support.pms.kinds.mapped import CLOUDBEDS_LIKE


@pytest.mark.parametrize("check", CHECKS, ids=str)
async def test_a_mapped_pms_keeps_its_word(check: Check) -> None:
    async with simulated_site("cloudbeds") as site:
        await averify(check, GENERIC, replace(site, options={"mapping": CLOUDBEDS_LIKE}))
