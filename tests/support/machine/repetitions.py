"""What is sent again without a key, whatever has become of the first."""

from dataclasses import replace
from enum import Enum

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.support.machine import draws
from tests.support.machine.callers import Order
from tests.support.machine.openings import ORDER, Openings
from tests.support.machine.worlds.pms import Reply, Says


class Before(Enum):
    """What has become of a submission when it is sent again."""

    QUEUED = "it waits to be pushed"
    IN_DOUBT = "it may have been made"
    CONFIRMED = "it was made"
    FAILED = "it was given up"
    REPLAYED = "it was given up, and is put back at the same moment"
    CANCELLED = "it was made, and cancelled"


_GIVEN_UP = {Before.FAILED, Before.REPLAYED}


class Repetitions(Openings):
    """Of one site."""

    @rule(
        kind=draws.kinds,
        before=st.sampled_from(list(Before)),
        keyed=st.sampled_from([False, False, True]),
        transaction=st.booleans(),
        redelivered=st.booleans(),
    )
    def submission_is_sent_again(
        self, kind: str, before: Before, keyed: bool, transaction: bool, redelivered: bool
    ) -> None:
        """Twice: once where its first stands so, and once when that has gone on. In the end what failed is put back, and then the
        caller cancels by the last name that it knows."""
        order = replace(ORDER, transaction=transaction, deadline_seconds=60 if before in _GIVEN_UP else None)
        submit_again = self.site.callers.submit_again
        first = self._bring_to(before, kind, order)
        self.guarantees_hold()
        if before is Before.REPLAYED:
            self._replay_last()
        submit_again(first, keyed=keyed, copies=2)
        self.site.accounts.pause(kind, paused=False)
        self.site.pass_time(15.0)
        if redelivered:
            self.site.log.rewind()
        submit_again(first, keyed=keyed, copies=1)
        self.site.pass_time(5.0)
        self._replay_last()
        self.site.pass_time(60.0)
        self.guarantees_hold()
        self.site.callers.cancel(list(self.site.callers.submitted)[-1], revision=1)
        self.site.pass_time(20.0)

    def _bring_to(self, before: Before, kind: str, order: Order) -> str:
        """A submission for which that has come about; its request id."""
        replies: list[Reply] = []
        match before:
            case Before.QUEUED:
                self.site.accounts.pause(kind, paused=True)
            case Before.IN_DOUBT:
                replies = [Reply(Says.NOTHING, 10.0, 20.0)]
            case Before.FAILED | Before.REPLAYED:
                self.site.pmss.be_down(kind, 90.0)
            case Before.CONFIRMED | Before.CANCELLED:
                replies = [Reply(Says.YES)]
        self._submit(kind, order, replies=replies)
        first = list(self.site.callers.submitted)[-1]
        self.site.pass_time(100.0 if before in _GIVEN_UP else 15.0)
        if before is Before.CANCELLED:
            self.site.callers.cancel(first, revision=1)
            self.site.pass_time(10.0)
        return first
