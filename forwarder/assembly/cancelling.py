"""Whether an account's PMS takes cancellations, for the ingress, which talks to none."""

from forwarder.pms.options import check_options, registered
from forwarder.pms.port import AccountConnection, BadOptions, UnknownKind
from forwarder.process.clock import Clock
from forwarder.tenancy.port import Account


def takes_cancellations(account: Account, clock: Clock) -> bool:
    """By its kind and options. True where those are wrong: an operator can repair them, and the worker waits for that."""
    try:
        check_options(account.kind, account.options)
    except (UnknownKind, BadOptions):
        return True
    connection = AccountConnection(account.id, account.kind, account.base_url, "", options=account.options)
    return registered().kinds[account.kind](connection, clock).capabilities.cancel
