"""`forwarder account …`: integration accounts, each one PMS as one workspace uses it."""

import re
import secrets
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

from typer import Argument, Option

from forwarder.assembly.backend import Backend
from forwarder.assembly.pms_catalog import base_url_of_kind
from forwarder.operate import command
from forwarder.operate.command import Deployment, OnlyWorkspace, commands, open_deployment, require_known
from forwarder.operate.output import Grid, Printed, WrongUsage, listed, of_one, picked
from forwarder.operate.tenants import accounts
from forwarder.operate.tenants.adapters import require_kind
from forwarder.pms.port import SYSTEM_TLS, BadOptions, ClientTls
from forwarder.reservation.submission import DEFAULT_WINDOW_SECONDS, MAX_WINDOW_SECONDS, SHADOW_MARK
from forwarder.store.deployment import BacklogReader
from forwarder.store.lists.port import AccountWork
from forwarder.tenancy.port import SIMILAR, Account

_Id = Annotated[str, Argument(metavar="ID", help="The account's identifier.")]
_CONCURRENCY = Option(min=1, max=10_000)
_RATE = Option(metavar="N")
# 366 days: databases and languages can store such a moment.
_DEADLINE = Option(min=1, max=31_622_400, metavar="SECONDS")
_DUPLICATE_WINDOW = Option(min=0, max=MAX_WINDOW_SECONDS, metavar="SECONDS")
_SIMILAR = Option(metavar="|".join(SIMILAR))
_SKIP_CHECKS = Option(metavar="NAMES")


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms of an account that are given.

    base_url: The base URL of the PMS's API. Another host needs the credential again.
    credential: The PMS's credential, stored sealed. Prefer --credential-file.
    credential_file: File with the credential; - is standard input.
    option: An option of its kind of PMS, JSON or text; repeatable.
    options_file: File with such options: TOML (.toml) or JSON.
    concurrency: Maximum concurrent pushes.
    rate: Maximum requests per second; published: the limit that its kind publishes.
    deadline: How long a submission is tried.
    duplicate_window: How long a repeated submission without an Idempotency-Key counts as a duplicate; 0 for never.
    similar: Whether to refuse a submission without an Idempotency-Key that has the stay and guest of an earlier one, but a
        different body.
    skip_checks: Checks to skip for its requests, comma-separated: past-arrival (an arrival long past), guest-counts (more adults
        and children than guests), clock-times (times that no clock shows), guest-name (a guest without a name), card-like-ids
        (identifiers and transactions that look like card numbers); or all, or none.
    ca_file: The certificate authorities (PEM) to trust for its PMS, instead of the system's. The contents are stored.
    certificate_file: The client certificate (PEM, with its chain) for its PMS. The contents are stored.
    key_file: The certificate's key (PEM, without a password), stored sealed.
    settles: How long its PMS may take to show a reservation, if that is longer than its kind states."""

    base_url: str | None = None
    credential: str | None = None
    credential_file: Path | None = None
    option: Annotated[list[str] | None, Option(metavar="NAME=VALUE")] = None
    options_file: Path | None = None
    concurrency: Annotated[int | None, _CONCURRENCY] = None
    rate: Annotated[str | None, _RATE] = None
    deadline: Annotated[int | None, _DEADLINE] = None
    duplicate_window: Annotated[int | None, _DUPLICATE_WINDOW] = None
    similar: Annotated[str | None, _SIMILAR] = None
    skip_checks: Annotated[str | None, _SKIP_CHECKS] = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    settles: Annotated[float | None, Option(min=0, max=3600, metavar="SECONDS")] = None

    def tls(self) -> ClientTls:
        """Its own authorities and client certificate. Raises `WrongUsage`."""
        if (self.certificate_file is None) != (self.key_file is None):
            raise WrongUsage("A client certificate needs both --certificate-file and --key-file.")
        files = (self.ca_file, self.certificate_file, self.key_file)
        return ClientTls(*(None if file is None else command.text_from(file) for file in files))

    def settings(self) -> accounts.AccountSettings:
        """The other terms. Raises `WrongUsage`."""
        given = {"concurrency": self.concurrency, "deadline_seconds": self.deadline}
        given |= {"duplicate_window_seconds": self.duplicate_window}
        settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        terms: Sequence[tuple[str, str, Callable[[str], Any], str | None]] = (
            ("--base-url", "base_url", accounts.base_url_of, self.base_url),
            ("--rate", "rate_per_second", accounts.rate_of, self.rate),
            ("--similar", "similar", accounts.similar_of, self.similar),
            ("--skip-checks", "skipped_checks", accounts.checks_of, self.skip_checks),
        )
        for option, name, read, text in terms:
            try:
                settings |= {} if text is None else {name: read(text)}
            except accounts.BadTerm as error:
                raise WrongUsage(f"{option} {error}") from None
        if self.settles is not None:
            settings["settles_seconds"] = self.settles or None
        return cast("accounts.AccountSettings", settings)


@dataclass(frozen=True, slots=True)
class _NewTerms(_Terms):
    """The terms of a new account, with their defaults.

    base_url: The base URL of the PMS's API. Default: the one in its kind's mapping."""

    concurrency: Annotated[int | None, _CONCURRENCY] = 64
    rate: Annotated[str | None, _RATE] = accounts.PUBLISHED
    deadline: Annotated[int | None, _DEADLINE] = 24 * 60 * 60
    duplicate_window: Annotated[int | None, _DUPLICATE_WINDOW] = DEFAULT_WINDOW_SECONDS
    similar: Annotated[str | None, _SIMILAR] = "allow"
    skip_checks: Annotated[str | None, _SKIP_CHECKS] = "none"


async def add(
    workspace: Annotated[str, Option(help="The workspace it belongs to.")],
    kind: Annotated[str, Option(help="The kind of PMS: one of those that `forwarder adapters list` shows.")],
    *,
    terms: _NewTerms,
    account_id: Annotated[str | None, Option("--id", help="Its identifier: the integrationAccountId header.")] = None,
) -> Printed:
    """Add an integration account."""
    require_kind(kind)
    new_id = f"acc_{secrets.token_hex(6)}" if account_id is None else account_id
    if not re.fullmatch(r"(?![ -])[ -~]{0,199}[!-~]", new_id) or SHADOW_MARK in new_id or "," in new_id:
        form = f"1 to 200 printable ASCII characters, as callers send it in a header, without {SHADOW_MARK} and commas"
        ends = "it begins with neither a hyphen nor a space, and ends with no space"
        raise WrongUsage(f"--id must be {form}; {ends}. It is {new_id!r}.")
    options = command.options_from(terms.option, terms.options_file)
    terms = replace(terms, base_url=terms.base_url or base_url_of_kind(kind, options))
    account = replace(Account(new_id, workspace, kind, "", "", options=options), **terms.settings())
    secret, tls = command.credential_from(terms.credential, terms.credential_file), terms.tls()
    with _options_in_words(kind):
        async with open_deployment() as backend:
            await accounts.accounts_of(backend).add(account, secret, tls)
    advice = f"`forwarder account probe {shlex.quote(new_id)}` tests the PMS credentials"
    return Printed({"id": new_id}, f"Account {new_id} added. {advice}.")


async def change(account_id: _Id, *, terms: _Terms, same_pms: bool = False, system_tls: bool = False) -> Printed:
    """Change an account's settings. --options-file replaces all of its options, --option sets one, --option NAME=null removes it.

    Workers apply them within seconds. A new deadline applies to later submissions.

    same_pms: It is the same account of the same PMS as before, at another address or with another credential: reservations
        made until now are looked up and cancelled there.
    system_tls: Trust the system's authorities again, and send no client certificate."""
    tls = terms.tls()
    if system_tls and tls != SYSTEM_TLS:
        raise WrongUsage("Give either --system-tls, or the certificate files.")
    settings = terms.settings()
    if terms == _Terms() and not same_pms and not system_tls:
        raise WrongUsage(
            "Say what is to change: --base-url, --ca-file, --certificate-file and --key-file, --concurrency, --credential-file, "
            "--deadline, --duplicate-window, --option, --options-file, --rate, --same-pms, --settles, --similar, --skip-checks or "
            "--system-tls."
        )
    options, given = command.options_from(terms.option, terms.options_file), (terms.credential, terms.credential_file)
    secret = None if given == (None, None) else command.credential_from(*given)
    whole, own = terms.options_file is not None, tls if system_tls or tls != SYSTEM_TLS else None
    with _options_in_words(account_id):
        async with open_deployment() as backend:
            change_it = partial(accounts.accounts_of(backend).change, account_id, credential=secret, options=options)
            changed = await change_it(all_options=whole, tls=own, same_pms=same_pms, **settings)
    return Printed(_row(changed), f"Account {account_id} changed; all processes use it within seconds.")


async def show(backend: Deployment, account_id: _Id) -> Printed:
    """Show one account: its settings and options, its backlog, and its next try. Its credential is not shown."""
    account, reader = await accounts.account_of(backend.tenancy, account_id), BacklogReader(backend.engine)
    works = {each.account_id: each for each in await reader.accounts(now=backend.clock.now())}
    waiting = await reader.waiting(account_id)
    work = works.get(account_id) or AccountWork(account_id, 0, None, 0, None, 0, None)
    standing = picked(work, "pending oldestPendingAt inDoubt") | {"nextTryAt": waiting.due_at}
    standing["lastReason"] = waiting.most and waiting.most[0]
    return of_one({**_row(account), **standing})


async def probe(
    backend: Deployment, account_id: _Id, property_id: Annotated[str, Option("--property")] = "0"
) -> Printed:
    """Test the connection to the account's PMS: DNS, TLS, credentials, and a look-up of a reservation that cannot exist.

    Creates nothing in the PMS. Exit code 1 if a step fails.

    property_id: A property of it, for PMSs that look for reservations by property."""
    account = await accounts.account_of(backend.tenancy, account_id)
    steps = await accounts.probe(backend, account, property_id)
    rows = [(s.ended, s.name, "" if s.seconds is None else f"{s.seconds * 1000:.0f} ms", s.says) for s in steps]
    remedy = next((step.mend for step in steps if step.ended == "failed"), None)
    failed = None if remedy is None else f"{account_id} cannot receive pushes. Remedy: {remedy}"
    return Printed({"id": account_id, "steps": steps}, Grid(rows), failed=failed)


@contextmanager
def _options_in_words(whose: str) -> Iterator[None]:
    try:
        yield
    except BadOptions as error:
        raise WrongUsage(f"Invalid options of {whose}. {error}") from error


async def list_accounts(backend: Deployment, workspace: OnlyWorkspace = None) -> Printed:
    """List integration accounts; their options with --json. Credentials are not shown."""
    found = await backend.tenancy.accounts(workspace)
    await require_known(backend, found, workspace=workspace)
    columns = "id workspace kind baseUrl concurrency ratePerSecond deadlineSeconds duplicateWindowSeconds paused"
    return listed([_row(account) for account in found], columns.split())


async def pause(backend: Deployment, account_id: _Id) -> Printed:
    """Stop pushing to the account's PMS. Submissions are accepted and wait."""
    return await _set_paused(backend, account_id, paused=True)


async def resume(backend: Deployment, account_id: _Id) -> Printed:
    """Resume pushing to the account's PMS."""
    return await _set_paused(backend, account_id, paused=False)


async def _set_paused(backend: Backend, account_id: str, *, paused: bool) -> Printed:
    await backend.tenancy.pause(account_id, paused=paused)
    sentence = f"Account {account_id} is {'paused' if paused else 'resumed'}; workers see it within seconds."
    return Printed({"id": account_id, "paused": paused}, sentence)


def _row(account: Account) -> dict[str, Any]:
    about = "id workspace=workspace_id kind baseUrl concurrency ratePerSecond deadlineSeconds duplicateWindowSeconds"
    about += " settlesSeconds similar paused options skippedChecks"
    own = {"ownAuthorities": account.authorities, "clientCertificate": account.client_certificate}
    return picked(account, about) | {name: each is not None for name, each in own.items()}


COMMANDS = commands(add=add, set=change, list=list_accounts, show=show, probe=probe, pause=pause, resume=resume)
