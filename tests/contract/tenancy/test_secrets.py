"""The registry of secrets, on every backend: which are known, which one is sealed to, and moving all to another."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.operate.deployment.secrets import Secrets, StillNeeded
from forwarder.tenancy.port import Account, CannotOpen, Endpoint
from forwarder.tenancy.sealing import (
    Keyring,
    NotTrusted,
    PublicKeySealer,
    Secret,
    SecretState,
    UnknownSecret,
    of_client_key,
    of_credential,
    of_grant,
    of_webhook_headers,
    of_webhook_secret,
    with_credential,
)
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.endpoints import Endpoints
from forwarder.tenancy.sql.secrets import NoSecretYet, SqlGrants, SqlSealed, SqlSecrets
from tests.support.sealing import keyring_of

HOOK = "https://hook.example"
OLD_TEXT, NEW_TEXT = "the first of the secrets", "the second of the secrets"
OLD, NEW, MISTYPED = (Secret.from_text(each) for each in (OLD_TEXT, NEW_TEXT, "the first of teh secrets"))
ACCOUNT = Account("acc", "ws", "generic", "https://pms.example", "", options={"tokenUrl": "https://id.example"})


@pytest.fixture
async def registry(engine: AsyncEngine) -> SqlSecrets:
    """One that knows `OLD`."""
    opened = SqlSecrets(engine)
    await opened.admit([OLD], first=True)
    return opened


def operator(engine: AsyncEngine, held: Sequence[Secret]) -> Secrets:
    return Secrets(SqlSecrets(engine), [SqlSealed(engine)], held)


async def states(registry: SqlSecrets) -> dict[str, SecretState]:
    return {each.id: each.state for each in await registry.known()}


async def test_the_first_secret_is_made_known_by_a_migration_alone_and_once(engine: AsyncEngine) -> None:
    registry = SqlSecrets(engine)
    with pytest.raises(NoSecretYet, match="FORWARDER_SECRET_KEY"):
        await registry.trusted_keys({OLD.verify_key})
    with pytest.raises(UnknownSecret, match="forwarder migrate"):
        await registry.admit([OLD], first=False)
    await asyncio.gather(*(registry.admit([OLD], first=True) for _ in range(4)))
    assert await states(registry) == {OLD.id: SecretState.ACTIVE}
    assert await registry.trusted_keys({OLD.verify_key}) == OLD.public_keys()


async def test_a_secret_that_is_not_known_is_refused_and_changes_nothing(registry: SqlSecrets) -> None:
    for held in ([MISTYPED], [MISTYPED, OLD]):
        with pytest.raises(UnknownSecret, match="forwarder secret add") as refused:
            await registry.admit(held, first=True)
        assert MISTYPED.id in str(refused.value)
        assert OLD.id in str(refused.value)
    assert await states(registry) == {OLD.id: SecretState.ACTIVE}


async def test_a_public_key_that_was_replaced_in_the_database_is_not_sealed_to(
    registry: SqlSecrets, engine: AsyncEngine
) -> None:
    thief = MISTYPED.public_keys()
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE secrets SET accounts_key = :key"), {"key": thief.accounts_key.hex()})
    with pytest.raises(NotTrusted):
        await registry.trusted_keys({OLD.verify_key})
    with pytest.raises(NotTrusted):
        await registry.admit([OLD], first=False)
    everything = {"verify_key": thief.verify_key, "signature": thief.signature, "webhooks_key": thief.webhooks_key}
    async with engine.begin() as connection:
        for name, value in everything.items():
            await connection.execute(text(f"UPDATE secrets SET {name} = :value"), {"value": value.hex()})
    with pytest.raises(NotTrusted):
        await registry.trusted_keys({OLD.verify_key})


async def test_a_secret_is_rotated_step_by_step_and_nothing_is_lost(registry: SqlSecrets, engine: AsyncEngine) -> None:
    await _seal_something(engine)
    with pytest.raises(UnknownSecret, match="FORWARDER_EARLIER_SECRET_KEYS"):
        await operator(engine, [NEW]).add()
    with pytest.raises(UnknownSecret, match=NEW.id):
        await operator(engine, [NEW, OLD]).rotate()
    assert await operator(engine, [NEW, OLD]).add()
    assert not await operator(engine, [NEW, OLD]).add()
    # Workers with both may start, and one with the old alone still may: nothing is sealed to the new one.
    await registry.admit([NEW, OLD], first=False)
    await registry.admit([OLD], first=False)

    assert await operator(engine, [NEW, OLD]).rotate() == OLD.id
    assert await operator(engine, [NEW, OLD]).rotate() is None
    for too_few in ([OLD], [NEW]):
        with pytest.raises(UnknownSecret, match="missing"):
            await registry.admit(too_few, first=False)
    with pytest.raises(StillNeeded, match="1 credentials"):
        await operator(engine, [NEW, OLD]).retire(OLD.id)
    with pytest.raises(StillNeeded, match="active"):
        await operator(engine, [NEW, OLD]).retire(NEW.id)

    resealed = await operator(engine, [NEW, OLD]).reseal()
    assert {name: each.moved for name, each in resealed.items()} == {
        "credentials": 1,
        "client keys": 1,
        "grants": 1,
        "webhook secrets": 1,
        "webhook headers": 1,
        "previous webhook secrets": 1,
        "earlier webhook secrets": 1,
    }
    assert not any(each.moved or each.failed for each in (await operator(engine, [NEW, OLD]).reseal()).values())
    await operator(engine, [NEW, OLD]).retire(OLD.id)
    await registry.admit([NEW], first=False)
    await registry.admit([NEW, OLD], first=False)
    assert await states(registry) == {OLD.id: SecretState.RETIRED, NEW.id: SecretState.ACTIVE}
    await _all_opens_with(engine, NEW_TEXT)


async def test_what_cannot_be_opened_is_left_as_it_is_when_the_rest_is_resealed(
    registry: SqlSecrets, engine: AsyncEngine
) -> None:
    await _seal_something(engine)
    async with engine.begin() as connection:  # moved here from another account
        await connection.execute(text("UPDATE integration_accounts SET base_url = 'https://evil.example'"))
    await operator(engine, [NEW, OLD]).add()
    await operator(engine, [NEW, OLD]).rotate()
    resealed = await operator(engine, [NEW, OLD]).reseal()
    assert (resealed["credentials"].moved, resealed["credentials"].failed) == (0, 1)
    with pytest.raises(StillNeeded, match="1 credentials"):
        await operator(engine, [NEW, OLD]).retire(OLD.id)


async def test_no_secret_is_in_the_database(registry: SqlSecrets, engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        kept = str((await connection.execute(text("SELECT * FROM secrets"))).all())
    assert OLD_TEXT not in kept
    for private in (OLD.accounts.private_key, OLD.webhooks.private_key, OLD.wrapping_key):
        assert private.hex() not in kept


async def _seal_something(engine: AsyncEngine) -> None:
    tenancy, keyring = TenancyAdmin(engine), Keyring([OLD])
    await tenancy.add_workspace("ws")
    key = keyring.seal_text("client-key", of_client_key(ACCOUNT.id))
    await tenancy.put_account(replace(with_credential(ACCOUNT, "credential", keyring), client_key=key))
    grants = SqlGrants(engine, keyring, keyring)
    assert await grants.claim("acc", "digest", "me", seen=None, seen_claim=None) == 0
    assert await grants.store("acc", "digest", 0, "grant")
    hooks = PublicKeySealer(OLD.webhooks.public_key)
    first, *others = (hooks.seal_text(f"whsec-{number}", of_webhook_secret("whk")) for number in (1, 2, 3))
    now = datetime.now(UTC)
    await Endpoints(engine).add(
        replace(
            Endpoint("whk", "ws", HOOK, None, "", True, None, None, first, now),
            headers=hooks.seal_text("headers", of_webhook_headers("whk", HOOK)),
        )
    )
    for hour, secret in enumerate(others):
        await Endpoints(engine).rotate("whk", secret, previous_until=now + timedelta(hours=hour))


async def _all_opens_with(engine: AsyncEngine, secret: str) -> None:
    unsealer = keyring_of(secret)
    [account] = await TenancyAdmin(engine).accounts()
    assert unsealer.open_text(account.credential, of_credential(ACCOUNT)) == "credential"
    assert account.client_key is not None
    assert unsealer.open_text(account.client_key, of_client_key("acc")) == "client-key"
    with pytest.raises(CannotOpen):
        unsealer.open_text(account.credential, of_credential(replace(ACCOUNT, id="other")))
    keyring = Keyring([Secret.from_text(secret)])
    row = await SqlGrants(engine, keyring, keyring).read("acc", "digest")
    assert row is not None
    assert row.content == "grant"
    hook = await Endpoints(engine).endpoint("whk")
    assert hook is not None
    sealed = (hook.secret, *(each.secret for each in hook.previous))
    opened = [unsealer.open_text(each, of_webhook_secret("whk")) for each in sealed]
    assert opened == ["whsec-3", "whsec-2", "whsec-1"]
    assert hook.headers is not None
    assert unsealer.open_text(hook.headers, of_webhook_headers("whk", HOOK + "/in")) == "headers"
    with pytest.raises(CannotOpen):
        unsealer.open_text(hook.headers, of_webhook_headers("whk", "https://other.example"))
    assert of_grant("acc", "digest") != of_grant("acc", "other")
