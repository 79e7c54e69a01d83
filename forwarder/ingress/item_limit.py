"""A key's rate limit where one call submits many: each item counts as a call would."""

from dataclasses import replace

from forwarder.http.responses import Response
from forwarder.ingress.rate_limit import rate_limited, with_allowance
from forwarder.reservation.problem import Problem
from forwarder.tenancy.access import Caller
from forwarder.tenancy.limits import RateLimits


class ItemLimit:
    """The limit of a caller's key, as one bulk meets it. Keys without a limit meet none."""

    def __init__(self, limits: RateLimits, caller: Caller) -> None:
        self._limits = limits
        self._caller = caller
        self._allowance = limits.take(caller.key_id, caller.limit, 0)
        self._counted = False

    def used_up(self) -> Problem | None:
        """The refusal where not even one item would be let through: known before the body is read."""
        allowance = self._allowance
        if allowance is None or allowance.remaining:
            return None
        self._allowance = replace(allowance, admitted=False, retry_in=allowance.more_in)
        return rate_limited(self._allowance)

    def admit(self, items: int) -> Problem | None:
        """Let all of the items through, or none."""
        self._counted = True
        self._allowance = allowance = self._limits.take(self._caller.key_id, self._caller.limit, items)
        return None if allowance is None or allowance.admitted else rate_limited(allowance)

    def refused_whole(self) -> None:
        """It was read, and refused before its items could be counted: it costs as much as one."""
        if not self._counted:
            self.admit(1)

    def told_in(self, answer: Response) -> Response:
        """`answer`, with what is left of the limit."""
        return answer if self._allowance is None else with_allowance(answer, self._allowance)
