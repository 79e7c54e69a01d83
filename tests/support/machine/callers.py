"""What callers do: they submit, and cancel what they submitted; the log acknowledges it, and delivers it once or more."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from pydantic_core import to_json

from forwarder.process.clock import Clock, iso
from forwarder.reservation.cancellation import CancellationRequest
from forwarder.reservation.duplicates import MAX_WINDOW_SECONDS, NaturalKey
from forwarder.reservation.request import SealedCard
from forwarder.reservation.submission import Submission
from forwarder.topics.codec import encode_cancellation, encode_submission
from forwarder.topics.port import Message
from tests.support.machine.worlds.log import TOPICS, GroupLog
from tests.support.worker.works import submission


@dataclass(frozen=True, slots=True)
class Order:
    """A submission to come, and how often the log will have it. `cancelled`: it is taken back in the same breath. `transaction`: it
    names one of its own."""

    room: int
    card: bool
    deadline_seconds: int | None
    copies: int
    cancelled: bool = False
    transaction: bool = False


class Callers:
    """All of them. `submitted` is what they sent, by request id; `cancelled` which of it they do not want any more."""

    def __init__(self, log: GroupLog, clock: Clock, card: Callable[[str, str], SealedCard]) -> None:
        self._log = log
        self._clock = clock
        self._card = card
        self.submitted: dict[str, Submission] = {}
        self.cancelled: set[str] = set()
        self.garbage = 0

    def now(self) -> datetime:
        """By their own clock, which says when something is accepted."""
        return self._clock.now()

    def submit(self, account_id: str, order: Order) -> None:
        """One more submission."""
        number = len(self.submitted) + 1
        bare = submission(number, account=account_id, propertyId=order.room)
        taken = replace(
            bare,
            card=self._card(bare.request_id, account_id) if order.card else None,
            deadline_seconds=order.deadline_seconds,
            natural=NaturalKey(
                f"asks for {number}",
                f"transaction {number}" if order.transaction else None,
                MAX_WINDOW_SECONDS,
                same=f"body {number}",
                stay=f"stay {order.room}",
            ),
        )
        self._send(taken, order.copies)
        if order.cancelled:
            self.cancel(taken.request_id, revision=0)

    def submit_again(self, request_id: str, *, keyed: bool, copies: int) -> None:
        """The same once more, by an ingress that knows nothing of the first: under a request id of its own, with an idempotency key
        or without."""
        first = self.submitted[request_id]
        assert first.natural is not None
        request_id = submission(len(self.submitted) + 1).request_id
        again = replace(
            first,
            request_id=request_id,
            card=first.card and self._card(request_id, first.account_id),
            natural=replace(first.natural, keyed=keyed),
        )
        self._send(again, copies)

    def _send(self, taken: Submission, copies: int) -> None:
        taken = replace(taken, accepted_at=self._clock.now())
        self.submitted[taken.request_id] = taken
        message = encode_submission(taken, iso(taken.accepted_at), to_json(dict(taken.reservation)))
        self._log.append(TOPICS.requests, [message] * copies)

    def cancel(self, request_id: str, *, revision: int) -> None:
        """Take a submission back. `revision`: that of the last its caller has heard of it. Half of the ingresses do not know where
        the submission went: the cancellation of every other one goes by its id, wherever that leads."""
        taken = self.submitted[request_id]
        key = taken.key if int(request_id[-1], 36) % 2 else f"{taken.account_id}:{request_id}"
        request = CancellationRequest(request_id, taken.account_id, key, self._clock.now(), "Changed plans.", revision)
        self.cancelled.add(request_id)
        self._log.append(TOPICS.requests, [encode_cancellation(request)])

    def submit_garbage(self) -> None:
        """What no worker can read."""
        self.garbage += 1
        self._log.append(TOPICS.requests, [Message(f"garbage:{self.garbage}".encode(), b"{")])
