"""Moments as an operator writes them: ISO 8601, or an age such as `2h`. Pure."""

import re
from datetime import UTC, datetime, timedelta

from forwarder.cli.output import WrongUsage

_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str, option: str, now: datetime) -> datetime:
    """What `text` means at `now`; without a zone it is UTC. Raises `WrongUsage`, which names `option`."""
    age = _AGE.fullmatch(text.strip())
    try:
        if age is not None:
            return now - timedelta(**{_UNITS[age[2]]: float(age[1])})
        written = datetime.fromisoformat(text.strip())
        return (written if written.tzinfo else written.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise WrongUsage(
            f"{option} must be a moment, such as 2027-01-31T12:00:00Z, or an age, such as 90s, 30m, 2h, 7d or 1w; "
            f"it is {text!r}."
        ) from None
