"""Test mode: a test key acts in the shadow of the integration account that it names, whose PMS is the simulator. Pure.

A shadow is an account of its own: nothing of it (reservations, idempotency keys, request ids, lanes, messages' keys) ever meets
what is live. It is told by its identifier alone, wherever that goes.
"""

from typing import Final

MARK: Final = "~"
"""What no account's own identifier may contain."""

_PREFIX: Final = f"test{MARK}"


def shadow_id(account_id: str) -> str:
    """The identifier of an account's shadow."""
    return _PREFIX + account_id


def is_test(account_id: str) -> bool:
    """Whether an identifier is a shadow's."""
    return account_id.startswith(_PREFIX)


def cast_by(account_id: str) -> str:
    """The account whose shadow it is."""
    return account_id.removeprefix(_PREFIX)
