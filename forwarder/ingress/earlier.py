"""What was submitted before under the same idempotency key: in the store, or in the moments before the worker took it in."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from forwarder.ingress.draft import Draft
from forwarder.ingress.problems import key_reused
from forwarder.ingress.receipt import Receipt, receipt_of
from forwarder.reservation.problem import Problem
from forwarder.store.reading import Reader, Stored


@dataclass(frozen=True, slots=True)
class _Recent:
    fingerprint: str
    accepted_at: str
    acknowledged: bool = False


class Earlier:
    """Knows keyed submissions. Of those that are not in the store yet it remembers the last `most_remembered`, of this
    process: a key that comes again elsewhere within that moment is left for the worker, which takes in the first alone."""

    def __init__(self, reader: Reader, most_remembered: int) -> None:
        self._reader = reader
        self._most_remembered = most_remembered
        self._recent: OrderedDict[str, _Recent] = OrderedDict()

    async def look_up(self, draft: Draft) -> Receipt | Problem | str:
        """The receipt of the same submission, if it is safe already; the refusal, if the key belongs to another; or else
        when it was first accepted, for it to be published as of then. Raises `StoreUnavailable`."""
        return self._told(draft, await self._reader.submission(draft.account_id, draft.request_id))

    async def look_up_all(self, account_id: str, drafts: Sequence[Draft]) -> Sequence[Receipt | Problem | str]:
        """What `look_up` says of each of the account's `drafts`, by one look into the store. Of two in it that have one key, the
        first is the other's earlier one."""
        if not drafts:
            return ()
        stored = await self._reader.submissions(account_id, {draft.request_id for draft in drafts})
        return [self._told(draft, stored.get(draft.request_id)) for draft in drafts]

    def acknowledged(self, draft: Draft) -> None:
        """The log has it: what comes again need not be published again."""
        if recent := self._recent.get(draft.request_id):
            self._recent[draft.request_id] = replace(recent, acknowledged=True)

    def _told(self, draft: Draft, stored: Stored | None) -> Receipt | Problem | str:
        if stored is not None:
            same = stored.fingerprint == draft.fingerprint
            return receipt_of(stored) if same else key_reused(draft.request_id)
        recent = self._remembered(draft)
        if recent.fingerprint != draft.fingerprint:
            return key_reused(draft.request_id)
        return Receipt(draft.request_id, recent.accepted_at) if recent.acknowledged else recent.accepted_at

    def _remembered(self, draft: Draft) -> _Recent:
        """What is remembered of this key: from now on, if nothing was, this draft. Kept even where the log then fails: it
        may have stored what it did not acknowledge, and another body under the key would be lost behind it."""
        recent = self._recent.setdefault(draft.request_id, _Recent(draft.fingerprint, draft.accepted_at))
        self._recent.move_to_end(draft.request_id)
        if len(self._recent) > self._most_remembered:
            self._recent.popitem(last=False)
        return recent
