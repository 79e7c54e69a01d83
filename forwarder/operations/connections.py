"""How an account's PMS is reached, for those who push to it and those who probe it. Knows no adapter."""

from forwarder.pms.port import UNPACED, AccountConnection, ClientTls, Pace
from forwarder.tenancy.port import Account, Unsealer
from forwarder.tenancy.sealing.binding import of_client_key, of_credential


def connection_of(account: Account, unsealer: Unsealer, pace: Pace = UNPACED) -> AccountConnection:
    """Where the account's PMS is and how it lets us in, with the credential in the clear. Raises `CannotOpen`."""
    sealed = account.client_key
    key = None if sealed is None else unsealer.open_text(sealed, of_client_key(account.id))
    return AccountConnection(
        account.id,
        account.kind,
        account.base_url,
        unsealer.open_text(account.credential, of_credential(account)),
        pace,
        account.options,
        tls=ClientTls(account.authorities, account.client_certificate, key),
    )
