"""When to post again, and for how long: pure functions of the try, what the endpoint asked for, and an injected now.

The pauses that Standard Webhooks names as an example, with full jitter around them: each is drawn evenly between nothing and twice
its figure, so that what failed together does not come back together.
"""

from datetime import datetime, timedelta
from typing import Final

TRIED_FOR: Final = timedelta(days=3)
"""How long a delivery is tried, from its first try on. The last one is made when that is over. Time in which nobody tried, because
notifiers or what they need were away, does not count."""

PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400))
"""After the first try, the second, … and every later one."""

_SHORTEST: Final = timedelta(seconds=1)


def counts_from(
    tried: int, *, retrying_since: datetime, last_at: datetime | None, now: datetime, failing_seconds: float
) -> datetime:
    """From when on its time of trying counts, for a try that starts `now` after `tried` others, of which the last was at `last_at`.

    Of the time between the two no more counts than might have been planned, so that an outage of ours, or a clock that jumps, costs
    one pause at the most; or than `failing_seconds`, for which the endpoint was seen to do nothing but fail.
    """
    if not tried or last_at is None:
        return now
    planned = 2 * PAUSES[min(tried, len(PAUSES)) - 1]
    return retrying_since + max(now - last_at - max(planned, timedelta(seconds=failing_seconds)), timedelta(0))


def next_try(
    tried: int, *, retrying_since: datetime, now: datetime, asked_seconds: float | None, luck: float
) -> datetime | None:
    """When to try again after `tried` tries, None where it was tried for long enough.

    `asked_seconds` is what the endpoint asked for (`Retry-After`): not before. `luck` is the jitter, evenly drawn from [0, 1).
    """
    end = retrying_since + TRIED_FOR
    if now >= end:
        return None
    pause = max(PAUSES[min(tried, len(PAUSES)) - 1] * 2 * luck, _SHORTEST)
    asked = timedelta(seconds=min(max(asked_seconds or 0.0, 0.0), TRIED_FOR.total_seconds()))
    return min(now + max(pause, asked), max(end, now + _SHORTEST))
