"""What `Retry-After` says (RFC 9110, section 10.2.3), whoever sent it. Pure."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def read_retry_after(text: str, now: datetime) -> float | None:
    """The seconds, of a number or until a date; negative where that is over, None for what is neither."""
    seconds = _number(text)
    return _seconds_until(text, now) if seconds is None else seconds


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _seconds_until(http_date: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(http_date)
    except ValueError:
        return None
    # "-0000" makes a date without a zone; HTTP dates are GMT.
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()
