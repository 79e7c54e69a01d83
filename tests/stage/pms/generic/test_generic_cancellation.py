"""The open PMS contract on the wire: what is asked to cancel, and what the answers mean."""

import httpx
import pytest

from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Cancelled, CancelOutcome, Confirmed, Deferred, Rejected
from forwarder_pms_kit.simulators import simulator_app
from tests.support.cases import for_each
from tests.support.pms.httpx_transport import in_process
from tests.support.pms.kinds.open_pms import pms_that, response
from tests.support.simulator.client import GENERIC, simulated
from tests.support.simulator.server import booking

NOT_THERE = {"code": "reservation_not_found", "title": "None"}


async def cancelled(status: int, body: object = b"") -> CancelOutcome:
    async with pms_that(lambda _: response(status, body)) as pms:
        return await pms.cancel(booking(), "R/5")


@pytest.mark.parametrize(("kind", "path"), [("generic", "/api"), ("website-builder", "/api/websites/site-7")])
async def test_a_reservation_is_deleted_by_the_id_that_the_pms_gave_it(kind: str, path: str) -> None:
    requests: list[httpx.Request] = []

    def note(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(204)

    async with pms_that(note, kind=kind) as pms:
        assert pms.capabilities.cancel
        assert await pms.cancel(booking(), "R/5 ä") == Cancelled()
    [request] = requests
    assert request.method == "DELETE"
    assert request.url.raw_path.decode() == f"{path}/reservations/R%2F5%20%C3%A4"
    assert request.headers["authorization"] == "Bearer key-7"
    assert not request.content


@for_each(
    ("status", "body"),
    [
        (204, b""),
        (200, {"id": 5, "status": "CANCELLED"}),
        (200, {"id": 5, "status": "canceled"}),
        (404, NOT_THERE),
        (410, NOT_THERE),
    ],
)
async def test_what_the_pms_holds_no_longer_is_cancelled(status: int, body: object) -> None:
    assert await cancelled(status, body) == Cancelled()


@for_each(
    ("status", "body"),
    [
        (200, b"<html>It works!</html>"),
        (200, {"id": 5}),
        (200, {"id": 5, "status": "CONFIRMED"}),
        (200, []),
        (202, b""),
        (301, b""),
        (401, b""),
        (404, b"<html>Not Found</html>"),
        (404, {"code": "not_found"}),
        (405, b""),
        (410, b""),
        (429, b""),
        (500, NOT_THERE),
        (503, b""),
    ],
)
async def test_anything_else_is_put_off(status: int, body: object) -> None:
    assert isinstance(await cancelled(status, body), Deferred)


@pytest.mark.parametrize("status", [409, 422])
async def test_a_pms_may_refuse_to_cancel(status: int) -> None:
    outcome = await cancelled(status, {"code": "too_late", "detail": "The guest has arrived: Maria Gonzalez"})
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "cancellation_refused"
    assert outcome.problem.detail == "The guest has arrived: […]"


@pytest.mark.parametrize("error", [httpx.ReadError("gone"), httpx.ReadTimeout("late"), httpx.ConnectError("no")])
async def test_without_an_answer_it_is_put_off(error: httpx.HTTPError) -> None:
    def fail(_request: httpx.Request) -> httpx.Response:
        raise error

    async with pms_that(fail) as pms:
        assert isinstance(await pms.cancel(booking(), "5"), Deferred)


async def test_what_no_address_can_name_is_not_said_to_be_cancelled() -> None:
    async with pms_that() as pms:
        for identifier in ("", ".", ".."):
            assert isinstance(await pms.cancel(booking(), identifier), Rejected)
    async with pms_that(kind="website-builder") as pms:
        assert isinstance(await pms.cancel(Booking("rsv_1", booking().fields, website_id=".."), "5"), Rejected)


@pytest.mark.parametrize("kind", ["generic", "website-builder"])
async def test_the_nights_are_free_again(kind: str) -> None:
    async with simulated() as client, pms_that(kind=kind, transport=in_process(simulator_app(client.world))) as pms:
        made = await pms.create(booking())
        assert isinstance(made, Confirmed)
        for _ in range(2):
            assert await pms.cancel(booking(), made.pms_reservation_id) == Cancelled()
        looked = await pms.find(booking())
        assert isinstance(looked, Deferred)
        assert looked.reason == "cancelled_in_pms"
        another = Booking("rsv_2", booking().fields, website_id="site-7")
        assert isinstance(await pms.create(another), Confirmed)


async def test_a_cancelled_website_reservation_is_one_of_its_website_alone() -> None:
    async with simulated() as client:
        made = (await client.book(path="/acme/website-builder/websites/1/reservations")).json()["id"]
        for path, status in (("2", 404), ("1", 204)):
            answer = await client.http.delete(f"/acme/website-builder/websites/{path}/reservations/{made}")
            assert answer.status_code == status
        assert (await client.http.delete(f"{GENERIC}/{made}")).status_code == 404
