"""A guest is erased from a running forwarder, which still knows the reservation, never makes it again, and says who erased it."""

import asyncio
import json
from collections.abc import Sequence
from subprocess import CalledProcessError
from typing import Any

import pytest

from forwarder.assembly.backend import open_backend
from forwarder.topics.port import read_to_end
from tests.support.backends import slow_on
from tests.support.deployment.deployment import Deployment, booking
from tests.support.deployment.site import settings_of

TRACES = ("Maria", "Gonzalez", "guest1@", "34600123456", "Alcala")


@slow_on("distributed")
async def test_an_erased_guest_is_gone_and_never_booked_again(deployment: Deployment) -> None:
    await deployment.add_account("twice", duplicate_window_seconds=300)
    body = booking(1, notes="Maria is allergic to nuts")
    first = await deployment.submit("twice", body, **{"Idempotency-Key": "key-1"})
    request_id = first.json()["data"]["requestId"]
    other = (await deployment.submit("twice", booking(2))).json()["data"]["requestId"]
    before = [await deployment.settled("twice", each) for each in (request_id, other)]
    await _published(deployment)

    planned = await deployment.command("guests", "erase", "--email", "GUEST1@example.com")
    assert [each["requestId"] for each in planned["submissions"]] == [request_id]
    assert (planned["dryRun"], planned["erased"]) == (True, 0)
    assert [each["topic"].rpartition("reservations.")[2] for each in planned["topics"]] == [
        "requests",
        "results",
        "requests-dlt",
    ]
    assert all(each["goneBy"] for each in planned["topics"])
    assert await deployment.submission("twice", request_id) == before[0]

    erased = await deployment.command("guests", "erase", "--email", "guest1@example.com", "--yes")
    assert (erased["erased"], erased["submissions"][0]["standing"]) == (1, "erased")
    again = await deployment.command("guests", "erase", "--email", "guest1@example.com", "--yes")
    assert (again["erased"], again["submissions"]) == (0, [])
    by_id = await deployment.command("guests", "erase", "--reservation", request_id, "--yes")
    assert (by_id["erased"], by_id["submissions"][0]["standing"]) == (0, "erased")

    after = await deployment.submission("twice", request_id)
    assert not [trace for trace in TRACES if trace in json.dumps(after)]
    assert (after["status"], after["record"]["pmsReservationId"]) == (
        "CONFIRMED",
        before[0]["record"]["pmsReservationId"],
    )
    assert after["record"]["primaryGuest"]["name"] == ""
    assert await deployment.submission("twice", other) == before[1]

    # The same again, with its key and by what it asks for; and the very message that the log had.
    keyed = await deployment.submit("twice", body, **{"Idempotency-Key": "key-1"})
    plain = await deployment.submit("twice", body, Prefer="wait=20")
    assert keyed.json()["data"]["requestId"] == plain.json()["data"]["requestId"] == request_id
    await _deliver_again(deployment)
    third = (await deployment.submit("twice", booking(3))).json()["data"]["requestId"]
    await deployment.settled("twice", third)
    assert (await deployment.made())["made"] == 3
    assert await deployment.submission("twice", request_id) == after

    cancelled = await deployment.cancel("twice", request_id, Prefer="wait=20")
    assert cancelled.json()["data"]["status"] == "CANCELLED", cancelled.text
    await _is_audited(deployment, request_id)


@pytest.mark.slow  # `tests/contract/store/test_retention.py` shows it of the store
@slow_on("embedded")
async def test_what_is_not_finished_is_not_erased(deployment: Deployment) -> None:
    await deployment.command("account", "pause", "generic")
    sent = await deployment.submit("generic", booking(1))
    request_id = sent.json()["data"]["requestId"]
    await _taken_in(deployment, request_id)
    with pytest.raises(CalledProcessError) as failed:
        await deployment.command("guests", "erase", "--reservation", request_id, "--yes")
    assert failed.value.returncode == 1
    assert "is not finished" in failed.value.stderr
    await deployment.command("account", "resume", "generic")
    settled = await deployment.settled("generic", request_id)
    assert settled["record"]["primaryGuest"]["name"] == "Maria Gonzalez"


async def _published(deployment: Deployment) -> None:
    """Wait until nothing is left in the outbox."""
    while True:
        found = await deployment.command("guests", "erase", "--phone", "34600123456")
        if {each["standing"] for each in found["submissions"]} == {"erasable"}:
            return


async def _taken_in(deployment: Deployment, request_id: str) -> None:
    while not (await deployment.command("guests", "erase", "--reservation", request_id))["submissions"]:
        await asyncio.sleep(0.05)


async def _deliver_again(deployment: Deployment) -> None:
    """Put all requests on their topic once more, as a log does that lost its consumers' offsets."""
    async with open_backend(settings_of(deployment.site)) as backend:
        topic = backend.settings.topics.requests
        messages = [each.message async for batch in read_to_end(backend.log, topic) for each in batch]
        async with backend.log.publisher() as publisher:
            await publisher.publish(topic, messages)


async def _is_audited(deployment: Deployment, request_id: str) -> None:
    entries: Sequence[dict[str, Any]] = await deployment.command("audit", "list", "--workspace", "demo")
    (erased,) = [each for each in entries if each["action"] == "guests.erase"]
    assert erased["details"] == {"by": "email", "submissions": [request_id]}
    assert (erased["kind"], erased["result"]) == ("operator", "done")
    (cancelled,) = [each for each in entries if each["action"] == "submission.cancel"]
    assert (cancelled["kind"], cancelled["target"], cancelled["result"]) == ("key", request_id, "requested")
    assert cancelled["from"] == "127.0.0.1"
    assert not [trace for trace in (*TRACES, deployment.token) if trace in json.dumps(entries)]
