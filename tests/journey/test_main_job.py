"""The main job, end to end: posted, safe on the log, pushed, recorded, read; through kill -9."""

import asyncio
from typing import Any

import pytest

from tests.support.backends import Backend, slow_on
from tests.support.deployment.deployment import Deployment, booking

CARD_NUMBER = "4242424242424242"
CVV = "987"


@slow_on("embedded")
async def test_the_main_job(deployment: Deployment) -> None:
    """One thing after the other on one deployment, with bookings of its own: to start another takes longer than each."""
    await _a_reservation_is_posted_pushed_and_read_as_record_and_page(deployment)
    await _each_process_tells_its_health_and_its_numbers(deployment)
    await _the_general_operation_waits_for_the_record(deployment)
    await _each_kind_of_pms_gets_its_rules_and_its_wire_form(deployment)
    await _the_same_key_is_the_same_submission(deployment)
    await _an_outage_of_the_pms_is_survived(deployment)


async def _a_reservation_is_posted_pushed_and_read_as_record_and_page(deployment: Deployment) -> None:
    accepted = await deployment.submit("generic", booking(1))
    assert accepted.status_code == 202
    data = accepted.json()["data"]
    settled = await deployment.settled("generic", data["requestId"])
    assert settled["status"] == "CONFIRMED"
    assert [attempt["outcome"] for attempt in settled["attempts"]] == ["confirmed"]
    (record,) = await deployment.records("generic")
    assert record == settled["record"]
    assert record["requestId"] == data["requestId"]
    assert record["nights"] == 4
    assert record["totalPrice"] == 480.5


async def _each_process_tells_its_health_and_its_numbers(deployment: Deployment) -> None:
    for role in deployment.roles:
        for path in ("/healthz", "/readyz", "/metrics"):
            answer = await deployment.client.get(deployment.url(role) + path)
            assert answer.status_code == 200, (role, path, answer.text)
    ingress = (await deployment.client.get(deployment.url("ingress") + "/metrics")).text
    assert 'forwarder_submissions_total{answer="accepted",operation="booking-engine"} 1.0' in ingress
    worker = (await deployment.client.get(deployment.url("worker") + "/metrics")).text
    assert 'forwarder_outcomes_total{kind="generic",status="CONFIRMED"} 1.0' in worker


async def _the_general_operation_waits_for_the_record(deployment: Deployment) -> None:
    body = {key: value for key, value in booking(2).items() if key not in {"morChannel", "transactionId", "roomId"}}
    made = await deployment.submit("generic", body, operation="general")
    assert made.status_code == 201, made.text
    assert made.json()["success"] is True
    assert made.json()["data"]["status"] == "CONFIRMED"
    assert made.json()["data"]["roomId"] == made.json()["data"]["propertyId"]


async def _each_kind_of_pms_gets_its_rules_and_its_wire_form(deployment: Deployment) -> None:
    wait = {"Prefer": "wait=20"}
    refused = await deployment.submit("sync", booking(1, morChannel="PMS"), **wait)
    assert (refused.status_code, refused.json()["code"]) == (422, "card_required")
    made = await deployment.submit(
        "sync", booking(2, morChannel="PMS", cardDetails={"cardNumber": CARD_NUMBER, "cvv": CVV}), **wait
    )
    assert made.status_code == 201, made.text
    roomy = await deployment.submit("sync", booking(2, roomId="A-7"), **wait)
    assert (roomy.status_code, roomy.json()["code"]) == (422, "no_rooms")
    homeless = await deployment.submit("websites", booking(3), **wait)
    assert (homeless.status_code, homeless.json()["code"]) == (422, "website_id_required")
    built = await deployment.submit("websites", booking(4, paymentProviderId=42), **wait)
    assert built.status_code == 201, built.text
    statuses = [record["status"] for record in await deployment.records("sync")]
    assert statuses == ["CONFIRMED"]


async def _the_same_key_is_the_same_submission(deployment: Deployment) -> None:
    before = (await deployment.made())["made"]
    repeats = await asyncio.gather(
        *(deployment.submit("generic", booking(3), **{"Idempotency-Key": '"order-1"'}) for _ in range(100))
    )
    (request_id,) = {repeat.json()["data"]["requestId"] for repeat in repeats}
    await deployment.settled("generic", request_id)
    other = await deployment.submit("generic", booking(4), **{"Idempotency-Key": '"order-1"'})
    assert other.status_code == 422
    assert (await deployment.made())["made"] == before + 1


async def _an_outage_of_the_pms_is_survived(deployment: Deployment) -> None:
    faults = f"{deployment.url('simulate')}/generic/faults"
    await deployment.client.put(faults, json={"mode": "down"})
    accepted = await deployment.submit("generic", booking(5))
    request_id = accepted.json()["data"]["requestId"]
    async with asyncio.timeout(90):
        while not (await deployment.submission("generic", request_id))["attempts"]:
            await asyncio.sleep(0.05)
    assert (await deployment.submission("generic", request_id))["status"] == "PENDING"
    well = await deployment.submit("websites", booking(6, paymentProviderId=42), Prefer="wait=20")
    assert well.status_code == 201
    await deployment.client.delete(faults)
    settled = await deployment.settled("generic", request_id)
    assert settled["status"] == "CONFIRMED"
    assert len(settled["attempts"]) >= 2


@pytest.mark.slow  # `tests/fault/test_processes.py` and `test_embedded.py` kill it under load
@slow_on("embedded")
async def test_killed_in_the_middle_every_submission_is_made_exactly_once(deployment: Deployment) -> None:
    """kill -9 of the process that pushes, while it pushes; started again, it finishes: nothing lost, nothing twice."""
    count = 200
    pushing = "worker" if "worker" in deployment.processes else "up"
    gate = asyncio.Semaphore(32)

    async def submit(number: int) -> None:
        async with gate:
            assert (await deployment.submit("generic", booking(number))).status_code == 202

    await asyncio.gather(*(submit(number) for number in range(count)))
    async with asyncio.timeout(90):
        while (await deployment.made())["made"] < 50:
            await asyncio.sleep(0.01)
    await asyncio.to_thread(deployment.processes[pushing].kill)
    await deployment.start()
    records = await deployment.all_settled("generic", count)
    assert len(records) == count
    assert {record["status"] for record in records} == {"CONFIRMED"}
    stats = await deployment.made()
    assert stats["made"] == count
    assert stats["duplicates"]["surplus"] == 0


@pytest.mark.slow  # `tests/fault/test_embedded.py` starts again what it killed
@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
async def test_a_second_start_goes_on_where_the_first_was(deployment: Deployment, backend: Backend) -> None:
    await deployment.client.put(f"{deployment.url('simulate')}/generic/faults", json={"mode": "down"})
    accepted = await deployment.submit("generic", booking(1))
    await asyncio.to_thread(deployment.processes["up"].stop)
    await deployment.client.delete(f"{deployment.url('simulate')}/generic/faults")
    await deployment.start()
    settled: dict[str, Any] = await deployment.settled("generic", accepted.json()["data"]["requestId"])
    assert settled["status"] == "CONFIRMED"
