"""Integration accounts: how each stands, pausing and resuming it, and what of it can be changed."""

from typing import Final

from forwarder.console.guard import Form, Visit
from forwarder.console.parts import ConsoleParts
from forwarder.console.recent import Recent
from forwarder.console.responses import Go, Page, address
from forwarder.http.paging import is_digits
from forwarder.operations.accounts import NotEncrypted
from forwarder.operations.show.standing import read_work
from forwarder.pms.port import BadOptions
from forwarder.reservation.duplicates import MAX_WINDOW_SECONDS
from forwarder.tenancy.port import Account, NotKnown

_DIGITS: Final = 9


class AccountPages:
    """Accounts and their PMSs."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._tenancy = parts.tenancy
        self._accounts = parts.accounts
        self._work = Recent(lambda: read_work(parts.standing, parts.tenancy, parts.clock), parts.clock)

    async def list(self, _visit: Visit) -> Page:
        return Page("accounts.html", {"work": await self._work.get()})

    async def show(self, visit: Visit) -> Page:
        account, work = await self._account(visit), await self._work.get()
        standing = next((each for each in work.accounts if each.account_id == account.id), None)
        return Page("account.html", {"account": account, "standing": standing, "now": work.at})

    async def act(self, visit: Visit) -> Go:
        account = await self._account(visit)
        path = address(f"/accounts/{account.id}")
        match visit.form.text("do"):
            case "pause":
                await self._tenancy.pause(account.id, paused=True)
                return Go(path, "It is paused: submissions are accepted and wait. Workers see it within seconds.")
            case "resume":
                await self._tenancy.pause(account.id, paused=False)
                return Go(path, "It is resumed. Workers see it within seconds.")
            case "change":
                return Go(path, await self._change(account.id, visit.form))
            case _:
                return Go(path, "There is no such action; nothing was changed.")

    async def _change(self, account_id: str, form: Form) -> str:
        text = form.text("duplicate_window")
        if not is_digits(text) or len(text) > _DIGITS or int(text) > MAX_WINDOW_SECONDS:
            return f"Nothing was changed: the duplicate window is a whole number of seconds, {MAX_WINDOW_SECONDS:,} at the most."
        try:
            await self._accounts.change(
                account_id, credential=None, options={}, all_options=False, duplicate_window_seconds=int(text)
            )
        except (BadOptions, NotEncrypted) as error:
            return f"Nothing was changed: {error}"
        return "It is changed. All processes see it within seconds."

    async def _account(self, visit: Visit) -> Account:
        wanted = visit.request.path_params["id"]
        found = [each for each in await self._tenancy.accounts() if each.id == wanted]
        if not found:
            raise NotKnown(f"There is no integration account {wanted!r}.")
        return found[0]
