"""A configured account as a site of the conformance kit: its own address, options and credential, and a token that is only lent.

The kit breaks exchanges on purpose. So the account's tokens are never asked for through its proxy: the answer would be lost, and a
refresh token with it. A look-up that workers could make renews the token beforehand, if it has to be.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from forwarder.assembly.backend import Backend
from forwarder.assembly.roles.worker import grants_of
from forwarder.operate.tenants.probe import FAILED, open_prober
from forwarder.pms.accounts import connection_of
from forwarder.pms.auth.grants import LentGrant
from forwarder.pms.port import BadOptions
from forwarder.pms.registry import check_options
from forwarder.tenancy.port import Account
from forwarder.tenancy.sealing import of_credential
from forwarder_pms_kit.conformance import Site


class NotReached(Exception):
    """The account's PMS cannot be tried. The message says why, and what would help."""


def account_as_given(
    account: Account, base_url: str | None, options: Mapping[str, Any], *, own_credential: bool
) -> Account:
    """The account with another base URL and other options, where they are given. Raises `BadOptions`: also where its own credential
    would be sent elsewhere than to its PMS."""
    merged = {name: value for name, value in {**account.options, **options}.items() if value is not None}
    changed = replace(account, base_url=base_url or account.base_url, options=merged)
    check_options(changed.kind, changed.options)
    if own_credential and of_credential(changed) != of_credential(account):
        raise BadOptions(
            "That sends the account's credential elsewhere, and it is sealed for its own PMS: give another one by "
            "--credential-file."
        )
    return changed


async def with_own_credential(backend: Backend, account: Account, planned: Site) -> Site:
    """The planned site with the account's credential, what it has for TLS, and its access token, if its kind uses such. Its PMS is
    asked first whether it lets us in, by a look-up. Raises `NotReached`, `CannotOpen`."""
    keyring = backend.keyring
    if keyring is None:
        raise NotReached(
            "This process has no FORWARDER_SECRET_KEY to open the account's credential with; give one by --credential-file."
        )
    async with open_prober(backend) as prober:
        steps = await prober.probe(account, str(planned.property_id))
    if failed := next((step for step in steps if step.ended == FAILED), None):
        raise NotReached(
            f"The PMS of {account.id} is not ready, and nothing was booked. {failed.name}: {failed.says}. "
            f"What would help: {failed.mend}"
        )
    connection = connection_of(account, keyring)
    kept = grants_of(backend, keyring, backend.settings.environment.push_timeout_seconds)
    grant = await kept.under(connection.credential).current(account.id)
    tokens = () if grant is None else (grant.access_token, grant.refresh_token)
    return replace(
        planned,
        credential=connection.credential,
        grants=LentGrant(grant),
        lent=True,
        hidden=tuple(token for token in tokens if token),
        tls=connection.tls,
    )
