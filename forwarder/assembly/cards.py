"""Card sealing in an ingress, and card storage and opening in a worker."""

from contextlib import AsyncExitStack
from typing import Final

import structlog

from forwarder.assembly.backend import Backend
from forwarder.assembly.secrets import required_keyring, trusted_keys
from forwarder.process.containment import Where
from forwarder.process.loops import forever
from forwarder.process.supervision import Stop, side_by_side
from forwarder.store.submissions.card_keys import SqlCardKeys
from forwarder.tenancy.cards import CardSealer
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.tenancy.sealing import KeyWrapper, NotTrusted, active_of
from forwarder.tenancy.sql.secrets import SqlSealingKeys, SqlSecrets, load_sealing_keys
from forwarder.worker.cards import CardParts

_log = structlog.get_logger(__name__)

_REFRESH_SECONDS: Final = 60.0


async def open_card_sealer(stack: AsyncExitStack, backend: Backend, stop: Stop) -> CardSealer:
    """Seals with the keys that the workers publish, refreshed regularly; during a database outage, with the last ones known. Raises
    `BadSettings` where this process could not verify whose they are."""
    sealer, trusted = CardSealer(), trusted_keys(backend.settings, backend.keyring)

    async def refresh() -> None:
        found = await load_sealing_keys(backend.engine, now=backend.clock.now())
        good = []
        for key in found:
            try:
                key.require_trusted(trusted)
            except NotTrusted as error:
                _log.error("sealing_key.not_trusted", key_id=key.key_id, error=str(error))
            else:
                good.append(key)
        sealer.use(good)

    async def step() -> None:
        await backend.clock.sleep(_REFRESH_SECONDS)
        await refresh()

    await refresh()
    looking = forever(step, name=Where.SEALING_KEYS, clock=backend.clock, outages=(TenancyUnavailable,))
    await stack.enter_async_context(side_by_side(looking, stop, until_stopped=True))
    return sealer


def card_parts(backend: Backend) -> CardParts:
    """A worker's card storage. Raises `BadSettings` without the secret."""
    keyring, registry = required_keyring(backend), SqlSecrets(backend.engine)

    async def refresh() -> None:
        active = active_of(await registry.known())
        if active is not None:
            keyring.activate(active.id)

    sealing_keys = SqlSealingKeys(backend.engine, keyring)
    return CardParts(SqlCardKeys(backend.engine), sealing_keys, KeyWrapper(keyring), refresh)
