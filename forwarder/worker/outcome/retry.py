"""When to try again: a pure function of the try, the outcome, and an injected now.

Exponential backoff with full jitter (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015): the delay is
drawn evenly between nothing and a ceiling that doubles with each try.
"""

from datetime import datetime, timedelta

BASE_SECONDS = 2.0
CEILING_SECONDS = 900.0
LOOK_CEILING_SECONDS = 3600.0

LOOKED_FOR = timedelta(days=7)
"""For how long after its deadline a submission in doubt is looked for by itself. Then it is an operator's."""

LAST_CALL = timedelta(seconds=5)
"""The last try is made so long before the deadline: nothing new is sent after it."""


def next_try(
    tried: int, *, now: datetime, deadline: datetime, min_seconds: float | None, jitter: float
) -> datetime | None:
    """When to try again after `tried` tries, or None where that would be past the deadline.

    `min_seconds` is what the PMS asked for (`Retry-After`); `jitter` is evenly drawn from [0, 1). Never before a
    second is over: the first retries of seconds were made in the push.
    """
    due = now + _pause(tried, CEILING_SECONDS, min_seconds, jitter)
    if due < deadline:
        return due
    # A last one, unless there is no time for it: a long Retry-After must not cost the time that is left.
    last = deadline - LAST_CALL
    return last if last > now + timedelta(seconds=1) else None


def next_look(
    tried: int, *, now: datetime, deadline: datetime, min_seconds: float | None, jitter: float
) -> datetime | None:
    """When to look again for what may have been made; None where that would be long past its deadline.

    `min_seconds` is what an ambiguous push needs to come to rest: a look-up before that would not prove anything.
    """
    due = now + _pause(tried, LOOK_CEILING_SECONDS, min_seconds, jitter)
    return due if due < deadline + LOOKED_FOR else None


def _pause(tried: int, longest: float, min_seconds: float | None, jitter: float) -> timedelta:
    ceiling = min(longest, BASE_SECONDS * 2.0 ** min(max(tried - 1, 0), 16))
    return timedelta(seconds=max(1.0, jitter * ceiling) + (min_seconds or 0.0))
