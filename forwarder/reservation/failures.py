"""The classes of failures, by which operators select dead letters; and which reason belongs to which class."""

from collections.abc import Mapping
from typing import Final

FAILURE_CLASS: Final = "dlt-failure-class"
"""The header of a dead letter that holds its class."""
INTERNAL_ERROR: Final = "internal_error"
"""The reason, and the class, of an unexpected exception that was contained."""

UNDECODABLE: Final = "undecodable"
FORGED: Final = "forged"
EXPIRED: Final = "expired"
OTHER: Final = "other"
_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    EXPIRED: ("deadline_passed", "not_made"),
    "throttled": ("pms_throttled",),
    "unreachable": (
        "pms_unreachable",
        "pms_connect_timed_out",
        "no_connection_free",
        "push_timed_out",
        "pms_not_trusted",
    ),
    "unavailable": (
        "pms_unavailable",
        "pms_put_off",
        "pms_timed_out_reading",
        "pms_timed_out",
        "pms_connection_lost",
        "pms_failed",
    ),
    "card_gone": ("card_gone", "card_code_gone"),
    "misconfigured": (
        "cannot_open",
        "card_key_missing",
        "card_not_bound",
        "bad_options",
        "mapping_does_not_fit",
        "unknown_kind",
        "pms_address_invalid",
        "pms_credential_invalid",
        "pms_not_encrypted",
        "pms_payment_not_possible",
        "pms_redirected",
        "pms_refused_certificate",
        "pms_refused_in_words",
        "pms_refused_request",
        "pms_scope_too_small",
        "pms_unauthorized",
    ),
    INTERNAL_ERROR: (INTERNAL_ERROR,),
}
FAILURE_CLASSES: Final = (*_CLASSES, UNDECODABLE, FORGED, OTHER)
"""`expired`: its deadline came, and nothing else is known of why it was not sent: its account was paused, or the queue too long.
`misconfigured`: the account's settings need an operator. `forged`: no process of this deployment signed it as it is.
`internal_error`: an unexpected exception, contained."""

SET_ASIDE: Final = (FORGED, INTERNAL_ERROR, UNDECODABLE)
"""The classes of messages that workers set aside before they became submissions."""

EXPIRED_REASONS: Final = _CLASSES[EXPIRED]
_CLASS_OF: Final = {reason: name for name, reasons in _CLASSES.items() for reason in reasons}


def class_of(reason: str) -> str:
    """The failure class of a reason."""
    return _CLASS_OF.get(reason, OTHER)
