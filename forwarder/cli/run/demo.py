"""`forwarder demo`: a short guided tour of a running forwarder, against its demo workspace, by `forwarder.client`."""

import asyncio
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from dotenv import dotenv_values

from forwarder.cli.output import Failed, say
from forwarder.cli.run.demo_world import DEMO_ENV
from forwarder.client import ForwarderClient, ForwarderError, Patience, Submission, Unavailable
from forwarder.settings import read_settings

_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.1


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
    not_twice = Patience(total_seconds=0)
    try:
        async with ForwarderClient(
            url, token=token, workspace=workspace, account="demo-generic", patience=not_twice
        ) as client:
            guide = _Guide(client, _Outage(f"{url}/simulator/demo-generic/faults"))
            await guide.submit_and_follow()
            await guide.wait_for_the_outcome()
            await guide.be_rejected()
            await guide.survive_an_outage()
            await guide.list_them()
    except Unavailable as error:
        if error.problem is not None:
            raise Failed(str(error)) from None
        raise Failed(
            f"nothing answers at {url}, which {path} names: start the forwarder first, with `make run`"
        ) from None
    except ForwarderError as error:
        raise Failed(str(error)) from None
    say("\nThat was the tour. Everything it made is in `forwarder submissions list`.")


class _Guide:
    """Walks through the service, one step a method, saying what it does and what came back."""

    def __init__(self, client: ForwarderClient, outage: "_Outage") -> None:
        self._client = client
        self._outage = outage

    async def submit_and_follow(self) -> None:
        say("1. A booking engine submits and does not wait for the PMS.")
        websites = self._client.for_account("demo-website-builder")
        begun = time.perf_counter()
        accepted = await websites.submit(_booking(morChannel="SELF"))
        say(f"   {accepted.status} {accepted.request_id}, in {(time.perf_counter() - begun) * 1000:.0f} ms")
        settled = await websites.wait(accepted.request_id, timeout_seconds=_PATIENCE_SECONDS)
        _require(settled, "CONFIRMED")
        made = settled.record and settled.record.pms_reservation_id
        say(f"   {settled.status} as {made} after {len(settled.attempts)} attempt")

    async def wait_for_the_outcome(self) -> None:
        say("\n2. The general operation waits and answers with the record.")
        made = await self._client.submit(_booking(), operation="general")
        record = made.record
        if record is None:
            raise Failed(f"expected a record within the wait, got {made.status} {made.request_id}")
        say(f"   reservation {record.id}: {record.nights} nights, {record.total_price} {record.currency}")

    async def be_rejected(self) -> None:
        say("\n3. A rule refuses: booking-sync takes payment itself, and no card came with the request.")
        refused = await self._client.for_account("demo-booking-sync").submit(_booking(morChannel="PMS"), wait=10)
        _require(refused, "REJECTED")
        say(f"   {refused.status} {refused.problem}")

    async def survive_an_outage(self) -> None:
        say("\n4. The PMS goes down. Submissions are accepted all the same, and wait.")
        await self._outage.begin()
        try:
            accepted = await self._client.submit(_booking(morChannel="SELF"))
            waiting = await self._attempted(accepted.request_id)
            last = waiting.attempts[-1]
            say(f"   {waiting.status}: attempt {last.number} came to {last.outcome} ({last.reason})")
        finally:
            await self._outage.end()
        say("   It comes back.")
        settled = await self._client.wait(accepted.request_id, timeout_seconds=_PATIENCE_SECONDS)
        _require(settled, "CONFIRMED")
        say(f"   {settled.status} after {len(settled.attempts)} attempts")

    async def list_them(self) -> None:
        say("\n5. All of an account's reservations, the newest first, page by page.")
        async for page in self._client.pages(page_size=3, order="desc"):
            for record in page.reservations:
                say(f"   {record.id}  {record.status}  {record.arrival_date} → {record.departure_date}")
            say(f"   the next page begins at {page.cursors.next}" if page.cursors.next else "   there is no other page")
            break

    async def _attempted(self, request_id: str) -> Submission:
        """The submission once a push of it was attempted."""
        for _ in range(round(_PATIENCE_SECONDS / _PAUSE_SECONDS)):
            seen = await self._client.submission(request_id)
            if seen.attempts:
                return seen
            await asyncio.sleep(_PAUSE_SECONDS)
        raise Failed(f"nobody tried to push {request_id}: is a worker running?")


class _Outage:
    """An outage of the simulated PMS whose faults are set at `url`."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def begin(self) -> None:
        await asyncio.to_thread(self._call, "PUT", json.dumps({"mode": "down"}).encode())

    async def end(self) -> None:
        await asyncio.to_thread(self._call, "DELETE", None)

    def _call(self, method: str, body: bytes | None) -> None:
        request = Request(self._url, body, {"Content-Type": "application/json"}, method=method)  # noqa: S310 - demo.env's
        with urlopen(request, timeout=30):  # noqa: S310 - as above
            pass


def _require(submission: Submission, status: str) -> None:
    if submission.status != status:
        raise Failed(f"expected {status}, got {submission.status}: {submission.problem or submission.request_id}")


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
