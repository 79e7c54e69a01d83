"""Rotating the deployment's secrets: add one, make it active, reseal everything to it, and retire the earlier, unneeded one."""

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

from typer import Argument

from forwarder.assembly.backend import Backend, required_secrets
from forwarder.operate.command import WithAnySecret, commands
from forwarder.operate.output import Failed, Printed, Table, listed, picked
from forwarder.store.submissions.card_keys import CardKeys
from forwarder.store.submissions.port import CardKey
from forwarder.tenancy import sealing
from forwarder.tenancy.port import CannotOpen
from forwarder.tenancy.sealing import CODE_PURPOSE, NUMBER_PURPOSE
from forwarder.tenancy.sql.secrets import SealingKeys, SqlSealed, SqlSecrets


class StillNeeded(Failed):
    """The secret still seals something. The message says what, with the remedy. The audit trail has its name."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """`held`: this process's secrets, current first. Raises `TenancyUnavailable`, and `UnknownSecret` where `registry` differs."""

    registry: SqlSecrets
    sealed: Sequence["Sealed"]
    held: Sequence[sealing.Secret]

    async def status(self) -> Sequence[tuple[sealing.KnownSecret, Mapping[str, int]]]:
        """Each secret, and how much is sealed to it."""
        counts: dict[str, Counter[str]] = {}
        for each in self.sealed:
            counts |= await each.counts()
        found = []
        for known in await self.registry.known():
            keys = known.keys
            ids = (keys.secret_id, sealing.key_id_of(keys.accounts_key), sealing.key_id_of(keys.webhooks_key))
            found.append((known, {name: sum(count[key_id] for key_id in ids) for name, count in counts.items()}))
        return found

    async def add(self) -> bool:
        """Registers the current secret, vouched for by another registered one in `held`. False if it was registered."""
        new, others = self.held[0], self.held[1:]
        known = await self.registry.known()
        if new.id in {each.id for each in known}:
            return False
        if not others:
            needed = "to add a secret, you also need the one in use"
            raise sealing.UnknownSecret(f"FORWARDER_EARLIER_SECRET_KEYS is missing: {needed}.")
        sealing.check_secrets(others, known)
        return await self.registry.add(new)

    async def rotate(self) -> str | None:
        """Makes the current secret active; returns the id of the previous one, None if it was active already."""
        known = await self.registry.known()
        sealing.check_secrets(self.held, known)
        active, wanted = sealing.active_of(known), self.held[0].id
        if active is None or active.id != wanted:
            await self.registry.activate(wanted)
        return None if active is None or active.id == wanted else active.id

    async def reseal(self) -> Mapping[str, sealing.Resealed]:
        known = await self.registry.known()
        sealing.check_secrets(self.held, known)
        keyring, active = sealing.Keyring(self.held), sealing.active_of(known)
        if active is not None:
            keyring.activate(active.id)
        done: dict[str, sealing.Resealed] = {}
        for each in self.sealed:
            done |= await each.reseal(keyring)
        return done

    async def retire(self, secret_id: str) -> None:
        """Retires the secret. Raises `StillNeeded`, `NotKnown`."""
        for known, sealed in [each for each in await self.status() if each[0].id == secret_id]:
            if known.state is sealing.SecretState.ACTIVE:
                advice = "activate another first, `forwarder secret rotate`"
                raise StillNeeded(f"The secret {secret_id} is the active one: {advice}.")
            if needs := ", ".join(f"{count} {name}" for name, count in sealed.items() if count):
                advice = "`forwarder secret reseal` moves them"
                raise StillNeeded(f"Still sealed to the secret {secret_id}: {needs}. {advice}.")
        await self.registry.retire(secret_id)


@dataclass(frozen=True, slots=True)
class SealedCardKeys:
    keys: CardKeys

    async def counts(self) -> Mapping[str, Counter[str]]:
        return {"cards": await self.keys.counts()}

    async def reseal(self, keyring: sealing.Keyring) -> Mapping[str, sealing.Resealed]:
        def rewrap(old: CardKey, text: str | None, purpose: str) -> sealing.WrappedKey | None:
            why = f"{purpose} {old.request_id}"
            wrapped = None if text is None else sealing.WrappedKey(old.secret_id, text)
            return None if wrapped is None else keyring.wrap(keyring.unwrap(wrapped, why), why)

        moved = failed = 0
        for old in await self.keys.of_other_secrets(keyring.active.id):
            try:
                number, code = rewrap(old, old.number_key, NUMBER_PURPOSE), rewrap(old, old.code_key, CODE_PURPOSE)
            except CannotOpen:
                failed += 1
                continue
            assert number is not None  # noqa: S101 - every card has one
            new = CardKey(old.request_id, number.secret_id, number.content, code and code.content, old.expires_at)
            moved += await self.keys.rewrap(old, new)
        return {"cards": sealing.Resealed(moved, failed)}


Sealed = SqlSealed | SealingKeys | SealedCardKeys
"""Counts sealed values by name and key id; reseals them to the keyring's active secret, repeatably and while the stages run."""

R = TypeVar("R")


async def status(backend: WithAnySecret, notifier_key: bool = False) -> Printed:
    """Show the secrets that this deployment knows, and how much is sealed to each.

    notifier_key: Print the notifier's keys alone, one a line: keep them secret."""
    rows, held = [], required_secrets(backend.settings)
    if notifier_key:
        keys = [secret.webhooks.private_key.hex() for secret in held]
        return Printed({"notifierKeys": keys}, "\n".join(keys))
    for known, sealed in await _secrets(backend).status():
        about = {**picked(known, "id state"), "givenHere": known.id in {secret.id for secret in held}}
        about |= picked(known, "createdAt activatedAt") | {"verifyKey": known.keys.verify_key.hex()}
        rows.append(about | {"sealed": dict(sealed)})
    shown = [{**row, "sealed": ", ".join(f"{n} {name}" for name, n in row["sealed"].items() if n)} for row in rows]
    return Printed(rows, Table(shown, ("id", "state", "givenHere", "activatedAt", "verifyKey", "sealed")))


def generate() -> Printed:
    """Generate a new secret, and the keys for processes without it, as settings. Stores nothing."""
    text = secrets.token_urlsafe(32)
    secret = sealing.Secret.from_text(text)
    settings = {
        "FORWARDER_SECRET_KEY": text,
        "FORWARDER_SEALING_VERIFY_KEY": secret.verify_key.hex(),
        "FORWARDER_NOTIFIER_KEY": secret.webhooks.private_key.hex(),
    }
    return Printed(settings, "\n".join(f"{name}={value}" for name, value in settings.items()))


async def add(backend: WithAnySecret) -> Printed:
    """Register FORWARDER_SECRET_KEY, with the one in use in FORWARDER_EARLIER_SECRET_KEYS. It does not seal anything yet."""
    current, new = await _audited(backend, "secret.add", Secrets.add)
    done = "is registered. Restart all workers with it, then: forwarder secret rotate" if new else "was known already."
    return Printed({"id": current, "added": new}, f"The secret {current} {done}")


async def rotate(backend: WithAnySecret) -> Printed:
    """Seal with FORWARDER_SECRET_KEY from now on. Every worker must have it first."""
    active, before = await _audited(backend, "secret.rotate", Secrets.rotate)
    now = f"is active, {before} still accepted. Next: forwarder secret reseal"
    done = "is already active." if before is None else now
    return Printed({"active": active, "before": before}, f"The secret {active} {done}")


async def reseal(backend: WithAnySecret) -> Printed:
    """Seal everything that other secrets seal to the active one. Safe while the deployment runs; after an interruption run it
    again."""
    _, done = await _audited(backend, "secret.reseal", Secrets.reseal, named=False)
    rows = [{"what": name, "resealed": each.moved, "notOpened": each.failed} for name, each in done.items()]
    failed = sum(each.failed for each in done.values())
    why = f"{failed} could not be opened with the secrets given here, and were left as they are."
    return replace(listed(rows, ("what", "resealed", "notOpened")), failed=why if failed else None)


async def retire(backend: WithAnySecret, secret_id: Annotated[str, Argument(metavar="SECRET_ID")]) -> Printed:
    """Give up a secret that seals nothing; then every process can be configured without it.

    secret_id: Its id in `forwarder secret status`."""
    async with backend.audit.operation("secret.retire", target=secret_id):
        await _secrets(backend).retire(secret_id)
    advice = "Leave it out of FORWARDER_EARLIER_SECRET_KEYS from the next restart on."
    return Printed({"retired": secret_id}, f"The secret {secret_id} is retired. {advice}")


async def _audited(
    backend: Backend, action: str, change: Callable[[Secrets], Awaitable[R]], *, named: bool = True
) -> tuple[str, R]:
    """The id of the current secret, and the result of `change`. `named`: the audit entry names that secret."""
    current = required_secrets(backend.settings)[0].id
    async with backend.audit.operation(action, target=current if named else None):
        return current, await change(_secrets(backend))


def _secrets(backend: Backend) -> Secrets:
    held, engine = required_secrets(backend.settings), backend.engine
    keys, cards = SealingKeys(engine, sealing.Keyring(held)), SealedCardKeys(CardKeys(engine))
    return Secrets(SqlSecrets(engine), [SqlSealed(engine), keys, cards], held)


COMMANDS = commands(status=status, generate=generate, add=add, rotate=rotate, reseal=reseal, retire=retire)
