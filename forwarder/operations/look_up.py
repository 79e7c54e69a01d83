"""Asks a PMS whether it has a submission's reservation, so that an operator can decide about it. Changes nothing, here or there."""

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from forwarder.operations.audit import Audit
from forwarder.operations.connections import connection_of, is_same_pms, target_of
from forwarder.pms.built_in import traits_of
from forwarder.pms.port import BadOptions, PmsDirectory, UnknownKind
from forwarder.reservation.booking import booking_of
from forwarder.reservation.evidence import ANOTHER_PMS
from forwarder.reservation.outcome import Absent, Confirmed
from forwarder.store.lists.port import AskedFor
from forwarder.tenancy.port import Account, CannotOpen, Directory, Unsealer

if TYPE_CHECKING:
    from forwarder.store.lists.overview import Overview

_LONGEST_SECONDS: Final = 90.0

Answer = Literal["there", "absent", "unknown"]


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The PMS's answer. `answer`: there, under `pms_reservation_id`; absent, which may still change after a push of the last
    seconds; or unknown. `says`: the same in words, with the next step."""

    answer: Answer
    says: str
    pms_reservation_id: str | None = None


@dataclass(frozen=True, slots=True)
class LookUps:
    """Looks reservations up in PMSs. `unsealer`: opens credentials; None where this process has no secret."""

    pms: PmsDirectory
    unsealer: Unsealer | None
    overview: "Overview"
    accounts: Directory
    audit: Audit
    key: bytes = b""
    """The key for hashing credentials in the evidence of pushes."""

    async def look_up(self, request_id: str) -> LookedUp | None:
        """The PMS's reservation under the reference of that submission; None if there is no such submission. Raises
        `StoreUnavailable`, `TenancyUnavailable`."""
        asked = await self.overview.asked_for(request_id)
        if asked is None:
            return None
        account = await self.accounts.account(asked.account_id)
        if account is None:
            return LookedUp(
                "unknown", f"Not asked: its account {asked.account_id} is no more. `forwarder account add --id …`"
            )
        async with self.audit.request("submission.look_up", workspace=account.workspace_id, target=asked.request_id):
            return await self._ask(account, asked)

    async def _ask(self, account: Account, asked: AskedFor) -> LookedUp:
        if self.unsealer is None:
            return LookedUp(
                "unknown", "Not asked: this process has no FORWARDER_SECRET_KEY to open the credential with."
            )
        try:
            connection = connection_of(account, self.unsealer)
            pms = self.pms.connect(connection)
        except (CannotOpen, BadOptions, UnknownKind) as error:
            return LookedUp(
                "unknown", f"Not asked: {error} `forwarder account probe {account.id}` says what would help."
            )
        if not pms.capabilities.find_by_reference:
            return LookedUp(
                "unknown", "Not asked: a PMS of this kind cannot be asked by our reference. Look into it by hand."
            )
        target = target_of(account.kind, account.base_url, connection.credential, pms.capabilities, self.key)
        pushes = asked.evidence.open or [push for push in [asked.evidence.origin] if push is not None]
        if not all(is_same_pms(account, target, push) for push in pushes):
            return LookedUp("unknown", f"Not asked: {ANOTHER_PMS}")
        booking = booking_of(traits_of(account.kind), asked.request_id, asked.reservation, None)
        booking = replace(booking, pms_id=asked.evidence.pms_id)
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                outcome = await pms.find(booking)
        except TimeoutError:
            return LookedUp("unknown", "The PMS does not answer. Look into it by hand, or ask again later.")
        if isinstance(outcome, Confirmed):
            found = outcome.pms_reservation_id
            return LookedUp(
                "there", f"The PMS has it, as {found}: settle it as confirmed under that identifier.", found
            )
        if isinstance(outcome, Absent):
            return LookedUp(
                "absent",
                "The PMS has nothing under our reference. A push that was sent in the last minutes may still arrive: ask again "
                "before it is settled as not made.",
            )
        return LookedUp("unknown", f"The PMS does not say ({outcome.reason}): {outcome.detail}")
