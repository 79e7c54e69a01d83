"""`forwarder secret …`: the secret that seals everything, and rotating it without downtime."""

import secrets
from typing import Annotated, Any

import typer

from forwarder.assembly.backend import Backend
from forwarder.assembly.secrets import required_secrets
from forwarder.cli.backend import with_backend
from forwarder.cli.output import AsJson, Failed, say, show_json, show_rows
from forwarder.operations.secrets import Sealed, SealedCardKeys, Secrets, SecretStatus, StillNeeded
from forwarder.process.clock import iso
from forwarder.store.submissions.card_keys import SqlCardKeys
from forwarder.tenancy.sealing import Keyring, Resealed, Secret
from forwarder.tenancy.sql.secrets import SqlSealed, SqlSealingKeys, SqlSecrets

_SECRET_BYTES = 32


def commands() -> typer.Typer:
    """status, generate, add, rotate, reseal, retire"""
    group = typer.Typer(
        help="The deployment's secrets: list them, see what they seal, change them.", no_args_is_help=True
    )
    group.command("status")(status)
    group.command("generate")(generate)
    group.command("add")(add)
    group.command("rotate")(rotate)
    group.command("reseal")(reseal)
    group.command("retire")(retire)
    return group


def status(
    notifier_key: Annotated[
        bool, typer.Option("--notifier-key", help="Print the notifier's keys alone, one a line: keep them secret.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the secrets that this deployment knows, and how much is sealed to each."""
    if notifier_key:
        keys = with_backend(_notifier_keys, any_secret=True)
        show_json({"notifierKeys": keys}) if as_json else say("\n".join(keys))
        return

    async def run(backend: Backend) -> list[dict[str, Any]]:
        return [_row(each) for each in await _secrets(backend).status()]

    rows = with_backend(run, any_secret=True)
    if not as_json:
        rows = [{**row, "sealed": ", ".join(f"{n} {name}" for name, n in row["sealed"].items() if n)} for row in rows]
    show_rows(rows, ("id", "state", "givenHere", "activatedAt", "verifyKey", "sealed"), as_json=as_json)


def generate(as_json: AsJson = False) -> None:
    """Generate a new secret, and the keys for processes without it, as settings. Stores nothing."""
    text = secrets.token_urlsafe(_SECRET_BYTES)
    secret = Secret.from_text(text)
    settings = {
        "FORWARDER_SECRET_KEY": text,
        "FORWARDER_SEALING_VERIFY_KEY": secret.verify_key.hex(),
        "FORWARDER_NOTIFIER_KEY": secret.webhooks.private_key.hex(),
    }
    show_json(settings) if as_json else say("\n".join(f"{name}={value}" for name, value in settings.items()))


def add(as_json: AsJson = False) -> None:
    """Register FORWARDER_SECRET_KEY, with the one in use in FORWARDER_EARLIER_SECRET_KEYS. It does not seal anything yet."""

    async def run(backend: Backend) -> tuple[str, bool]:
        new = required_secrets(backend.settings)[0].id
        async with backend.audit.operation("secret.add", target=new):
            return new, await _secrets(backend).add()

    added, new = with_backend(run, any_secret=True)
    if as_json:
        show_json({"id": added, "added": new})
    else:
        say(
            f"The secret {added} is registered. Restart all workers with it, then: forwarder secret rotate"
            if new
            else f"The secret {added} was known already."
        )


def rotate(as_json: AsJson = False) -> None:
    """Seal with FORWARDER_SECRET_KEY from now on. Every worker must have it first."""

    async def run(backend: Backend) -> tuple[str, str | None]:
        new = required_secrets(backend.settings)[0].id
        async with backend.audit.operation("secret.rotate", target=new):
            return new, await _secrets(backend).rotate()

    active, before = with_backend(run, any_secret=True)
    if as_json:
        show_json({"active": active, "before": before})
    elif before is None:
        say(f"The secret {active} is already active.")
    else:
        say(f"The secret {active} is active, {before} still accepted. Next: forwarder secret reseal")


def reseal(as_json: AsJson = False) -> None:
    """Seal everything that other secrets seal to the active one. Safe while the deployment runs; after an interruption run it
    again."""

    async def run(backend: Backend) -> dict[str, Resealed]:
        async with backend.audit.operation("secret.reseal"):
            return dict(await _secrets(backend).reseal())

    done = with_backend(run, any_secret=True)
    rows = [{"what": name, "resealed": each.moved, "notOpened": each.failed} for name, each in done.items()]
    show_rows(rows, ("what", "resealed", "notOpened"), as_json=as_json)
    failed = sum(each.failed for each in done.values())
    if failed:
        raise Failed(f"{failed} could not be opened with the secrets given here, and were left as they are.")


def retire(
    secret_id: Annotated[str, typer.Argument(metavar="SECRET_ID", help="Its id in `forwarder secret status`.")],
    as_json: AsJson = False,
) -> None:
    """Give up a secret that seals nothing; then every process can be configured without it."""

    async def run(backend: Backend) -> None:
        async with backend.audit.operation("secret.retire", target=secret_id):
            await _secrets(backend).retire(secret_id)

    try:
        with_backend(run, any_secret=True)
    except StillNeeded as error:
        raise Failed(str(error)) from None
    if as_json:
        show_json({"retired": secret_id})
    else:
        say(
            f"The secret {secret_id} is retired. Leave it out of FORWARDER_EARLIER_SECRET_KEYS from the next restart on."
        )


def _secrets(backend: Backend) -> Secrets:
    held, engine = required_secrets(backend.settings), backend.engine
    sealed: list[Sealed] = [
        SqlSealed(engine),
        SqlSealingKeys(engine, Keyring(held)),
        SealedCardKeys(SqlCardKeys(engine)),
    ]
    return Secrets(SqlSecrets(engine), sealed, held)


async def _notifier_keys(backend: Backend) -> list[str]:
    return [secret.webhooks.private_key.hex() for secret in required_secrets(backend.settings)]


def _row(status: SecretStatus) -> dict[str, Any]:
    known = status.known
    return {
        "id": known.id,
        "state": known.state.value,
        "givenHere": status.held,
        "createdAt": iso(known.created_at),
        "activatedAt": known.activated_at and iso(known.activated_at),
        "verifyKey": known.keys.verify_key.hex(),
        "sealed": dict(status.sealed),
    }
