"""Asking a PMS whether it has a submission's reservation, so that an operator can decide about it. Changes nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal

from forwarder.assembly.backend import Backend
from forwarder.operate.command import open_deployment
from forwarder.operate.output import Shown
from forwarder.operate.submissions.search import RequestId, not_found
from forwarder.operate.tenants.probe import open_pms
from forwarder.pms.accounts import connection_of, is_same_pms, target_of
from forwarder.pms.built_in import traits_of
from forwarder.pms.port import BadOptions, Pms, PmsDirectory, UnknownKind
from forwarder.reservation.booking import booking_of
from forwarder.reservation.evidence import ANOTHER_PMS, Push
from forwarder.reservation.outcome import Absent, Confirmed
from forwarder.store.lists.port import AskedFor
from forwarder.tenancy.port import Account, CannotOpen

MAX_SECONDS: Final = 90.0
"""How long an operator waits for a PMS."""


class NotReached(Exception):
    """The PMS that a submission was pushed to cannot be asked. The message says why, with the remedy."""


@dataclass(frozen=True, slots=True)
class PushedPms:
    """Reaches the PMSs that submissions were pushed to. `key`: hashes credentials in the evidence of pushes."""

    backend: Backend
    pms: PmsDirectory
    key: bytes

    async def account(self, asked: AskedFor) -> Account:
        """The account of the submission. Raises `NotReached`."""
        account = await self.backend.pushing_directory().account(asked.account_id)
        if account is None:
            raise NotReached(
                f"its account {asked.account_id} no longer exists. `forwarder account add --id …` restores it."
            )
        return account

    def connect(self, account: Account, pushes: list[Push]) -> Pms:
        """The account's PMS, if all of `pushes` went to it. Raises `NotReached`."""
        unsealer = self.backend.keyring
        if unsealer is None:
            raise NotReached("this process has no FORWARDER_SECRET_KEY to open the credential with.")
        try:
            connection = connection_of(account, unsealer)
            pms = self.pms.connect(connection)
        except (CannotOpen, BadOptions, UnknownKind) as error:
            raise NotReached(f"{error} `forwarder account probe {account.id}` says what would help.") from error
        target = target_of(account.kind, account.base_url, connection.credential, pms.capabilities, self.key)
        if not all(is_same_pms(account, target, push) for push in pushes):
            raise NotReached(ANOTHER_PMS)
        return pms


@asynccontextmanager
async def open_pushed_pms(backend: Backend) -> AsyncIterator[PushedPms]:
    """Closes its connections at the end."""
    async with open_pms(backend) as pms:
        yield PushedPms(backend, pms, (await backend.request_ids()).mac_key)


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The PMS's answer. `answer`: there, under `pms_reservation_id`; absent, which may still change after a push of the last
    seconds; or unknown. `says`: the same in words, with the next step."""

    answer: Literal["there", "absent", "unknown"]
    says: str
    pms_reservation_id: str | None = None


async def look_up_in_pms(backend: Backend, request_id: str) -> LookedUp | None:
    """The PMS's reservation under the reference of that submission; None if there is no such submission. Raises
    `StoreUnavailable`, `TenancyUnavailable`."""
    asked = await backend.overview.asked_for(request_id)
    if asked is None:
        return None
    try:
        async with open_pushed_pms(backend) as pushed:
            account = await pushed.account(asked)
            audited = backend.audit.request(
                "submission.look_up", workspace=account.workspace_id, target=asked.request_id
            )
            async with audited:
                return await _ask(pushed, account, asked)
    except NotReached as error:
        return LookedUp("unknown", f"Not asked: {error}")


async def _ask(pushed: PushedPms, account: Account, asked: AskedFor) -> LookedUp:
    pushes = asked.evidence.open or [push for push in [asked.evidence.origin] if push is not None]
    pms = pushed.connect(account, [*pushes])
    if not pms.capabilities.find_by_reference:
        raise NotReached("a PMS of this kind cannot be asked by our reference. Look into it by hand.")
    booking = booking_of(traits_of(account.kind), asked.request_id, asked.reservation, None)
    try:
        async with asyncio.timeout(MAX_SECONDS):
            outcome = await pms.find(replace(booking, pms_id=asked.evidence.pms_id))
    except TimeoutError:
        return LookedUp("unknown", "The PMS does not answer. Look into it by hand, or ask again later.")
    if isinstance(outcome, Confirmed):
        found = outcome.pms_reservation_id
        return LookedUp("there", f"The PMS has it, as {found}: settle it as confirmed under that identifier.", found)
    if isinstance(outcome, Absent):
        return LookedUp(
            "absent",
            "The PMS has nothing under our reference. A push that was sent in the last minutes may still arrive: ask again "
            "before it is settled as not made.",
        )
    return LookedUp("unknown", f"The PMS does not say ({outcome.reason}): {outcome.detail}")


async def look_up(request_id: RequestId) -> Shown:
    """Ask the PMS whether it has the reservation, by our reference. Nothing is changed, here or there.

    Use it before you settle a submission of a PMS that workers cannot search. Exit code 1 if the PMS gives no answer.
    """
    async with open_deployment() as backend:
        found = await look_up_in_pms(backend, request_id)
    if found is None:
        raise not_found(request_id)
    if found.answer == "unknown":
        return Shown(found, (), failed=found.says)
    return Shown(found, found.says)
