"""Moments as browsers send them. Pure."""

from datetime import UTC, datetime
from typing import Final

from forwarder.reservation.parsing import moment

_EARLIEST: Final = datetime.fromtimestamp(0, UTC)


def moment_of(text: str) -> datetime | None:
    """In UTC, unless it says otherwise, and not before 1970; None for anything else."""
    written = moment(text)
    return None if written is None else max(written, _EARLIEST)
