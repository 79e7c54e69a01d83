"""`forwarder adapters check`: whether an adapter keeps its word, at the simulator, at a sandbox, or as an account.

The kit breaks exchanges on purpose. So an account's tokens are never asked for through its proxy: the answer would be lost, and a
refresh token with it. A look-up that workers could make renews the token beforehand, if it has to be, and the kit borrows it.
"""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from forwarder.assembly.backend import Backend
from forwarder.assembly.pms_catalog import mapping_of, pms_kinds, try_out
from forwarder.assembly.worker import grants_of
from forwarder.observability.logging import configure_logging
from forwarder.operate.command import credential_from, open_deployment, options_from
from forwarder.operate.output import AsJson, Failed, Table, WrongUsage, note, progress, say, show, show_json
from forwarder.operate.tenants.accounts import account_of, probe
from forwarder.pms.accounts import connection_of
from forwarder.pms.mapping.model import SOURCES, PmsMapping, source_of
from forwarder.pms.port import BadOptions, LentGrant
from forwarder.pms.registry import check_options, registered
from forwarder.tenancy.port import Account, CannotOpen
from forwarder.tenancy.sealing import of_credential
from forwarder_pms_kit.conformance import CHECKS, Check, Result, Site
from forwarder_pms_kit.runs import pause_for, results, settling
from forwarder_pms_kit.simulators import SITES

_SOON: Final = timedelta(days=30)
_MIN_SECRET_LENGTH: Final = 6
_HIDDEN: Final = "***"
_MAX_NIGHTS: Final = 120
_MAX_NAMED: Final = 20
_TAKEN: Final = "room_unavailable"

SHOWN_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "makes-reservations": (
        "auth",
        "create.path",
        "create.body",
        "create.id",
        "create.reservation",
        "create.success",
        "confirm",
    ),
    "finds-by-reference": ("find", "reservation"),
    "cancels": ("cancel",),
    "refuses-taken-nights": ("create.errors",),
}
"""Check of the kit → the statements that it shows, where it is run against the vendor's own server."""


def check(
    kind: Annotated[str, typer.Argument(help="The kind of PMS.")],
    base_url: Annotated[
        str | None, typer.Option(help="A test server or sandbox, where bookings are made. By default our simulator.")
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Book as this account, with its address, options and credential; other options override them.",
        ),
    ] = None,
    credential_file: Annotated[
        Path | None, typer.Option(help="File with that PMS's credential; - is standard input.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, an option of its accounts; repeatable.")] = None,
    options_file: Annotated[
        Path | None, typer.Option(help="Options in a file, JSON or TOML; or a mapping, YAML.")
    ] = None,
    property_id: Annotated[
        str | None,
        typer.Option("--property", help="Property to book in. By default 5001 and up; needed with --account."),
    ] = None,
    room_id: Annotated[str | None, typer.Option("--room", help="Room to book in.")] = None,
    first_night: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="First night to book. By default in 30 days.")
    ] = None,
    calendar: Annotated[bool, typer.Option(help="Whether that PMS refuses nights that are booked already.")] = True,
    only: Annotated[list[str] | None, typer.Option("--check", help="Run only this check; repeatable.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --account: book without asking first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the conformance checks on an adapter. Exits 1 if one fails. Before it sends anything, it
    prints on standard error what it will book; with --account it then asks for confirmation. For a mapping, prints the evidence
    that the checks give."""
    if kind not in pms_kinds():
        raise WrongUsage(f"There is no PMS kind {kind!r}; there are: {', '.join(pms_kinds())}.")
    by_name = {each.name: each for each in CHECKS}
    if unknown := [name for name in only or () if name not in by_name]:
        raise WrongUsage(f"There is no check {unknown[0]!r}; there are: {', '.join(by_name)}.")
    chosen: Sequence[Check] = [by_name[name] for name in only or ()] or CHECKS
    options = options_from(option, options_file)
    credential = None if credential_file is None else credential_from(None, credential_file)
    asked = Site(
        base_url or "",
        credential or "",
        options,
        property_id=property_id,
        room_id=room_id,
        first_night=datetime.now(UTC).date() + _SOON if first_night is None else first_night.date(),
        refuses_taken_nights=calendar,
        seconds_between=pause_for(kind, options),
        tidy=True,
    )
    if account is not None:
        _as_account(kind, account, asked, chosen, own_credential=credential is None, yes=yes, as_json=as_json)
        return
    if base_url is None and kind not in SITES:
        raise WrongUsage(f"Nothing here simulates {kind}: name a test server or a sandbox of it by --base-url.")
    site = None if base_url is None else asked
    if site is not None:
        _announce(kind, site, "the credential that was given")
    configure_logging("debug", "auto")  # the checks read every line
    _show(kind, site, asyncio.run(_all(kind, site, chosen)), as_json=as_json)


# --- as an account ---


def _as_account(
    kind: str,
    account_id: str,
    asked: Site,
    chosen: Sequence[Check],
    *,
    own_credential: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """At the account's PMS, with its options, as far as `asked` names no others."""
    if asked.property_id is None:
        raise WrongUsage("With --account, say by --property where may be booked.")

    async def find() -> Account:
        async with open_deployment() as backend:
            return await account_of(backend.tenancy, account_id)

    known = asyncio.run(find())
    if known.kind != kind:
        raise WrongUsage(f"The account {account_id} is of kind {known.kind}, not {kind}.")
    options = {name: value for name, value in {**known.options, **asked.options}.items() if value is not None}
    account = replace(known, base_url=asked.base_url or known.base_url, options=options)
    try:
        check_options(kind, options)
    except BadOptions as error:
        raise WrongUsage(str(error)) from error
    if own_credential and of_credential(account) != of_credential(known):
        raise WrongUsage(
            "That sends the account's credential elsewhere, and it is sealed for its own PMS: give another one by "
            "--credential-file."
        )
    planned = replace(
        asked, base_url=account.base_url, options=options, seconds_between=pause_for(kind, account.options)
    )
    whose = f"account {account_id} of workspace {account.workspace_id}, with "
    _announce(kind, planned, whose + ("its own credential" if own_credential else "the credential that was given"))
    if not yes and not (sys.stdin.isatty() and typer.confirm("Book there?", err=True)):
        raise Failed("Nothing was sent. Give --yes to book there.")

    async def run() -> tuple[Site, Sequence[Result]]:
        async with (
            open_deployment() as backend,
            backend.audit.request("account.check", workspace=account.workspace_id, target=account_id),
        ):
            site = await with_own_credential(backend, account, planned) if own_credential else planned
            configure_logging("debug", "auto")
            return site, await _all(kind, site, chosen)

    try:
        site, done = asyncio.run(run())
    except (NotReached, CannotOpen) as error:
        raise Failed(str(error)) from error
    _show(kind, site, done, as_json=as_json)


class NotReached(Exception):
    """The account's PMS cannot be tried. The message says why, and what would help."""


async def with_own_credential(backend: Backend, account: Account, planned: Site) -> Site:
    """The planned site with the account's credential, what it has for TLS, and its access token, if its kind uses such. Its PMS is
    asked first whether it lets us in, by a look-up. Raises `NotReached`, `CannotOpen`."""
    keyring = backend.keyring
    if keyring is None:
        raise NotReached(
            "This process has no FORWARDER_SECRET_KEY to open the account's credential with; give one by --credential-file."
        )
    steps = await probe(backend, account, str(planned.property_id))
    if failed := next((step for step in steps if step.ended == "failed"), None):
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


# --- what is said before, and after ---


def _announce(kind: str, site: Site, whose: str) -> None:
    can, sample, mapping = registered().kinds[kind].capabilities, site.booking(), mapping_of(kind, site.options)
    if mapping is not None:
        given = site.options.get("settings", {}) if kind == "generic" else site.options
        can = mapping.capabilities(mapping.with_defaults(given))
    site.stays.restart()
    undone = can.cancel and can.find_by_reference and not can.finds_by_stay
    where = f"property {sample.property_id}, room {sample.room_id}"
    where += "" if site.property_id is not None else ", and properties with the numbers that follow"
    note(f"This makes reservations at {site.base_url}, as {whose}.")
    note(
        f"Booked are {where}, from {sample.arrival} on: a few hundred short stays, one after the other, of a made-up guest "
        f"({sample.guest_name}, {sample.guest.get('email')}); never more than about {_MAX_NIGHTS} nights at a time."
    )
    note("Some exchanges are broken on purpose, by a proxy on this machine, to see what the adapter makes of it.")
    note(
        "What was booked is cancelled after each check."
        if undone
        else "It cannot all be found and cancelled again: what is left there is yours to cancel."
    )
    tried = try_out(kind, site.base_url, site.options, sample.fields)
    for request in tried["requests"][:1]:
        note(f"Each is asked for like this:\n{request['method']} {request['url']}")
        note("" if request["body"] is None else json.dumps(request["body"], indent=2, ensure_ascii=False))


async def _all(kind: str, site: Site | None, checks: Sequence[Check]) -> Sequence[Result]:
    with progress(len(checks), f"checking {kind}") as advance:
        done = []
        try:
            async for result in results(kind, site, checks):
                done.append(result)
                advance(1)
            if site is not None and checks is CHECKS:
                measured = await settling(kind, site)
                for line in () if measured is None else measured.lines:
                    note(line)
        except BadOptions as error:
            raise WrongUsage(str(error)) from error
        return done


def _show(kind: str, site: Site | None, done: Sequence[Result], *, as_json: bool) -> None:
    """What came of it; of a mapping that was tried somewhere, first what that shows of its statements, to be put into its evidence
    and sent back. Nothing of the site's credential. Raises `Failed` where a check failed."""
    hidden = _hider_of(site)
    done = [replace(result, findings=tuple(map(hidden, result.findings))) for result in done]
    if as_json:
        show_json([result.as_json() for result in done])
    else:
        mapping = None if site is None else mapping_of(kind, site.options)
        if site is not None and mapping is not None:
            where = f"forwarder adapters check at {site.base_url}, {datetime.now(UTC).date()}"
            verdicts = {result.check.name: result.verdict for result in done}
            for line in (*after_checks(mapping, verdicts, where), ""):
                say(hidden(line))
        rows: list[Mapping[str, Any]] = []
        for result in done:
            first, *more = result.findings or ("",)
            rows.append({"check": result.check.name, "verdict": result.verdict, "why": first})
            rows += [{"why": finding} for finding in more]
        show(Table(rows, ("check", "verdict", "why")))
    if site is not None and (left := site.stays.left):
        named = ", ".join(f"{booking.reference} of {booking.arrival}" for booking in left[:_MAX_NAMED])
        note(
            f"Not seen to be cancelled, so look there for {len(left)}: {named}{' …' if len(left) > _MAX_NAMED else ''}"
        )
    if failed := [result.check.name for result in done if result.verdict == "failed"]:
        raise Failed(f"{len(failed)} of {len(done)} checks failed: {', '.join(failed)}.")


def after_checks(mapping: PmsMapping, verdicts: Mapping[str, str], where: str) -> Iterator[str]:
    """The lines of an evidence block to send back: confirmed statements as `by: sandbox`, contradicted ones with what they were
    known by, and what is still unknown. `verdicts`: of each check, by its name."""
    shown = {path: verdicts.get(check, "") for check, paths in SHOWN_BY.items() for path in _below(mapping, paths)}
    confirmed = [path for path, verdict in shown.items() if verdict == "passed"]
    contradicted = [path for path, verdict in shown.items() if verdict == "failed"]
    yield "evidence:"
    if confirmed:
        yield f"  - of: [{', '.join(confirmed)}]"
        yield "    by: sandbox"
        yield f"    where: {where}"
    for path in contradicted:
        known = source_of(mapping.evidence, path) or "unknown"
        yield f"  # contradicted, or not reached: {path} (so far by {SOURCES[known]})"
    for path in mapping.statements:
        if (
            path not in confirmed
            and path not in contradicted
            and source_of(mapping.evidence, path) in ("unknown", None)
        ):
            yield f"  # still unknown: {path}"


def _below(mapping: PmsMapping, paths: Sequence[str]) -> Iterator[str]:
    """The statements that a check shows. Of rules for errors, only that for taken nights, if there is one alone: which of several
    applied, and whether the others would, no check can tell."""
    taken = [number for number, rule in enumerate(mapping.create.errors) if rule.becomes == _TAKEN]
    for statement in mapping.statements:
        if not any(statement == path or statement.startswith(f"{path}.") for path in paths):
            continue
        if ".errors." not in statement or (len(taken) == 1 and statement == f"create.errors.{taken[0]}"):
            yield statement


def _hider_of(site: Site | None) -> Callable[[str], str]:
    """What puts the site's credential, and each part of it that may be a secret, out of sight."""
    credential, more = ("", ()) if site is None else (site.credential, site.hidden)
    parts = {credential, *re.split(r'[\s:",{}]+', credential), *more}
    secrets = sorted((part for part in parts if len(part) >= _MIN_SECRET_LENGTH), key=len, reverse=True)

    def hidden(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, _HIDDEN)
        return text

    return hidden
