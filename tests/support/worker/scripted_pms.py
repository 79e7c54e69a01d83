"""A PMS that answers by script, and a pusher that pushes to it."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from forwarder.pms.port import UNPACED, AccountConnection, Capabilities, Limits, UnknownKind
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import CancelOutcome, LookupOutcome, Outcome
from forwarder.reservation.request import CardDetails
from forwarder.reservation.submission import Submission
from forwarder.store.submissions.port import StoreUnavailable, Work
from forwarder.tenancy.port import Account, CannotOpen, NotBound
from forwarder.worker.cards import CardGone, CardVault, CodeGone
from forwarder.worker.parts import WorkerParts, WorkerSettings
from forwarder.worker.push.pipeline import Pusher
from forwarder.worker.push.run import PushContext
from tests.support.memory.clock import ManualClock

KEY = Capabilities(idempotent_create=True, find_by_reference=True, cancel=True)
FIND = Capabilities(idempotent_create=False, find_by_reference=True, cancel=True)
ONLY_KEY = Capabilities(idempotent_create=True, find_by_reference=False, cancel=True)
NEITHER = Capabilities(idempotent_create=False, find_by_reference=False, cancel=False)

REFUSES_INTENT = 13
"""The id of the row whose intent to push is never made durable."""

Answer = Outcome | LookupOutcome | CancelOutcome


class ScriptedPms:
    """Gives `answers` in their order, whatever it is asked, and notes what that was. The directory of itself."""

    def __init__(self, capabilities: Capabilities, *answers: Answer | Exception) -> None:
        self.capabilities = capabilities
        self._answers = list(answers)
        self.calls: list[str] = []
        self.bookings: list[Booking] = []
        self.cancelled: list[str] = []

    def while_held(self, held: Callable[[], bool]) -> "ScriptedPms":
        return self

    async def create(self, booking: Booking) -> Outcome:
        return self._answer("create", booking)  # type: ignore[return-value]

    async def create_many(self, bookings: Sequence[Booking]) -> Sequence[Outcome]:
        return [await self.create(booking) for booking in bookings]

    async def find(self, booking: Booking) -> LookupOutcome:
        return self._answer("find", booking)  # type: ignore[return-value]

    async def cancel(self, booking: Booking, pms_reservation_id: str) -> CancelOutcome:
        self.cancelled.append(pms_reservation_id)
        return self._answer("cancel", booking)  # type: ignore[return-value]

    def _answer(self, action: str, booking: Booking) -> Answer:
        self.calls.append(action)
        self.bookings.append(booking)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kinds(self) -> list[str]:
        return ["generic"]

    def limits(self, kind: str, options: Mapping[str, Any]) -> Limits:
        return Limits()

    def connect(self, connection: AccountConnection) -> "ScriptedPms":
        if connection.kind == "unknown":
            raise UnknownKind("There is no PMS kind 'unknown'.")
        return self


class CardsInTheClear:
    """What is said to be sealed is the number, or names what is wrong with the card. Notes what became of the security codes."""

    def __init__(self) -> None:
        self.put_back_of: list[str] = []
        self.used_of: list[str] = []

    async def open(self, submission: Submission, _account: Account) -> CardDetails:
        said = "" if submission.card is None else submission.card.sealed
        if said in _WRONG:
            raise _WRONG[said]
        return CardDetails(cardNumber=said)

    async def put_back(self, request_id: str) -> None:
        self.put_back_of.append(request_id)

    def used(self, request_id: str) -> None:
        self.used_of.append(request_id)


_WRONG = {
    "damaged": CannotOpen("The card was sealed with a key that is not ours."),
    "gone": CardGone("The card was destroyed."),
    "code gone": CodeGone("The security code was destroyed."),
    "moved": NotBound("The card is another submission's."),
    "away": StoreUnavailable("The store is away."),
}


class _Vault:
    def open_text(self, sealed: str, bound_to: str) -> str:
        return sealed


async def push_by(pusher: Pusher, to: Account, row: Work) -> PushContext:
    """One push of `row`."""
    push = PushContext(to, row)
    await pusher.push(push)
    return push


def pusher_to(
    pms: ScriptedPms,
    *,
    may_send: Callable[[Work], bool] = lambda _: True,
    intents: list[int] | None = None,
    cards: CardsInTheClear | None = None,
    settings: WorkerSettings | None = None,
    clock: ManualClock | None = None,
    is_cancelled: Callable[[Work], bool] = lambda _: False,
) -> Pusher:
    """`intents`: where the ids go of the rows that are marked before they are pushed. `settings`: by default the PMS
    shows at once what it made, and nothing is waited for."""

    async def intend(work_id: int) -> bool:
        if intents is not None:
            intents.append(work_id)
        return work_id != REFUSES_INTENT

    async def sure() -> bool:
        return True

    async def committed(_request_id: str) -> None:
        return

    settings = settings or WorkerSettings(push_seconds=0.0, settles_seconds=0.0)
    ports = {"pms": pms, "unsealer": _Vault(), "clock": clock or ManualClock(), "settings": settings}
    return Pusher(
        cast("WorkerParts", SimpleNamespace(**ports, credential_key=b"")),
        cast("CardVault", cards or CardsInTheClear()),
        may_send=may_send,
        committed=committed,
        intend=intend,
        sure=sure,
        is_cancelled=is_cancelled,
        pace=lambda _: UNPACED,
    )
