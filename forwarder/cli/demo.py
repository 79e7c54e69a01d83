"""`forwarder demo`: a short guided tour of a running forwarder, against its demo workspace."""

import asyncio
import os
import secrets
from pathlib import Path
from typing import Any

import httpx
from dotenv import dotenv_values

from forwarder.cli.demo_world import DEMO_ENV
from forwarder.cli.output import Failed, say
from forwarder.settings import read_settings

_PATIENCE_SECONDS = 60.0


def demo() -> None:
    """Submit, follow, list; see a rejection; see a PMS outage survived."""
    path = read_settings().environment.data_dir / DEMO_ENV
    values = {**(dotenv_values(path) if path.exists() else {}), **os.environ}
    try:
        url, token, workspace = (
            str(values[name]) for name in ("FORWARDER_URL", "FORWARDER_TOKEN", "FORWARDER_WORKSPACE")
        )
    except KeyError as missing:
        raise Failed(f"{missing} is neither set nor in {path}: start the forwarder first, with `make run`") from None
    asyncio.run(_tour(url, token, workspace, path))


async def _tour(url: str, token: str, workspace: str, path: Path) -> None:
    headers = {"Authorization": f"Bearer {token}", "workspaceId": workspace}
    try:
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30.0) as client:
            guide = _Guide(client)
            await guide.submit_and_follow()
            await guide.wait_for_the_outcome()
            await guide.be_rejected()
            await guide.survive_an_outage()
            await guide.list_them()
    except httpx.ConnectError:
        raise Failed(
            f"nothing answers at {url}, which {path} names: start the forwarder first, with `make run`"
        ) from None
    say("\nThat was the tour. Everything it made is in `forwarder submissions list`.")


class _Guide:
    """Walks through the service, one step a method, saying what it does and what came back."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def submit_and_follow(self) -> None:
        say("1. A booking engine submits and does not wait for the PMS.")
        accepted = await self._submit("demo-website-builder", "/booking-engine", _booking(morChannel="SELF"))
        self._expect(accepted, 202)
        data = accepted.json()["data"]
        say(f"   {accepted.status_code} {data['status']} {data['requestId']}, in {_ms(accepted)}")
        settled = await self._follow(data["requestId"], "demo-website-builder")
        say(
            f"   {settled['status']} as {settled['record']['pmsReservationId']} after {len(settled['attempts'])} attempt"
        )

    async def wait_for_the_outcome(self) -> None:
        say("\n2. The general operation waits and answers with the record.")
        made = await self._submit("demo-generic", "", _booking())
        self._expect(made, 201)
        record = made.json()["data"]
        price = f"{record['totalPrice']} {record['currency']}"
        say(f"   {made.status_code} reservation {record['id']}: {record['nights']} nights, {price}")

    async def be_rejected(self) -> None:
        say("\n3. A rule refuses: booking-sync takes payment itself, and no card came with the request.")
        refused = await self._submit(
            "demo-booking-sync", "/booking-engine", _booking(morChannel="PMS"), {"Prefer": "wait=10"}
        )
        self._expect(refused, 422)
        problem = refused.json()
        say(f"   {refused.status_code} {problem['code']}: {problem['detail']}")

    async def survive_an_outage(self) -> None:
        say("\n4. The PMS goes down. Submissions are accepted all the same, and wait.")
        await self._client.put("/simulator/demo-generic/faults", json={"mode": "down"})
        try:
            accepted = await self._submit("demo-generic", "/booking-engine", _booking(morChannel="SELF"))
            self._expect(accepted, 202)
            request_id = accepted.json()["data"]["requestId"]
            waiting = await self._follow(request_id, "demo-generic", attempted=True)
            last = waiting["attempts"][-1]
            say(f"   {waiting['status']}: attempt {last['number']} came to {last['outcome']} ({last['reason']})")
        finally:
            await self._client.delete("/simulator/demo-generic/faults")
        say("   It comes back.")
        settled = await self._follow(request_id, "demo-generic")
        say(f"   {settled['status']} after {len(settled['attempts'])} attempts")

    async def list_them(self) -> None:
        say("\n5. All of an account's reservations, page by page.")
        headers = {"integrationAccountId": "demo-generic"}
        page = await self._client.get("/api/vrs/reservations", params={"limit": 3}, headers=headers)
        self._expect(page, 200)
        for record in page.json()["data"]:
            say(f"   {record['id']}  {record['status']}  {record['arrivalDate']} → {record['departureDate']}")
        say(f"   cursors {page.json()['meta']['cursors']}")

    async def _submit(
        self, account: str, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
    ) -> httpx.Response:
        return await self._client.post(
            f"/api/v1/vrs/reservations{path}", json=body, headers={"integrationAccountId": account, **(headers or {})}
        )

    async def _follow(self, request_id: str, account: str, *, attempted: bool = False) -> dict[str, Any]:
        """The submission once it is final, or `attempted` once. Raises `Failed` when that takes too long."""
        headers = {"integrationAccountId": account}
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                answer = await self._client.get(f"/api/v1/vrs/submissions/{request_id}", headers=headers)
                self._expect(answer, 200)
                data: dict[str, Any] = answer.json()["data"]
                if data["status"] != "PENDING" or (attempted and data["attempts"]):
                    return data
                await asyncio.sleep(0.1)

    def _expect(self, answer: httpx.Response, status: int) -> None:
        if answer.status_code != status:
            raise Failed(f"expected {status}, got {answer.status_code}: {answer.text}")


def _booking(**more: Any) -> dict[str, Any]:
    """A valid request of either operation, for a room that nobody else asks for."""
    return {
        "propertyId": 1001,
        "roomId": f"demo-{secrets.token_hex(4)}",
        "arrivalDate": "2027-03-01",
        "departureDate": "2027-03-05",
        "guest": {
            "name": "Maria Gonzalez",
            "firstName": "Maria",
            "lastName": "Gonzalez",
            "email": "maria@example.com",
            "phone": "+34600123456",
            "address": {
                "line1": "Calle de Alcala 1",
                "line2": "",
                "postalCode": "28014",
                "city": "Madrid",
                "state": "Madrid",
                "country": "ES",
            },
        },
        "numberOfGuests": 2,
        "totalPrice": 480.50,
        "currency": "EUR",
        "paymentProviderId": 42,
        **more,
    }


def _ms(answer: httpx.Response) -> str:
    return f"{answer.elapsed.total_seconds() * 1000:.0f} ms"
