"""`forwarder doubles …`: reservations that a PMS shows twice under one reference: listing them, and cancelling the surplus one."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from forwarder.assembly.backend import Backend
from forwarder.operate.command import Commands, with_backend
from forwarder.operate.output import AsJson, Failed, report, say, show_rows
from forwarder.operate.submissions.bulk import Yes, agreed
from forwarder.operate.submissions.look_up import MAX_SECONDS, NotReached, PushedPms, open_pushed_pms
from forwarder.oversight.audit import Audit
from forwarder.pms.built_in import traits_of
from forwarder.reservation.booking import booking_of
from forwarder.reservation.outcome import Cancelled, Rejected
from forwarder.store.lists.port import AskedFor
from forwarder.store.submissions.repairs import Repairs

if TYPE_CHECKING:
    from forwarder.store.lists.overview import Overview

_COLUMNS = ("requestId", "account", "pmsReservationId", "others", "property", "arrival", "departure")


class NotCancelled(Exception):
    """Nothing was cancelled. The message says why, with the remedy."""


@dataclass(frozen=True, slots=True)
class Doubles:
    """Cancels doubles."""

    pushed: PushedPms
    overview: "Overview"
    store: Repairs
    audit: Audit

    async def of(self, request_id: str) -> AskedFor:
        """The submission, which has doubles. Raises `NotCancelled`, `StoreUnavailable`."""
        asked = await self.overview.asked_for(request_id)
        if asked is None or not asked.doubles:
            raise NotCancelled(f"{request_id} has no double. `forwarder doubles list` names those that have one.")
        return asked

    async def cancel(self, request_id: str, pms_reservation_id: str) -> None:
        """Cancels that double in the PMS that the submission was pushed to. Raises `NotCancelled`, `StoreUnavailable`."""
        asked = await self.of(request_id)
        if pms_reservation_id not in asked.doubles:
            known = ", ".join(asked.doubles)
            raise NotCancelled(f"{pms_reservation_id} is no double of {request_id}; its doubles: {known}.")
        try:
            account = await self.pushed.account(asked)
            pms = self.pushed.connect(account, [] if asked.evidence.origin is None else [asked.evidence.origin])
        except NotReached as error:
            raise NotCancelled(f"The PMS is not asked: {error}") from error
        if not pms.capabilities.cancel:
            raise NotCancelled("A PMS of this kind cannot be asked to cancel. Cancel it there by hand.")
        booking = booking_of(traits_of(account.kind), asked.request_id, asked.reservation, None)
        async with self.audit.request(
            "double.cancel", workspace=account.workspace_id, target=asked.request_id, cancelled=pms_reservation_id
        ):
            try:
                async with asyncio.timeout(MAX_SECONDS):
                    outcome = await pms.cancel(booking, pms_reservation_id)
            except TimeoutError:
                raise NotCancelled("The PMS does not answer. Try again later.") from None
            if isinstance(outcome, Rejected):
                raise NotCancelled(f"The PMS refuses: {outcome.problem.detail}")
            if not isinstance(outcome, Cancelled):
                raise NotCancelled(f"The PMS did not cancel it ({outcome.reason}): {outcome.detail}")
            await self.store.undoubled(asked.request_id, [one for one in asked.doubles if one != pms_reservation_id])


def commands() -> Commands:
    """list, cancel"""
    return {"list": list_doubles, "cancel": cancel}


def list_doubles(as_json: AsJson = False) -> None:
    """List submissions for which the PMS shows a second reservation under the same reference, newest first."""
    found = with_backend(lambda backend: backend.overview.doubled())
    show_rows([_row(each) for each in found], _COLUMNS, as_json=as_json)


def cancel(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="The submission: rsv_….")],
    pms_reservation_id: Annotated[str, typer.Argument(metavar="PMS_ID", help="The reservation to cancel in the PMS.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Cancel the other reservation in the PMS, after showing it. The reservation that confirmed the submission stays."""

    async def run(backend: Backend) -> None:
        async with open_pushed_pms(backend) as pushed:
            doubles = Doubles(pushed, backend.overview, Repairs(backend.engine), backend.audit)
            asked = await doubles.of(request_id)
            if not as_json:
                say(
                    f"{asked.request_id}, account {asked.account_id}: property {asked.reservation['propertyId']}, "
                    f"{asked.reservation['arrivalDate']} to {asked.reservation['departureDate']}. It is confirmed as "
                    f"{asked.pms_reservation_id}, which stays; {pms_reservation_id} is to be cancelled."
                )
            agreed(f"Cancel {pms_reservation_id} in the PMS?", yes=yes)
            await doubles.cancel(request_id, pms_reservation_id)

    try:
        with_backend(run)
    except NotCancelled as error:
        raise Failed(str(error)) from error
    result = {"requestId": request_id, "cancelled": pms_reservation_id}
    report(result, f"{pms_reservation_id} is cancelled in the PMS.", as_json=as_json)


def _row(asked: AskedFor) -> dict[str, object]:
    return {
        "requestId": asked.request_id,
        "account": asked.account_id,
        "pmsReservationId": asked.pms_reservation_id,
        "others": ", ".join(asked.doubles),
        "property": asked.reservation["propertyId"],
        "arrival": asked.reservation["arrivalDate"],
        "departure": asked.reservation["departureDate"],
    }
