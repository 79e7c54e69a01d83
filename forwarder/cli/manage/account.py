"""`forwarder account …`: integration accounts, each one PMS as one workspace uses it."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from forwarder.assembly.backend import Backend
from forwarder.assembly.pms_catalog import pms_kinds
from forwarder.cli.backend import with_backend
from forwarder.cli.options import credential_from, options_from, tls_from
from forwarder.cli.output import AsJson, WrongUsage, say, show_json, show_rows
from forwarder.operations.accounts import Accounts
from forwarder.pms.port import SYSTEM_TLS, BadOptions
from forwarder.reservation.duplicates import DEFAULT_WINDOW_SECONDS, MAX_WINDOW_SECONDS
from forwarder.reservation.plausibility import CHECKS
from forwarder.reservation.submission import SHADOW_MARK
from forwarder.tenancy.port import Account

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
    help="For how long what is submitted again without an Idempotency-Key is the earlier submission; 0 for never.",
)
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
_Id = Annotated[str, typer.Argument(metavar="ID", help="The account's identifier.")]


def commands() -> typer.Typer:
    """add, set, list, pause, resume"""
    group = typer.Typer(help="Integration accounts: which PMS, and how it may be used.", no_args_is_help=True)
    group.command("add")(add)
    group.command("set")(change)
    group.command("list")(list_accounts)
    group.command("pause")(pause)
    group.command("resume")(resume)
    return group


def add(
    workspace: Annotated[str, typer.Option(help="The workspace it belongs to.")],
    kind: Annotated[str, typer.Option(help="The kind of PMS: one of those that `forwarder adapters list` shows.")],
    base_url: Annotated[str, typer.Option(help="Where the PMS's API is.")],
    credential: _Credential = None,
    credential_file: _CredentialFile = None,
    option: _Option = None,
    options_file: _OptionsFile = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Maximum concurrent pushes.")] = 64,
    rate: Annotated[
        float | None, typer.Option(help="Maximum requests per second. By default the limit that its kind publishes.")
    ] = None,
    deadline: Annotated[int, typer.Option(min=1, help="How many seconds a submission is tried.")] = 24 * 60 * 60,
    duplicate_window: Annotated[int, _DUPLICATE_WINDOW] = DEFAULT_WINDOW_SECONDS,
    skip_checks: _SkipChecks = None,
    ca_file: _CaFile = None,
    certificate_file: _CertificateFile = None,
    key_file: _KeyFile = None,
    account_id: Annotated[
        str | None, typer.Option("--id", help="Its identifier: the integrationAccountId header.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add an integration account."""
    if kind not in pms_kinds():
        raise WrongUsage(f"There is no PMS kind {kind!r}; there are: {', '.join(pms_kinds())}.")
    if not base_url.startswith(("http://", "https://")):
        raise WrongUsage(f"--base-url must begin with http:// or https://; it is {base_url!r}.")
    if rate is not None and rate <= 0:
        raise WrongUsage("--rate must be more than 0; leave it out for the kind's published limit.")
    new_id = account_id or f"acc_{secrets.token_hex(6)}"
    if SHADOW_MARK in new_id or "," in new_id or len(new_id) > _LONGEST_ID:
        raise WrongUsage(
            f"--id must be without {SHADOW_MARK}, which tells shadows, and without a comma, which parts headers, and of at most "
            f"{_LONGEST_ID} characters."
        )
    options = options_from(option, options_file)
    account = Account(
        new_id,
        workspace,
        kind,
        base_url.rstrip("/"),
        "",
        concurrency,
        rate,
        deadline,
        options=options,
        duplicate_window_seconds=duplicate_window,
        skipped_checks=_checks_from(skip_checks or "none"),
    )
    secret, tls = credential_from(credential, credential_file), tls_from(ca_file, certificate_file, key_file)
    with _options_in_words(kind):
        with_backend(lambda backend: _accounts(backend).add(account, secret, tls))
    if as_json:
        show_json({"id": new_id})
    else:
        say(f"Account {new_id} added.")


def change(
    account_id: _Id,
    credential: _Credential = None,
    credential_file: _CredentialFile = None,
    option: _Option = None,
    options_file: _OptionsFile = None,
    duplicate_window: Annotated[int | None, _DUPLICATE_WINDOW] = None,
    skip_checks: _SkipChecks = None,
    ca_file: _CaFile = None,
    certificate_file: _CertificateFile = None,
    key_file: _KeyFile = None,
    system_tls: Annotated[
        bool, typer.Option("--system-tls", help="Believe the system's authorities again, and show no certificate.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Change an account's settings. Of its options, --options-file replaces all, --option sets one, NAME=null removes it."""
    given = credential is not None or credential_file is not None
    options = options_from(option, options_file)
    tls = tls_from(ca_file, certificate_file, key_file)
    if system_tls and tls != SYSTEM_TLS:
        raise WrongUsage("Give either --system-tls, or the files with which TLS is to be.")
    wanted = (given, option, options_file, system_tls, tls != SYSTEM_TLS)
    if not (any(wanted) or skip_checks is not None or duplicate_window is not None):
        raise WrongUsage(
            "Say what is to change: --ca-file, --certificate-file and --key-file, --credential-file, --duplicate-window, --option, "
            "--options-file, --skip-checks or --system-tls."
        )
    skipped_checks = None if skip_checks is None else _checks_from(skip_checks)
    secret = credential_from(credential, credential_file) if given else None
    with _options_in_words(account_id):
        changed = with_backend(
            lambda backend: _accounts(backend).change(
                account_id,
                credential=secret,
                options=options,
                all_options=options_file is not None,
                duplicate_window_seconds=duplicate_window,
                skipped_checks=skipped_checks,
                tls=tls if system_tls or tls != SYSTEM_TLS else None,
            )
        )
    if as_json:
        show_json(_row(changed))
    else:
        say(f"Account {account_id} changed; all processes see it within seconds.")


def _accounts(backend: Backend) -> Accounts:
    allowed = backend.settings.environment.allow_plaintext_cards
    return Accounts(backend.tenancy, backend.sealer, plaintext_cards=allowed)


def _checks_from(names: str) -> tuple[str, ...]:
    if names == "none":
        return ()
    if names == "all":
        return CHECKS
    given = [name.strip() for name in names.split(",")]
    wrong = [name for name in given if name not in CHECKS]
    if wrong:
        raise WrongUsage(f"There is no check {wrong[0]!r}; there are: {', '.join(CHECKS)}; or say all, or none.")
    return tuple(check for check in CHECKS if check in given)


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
        "paused": account.paused,
        "options": account.options,
        "skippedChecks": account.skipped_checks,
        "ownAuthorities": account.authorities is not None,
        "clientCertificate": account.client_certificate is not None,
    }
