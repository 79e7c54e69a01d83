"""Reading on a running forwarder: waiting for news of a submission, and lists by filter, on every backend."""

import asyncio

from tests.support.backends import slow_on
from tests.support.deployment.deployment import Deployment, booking


@slow_on("distributed")
async def test_a_submission_is_waited_for_and_listed(deployment: Deployment) -> None:
    accepted = (await deployment.submit("generic", booking(1))).json()["data"]
    headers, query = deployment.headers("generic"), deployment.url("query")
    path = f"{query}/api/v1/vrs/submissions/{accepted['requestId']}"

    async def read(url: str, **more: str) -> object:
        answer = await deployment.client.get(url, headers={**headers, **more})
        assert answer.status_code == 200, answer.text
        return answer.json()

    waits = [deployment.client.get(path, headers={**headers, "Prefer": "wait=25"}) for _ in range(3)]
    for answer in await asyncio.gather(*waits):
        assert (answer.status_code, answer.json()["data"]["status"]) == (200, "CONFIRMED")
        assert answer.headers["preference-applied"] == "wait=25"
    tag = {"If-None-Match": answer.headers["etag"], "Prefer": "wait=25"}

    # What was confirmed is cancelled while a reader waits for news of it.
    async def told() -> object:
        """The first status that is another. That it is to be cancelled may be news of its own."""
        while True:
            answer = await deployment.client.get(path, headers={**headers, **tag})
            if answer.json()["data"]["status"] != "CONFIRMED":
                return answer.json()["data"]["status"]
            tag["If-None-Match"] = answer.headers["etag"]

    news = asyncio.create_task(told())
    cancelled = await deployment.client.post(
        f"{deployment.url('ingress')}/api/v1/vrs/reservations/{accepted['requestId']}/cancel",
        headers={**headers, "Prefer": "wait=25"},
    )
    assert cancelled.status_code == 200, cancelled.text
    assert await news == "CANCELLED"

    record = cancelled.json()["data"]
    lists = f"{query}/api/vrs/reservations"
    for wanted in (
        "status=CANCELLED",
        f"propertyId={record['propertyId']}",
        f"arrivalFrom={record['arrivalDate']}&arrivalTo={record['arrivalDate']}&order=desc",
        f"departureFrom={record['departureDate']}",
        f"updatedSince={record['updatedAt']}",
    ):
        page = await read(f"{lists}?{wanted}")
        assert [each["id"] for each in page["data"]] == [record["id"]], wanted  # type: ignore[index]
    page = await read(f"{lists}?status=CONFIRMED,PENDING,FAILED,REJECTED,IN_DOUBT")
    assert page["data"] == []  # type: ignore[index]
