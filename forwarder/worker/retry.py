"""When to try again: a pure function of the attempt, the outcome, and an injected now.

Exponential backoff with full jitter (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015): the delay is
drawn evenly between nothing and a ceiling that doubles with each attempt.
"""

from datetime import datetime, timedelta

BASE_SECONDS = 2.0
CEILING_SECONDS = 900.0


def next_try(
    attempt: int, *, now: datetime, deadline: datetime, at_least_seconds: float | None, luck: float
) -> datetime | None:
    """When to make attempt `attempt + 1`, or None where that would be past the deadline.

    `at_least_seconds` is what the PMS asked for (`Retry-After`), or what an ambiguous push needs to come to rest; `luck` is the
    jitter, evenly drawn from [0, 1). Never before a second is over: the first retries of seconds were made in the push.
    """
    ceiling = min(CEILING_SECONDS, BASE_SECONDS * 2.0 ** min(attempt - 1, 16))
    delay = max(1.0, luck * ceiling) + (at_least_seconds or 0.0)
    due = now + timedelta(seconds=delay)
    if due < deadline:
        return due
    # One last try at the end, unless the end has come: a long Retry-After must not cost the time that is left.
    return deadline if now < deadline - timedelta(seconds=1) else None
