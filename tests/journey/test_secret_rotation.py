"""The secret is changed as the operators' page says, step by step, while reservations with cards go through."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from forwarder.tenancy.sealing import Secret
from tests.support.backends import only
from tests.support.deployment.deployment import Deployment, Site, booking, deploy
from tests.support.deployment.site import SECRET_KEY

CARD = {"cardNumber": "4242424242424242", "cvv": "987", "expiryMonth": "12", "expiryYear": "2031"}
NEW = "the-secret-that-follows-that-of-the-tests"
OLD_ID = Secret.from_text(SECRET_KEY).id
BOTH = {"FORWARDER_SECRET_KEY": NEW, "FORWARDER_EARLIER_SECRET_KEYS": SECRET_KEY}
PINNED = ",".join(Secret.from_text(each).verify_key.hex() for each in (SECRET_KEY, NEW))


@pytest.mark.slow
@only("distributed")
async def test_the_secret_is_changed_while_reservations_with_cards_go_through(site: Site) -> None:
    own: dict[str, dict[str, str]] = {"ingress": {"FORWARDER_SECRET_KEY": "", "FORWARDER_SEALING_VERIFY_KEY": PINNED}}
    async with deploy(site, own=own) as deployment:
        await deployment.add_account("generic")
        await _books(deployment, 1)
        _operate(deployment, BOTH)
        assert (await deployment.command("secret", "add"))["added"]
        await _books(deployment, 2)
        await _restart(deployment, own, "worker", BOTH)
        await _books(deployment, 3)
        assert (await deployment.command("secret", "rotate"))["before"] == OLD_ID
        await _books(deployment, 4)
        resealed = {row["what"]: row for row in await deployment.command("secret", "reseal")}
        assert resealed["credentials"]["resealed"] == 1
        assert resealed["sealing keys"]["resealed"] > 40
        await _books(deployment, 5)
        # What the running worker wrapped with the old one before it noticed is moved by another round.
        await deployment.command("secret", "reseal")
        assert (await deployment.command("secret", "retire", OLD_ID)) == {"retired": OLD_ID}
        new_alone = {"FORWARDER_SECRET_KEY": NEW, "FORWARDER_EARLIER_SECRET_KEYS": ""}
        await _restart(deployment, own, "worker", new_alone)
        _operate(deployment, new_alone)
        await _books(deployment, 6)
        await _restart(deployment, own, "ingress", own["ingress"])
        await _books(deployment, 7)
        states: Any = {row["id"]: row["state"] for row in await deployment.command("secret", "status")}
        assert states[OLD_ID] == "retired"
        assert (await deployment.made())["made"] == 7


def _operate(deployment: Deployment, settings: Mapping[str, str]) -> None:
    """What operators' commands are given from now on."""
    assert isinstance(deployment.site.settings, dict)
    deployment.site.settings.update(settings)


async def _restart(
    deployment: Deployment, own: dict[str, dict[str, str]], role: str, settings: Mapping[str, str]
) -> None:
    own[role] = dict(settings)
    await deployment.drop(role)
    deployment.add(role)
    await asyncio.to_thread(deployment.processes[role].start)


async def _books(deployment: Deployment, number: int) -> None:
    answer = await deployment.submit("generic", booking(number, cardDetails=CARD), Prefer="wait=30")
    assert answer.status_code == 201, answer.text
