"""The flow of one submission that was let in: read the terms → validate → identify and seal → publish → answer."""

from typing import NamedTuple

from forwarder.http.prefer import Wait, read_wait
from forwarder.ingress.dry_run import DryRun, dry_run
from forwarder.ingress.message import Draft, Drafts
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.publisher import Handover
from forwarder.ingress.reading import read_at_hand, read_valid
from forwarder.ingress.receipt import Receipt
from forwarder.ingress.request import Call
from forwarder.ingress.terms import Terms, read_terms
from forwarder.reservation.problem import Problem
from forwarder.reservation.request import Operation, ReservationRequest
from forwarder.tenancy.access import Caller


class Accepted(NamedTuple):
    """A submission that is safe on the log, what its caller is told of it, and how long it waited at the most."""

    draft: Draft
    receipt: Receipt
    wait: Wait


class Acceptance:
    """Takes submissions in, for both operations. Expected failures come back as problems; none is raised but `ClientDisconnect`,
    before anything was published."""

    def __init__(self, parts: IngressParts, handover: Handover) -> None:
        self._parts = parts
        self._drafts = Drafts(parts.ids, parts.sealer)
        self._handover = handover
        self._default_wait: dict[Operation, Wait] = {
            "booking-engine": Wait(0),
            "general": Wait(parts.settings.wait_seconds),
        }

    async def accept(self, caller: Caller, operation: Operation, call: Call) -> Accepted | Problem:
        """Make the submission safe, and wait for its outcome where the caller does."""
        draft = self._draft_at_hand(caller, operation, call)
        if draft is None:
            draft = await self._draft(caller, operation, call)
        if isinstance(draft, Problem):
            return draft
        wait = self._wait(operation, call)
        receipt = await (self._settled(draft, wait, call) if wait.seconds else self._handover.one(draft))
        return receipt if isinstance(receipt, Problem) else Accepted(draft, receipt, wait)

    async def try_out(self, caller: Caller, operation: Operation, call: Call) -> DryRun | Problem:
        """What would come of the submission, were it accepted."""
        terms = read_terms(call)
        if isinstance(terms, Problem):
            return terms
        request = await read_valid(operation, call, within=self._parts.settings.body_seconds)
        return request if isinstance(request, Problem) else dry_run(caller.account, request)

    async def _settled(self, draft: Draft, wait: Wait, call: Call) -> Receipt | Problem:
        """Hand it over, and wait for how it ends."""
        async with self._parts.outcomes.expecting(draft.request_id) as expected:
            receipt = await self._handover.one(draft)
            if expected is None or isinstance(receipt, Problem) or receipt.settled is not None:
                return receipt
            left = wait.seconds - (self._parts.clock.monotonic() - call.started)
            return receipt._replace(settled=await expected.within(left, call.gone))

    # Neither leaves what it read to who then waits for the log: an unsealed card stays in memory no longer than it must.

    def _draft_at_hand(self, caller: Caller, operation: Operation, call: Call) -> Draft | Problem | None:
        """The draft of a submission whose body came together with its head; None where that is to be waited for."""
        terms = read_terms(call)
        if isinstance(terms, Problem):
            return terms
        request = read_at_hand(operation, call)
        return request if request is None else self._made(caller, operation, request, terms)

    async def _draft(self, caller: Caller, operation: Operation, call: Call) -> Draft | Problem:
        terms = read_terms(call)
        if isinstance(terms, Problem):
            return terms
        request = await read_valid(operation, call, within=self._parts.settings.body_seconds)
        return self._made(caller, operation, request, terms)

    def _made(
        self, caller: Caller, operation: Operation, request: ReservationRequest | Problem, terms: Terms
    ) -> Draft | Problem:
        if isinstance(request, Problem):
            return request
        return self._drafts.make(caller, operation, request, terms, now=self._parts.clock.now())

    def _wait(self, operation: Operation, call: Call) -> Wait:
        default, prefer = self._default_wait[operation], call.fields.get(b"prefer")
        if prefer is None:
            return default
        return read_wait(prefer.decode("latin-1"), default, self._parts.settings.longest_wait_seconds)
