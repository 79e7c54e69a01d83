"""`forwarder doubles …`: reservations that a PMS shows twice under one reference: listing them, and cancelling the surplus one."""

import asyncio
from typing import Annotated

import typer

from forwarder.assembly.backend import Backend
from forwarder.operate.command import Commands, open_deployment
from forwarder.operate.output import AsJson, Failed, Shown, listed, say
from forwarder.operate.submissions.bulk import Yes, agreed
from forwarder.operate.submissions.look_up import MAX_SECONDS, NotReached, open_pushed_pms
from forwarder.pms.built_in import traits_of
from forwarder.reservation.booking import booking_of
from forwarder.reservation.outcome import Cancelled, Rejected
from forwarder.store.lists.port import AskedFor
from forwarder.store.submissions.repairs import Repairs

_COLUMNS = ("requestId", "account", "pmsReservationId", "others", "property", "arrival", "departure")


async def list_doubles() -> Shown:
    """List submissions for which the PMS shows a second reservation under the same reference, newest first."""
    async with open_deployment() as backend:
        found = await backend.overview.doubled()
    rows = [
        {
            "requestId": asked.request_id,
            "account": asked.account_id,
            "pmsReservationId": asked.pms_reservation_id,
            "others": ", ".join(asked.doubles),
            "property": asked.reservation["propertyId"],
            "arrival": asked.reservation["arrivalDate"],
            "departure": asked.reservation["departureDate"],
        }
        for asked in found
    ]
    return listed(rows, _COLUMNS)


async def cancel(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="The submission: rsv_….")],
    pms_reservation_id: Annotated[str, typer.Argument(metavar="PMS_ID", help="The reservation to cancel in the PMS.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Cancel the other reservation in the PMS, after showing it. The reservation that confirmed the submission stays."""
    async with open_deployment() as backend:
        asked = await backend.overview.asked_for(request_id)
        if asked is None or not asked.doubles:
            raise Failed(f"{request_id} has no double. `forwarder doubles list` names those that have one.")
        if not as_json:
            say(
                f"{asked.request_id}, account {asked.account_id}: property {asked.reservation['propertyId']}, "
                f"{asked.reservation['arrivalDate']} to {asked.reservation['departureDate']}. It is confirmed as "
                f"{asked.pms_reservation_id}, which stays; {pms_reservation_id} is to be cancelled."
            )
        agreed(f"Cancel {pms_reservation_id} in the PMS?", yes=yes)
        await _cancel_in_pms(backend, asked, pms_reservation_id)
    result = {"requestId": request_id, "cancelled": pms_reservation_id}
    Shown(result, f"{pms_reservation_id} is cancelled in the PMS.").show(as_json=as_json)


async def _cancel_in_pms(backend: Backend, asked: AskedFor, pms_reservation_id: str) -> None:
    """Cancels that double in the PMS that the submission was pushed to. Raises `Failed`, with the remedy, where nothing was
    cancelled."""
    if pms_reservation_id not in asked.doubles:
        known = ", ".join(asked.doubles)
        raise Failed(f"{pms_reservation_id} is no double of {asked.request_id}; its doubles: {known}.")
    async with open_pushed_pms(backend) as pushed:
        try:
            account = await pushed.account(asked)
            pms = pushed.connect(account, [] if asked.evidence.origin is None else [asked.evidence.origin])
        except NotReached as error:
            raise Failed(f"The PMS is not asked: {error}") from error
        if not pms.capabilities.cancel:
            raise Failed("A PMS of this kind cannot be asked to cancel. Cancel it there by hand.")
        booking = booking_of(traits_of(account.kind), asked.request_id, asked.reservation, None)
        async with backend.audit.request(
            "double.cancel", workspace=account.workspace_id, target=asked.request_id, cancelled=pms_reservation_id
        ):
            try:
                async with asyncio.timeout(MAX_SECONDS):
                    outcome = await pms.cancel(booking, pms_reservation_id)
            except TimeoutError:
                raise Failed("The PMS does not answer. Try again later.") from None
            if isinstance(outcome, Rejected):
                raise Failed(f"The PMS refuses: {outcome.problem.detail}")
            if not isinstance(outcome, Cancelled):
                raise Failed(f"The PMS did not cancel it ({outcome.reason}): {outcome.detail}")
            left = [one for one in asked.doubles if one != pms_reservation_id]
            await Repairs(backend.engine).undoubled(asked.request_id, left)


COMMANDS: Commands = {"list": list_doubles, "cancel": cancel}
