"""What was submitted before under the same idempotency key: in the store, or in the moments before the worker took it in."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

from forwarder.ingress.message import Draft
from forwarder.ingress.problems import key_reused
from forwarder.ingress.receipt import Receipt, receipt_of
from forwarder.reservation.problem import Problem
from forwarder.store.lists.port import Reader, Stored


@dataclass(slots=True)
class _Recent:
    """What is known of a key. `acknowledged_as`: the `accepted_at` that the log acknowledged first. `publishing_as`: the one under
    which it is being published, for others to join; None once that failed. `under_way`: how many publishes have not ended."""

    fingerprint: str
    acknowledged_as: str | None = None
    publishing_as: str | None = None
    under_way: int = 0


class Attempt:
    """A submission that is to be published now, accepted at `accepted_at`. To be left, by `with`, once its publish ended: it
    failed, unless it was `acknowledged`."""

    __slots__ = ("_recent", "accepted_at")

    def __init__(self, recent: _Recent, accepted_at: str) -> None:
        self._recent = recent
        # Others under way say the same, so that it does not matter whose message the worker takes in. A moment of before is
        # not kept where its publish failed: the deadline counts from it, and it may be days ago by now.
        self.accepted_at = recent.publishing_as = recent.publishing_as or accepted_at
        recent.under_way += 1

    def acknowledged(self) -> str:
        """The log has it: what comes again need not be published again. When it was accepted, as everybody is told."""
        self._recent.acknowledged_as = self._recent.acknowledged_as or self.accepted_at
        return self._recent.acknowledged_as

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._recent.under_way -= 1
        if self._recent.publishing_as == self.accepted_at:
            self._recent.publishing_as = None


class Earlier:
    """Knows keyed submissions. Of those that are not in the store yet it remembers the last `most_remembered`, of this
    process, and all that are being published: a key that comes again elsewhere within that moment is left for the worker, which
    takes in the first alone."""

    def __init__(self, reader: Reader, most_remembered: int) -> None:
        self._reader = reader
        self._most_remembered = most_remembered
        self._recent: OrderedDict[str, _Recent] = OrderedDict()

    async def look_up(self, draft: Draft) -> Receipt | Problem | Attempt:
        """The receipt of the same submission, if it is safe already; the refusal, if the key belongs to another; or else
        the attempt to publish it. Raises `StoreUnavailable`."""
        return self._told(draft, await self._reader.submission(draft.account_id, draft.request_id))

    async def look_up_all(self, account_id: str, drafts: Sequence[Draft]) -> Sequence[Receipt | Problem | Attempt]:
        """What `look_up` says of each of the account's `drafts`, by one look into the store. Of two in it that have one key, the
        first is the other's earlier one."""
        if not drafts:
            return ()
        stored = await self._reader.submissions(account_id, {draft.request_id for draft in drafts})
        return [self._told(draft, stored.get(draft.request_id)) for draft in drafts]

    def _told(self, draft: Draft, stored: Stored | None) -> Receipt | Problem | Attempt:
        if stored is not None:
            same = stored.fingerprint == draft.fingerprint
            return receipt_of(stored) if same else key_reused(draft.request_id)
        recent = self._remembered(draft)
        if recent.fingerprint != draft.fingerprint:
            return key_reused(draft.request_id)
        if recent.acknowledged_as is not None:
            return Receipt(draft.request_id, recent.acknowledged_as)
        return Attempt(recent, draft.accepted_at)

    def _remembered(self, draft: Draft) -> _Recent:
        """What is remembered of this key: from now on, if nothing was, this draft. Kept even where the log then fails: it
        may have stored what it did not acknowledge, and another body under the key would be lost behind it."""
        recent = self._recent.setdefault(draft.request_id, _Recent(draft.fingerprint))
        self._recent.move_to_end(draft.request_id)
        excess = len(self._recent) - self._most_remembered
        if excess > 0:
            # What is under way came late, as a rule, so that this looks at few.
            over = (known for known, one in self._recent.items() if not one.under_way and one is not recent)
            for request_id in list(islice(over, excess)):
                del self._recent[request_id]
        return recent
