"""One integration account for each kind of PMS, as each process reads it: from the database that it may be cut off from."""

from collections.abc import Mapping
from dataclasses import replace

from forwarder.tenancy.port import Account, Sealer, TenancyUnavailable
from forwarder.tenancy.sealing import with_credential
from tests.support.machine.worlds.pms import KINDS
from tests.support.machine.worlds.process import Process

ACCOUNT_DEADLINE_SECONDS = 200


class Accounts:
    """Every account there is. Its id is the kind of its PMS; by its `kind` the rules are applied that are in force now."""

    def __init__(self, sealer: Sealer) -> None:
        known = (
            Account(
                kind, "demo", kind, "https://pms.test", "", concurrency=2, deadline_seconds=ACCOUNT_DEADLINE_SECONDS
            )
            for kind in KINDS
        )
        self.known: Mapping[str, Account] = {each.id: with_credential(each, "token", sealer) for each in known}

    def pause(self, account_id: str, *, paused: bool) -> None:
        """Or resume it."""
        self.known = {**self.known, account_id: replace(self.known[account_id], paused=paused)}

    def set_options(self, account_id: str, options: Mapping[str, bool]) -> None:
        """What its PMS is said to be able to do, other than its kind."""
        self.known = {**self.known, account_id: replace(self.known[account_id], options=options)}

    def apply_stricter_rules(self, account_id: str) -> None:
        """As after an upgrade: what is submitted to it here is refused from now on, for want of a website."""
        self.known = {**self.known, account_id: replace(self.known[account_id], kind="website-builder")}


class ProcessAccounts:
    """`Directory` as far as one worker needs it."""

    def __init__(self, accounts: Accounts, process: Process) -> None:
        self._accounts = accounts
        self._process = process

    async def key(self, token: str) -> None:
        raise AssertionError("a worker authenticates nobody")

    async def account(self, account_id: str) -> Account | None:
        await self._process.awake()
        if not self._process.reaches("store"):
            raise TenancyUnavailable("the database is away")
        return self._accounts.known.get(account_id)
