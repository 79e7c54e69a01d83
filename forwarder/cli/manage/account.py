"""`forwarder account …`: integration accounts, each one PMS as one workspace uses it."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from forwarder.assembly.backend import Backend
from forwarder.assembly.commands.probe import open_prober
from forwarder.assembly.pms_catalog import base_url_of_kind, pms_kinds
from forwarder.cli.backend import with_backend
from forwarder.cli.options import credential_from, options_from, tls_from
from forwarder.cli.output import AsJson, Failed, WrongUsage, say, show_json, show_one, show_rows, show_table
from forwarder.operations.accounts import (
    PUBLISHED,
    Accounts,
    AccountSettings,
    BadTerm,
    account_of,
    base_url_of,
    checks_of,
    rate_of,
    similar_of,
)
from forwarder.operations.probe import FAILED, ProbeStep
from forwarder.pms.port import SYSTEM_TLS, BadOptions
from forwarder.process.clock import iso
from forwarder.reservation.duplicates import DEFAULT_WINDOW_SECONDS, MAX_WINDOW_SECONDS
from forwarder.reservation.submission import SHADOW_MARK
from forwarder.store.deployment import BacklogReader
from forwarder.store.lists.port import AccountWork, NextTry
from forwarder.tenancy.port import SIMILAR, Account

T = TypeVar("T")

_COLUMNS = (
    "id",
    "workspace",
    "kind",
    "baseUrl",
    "concurrency",
    "ratePerSecond",
    "deadlineSeconds",
    "duplicateWindowSeconds",
    "paused",
)
_LONGEST_ID = 200
_Credential = Annotated[str | None, typer.Option(help="The PMS's credential, stored sealed. Prefer --credential-file.")]
_CredentialFile = Annotated[Path | None, typer.Option(help="File with the credential; - is standard input.")]
_Option = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="An option of its kind of PMS, JSON or text; repeatable."),
]
_OptionsFile = Annotated[Path | None, typer.Option(help="File with such options: TOML (.toml) or JSON.")]
_DUPLICATE_WINDOW = typer.Option(
    min=0,
    max=MAX_WINDOW_SECONDS,
    metavar="SECONDS",
    help="How long a repeated submission without an Idempotency-Key counts as a duplicate; 0 for never.",
)
_Similar = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(SIMILAR),
        help="Whether a submission without an Idempotency-Key is refused for the stay and the guest of an earlier one, "
        "where its body is another.",
    ),
]
_SkipChecks = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Checks that its requests need not pass, with commas between: past-arrival (an arrival long past), guest-counts "
        "(more adults and children than guests), clock-times (times that no clock shows), guest-name (a guest without a name), "
        "card-like-ids (identifiers and transactions that look like card numbers); "
        "or all, or none.",
    ),
]
_CaFile = Annotated[
    Path | None,
    typer.Option(help="The authorities (PEM) to believe its PMS by, instead of the system's. The contents are stored."),
]
_CertificateFile = Annotated[
    Path | None,
    typer.Option(help="The client certificate (PEM, with its chain) to show to its PMS. The contents are stored."),
]
_KeyFile = Annotated[Path | None, typer.Option(help="The certificate's key (PEM, without a password), stored sealed.")]
_CONCURRENCY = typer.Option(min=1, help="Maximum concurrent pushes.")
_RATE = typer.Option(metavar="N", help=f"Maximum requests per second; {PUBLISHED}: the limit that its kind publishes.")
_Settles = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=3600,
        metavar="SECONDS",
        help="How long its PMS may take to show a reservation, where that is longer than its kind states.",
    ),
]
_DEADLINE = typer.Option(min=1, metavar="SECONDS", help="How long a submission is tried.")
_Id = Annotated[str, typer.Argument(metavar="ID", help="The account's identifier.")]


def commands() -> typer.Typer:
    """add, set, list, show, probe, pause, resume"""
    group = typer.Typer(help="Integration accounts: their PMS, limits and settings.", no_args_is_help=True)
    group.command("add")(add)
    group.command("set")(change)
    group.command("list")(list_accounts)
    group.command("show")(show)
    group.command("probe")(probe)
    group.command("pause")(pause)
    group.command("resume")(resume)
    return group


def add(
    workspace: Annotated[str, typer.Option(help="The workspace it belongs to.")],
    kind: Annotated[str, typer.Option(help="The kind of PMS: one of those that `forwarder adapters list` shows.")],
    base_url: Annotated[
        str | None, typer.Option(help="The base URL of the PMS's API. Default: the one in its kind's mapping.")
    ] = None,
    credential: _Credential = None,
    credential_file: _CredentialFile = None,
    option: _Option = None,
    options_file: _OptionsFile = None,
    concurrency: Annotated[int, _CONCURRENCY] = 64,
    rate: Annotated[str, _RATE] = PUBLISHED,
    deadline: Annotated[int, _DEADLINE] = 24 * 60 * 60,
    duplicate_window: Annotated[int, _DUPLICATE_WINDOW] = DEFAULT_WINDOW_SECONDS,
    similar: _Similar = "allow",
    skip_checks: _SkipChecks = "none",
    ca_file: _CaFile = None,
    certificate_file: _CertificateFile = None,
    key_file: _KeyFile = None,
    settles: _Settles = None,
    account_id: Annotated[
        str | None, typer.Option("--id", help="Its identifier: the integrationAccountId header.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add an integration account."""
    if kind not in pms_kinds():
        raise WrongUsage(f"There is no PMS kind {kind!r}; there are: {', '.join(pms_kinds())}.")
    new_id = account_id or f"acc_{secrets.token_hex(6)}"
    if SHADOW_MARK in new_id or "," in new_id or len(new_id) > _LONGEST_ID:
        raise WrongUsage(
            f"--id must be without {SHADOW_MARK}, which marks shadows, without a comma, which separates headers, and of at most "
            f"{_LONGEST_ID} characters."
        )
    options = options_from(option, options_file)
    base_url = _address(kind, options, base_url)
    settings = _settings_from(base_url, concurrency, rate, deadline, duplicate_window, similar, skip_checks, settles)
    account = replace(Account(new_id, workspace, kind, base_url, "", options=options), **settings)
    secret, tls = credential_from(credential, credential_file), tls_from(ca_file, certificate_file, key_file)
    with _options_in_words(kind):
        with_backend(lambda backend: _accounts(backend).add(account, secret, tls))
    if as_json:
        show_json({"id": new_id})
    else:
        say(f"Account {new_id} added. `forwarder account probe {new_id}` tests the PMS credentials.")


def change(
    account_id: _Id,
    base_url: Annotated[
        str | None, typer.Option(help="The base URL of the PMS's API. Another host needs the credential again.")
    ] = None,
    credential: _Credential = None,
    credential_file: _CredentialFile = None,
    option: _Option = None,
    options_file: _OptionsFile = None,
    concurrency: Annotated[int | None, _CONCURRENCY] = None,
    rate: Annotated[str | None, _RATE] = None,
    deadline: Annotated[int | None, _DEADLINE] = None,
    duplicate_window: Annotated[int | None, _DUPLICATE_WINDOW] = None,
    similar: _Similar = None,
    skip_checks: _SkipChecks = None,
    ca_file: _CaFile = None,
    certificate_file: _CertificateFile = None,
    key_file: _KeyFile = None,
    settles: _Settles = None,
    same_pms: Annotated[
        bool,
        typer.Option(
            "--same-pms",
            help="It is the same account of the same PMS as before, at another address or with another credential: "
            "reservations made until now are looked up and cancelled there.",
        ),
    ] = False,
    system_tls: Annotated[
        bool, typer.Option("--system-tls", help="Believe the system's authorities again, and show no certificate.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Change an account's settings. Of its options, --options-file replaces all, --option sets one, NAME=null removes it.

    Workers apply them within seconds. A new deadline applies to later submissions.
    """
    given = credential is not None or credential_file is not None
    options = options_from(option, options_file)
    tls = tls_from(ca_file, certificate_file, key_file)
    if system_tls and tls != SYSTEM_TLS:
        raise WrongUsage("Give either --system-tls, or the files with which TLS is to be.")
    settings = _settings_from(base_url, concurrency, rate, deadline, duplicate_window, similar, skip_checks, settles)
    if same_pms:
        settings["same_pms_before"] = datetime.now(UTC)
    if not (settings or given or option or options_file or system_tls or tls != SYSTEM_TLS):
        raise WrongUsage(
            "Say what is to change: --base-url, --ca-file, --certificate-file and --key-file, --concurrency, --credential-file, "
            "--deadline, --duplicate-window, --option, --options-file, --rate, --same-pms, --settles, --similar, --skip-checks or "
            "--system-tls."
        )
    secret = credential_from(credential, credential_file) if given else None
    with _options_in_words(account_id):
        changed = with_backend(
            lambda backend: _accounts(backend).change(
                account_id,
                credential=secret,
                options=options,
                all_options=options_file is not None,
                tls=tls if system_tls or tls != SYSTEM_TLS else None,
                **settings,
            )
        )
    if as_json:
        show_json(_row(changed))
    else:
        say(f"Account {account_id} changed; all processes see it within seconds.")


def _address(kind: str, options: Mapping[str, Any], base_url: str | None) -> str:
    """The given base URL, or the one in the kind's mapping. Raises `WrongUsage`."""
    if base_url is not None:
        return base_url
    try:
        return base_url_of_kind(kind, options)
    except BadOptions as error:
        raise WrongUsage(str(error)) from error


def _settings_from(
    base_url: str | None,
    concurrency: int | None,
    rate: str | None,
    deadline: int | None,
    duplicate_window: int | None,
    similar: str | None,
    skip_checks: str | None,
    settles: float | None,
) -> AccountSettings:
    """The settings that are given. Raises `WrongUsage`."""
    settings: AccountSettings = {}
    if base_url is not None:
        settings["base_url"] = _term("--base-url", base_url_of, base_url)
    if concurrency is not None:
        settings["concurrency"] = concurrency
    if rate is not None:
        settings["rate_per_second"] = _term("--rate", rate_of, rate)
    if deadline is not None:
        settings["deadline_seconds"] = deadline
    if duplicate_window is not None:
        settings["duplicate_window_seconds"] = duplicate_window
    if similar is not None:
        settings["similar"] = _term("--similar", similar_of, similar)
    if skip_checks is not None:
        settings["skipped_checks"] = _term("--skip-checks", checks_of, skip_checks)
    if settles is not None:
        settings["settles_seconds"] = settles or None
    return settings


def _term(option: str, read: Callable[[str], T], text: str) -> T:
    """`text` parsed by `read`. Raises `WrongUsage`, which names the option."""
    try:
        return read(text)
    except BadTerm as error:
        raise WrongUsage(f"{option} {error}") from None


def show(account_id: _Id, as_json: AsJson = False) -> None:
    """Show one account: its settings and options, its backlog, and its next try. Its credential is not shown."""

    async def run(backend: Backend) -> tuple[Account, AccountWork | None, NextTry | None]:
        found = await account_of(backend.tenancy, account_id)
        works = await BacklogReader(backend.engine).accounts(now=backend.clock.now())
        work = next((each for each in works if each.account_id == account_id), None)
        return found, work, await backend.overview.next_try(account_id)

    account, work, tried = with_backend(run)
    standing = {
        "pending": 0 if work is None else work.pending,
        "oldestPendingAt": work and work.oldest_pending_at and iso(work.oldest_pending_at),
        "inDoubt": 0 if work is None else work.in_doubt,
        "nextTryAt": tried and iso(tried.due_at),
        "lastReason": tried and tried.reason,
    }
    show_one({**_row(account), **standing}, as_json=as_json)


def probe(
    account_id: _Id,
    property_id: Annotated[
        str, typer.Option("--property", help="A property of it, for PMSs that look for reservations by property.")
    ] = "0",
    as_json: AsJson = False,
) -> None:
    """Test the connection to the account's PMS: DNS, TLS, credentials, and a look-up of a reservation that cannot exist.

    Creates nothing in the PMS. Exit code 1 if a step fails.
    """

    async def run(backend: Backend) -> Sequence[ProbeStep]:
        account = await account_of(backend.tenancy, account_id)
        async with open_prober(backend) as prober:
            return await prober.probe(account, property_id)

    steps = with_backend(run)
    if as_json:
        show_json({"id": account_id, "steps": [asdict(step) for step in steps]})
    else:
        show_table([_step_row(step) for step in steps])
    failed = [step for step in steps if step.ended == FAILED]
    if failed:
        raise Failed(f"{account_id} cannot receive pushes. Remedy: {failed[0].mend}")


def _step_row(step: ProbeStep) -> tuple[str, ...]:
    return (step.ended, step.name, "" if step.seconds is None else f"{step.seconds * 1000:.0f} ms", step.says)


def _accounts(backend: Backend) -> Accounts:
    return Accounts(backend.tenancy, backend.sealer, plaintext=backend.settings.environment.plaintext_to_pms)


@contextmanager
def _options_in_words(whose: str) -> Iterator[None]:
    try:
        yield
    except BadOptions as error:
        raise WrongUsage(f"That is not what {whose} can have. {error}") from error


def list_accounts(
    workspace: Annotated[str | None, typer.Option(help="Only this workspace's.")] = None, as_json: AsJson = False
) -> None:
    """List integration accounts; their options with --json. Credentials are not shown."""
    accounts = with_backend(lambda backend: backend.tenancy.accounts(workspace))
    show_rows([_row(account) for account in accounts], _COLUMNS, as_json=as_json)


def pause(account_id: _Id, as_json: AsJson = False) -> None:
    """Stop pushing to the account's PMS. Submissions are accepted and wait."""
    _set_paused(account_id, paused=True, as_json=as_json)


def resume(account_id: _Id, as_json: AsJson = False) -> None:
    """Resume pushing to the account's PMS."""
    _set_paused(account_id, paused=False, as_json=as_json)


def _set_paused(account_id: str, *, paused: bool, as_json: bool) -> None:
    with_backend(lambda backend: backend.tenancy.pause(account_id, paused=paused))
    if as_json:
        show_json({"id": account_id, "paused": paused})
    else:
        say(f"Account {account_id} is {'paused' if paused else 'resumed'}; workers see it within seconds.")


def _row(account: Account) -> dict[str, Any]:
    return {
        "id": account.id,
        "workspace": account.workspace_id,
        "kind": account.kind,
        "baseUrl": account.base_url,
        "concurrency": account.concurrency,
        "ratePerSecond": account.rate_per_second,
        "deadlineSeconds": account.deadline_seconds,
        "duplicateWindowSeconds": account.duplicate_window_seconds,
        "settlesSeconds": account.settles_seconds,
        "similar": account.similar,
        "paused": account.paused,
        "options": account.options,
        "skippedChecks": account.skipped_checks,
        "ownAuthorities": account.authorities is not None,
        "clientCertificate": account.client_certificate is not None,
    }
