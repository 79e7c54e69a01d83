"""When to post again: a pure function of the try, what the endpoint asked for, and an injected now.

The pauses that Standard Webhooks names as an example, with full jitter around them: each is drawn evenly between nothing and twice
its figure, so that what failed together does not come back together.
"""

from datetime import datetime, timedelta
from typing import Final

TRIED_FOR: Final = timedelta(days=3)
"""How long a delivery is tried, from its first try on. The last one is made when that is over."""

PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400))
"""After the first try, the second, … and every later one."""

_SHORTEST: Final = timedelta(seconds=1)


def next_try(
    tried: int, *, began_at: datetime, now: datetime, asked_seconds: float | None, luck: float
) -> datetime | None:
    """When to try again after `tried` tries, None where it was tried for long enough.

    `asked_seconds` is what the endpoint asked for (`Retry-After`): not before. `luck` is the jitter, evenly drawn from [0, 1).
    """
    end = began_at + TRIED_FOR
    if now >= end:
        return None
    pause = max(PAUSES[min(tried, len(PAUSES)) - 1] * 2 * luck, _SHORTEST)
    asked = timedelta(seconds=min(max(asked_seconds or 0.0, 0.0), TRIED_FOR.total_seconds()))
    return min(now + max(pause, asked), max(end, now + _SHORTEST))
