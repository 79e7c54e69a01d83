"""A case's integration accounts, put in place by this process: the command would take a second for each."""

from collections.abc import Mapping

from forwarder.assembly.backend import open_backend
from forwarder.tenancy.port import Account
from tests.support.deployment.deployment import Deployment
from tests.support.deployment.site import settings_of

_RATE = 2_000.0
"""Requests a second to each PMS: more than anybody sends, and far more than some vendors allow."""
_PATHS = {"generic": "generic", "website-builder": "website-builder", "booking-sync": "booking-sync/api/v3"}
"""Where the simulator has each kind of PMS, below the account's name."""


async def put_accounts(deployment: Deployment, kinds: Mapping[str, str]) -> None:
    """Accounts of workspace `demo` by their ids, each of a kind, with PMSs that are simulated under their own names."""
    async with open_backend(settings_of(deployment.site)) as backend:
        credential = (await backend.sealer()).seal_text("secret")
        for account_id, kind in kinds.items():
            base_url = f"{deployment.url('simulate')}/{account_id}/{_PATHS[kind]}"
            await backend.tenancy.put_account(
                Account(account_id, "demo", kind, base_url, credential, rate_per_second=_RATE)
            )
