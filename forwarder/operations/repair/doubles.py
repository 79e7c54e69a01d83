"""Reservations that a PMS shows twice under one reference: listing them, and cancelling the surplus one."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from forwarder.operations.audit import Audit
from forwarder.operations.connections import connection_of, is_same_pms, target_of
from forwarder.pms.built_in import traits_of
from forwarder.pms.port import BadOptions, PmsDirectory, UnknownKind
from forwarder.reservation.booking import booking_of
from forwarder.reservation.evidence import ANOTHER_PMS
from forwarder.reservation.outcome import Cancelled, Rejected
from forwarder.store.lists.port import AskedFor
from forwarder.tenancy.port import CannotOpen, Directory, Unsealer

if TYPE_CHECKING:
    from forwarder.store.lists.overview import Overview

_LONGEST_SECONDS: Final = 90.0


class NotCancelled(Exception):
    """Nothing was cancelled. The message says why, with the remedy."""


class DoublesStore(Protocol):
    """Records doubles."""

    async def undoubled(self, request_id: str, doubles: Sequence[str]) -> None:
        """Replaces the doubles of that submission by `doubles`. Raises `StoreUnavailable`."""
        ...


@dataclass(frozen=True, slots=True)
class Doubles:
    """Cancels doubles. `key`: for hashing credentials in the evidence of pushes."""

    pms: PmsDirectory
    unsealer: Unsealer | None
    overview: "Overview"
    store: DoublesStore
    accounts: Directory
    audit: Audit
    key: bytes

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
        account = await self.accounts.account(asked.account_id)
        if account is None or self.unsealer is None:
            raise NotCancelled(
                "Its account, or FORWARDER_SECRET_KEY to open the account's credential with, is not there."
            )
        try:
            connection = connection_of(account, self.unsealer)
            pms = self.pms.connect(connection)
        except (CannotOpen, BadOptions, UnknownKind) as error:
            raise NotCancelled(f"{error} `forwarder account probe {account.id}` says what would help.") from error
        can = pms.capabilities
        target, origin = (
            target_of(account.kind, account.base_url, connection.credential, can, self.key),
            asked.evidence.origin,
        )
        if origin is not None and not is_same_pms(account, target, origin):
            raise NotCancelled(ANOTHER_PMS)
        if not can.cancel:
            raise NotCancelled("A PMS of this kind cannot be asked to cancel. Cancel it there by hand.")
        booking = booking_of(traits_of(account.kind), asked.request_id, asked.reservation, None)
        async with self.audit.request(
            "double.cancel", workspace=account.workspace_id, target=asked.request_id, cancelled=pms_reservation_id
        ):
            try:
                async with asyncio.timeout(_LONGEST_SECONDS):
                    outcome = await pms.cancel(booking, pms_reservation_id)
            except TimeoutError:
                raise NotCancelled("The PMS does not answer. Try again later.") from None
            if isinstance(outcome, Rejected):
                raise NotCancelled(f"The PMS refuses: {outcome.problem.detail}")
            if not isinstance(outcome, Cancelled):
                raise NotCancelled(f"The PMS did not cancel it ({outcome.reason}): {outcome.detail}")
            await self.store.undoubled(asked.request_id, [one for one in asked.doubles if one != pms_reservation_id])
