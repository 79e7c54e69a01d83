"""Cards, security codes, credentials and tokens are planted, everything that can happen to a submission happens, and then all that
is kept or told is looked through for them, by the scanner that operators have; and that scanner finds what is there."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from forwarder.assembly.backend import open_backend
from forwarder.operate.tenants.accounts import Accounts
from forwarder.tenancy.port import Account
from forwarder.topics.port import Message
from tests.support.backends import Backend, slow_on
from tests.support.cards import SPELLINGS, planted_card
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, Said, Site, Typed, booking, deploy
from tests.support.deployment.site import settings_of
from tests.support.network.raw_server import Caller, raw_server
from tests.support.network.receiver import Receiver, receiver

CODE, HOLDER, CREDENTIAL = "cvv-7391-planted", "PLANTED CARDHOLDER", "planted-credential-of-the-pms"
MASKING = {"FORWARDER_CARD_NUMBERS_IN_TEXT": "mask"}
INSIDE = {"FORWARDER_WEBHOOK_PRIVATE_ADDRESSES": "true"}
WAIT = {"Prefer": "wait=20"}


@dataclass
class Planted:
    """What was planted so far, and what was told in return."""

    values: list[str] = field(default_factory=lambda: [CODE, HOLDER, CREDENTIAL])
    told: list[str] = field(default_factory=list)

    def card(self) -> dict[str, str]:
        number = planted_card(len(self.values))
        self.values.append(number)
        return {"cardNumber": number, "cardHolderName": HOLDER, "expiryMonth": "12", "expiryYear": "2031", "cvv": CODE}


@pytest.fixture
async def running(site: Site, backend: Backend) -> AsyncIterator[Deployment]:
    more = MASKING if backend == "embedded" else MASKING | INSIDE
    async with deploy(replace(site, settings={**site.settings, **more})) as deployment:
        if backend == "distributed":
            deployment.add("notifier")
            await deployment.start()
        yield deployment


@slow_on("distributed")
async def test_what_was_planted_is_nowhere(running: Deployment, tmp_path: Path) -> None:
    planted = Planted()
    planted.values.append(running.token)
    async with AsyncExitStack() as stack:
        hook = await stack.enter_async_context(receiver())
        echo = await stack.enter_async_context(raw_server(_echo))
        for name, url in (("generic", ""), ("failing", ""), ("doubtful", ""), ("echo", echo.url)):
            await _add_account(running, name, url or f"{running.url('simulate')}/{name}/generic")
        planted.values.append(await _add_webhook(running, hook))
        ids = [*await _told_by_a_pms_that_repeats_cards(running, planted), *await _made_and_refused(running, planted)]
        ids += [await _failed(running, planted), await _in_doubt(running, planted)]
        await _refused_at_the_door(running, planted)
        await hook.has_begun(*(f"{each}.1" for each in ids))
        planted.told += [str(each.headers) + each.body.decode() for each in hook.begun]
    for role in running.roles:
        planted.told.append((await running.client.get(running.url(role) + "/metrics")).text)
    for account in ("generic", "failing", "doubtful", "echo"):
        planted.told += [json.dumps(each, ensure_ascii=False) for each in await running.records(account)]
    await running.stop()
    _write(tmp_path / "told.log", planted.told)
    _write(tmp_path.parent / f"{tmp_path.name}.planted", planted.values)
    await _scanned(running, tmp_path, tmp_path.parent / f"{tmp_path.name}.planted")


# --- what happens ---


async def _echo(caller: Caller) -> None:
    """A PMS that repeats the card it was sent, in the spelling that the booking's comments name: in its record, or in its no."""
    while True:
        request = await caller.request()
        asked = json.loads(request.partition(b"\r\n\r\n")[2])
        name, refusing = asked["comments"].split("|")[0], "|no" in asked["comments"]
        card = asked["cardDetails"]
        said = f"Card {_spelt(name, card['cardNumber'])}, cvv {card['cvv'][4:8]}"
        answer: dict[str, Any] = {"id": asked["propertyId"], "reference": asked["reference"], "notes": said}
        if refusing:
            answer = {"code": "card_refused", "detail": said}
        body = json.dumps(answer).encode()
        await caller.say(
            b"HTTP/1.1 %d -\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (409 if refusing else 201, len(body), body)
        )


def _spelt(name: str, number: str) -> str:
    """`number` in a spelling: each digit of the sample is the digit in its place."""
    digits = iter(number)
    return "".join(_in_the_script_of(each, next(digits, "0")) if each.isdigit() else each for each in SPELLINGS[name])


def _in_the_script_of(sample: str, digit: str) -> str:
    return chr(ord(sample) - int(sample) + int(digit))


async def _told_by_a_pms_that_repeats_cards(running: Deployment, planted: Planted) -> Sequence[str]:
    async def told(number: int, comments: str) -> str:
        body = booking(number, cardDetails=planted.card(), comments=comments)
        answer = await running.submit("echo", body, **WAIT)
        assert answer.status_code == (409 if "|no" in comments else 201), answer.text
        planted.told.append(answer.text)
        return str(answer.json().get("requestId") or answer.json()["data"]["requestId"])

    comments = [each for name in SPELLINGS for each in (f"{name}|yes", f"{name}|no")]
    return await asyncio.gather(*(told(number, each) for number, each in enumerate(comments)))


async def _made_and_refused(running: Deployment, planted: Planted) -> Sequence[str]:
    number = planted.card()["cardNumber"]
    told = {
        "notes": f"Take {' '.join(number)}",
        "comments": f"or {number[:4]}-{number[4:8]}/{number[8:12]}.{number[12:]}, cvv 739",
    }
    made = await running.submit("generic", booking(1, cardDetails=planted.card(), **told), **WAIT)
    assert made.status_code == 201, made.text
    assert "424242******" in made.json()["data"]["notes"]
    guest = booking(2)["guest"] | {"name": "Maria Test-Card-Refused", "lastName": "Test-Card-Refused"}
    refused = await running.submit("generic", booking(2, cardDetails=planted.card(), guest=guest), **WAIT)
    assert refused.status_code == 409, refused.text
    planted.told += [made.text, refused.text]
    return [made.json()["data"]["requestId"], refused.json()["requestId"]]


async def _failed(running: Deployment, planted: Planted) -> str:
    return await _ended(running, planted, "failing", "down", "FAILED")


async def _in_doubt(running: Deployment, planted: Planted) -> str:
    return await _ended(running, planted, "doubtful", "hang_after_booking", "IN_DOUBT")


async def _ended(running: Deployment, planted: Planted, account: str, mode: str, status: str) -> str:
    await running.client.put(f"{running.url('simulate')}/{account}/faults", json={"mode": mode})
    answer = await running.submit(account, booking(3, cardDetails=planted.card()), **{"Forward-Deadline": "2"})
    assert answer.status_code == 202, answer.text
    request_id: str = answer.json()["data"]["requestId"]
    settled = await running.settled(account, request_id)
    assert settled["status"] == status
    planted.told.append(json.dumps(settled))
    return request_id


async def _refused_at_the_door(running: Deployment, planted: Planted) -> None:
    card = planted.card()
    for more in (
        {"cardDetails": planted.card() | {"expiryYear": [31]}},
        {"cardDetails": card, "transactionId": card["cardNumber"]},
    ):
        answer = await running.submit("generic", booking(4, **more))
        assert answer.status_code == 422, answer.text
        planted.told.append(answer.text)


async def _add_account(running: Deployment, name: str, url: str) -> None:
    async with open_backend(settings_of(running.site)) as backend:
        account = Account(name, "demo", "generic", url, "", duplicate_window_seconds=0)
        await Accounts(backend.tenancy, backend.sealer).add(account, CREDENTIAL)


async def _add_webhook(running: Deployment, hook: Receiver) -> str:
    answer = await running.client.post(
        f"{running.url('notifier')}/api/v1/vrs/webhooks", json={"url": hook.url}, headers=running.headers("generic")
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["data"]["secret"])


# --- looking for it ---


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


async def _scanned(running: Deployment, directory: Path, values: Path) -> None:
    logs = sorted(directory.glob("*.log"))
    everything = ("scan", "--pan", "--values-file", str(values), "--json", *map(str, logs))
    first = await Typed(running, *everything).done()
    assert (first.code, first.data["found"]) == (0, []), first.data["found"]
    assert first.data["complete"]
    assert set(_seen(first)) >= {
        *settings_of(running.site).topics.all(),
        "reservations",
        "webhook_deliveries",
    }
    assert len(logs) > 1
    assert first.data["bytes"] > 100_000
    # Of files that are no texts, what looks like a card's number may be two numbers side by side.
    files = await Typed(running, "scan", "--values-file", str(values), "--json", str(directory)).done()
    assert (files.code, files.data["found"]) == (0, []), files.data["found"]
    await _what_is_there_is_found(running, everything)


def _seen(said: Said) -> Iterator[str]:
    """The places in which there was something."""
    yield from (each["place"] for each in said.data["scanned"] if each["bytes"])


async def _what_is_there_is_found(running: Deployment, everything: Sequence[str]) -> None:
    """Or the scans before would have shown nothing."""
    number = planted_card(999_999)
    async with open_backend(settings_of(running.site)) as backend, backend.log.publisher() as publisher:
        topic = backend.settings.topics.dead_letters
        message = Message(
            b"generic:1", json.dumps({"a": [f"{number[:8]}\u00a0{number[8:]}"], "b": CREDENTIAL}).encode()
        )
        await publisher.publish(topic, [message])
        await backend.tenancy.add_workspace(f"of {number}")
    async with asyncio.timeout(PATIENCE_SECONDS):
        second = await Typed(running, *everything).done()
    assert second.code == 1
    found = [(each["place"], each["part"], each["what"]) for each in second.data["found"]]
    in_store = [("audit", "workspace_id", "card_number"), ("workspaces", "id", "card_number")]
    assert sorted(found) == sorted([(topic, "value", "card_number"), (topic, "value", "known_value"), *in_store])
    assert number not in second.out
    assert CREDENTIAL not in second.out + second.err
