"""Integration accounts: state, and throttling of the PMS; pausing, resuming, probing and changing an account."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any

from forwarder.console.guard import Form, Visit
from forwarder.console.responses import NO_SUCH_ACTION, Go, RenderedPage, address
from forwarder.console.service import ConsoleParts, Recent
from forwarder.http.parameters import is_digits
from forwarder.operate.deployment.throughput import PmsState, pms_states
from forwarder.operate.tenants import accounts as terms
from forwarder.operate.tenants.accounts import AccountSettings, BadTerm, NotEncrypted
from forwarder.oversight.backlog import Backlog, read_backlog
from forwarder.pms.port import SYSTEM_TLS, BadOptions, ClientTls
from forwarder.reservation.checks.fields import CHECKS
from forwarder.reservation.submission import MAX_WINDOW_SECONDS
from forwarder.store.deployment import BacklogReader, ProcessRegister
from forwarder.tenancy.port import Account, ChangedMeanwhile, NotKnown


class AccountPages:
    def __init__(self, parts: ConsoleParts) -> None:
        self._backend = parts.backend
        self._reader = BacklogReader(parts.backend.engine)
        self._recent = Recent(self._read, parts.backend.clock)

    async def _read(self) -> tuple[Backlog, Mapping[str, PmsState]]:
        work = await read_backlog(self._reader, self._backend.tenancy, self._backend.clock)
        return work, pms_states(await ProcessRegister(self._backend.engine).processes(), work.at)

    async def list(self, _visit: Visit) -> RenderedPage:
        work, states = await self._recent.get()
        return RenderedPage("accounts.html", {"work": work, "states": states})

    async def show(self, visit: Visit) -> RenderedPage:
        return await self._page(await self._account(visit))

    async def act(self, visit: Visit) -> Go | RenderedPage:
        account, form, said = await self._account(visit), visit.form, NO_SUCH_ACTION
        match form.text("do"):
            case "pause":
                await self._backend.tenancy.pause(account.id, paused=True)
                said = "The account is paused: submissions are accepted and wait. Workers see it within seconds."
            case "resume":
                await self._backend.tenancy.pause(account.id, paused=False)
                said = "The account is resumed. Workers see it within seconds."
            case "probe":
                steps = await terms.probe(self._backend, account, form.text("property") or "0")
                return await self._page(account, steps=steps)
            case "change":
                if (problem := await self._change(account, form)) is not None:
                    return await self._page(account, problem=problem, form=form)
                said = "The account is changed. All processes see it within seconds; probe it to be sure."
        return Go(address(f"/accounts/{account.id}"), said)

    async def _page(self, account: Account, *, form: Form | None = None, **more: Any) -> RenderedPage:
        work, states = await self._recent.get()
        values = {
            "account": account,
            "backlog": next((each for each in work.accounts if each.account_id == account.id), None),
            "waiting": await self._reader.waiting(account.id),
            "now": work.at,
            "state": states.get(account.id),
            "given": _given(account, form),
            "checks": CHECKS,
            "longest_window": MAX_WINDOW_SECONDS,
            "as_of": _as_of(account),
            "published": terms.PUBLISHED,
        }
        return RenderedPage("account.html", {"steps": (), "problem": None, **values, **more}, 422 if form else 200)

    async def _change(self, account: Account, form: Form) -> str | None:
        if form.text("as_of") != _as_of(account):
            changed = "Another operator has changed this account since you opened the form."
            return f"Nothing was changed. {changed} Reload the page and check."
        try:
            settings, options = _settings(form), _options(form.text("options"))
            secured: dict[str, Any] = {"tls": _tls(form), "credential": form.text("credential") or None}
            accounts = terms.accounts_of(self._backend)
            await accounts.change(account.id, options=options, all_options=True, **secured, **settings)
        except (BadTerm, BadOptions, ChangedMeanwhile, NotEncrypted) as error:
            return f"Nothing was changed. {error}"
        return None

    async def _account(self, visit: Visit) -> Account:
        wanted = visit.request.path_params["id"]
        for each in await self._backend.tenancy.accounts():
            if each.id == wanted:
                return each
        raise NotKnown(f"There is no integration account {wanted!r}. The accounts page lists all of them.")


def _as_of(account: Account) -> str:
    """A hash of the settings that a form was made from, so that one operator does not unknowingly undo another's change."""
    kept = {name: value for name, value in asdict(account).items() if name != "paused"}
    return sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _given(account: Account, form: Form | None) -> Mapping[str, Any]:
    """The form's values: the settings, or the rejected input. Never a secret."""
    if form is not None:
        texts = ("base_url", "concurrency", "rate", "deadline", "duplicate_window", "options")
        return {name: form.text(name) for name in texts} | {"checks": form.get("checks", [])}
    return {
        "base_url": account.base_url,
        "concurrency": account.concurrency,
        "rate": terms.PUBLISHED if account.rate_per_second is None else str(account.rate_per_second).removesuffix(".0"),
        "deadline": account.deadline_seconds,
        "duplicate_window": account.duplicate_window_seconds,
        "checks": account.skipped_checks,
        "options": json.dumps(account.options, ensure_ascii=False, indent=2),
    }


def _settings(form: Form) -> AccountSettings:
    def named(name: str, text: str, read: Any) -> Any:
        try:
            return read(text)
        except BadTerm as error:
            raise BadTerm(f"{name} {error}") from None

    def whole(name: str, field: str, least: int = 1, most: int = 10**9 - 1) -> int:
        text = form.text(field)
        if not is_digits(text) or len(text) > 9 or not least <= int(text) <= most:  # noqa: PLR2004 - as `most`
            raise BadTerm(f"{name} is a whole number from {least:,} to {most:,}; it was {text!r}.")
        return int(text)

    return {
        "base_url": named("The base URL", form.text("base_url"), terms.base_url_of),
        "rate_per_second": named("The rate", form.text("rate"), terms.rate_of),
        "concurrency": whole("Concurrency", "concurrency"),
        "deadline_seconds": whole("The deadline", "deadline"),
        "duplicate_window_seconds": whole("The duplicate window", "duplicate_window", 0, MAX_WINDOW_SECONDS),
        "skipped_checks": named("Checks left out", ",".join(form.get("checks", [])) or "none", terms.checks_of),
    }


def _options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise BadTerm(f"The options are not valid JSON ({error}).") from None
    if not isinstance(options, dict):
        raise BadTerm("The options must be a JSON object, such as {}.")
    return options


def _tls(form: Form) -> ClientTls | None:
    """None where it stays as it is. Raises `BadTerm`."""
    if form.text("tls") != "own":
        return SYSTEM_TLS if form.text("tls") == "system" else None
    authorities, certificate, key = (form.text(name) or None for name in ("authorities", "certificate", "key"))
    if (certificate is None) != (key is None):
        raise BadTerm("A client certificate needs its key, and a key its certificate.")
    if authorities is certificate is None:
        raise BadTerm("TLS settings need authorities, or a client certificate with its key, as PEM.")
    return ClientTls(authorities, certificate, key)
