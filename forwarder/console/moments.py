"""Moments as browsers send them. Pure."""

from datetime import UTC, datetime
from typing import Final

_EARLIEST: Final = datetime.fromtimestamp(0, UTC)


def moment_of(text: str) -> datetime | None:
    """In UTC, unless it says otherwise, and not before 1970; None for anything else."""
    try:
        moment = datetime.fromisoformat(text)
        return max(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC), _EARLIEST)
    except (ValueError, OverflowError):
        return None
