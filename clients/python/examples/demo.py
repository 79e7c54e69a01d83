"""A short guided tour of a running forwarder: submit, follow, list; see a refusal; see a PMS outage and a lost answer survived.

Start the forwarder with `make run`, then run this with `make demo`. It takes the address and the key from the environment, or from
the `demo.env` that `make run` leaves in the data directory.
"""

import json
import os
import secrets
import sys
import time
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Literal
from urllib.request import Request, urlopen

from reservation_forwarder_client import (
    BookingEngineReservation,
    ForwarderClient,
    ForwarderError,
    GeneralReservation,
    Refused,
    RetryPolicy,
    Submission,
    Unavailable,
)

_TIMEOUT_SECONDS = 60.0
_PAUSE_SECONDS = 0.1
_PROPERTY = 1001


class Failed(Exception):
    """The tour could not go on. The message says why."""


def main() -> None:
    """Take the tour. Exits with 1 and a message where it fails."""
    path = Path(os.environ.get("FORWARDER_DATA_DIR") or ".forwarder") / "demo.env"
    values = {**_read_env(path), **os.environ}
    try:
        url, token, workspace = (values[f"FORWARDER_{name}"] for name in ("URL", "TOKEN", "WORKSPACE"))
    except KeyError as missing:
        sys.exit(f"demo: {missing} is neither set nor in {path}: start the forwarder first, with `make run`")
    try:
        _tour(url, token, workspace, path)
    except Failed as error:
        sys.exit(f"demo: {error}")


def _read_env(path: Path) -> Mapping[str, str]:
    """The lines `export NAME=value` of the file; none where there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    pairs = (line.removeprefix("export ").partition("=") for line in lines)
    return {name: value for name, _, value in pairs}


def _tour(url: str, token: str, workspace: str, path: Path) -> None:
    once = RetryPolicy(total_seconds=0)
    try:
        with ForwarderClient(
            url, token=token, workspace=workspace, account="demo-generic", retry_policy=once
        ) as client:
            guide = _Guide(client, _Outage(f"{url}/simulator/demo-generic/faults"))
            guide.submit_and_follow()
            guide.wait_for_the_outcome()
            guide.be_refused()
            guide.survive_an_outage()
            guide.survive_a_lost_answer()
            guide.list_them()
    except Unavailable as error:
        if error.problem is not None:
            raise Failed(str(error)) from None
        raise Failed(
            f"nothing answers at {url}, which {path} names: start the forwarder first, with `make run`"
        ) from None
    except ForwarderError as error:
        raise Failed(str(error)) from None
    print("\nThat was the tour. Everything it made is in `forwarder submissions list`.")


class _Guide:
    """Walks through the service, one step a method, saying what it does and what came back."""

    def __init__(self, client: ForwarderClient, outage: "_Outage") -> None:
        self._client = client
        self._outage = outage

    def submit_and_follow(self) -> None:
        print("1. A booking engine submits and does not wait for the PMS.")
        websites = self._client.for_account("demo-website-builder")
        begun = time.perf_counter()
        accepted = websites.submit(_booking("SELF"))
        print(f"   {accepted.status} {accepted.request_id}, in {(time.perf_counter() - begun) * 1000:.0f} ms")
        settled = websites.wait(accepted.request_id, timeout_seconds=_TIMEOUT_SECONDS)
        _require(settled, "CONFIRMED")
        made = settled.record and settled.record.pms_reservation_id
        print(f"   {settled.status} as {made} after {len(settled.attempts)} attempt")

    def wait_for_the_outcome(self) -> None:
        print("\n2. The general operation waits and answers with the record.")
        made = self._client.submit_general(_general())
        record = made.record
        if record is None:
            raise Failed(f"expected a record within the wait, got {made.status} {made.request_id}")
        print(f"   reservation {record.id}: {record.nights} nights, {record.total_price} {record.currency}")

    def be_refused(self) -> None:
        print("\n3. A rule refuses at once: booking-sync takes payment itself, and no card came with the request.")
        booking_sync = self._client.for_account("demo-booking-sync")
        try:
            accepted = booking_sync.submit({**_booking("PMS"), "roomId": _PROPERTY})
        except Refused as refused:
            print(f"   {refused}")
        else:
            raise Failed(f"expected a refusal, got {accepted.status} {accepted.request_id}")

    def survive_an_outage(self) -> None:
        print("\n4. The PMS goes down. Submissions are accepted all the same, and wait.")
        self._outage.begin({"mode": "down"})
        try:
            accepted = self._client.submit(_booking("SELF"))
            waiting = self._attempted(accepted.request_id)
            last = waiting.attempts[-1]
            print(f"   {waiting.status}: attempt {last.number} came to {last.outcome} ({last.reason})")
        finally:
            self._outage.end()
        print("   It comes back.")
        settled = self._client.wait(accepted.request_id, timeout_seconds=_TIMEOUT_SECONDS)
        _require(settled, "CONFIRMED")
        print(f"   {settled.status} after {len(settled.attempts)} attempts")

    def survive_a_lost_answer(self) -> None:
        print("\n5. The PMS makes a reservation, and breaks the connection before it answers.")
        self._outage.begin({"mode": "reset_after_booking", "count": 1})
        try:
            accepted = self._client.submit(_booking("SELF"))
            waiting = self._attempted(accepted.request_id)
            for known in waiting.evidence:
                print(f"   {waiting.status}: {known}")
            settled = self._client.wait(accepted.request_id, timeout_seconds=_TIMEOUT_SECONDS)
        finally:
            self._outage.end()
        _require(settled, "CONFIRMED")
        for each in settled.attempts:
            print(f"   attempt {each.number}: {each.action}, {each.outcome}")

    def list_them(self) -> None:
        print("\n6. All of an account's reservations, the newest first, page by page.")
        page = next(self._client.pages(page_size=3, order="desc"))
        for record in page.reservations:
            print(f"   {record.id}  {record.status}  {record.arrival_date} → {record.departure_date}")
        print(f"   the next page begins at {page.cursors.next}" if page.cursors.next else "   there is no other page")

    def _attempted(self, request_id: str) -> Submission:
        """The submission once a push of it was attempted."""
        for _ in range(round(_TIMEOUT_SECONDS / _PAUSE_SECONDS)):
            seen = self._client.submission(request_id)
            if seen.attempts:
                return seen
            time.sleep(_PAUSE_SECONDS)
        raise Failed(f"nobody tried to push {request_id}: is a worker running?")


class _Outage:
    """Faults of the simulated PMS, set at `url`."""

    def __init__(self, url: str) -> None:
        self._url = url

    def begin(self, faults: Mapping[str, object]) -> None:
        self._call("PUT", json.dumps(faults).encode())

    def end(self) -> None:
        self._call("DELETE", None)

    def _call(self, method: str, body: bytes | None) -> None:
        request = Request(self._url, body, {"Content-Type": "application/json"}, method=method)  # noqa: S310 - demo.env's
        with urlopen(request, timeout=30):  # noqa: S310 - as above
            pass


def _require(submission: Submission, status: str) -> None:
    if submission.status != status:
        raise Failed(f"expected {status}, got {submission.status}: {submission.problem or submission.request_id}")


def _booking(mor_channel: Literal["SELF", "PMS"]) -> BookingEngineReservation:
    """A booking engine's reservation, of a room that nobody else asks for."""
    return {
        "morChannel": mor_channel,
        "propertyId": _PROPERTY,
        "roomId": f"demo-{secrets.token_hex(4)}",
        "arrivalDate": "2031-03-01",
        "departureDate": "2031-03-05",
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
        "totalPrice": Decimal("480.50"),
        "currency": "EUR",
        "paymentProviderId": 42,
    }


def _general() -> GeneralReservation:
    """The same with as little as will do."""
    return {
        "propertyId": _PROPERTY,
        "roomId": f"demo-{secrets.token_hex(4)}",
        "arrivalDate": "2031-03-01",
        "departureDate": "2031-03-05",
        "guest": {"firstName": "Maria", "lastName": "Gonzalez", "email": "maria@example.com"},
        "numberOfGuests": 2,
        "totalPrice": Decimal("480.50"),
        "currency": "EUR",
    }


if __name__ == "__main__":
    main()
