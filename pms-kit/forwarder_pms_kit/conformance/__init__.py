"""The conformance kit: checks that an adapter keeps its promises, against any PMS that may be booked in.

It puts a faulty proxy in front of the PMS, makes requests through the adapter, and compares what the adapter says with what the PMS
holds. `CHECKS` are all checks; `verify` runs one of them, for any test runner; `examine` runs all, one after the other.

    @pytest.mark.parametrize("check", CHECKS, ids=str)
    def test_fax(check: Check) -> None:
        with fax_server() as server:
            verify(check, FaxAdapter, Site(server.url, held=server.held))

site              where it is tried: the PMS, the account, the stays that are booked
faults, proxy     what can go wrong in an exchange, and the proxy that makes it so
trial             one adapter behind the proxy: what was asked of it, and what the PMS holds since
check             a check, its findings, its result
capabilities      … it is what it declares, and does what it says it can
doubt             … it never says more than it can know
not_done          … refusals, throttling, redirects, wrong settings
behaviour         … time-outs, cancellation, connections, pace
fields            … each field of a request becomes what it declares
habits, course    … a submission comes to the right end at a PMS with the habits of real ones
confidentiality   … cards and credentials are nowhere to be seen
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from forwarder.pms.adapter import AdapterKind
from forwarder_pms_kit.conformance.behaviour import (
    can_be_cancelled,
    keeps_its_time,
    leaves_nothing_open,
    minds_the_pace,
    stops_when_told,
    takes_no_answer_of_another,
)
from forwarder_pms_kit.conformance.capabilities import (
    cancels,
    creates_batches,
    creates_idempotently,
    describes_its_options,
    finds_by_reference,
    keeps_amounts_exact,
    makes_many_at_once,
    makes_reservations,
    opens_nothing_by_itself,
)
from forwarder_pms_kit.conformance.check import Check, Result, check, result_of
from forwarder_pms_kit.conformance.confidentiality import hides_cards, hides_the_credential
from forwarder_pms_kit.conformance.course import HABIT_CHECKS
from forwarder_pms_kit.conformance.doubt import (
    cancels_truly,
    doubts_what_it_cannot_know,
    doubts_what_may_be_made,
    looks_up_truly,
)
from forwarder_pms_kit.conformance.fields import sends_what_it_declares
from forwarder_pms_kit.conformance.not_done import (
    follows_no_redirect,
    puts_off_what_was_not_done,
    refuses_by_its_codes,
    refuses_taken_nights,
    survives_wrong_settings,
    tells_nothing_of_the_guest,
)
from forwarder_pms_kit.conformance.site import CARD, Site
from forwarder_pms_kit.conformance.trial import NotApplicable, trial

__all__ = ["CARD", "CHECKS", "Check", "NotApplicable", "Result", "Site", "averify", "examine", "verify"]

CHECKS: Final[Sequence[Check]] = (
    tuple(
        map(
            check,
            (
                describes_its_options,
                sends_what_it_declares,
                opens_nothing_by_itself,
                makes_reservations,
                makes_many_at_once,
                creates_idempotently,
                creates_batches,
                finds_by_reference,
                cancels,
                refuses_taken_nights,
                refuses_by_its_codes,
                tells_nothing_of_the_guest,
                doubts_what_may_be_made,
                doubts_what_it_cannot_know,
                looks_up_truly,
                cancels_truly,
                puts_off_what_was_not_done,
                follows_no_redirect,
                survives_wrong_settings,
                keeps_its_time,
                can_be_cancelled,
                stops_when_told,
                takes_no_answer_of_another,
                leaves_nothing_open,
                minds_the_pace,
                keeps_amounts_exact,
                hides_cards,
                hides_the_credential,
            ),
        )
    )
    + HABIT_CHECKS
)
"""Every check, the plainest first."""


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
