"""The shadows of integration accounts, which test keys use: each at the simulator, with none of its account's secrets."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Final
from urllib.parse import quote

from forwarder.reservation.submission import shadow_id
from forwarder.simulator.sites import SITES
from forwarder.tenancy.port import Account
from forwarder.tenancy.sealing import of_credential

_ANY_OTHER_KIND: Final = "generic"
"""The kind simulated for kinds that the simulator does not have."""


class Shadows:
    """Creates shadows. `simulator_url`: None without a simulator; then their address is empty and nothing can be sent. `seal`:
    seals to the workers' key; without it, a shadow cannot receive pushes."""

    def __init__(self, simulator_url: str | None, seal: Callable[[str, str], str] | None) -> None:
        self._url = simulator_url
        # Once per text: a new seal would make the account look changed.
        self._sealed = cache(seal or (lambda *_: ""))

    def of(self, account: Account) -> Account:
        """The shadow of `account`: its kind, or a simulated one in its place, with the simulator's address, credential and
        options, never paused, and at the kind's own rate. Keeps the account settings that its requests are checked against: the
        deadline, the duplicate window and the checks."""
        kind = account.kind if account.kind in SITES else _ANY_OTHER_KIND
        site, identifier = SITES[kind], shadow_id(account.id)
        base_url = "" if self._url is None else f"{self._url}/{quote(identifier, safe='')}/{site.path}"
        shadow = Account(
            identifier,
            account.workspace_id,
            kind,
            base_url,
            "",
            deadline_seconds=account.deadline_seconds,
            options=site.options,
            duplicate_window_seconds=account.duplicate_window_seconds,
            similar=account.similar,
            skipped_checks=account.skipped_checks,
        )
        return replace(shadow, credential=self._sealed(site.credential, of_credential(shadow)))
