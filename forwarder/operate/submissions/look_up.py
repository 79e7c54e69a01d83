"""Asking the PMS that a submission was pushed to: whether it has the reservation, so that an operator can decide about it; and
`forwarder doubles …`, to list reservations that it shows twice under one reference, and to cancel the surplus one."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from typer import Argument

from forwarder.assembly.backend import Backend
from forwarder.operate.command import Deployment, commands
from forwarder.operate.output import AsJson, Failed, Printed, listed, picked, say
from forwarder.operate.submissions.bulk import Yes, agreed
from forwarder.operate.submissions.search import RequestId, not_found
from forwarder.operate.tenants.accounts import open_pms
from forwarder.pms.accounts import connection_of, same_before, target_of, traits_of
from forwarder.pms.port import BadOptions, Pms, PmsDirectory, UnknownKind
from forwarder.reservation.booking import booking_of
from forwarder.reservation.evidence import ANOTHER_PMS, Push
from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Rejected
from forwarder.store.lists.port import AskedFor
from forwarder.store.submissions.repairs import Repairs
from forwarder.tenancy.port import Account, CannotOpen

MAX_SECONDS: Final = 90.0  # how long an operator waits for a PMS


class NotReached(Exception):
    """The PMS that a submission was pushed to cannot be asked. The message says why, with the remedy."""


async def _account_of(backend: Backend, asked: AskedFor) -> Account:
    """The account of the submission. Raises `NotReached`."""
    if (account := await backend.pushing_directory().account(asked.account_id)) is None:
        gone = f"its account {asked.account_id} no longer exists"
        raise NotReached(f"{gone}. `forwarder account add --id …` restores it.")
    return account


async def _connect(backend: Backend, opened: PmsDirectory, account: Account, pushes: Iterable[Push | None]) -> Pms:
    """The account's PMS, if all of `pushes` went to it. Raises `NotReached`."""
    if backend.keyring is None:
        raise NotReached("this process has no FORWARDER_SECRET_KEY to open the credential with.")
    try:
        connection = connection_of(account, backend.keyring)
        pms = opened.connect(connection)
    except (CannotOpen, BadOptions, UnknownKind) as error:
        raise NotReached(f"{error} `forwarder account probe {account.id}` says what would help.") from error
    key = (await backend.request_ids()).mac_key
    target = target_of(account.kind, account.base_url, connection.credential, pms.capabilities, key)
    if not all(target.same_pms(push.to) or push.began < same_before(account) for push in pushes if push is not None):
        raise NotReached(ANOTHER_PMS)
    return pms


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The PMS's answer. `answer`: there, under `pms_reservation_id`; absent, which may still change after a push of the last
    seconds; or unknown. `says`: the same in words, with the next step."""

    answer: Literal["there", "absent", "unknown"]
    says: str
    pms_reservation_id: str | None = None


async def look_up_in_pms(backend: Backend, request_id: str) -> LookedUp | None:
    """What the PMS has under the reference of that submission; None if there is none. Raises the errors of the store."""
    if (asked := await backend.overview.asked_for(request_id)) is None:
        return None
    try:
        async with open_pms(backend) as opened:
            account = await _account_of(backend, asked)
            workspace = account.workspace_id
            async with backend.audit.request("submission.look_up", workspace=workspace, target=asked.request_id):
                return await _ask(backend, opened, account, asked)
    except NotReached as error:
        return LookedUp("unknown", f"Not asked: {error}")


async def _ask(backend: Backend, opened: PmsDirectory, account: Account, asked: AskedFor) -> LookedUp:
    pms = await _connect(backend, opened, account, asked.evidence.open or [asked.evidence.origin])
    if not pms.capabilities.find_by_reference:
        raise NotReached("a PMS of this kind cannot be searched by our reference. Check it by hand.")
    booking = booking_of(traits_of(account.kind), asked.request_id, asked.reservation, None)
    try:
        async with asyncio.timeout(MAX_SECONDS):
            outcome = await pms.find(replace(booking, pms_id=asked.evidence.pms_id))
    except TimeoutError:
        return LookedUp("unknown", "The PMS does not answer. Check it by hand, or try again later.")
    if isinstance(outcome, Confirmed):
        found = outcome.pms_reservation_id
        return LookedUp("there", f"The PMS has it, as {found}: settle it as confirmed under that identifier.", found)
    if isinstance(outcome, Absent):
        late = "A push that was sent in the last minutes may still arrive: ask again before it is settled as not made."
        return LookedUp("absent", f"The PMS has nothing under our reference. {late}")
    return LookedUp("unknown", f"The PMS does not say ({outcome.reason}): {outcome.detail}")


async def look_up(backend: Deployment, request_id: RequestId) -> Printed:
    """Ask the PMS whether it has the reservation, by our reference. Nothing is changed, here or there.

    Use it before you settle a submission of a PMS that workers cannot search. Exit code 1 if the PMS gives no answer."""
    if (found := await look_up_in_pms(backend, request_id)) is None:
        raise not_found(request_id)
    return Printed(found, (), failed=found.says) if found.answer == "unknown" else Printed(found, found.says)


# --- doubles ---


class NotCancelled(Failed):
    """Nothing was cancelled. The message says why, with the remedy. The audit trail has its name."""


async def list_doubles(backend: Deployment) -> Printed:
    """List submissions for which the PMS shows a second reservation under the same reference, newest first."""
    rows = []
    for asked in await backend.overview.doubled():
        row = picked(asked, "requestId account=account_id pmsReservationId") | {"others": ", ".join(asked.doubles)}
        stay = {"property": "propertyId", "arrival": "arrivalDate", "departure": "departureDate"}
        rows.append(row | {name: asked.reservation[member] for name, member in stay.items()})
    return listed(rows, ("requestId", "account", "pmsReservationId", "others", "property", "arrival", "departure"))


async def cancel_double(
    backend: Deployment,
    request_id: Annotated[str, Argument(metavar="REQUEST_ID", help="The submission: rsv_….")],
    pms_reservation_id: Annotated[str, Argument(metavar="PMS_ID", help="The reservation to cancel in the PMS.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Cancel the other reservation in the PMS, after showing it. The reservation that confirmed the submission stays."""
    asked = await backend.overview.asked_for(request_id)
    if asked is None or not asked.doubles:
        raise Failed(f"{request_id} has no double. `forwarder doubles list` names those that have one.")
    if not as_json:
        about, made = asked.reservation, asked.pms_reservation_id
        stay = f"property {about['propertyId']}, {about['arrivalDate']} to {about['departureDate']}"
        stays = f"It is confirmed as {made}, which stays; {pms_reservation_id} is to be cancelled."
        say(f"{asked.request_id}, account {asked.account_id}: {stay}. {stays}")
    agreed(f"Cancel {pms_reservation_id} in the PMS?", yes=yes)
    if pms_reservation_id not in asked.doubles:
        known = ", ".join(asked.doubles)
        raise NotCancelled(f"{pms_reservation_id} is not a double of {asked.request_id}; its doubles: {known}.")
    async with open_pms(backend) as opened:
        try:
            account = await _account_of(backend, asked)
            pms = await _connect(backend, opened, account, [asked.evidence.origin])
        except NotReached as error:
            raise NotCancelled(f"The PMS is not asked: {error}") from error
        if not pms.capabilities.cancel:
            raise NotCancelled("A PMS of this kind cannot be asked to cancel. Cancel it there by hand.")
        booking = booking_of(traits_of(account.kind), asked.request_id, asked.reservation, None)
        async with backend.audit.request(
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
            left = [one for one in asked.doubles if one != pms_reservation_id]
            await Repairs(backend.engine).undoubled(asked.request_id, left)
    result = {"requestId": request_id, "cancelled": pms_reservation_id}
    Printed(result, f"{pms_reservation_id} is cancelled in the PMS.").show(as_json=as_json)


DOUBLES = commands(list=list_doubles, cancel=cancel_double)
