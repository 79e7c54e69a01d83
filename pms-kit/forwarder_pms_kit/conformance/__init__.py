"""The conformance kit: checks that an adapter keeps its promises, against any PMS that may be booked in.

It puts a faulty proxy in front of the PMS, makes requests through the adapter, and compares what the adapter says with what the PMS
holds. `CHECKS` are all checks; `verify` runs one of them, for any test runner; `examine` runs all, one after the other.

    @pytest.mark.parametrize("check", CHECKS, ids=str)
    def test_fax(check: Check) -> None:
        with fax_server() as server:
            verify(check, FaxAdapter, Site(server.url, held=server.held))

site              where it is tried: the PMS, the account, the stays that are booked
faults, proxy     what can go wrong in an exchange, and the proxy that makes it so
trial             one adapter behind the proxy: what was asked of it, and what the PMS holds since; a check and its result
capabilities      … it is what it declares, and does what it says it can
answers           … refusals, throttling, redirects, wrong settings; it never says more than it can know
behaviour         … time-outs, cancellation, connections, pace
fields            … each field of a request becomes what it declares
habits, course    … a submission comes to the right end at a PMS with the habits of real ones
confidentiality   … cards and credentials are nowhere to be seen
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from forwarder.pms.sdk import AdapterKind
from forwarder_pms_kit.conformance import answers, behaviour, capabilities, confidentiality, fields
from forwarder_pms_kit.conformance.course import HABIT_CHECKS
from forwarder_pms_kit.conformance.site import CARD, Site
from forwarder_pms_kit.conformance.trial import Check, NotApplicable, Result, result_of, trial

__all__ = ["CARD", "CHECKS", "Check", "NotApplicable", "Result", "Site", "averify", "examine", "verify"]

_MODULES: Final = (fields, capabilities, answers, behaviour, confidentiality)

CHECKS: Final[Sequence[Check]] = (
    *(one for module in _MODULES for one in vars(module).values() if isinstance(one, Check)),
    *HABIT_CHECKS,
)
"""Every check."""


async def examine(
    kind: str, adapter: AdapterKind, site: Site, checks: Sequence[Check] = CHECKS
) -> AsyncIterator[Result]:
    """What comes of each of `checks`, as it ends. Raises nothing of what the adapter does."""
    for each in checks:
        async with trial(kind, adapter, site) as tried:
            result = await result_of(each, tried)
        yield result


async def averify(asked: Check, adapter: AdapterKind, site: Site, *, kind: str = "adapter-on-trial") -> None:
    """Raises `AssertionError` with what is wrong, and `NotApplicable`, which test runners take for a skipped test."""
    async with trial(kind, adapter, site) as tried:
        result = await result_of(asked, tried)
    if result.verdict == "not applicable":
        raise NotApplicable(*result.findings)
    if result.verdict == "failed":
        raise AssertionError("\n".join([asked.promise, *(f"- {finding}" for finding in result.findings)]))


def verify(asked: Check, adapter: AdapterKind, site: Site, *, kind: str = "adapter-on-trial") -> None:
    """As `averify`, from where no event loop runs."""
    asyncio.run(averify(asked, adapter, site, kind=kind))
