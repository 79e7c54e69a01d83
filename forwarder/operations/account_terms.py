"""What of an account operators write as text, for the command line and the console alike. Pure."""

import math
from typing import Final

from forwarder.reservation.checks.plausibility import CHECKS

PUBLISHED: Final = "published"
"""Instead of a rate: the limit that the account's kind of PMS publishes."""


class BadTerm(ValueError):
    """That cannot be. The message says what would, and goes on after the name of the term."""


def base_url_of(text: str) -> str:
    """Where the PMS's API is. Raises `BadTerm`."""
    if not text.startswith(("http://", "https://")):
        raise BadTerm(f"must begin with http:// or https://; it is {text!r}.")
    return text.rstrip("/")


def rate_of(text: str) -> float | None:
    """Requests a second; None for what its kind publishes. Raises `BadTerm`."""
    if text == PUBLISHED:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < math.inf:
        raise BadTerm(f"must be a number that is more than 0, or {PUBLISHED} for the kind's published limit.")
    return rate


def checks_of(names: str) -> tuple[str, ...]:
    """The checks to leave out, with commas between. Raises `BadTerm`."""
    if names == "none":
        return ()
    if names == "all":
        return CHECKS
    given = [name.strip() for name in names.split(",")]
    wrong = [name for name in given if name not in CHECKS]
    if wrong:
        raise BadTerm(
            f"must name checks, and there is no check {wrong[0]!r}; there are: {', '.join(CHECKS)}; or say all, or none."
        )
    return tuple(check for check in CHECKS if check in given)
