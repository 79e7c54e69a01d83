"""Integration accounts as operators add and change them: checked for their kind of PMS, credentials sealed. Pausing and resuming
needs no more than `TenancyAdmin`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from forwarder.pms.auth.shared_grants import credential_digest
from forwarder.pms.port import BadOptions
from forwarder.pms.registry import check_options
from forwarder.tenancy.port import Account, NotKnown, Sealer, TenancyAdmin
from forwarder.tenancy.sealing.binding import of_credential, with_credential


class Accounts:
    """Adds and changes the accounts of `tenancy`. `sealer` fetches what seals to the workers' key."""

    def __init__(self, tenancy: TenancyAdmin, sealer: Callable[[], Awaitable[Sealer]]) -> None:
        self._tenancy = tenancy
        self._sealer = sealer

    async def add(self, account: Account, credential: str) -> None:
        """Add `account` with this credential. Raises `UnknownKind`, `BadOptions`, `AlreadyExists`, `NotKnown`."""
        check_options(account.kind, account.options)
        await self._tenancy.put_account(await self._with_credential(account, credential))

    async def change(
        self,
        account_id: str,
        *,
        credential: str | None,
        options: Mapping[str, Any],
        all_options: bool,
        duplicate_window_seconds: int | None = None,
        skipped_checks: tuple[str, ...] | None = None,
    ) -> Account:
        """The account with another credential, duplicate window and other skipped checks, where they are given, and other options:
        `options` replaces all of them, or only those that it names; None removes one. Grants obtained with an old credential are
        forgotten. Raises `BadOptions`, `NotKnown`."""
        account = next((known for known in await self._tenancy.accounts() if known.id == account_id), None)
        if account is None:
            raise NotKnown(f"There is no account {account_id!r}.")
        wanted = dict(options) if all_options else {**account.options, **options}
        changed = replace(account, options={name: value for name, value in wanted.items() if value is not None})
        check_options(changed.kind, changed.options)
        if duplicate_window_seconds is not None:
            changed = replace(changed, duplicate_window_seconds=duplicate_window_seconds)
        if skipped_checks is not None:
            changed = replace(changed, skipped_checks=skipped_checks)
        if credential is None and of_credential(changed) != of_credential(account):
            raise BadOptions(
                "They send the credential elsewhere, and it is sealed for where it goes now: give it again."
            )
        if credential is not None:
            changed = await self._with_credential(changed, credential)
        await self._tenancy.put_account(changed, replace=True)
        if credential is not None:
            await self._tenancy.forget_grants(account_id, but=credential_digest(credential))
        return changed

    async def _with_credential(self, account: Account, credential: str) -> Account:
        return with_credential(account, credential, await self._sealer())
