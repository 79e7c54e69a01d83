"""Whatever a PMS answers, and however much, what is recorded of it can be stored and published."""

import json
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from itertools import product
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forwarder.pms.directory import open_directory
from forwarder.pms.port import AccountConnection
from forwarder.pms.responses import record_fields
from forwarder.process.clock import SystemClock
from forwarder.process.loops import Fault, Where
from forwarder.reservation import problems as catalogue
from forwarder.reservation.evidence import Park
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, LookupOutcome, Outcome, Rejected, Status
from forwarder.reservation.record import MAX_EVENT_BYTES, MAX_RECORD_BYTES, bounded
from forwarder.simulator.world import World
from forwarder.store.submissions.port import Ended, Work, completed, with_attempt
from forwarder.store.submissions.rows import outcome_batch
from forwarder.topics.codec import encode_result
from forwarder.worker.outcome.policy import after_fault, decide
from forwarder.worker.push.run import PushContext
from forwarder_pms_kit.simulators import simulator_app
from tests.support.cases import for_each
from tests.support.profile import Profile, lives, some
from tests.support.simulator.server import OPTIONS, PATHS, booking, served
from tests.support.worker.works import NOW, account, carried, work

LIVES: Final[Mapping[Profile, int]] = {"change": 60, "full": 1_000, "long": 50_000}
LINE = {"name": "x" * 250, "type": "é" * 250, "total": 0.1}


def recorded(row: Work, outcome: Outcome) -> Ended:
    """What is recorded of `outcome`; it is storable and publishable."""
    attempts = with_attempt(row.attempts, "create", "2027-01-01T00:00:00.000Z", 0.1, outcome)
    evidence = row.evidence.after(outcome, carried(), "2027-01-01T00:00:00.000Z")
    step = Park("cannot_be_checked", "It cannot be searched.") if isinstance(outcome, InDoubt) else None
    push = PushContext(account(), row, outcome=outcome, attempts=attempts, evidence=evidence, step=step, sent=True)
    try:
        ended = decide(push, now=NOW, jitter=0.0)
    except Exception as error:  # noqa: BLE001 - an adapter of another distribution: as the push pipeline does
        fault = Fault("err_1", Where.PUSH, error)
        push.outcome = None
        ended = after_fault(push, fault, now=NOW, push_seconds=30.0, last=True)
    if not isinstance(ended, Ended):
        ended = completed(row, attempts, Status.FAILED, now=NOW, problem=catalogue.DELIVERY_FAILED.problem("Late."))
    message = encode_result(ended.event)
    assert len(message.value) <= MAX_EVENT_BYTES
    assert len(ended.event.written.record) <= MAX_RECORD_BYTES
    for dialect in ("postgresql", "sqlite"):
        assert "\\u0000" not in str(outcome_batch(dialect, [ended]))
    assert all(len(each.detail or "") <= 1000 for each in ended.attempts)
    json.loads(message.value)
    return ended


# --- every kind's adapter -------------------------------------------------------------------------------------------------


def bigger(value: Any, times: int) -> Any:
    """`value` with its texts and lists so many times as long."""
    match value:
        case str() if not value[:1].isdigit() and len(value) > 3 and not value.startswith("rsv_"):
            return value * times
        case list():
            return [bigger(each, times) for each in value] * times
        case dict():
            return {name: bigger(each, times) for name, each in value.items()}
        case _:
            return value


def richer(value: Any, more: Mapping[str, Any]) -> Any:
    """`value` with `more` in each of its objects."""
    if isinstance(value, dict):
        return {**{name: richer(each, more) for name, each in value.items()}, **more}
    return [richer(each, more) for each in value] if isinstance(value, list) else value


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else "deep"


BREAKDOWN: Final = [LINE] * 700
FINANCES: Final = {
    "totalPrice": 10**400,
    "currency": "EUR",
    "fee": {"totalFee": 70, "breakdown": BREAKDOWN},
    "tax": {"totalTax": 70, "breakdown": BREAKDOWN},
}
MUTATIONS: Final[Mapping[str, Any]] = {
    "as it is": lambda body: body,
    "long texts": lambda body: bigger(body, 40),
    "many lines": lambda body: richer(body, {"finances": FINANCES}),
    "many texts": lambda body: richer(
        body,
        {
            "codes": {"accessCode": ["c" * 200] * 3000},
            "notes": "n" * 300_000,
            "primaryGuest": {"name": "g" * 9000, "emails": ["e" * 99] * 2000, "mobileNumbers": ["1" * 99] * 2000},
        },
    ),
    "U+0000": lambda body: richer(body, {"notes": "\0" * 1000, "comments": "a\0b", "source": "\0"}),
    "absurd numbers": lambda body: richer(body, {"totalPrice": 10**4000, "price": 1e308, "total": -(10**300)}),
    "deep": lambda body: richer(body, {"notes": nested(90), "finances": nested(90), "codes": nested(90)}),
    "a long refusal": lambda body: {"code": "c" * 50_000, "detail": "d" * 200_000, "message": "m" * 200_000},
}


class Altering:
    """The simulator, with each JSON answer altered."""

    def __init__(self, app: ASGIApp, mutation: str) -> None:
        self._app = app
        self._mutation = MUTATIONS[mutation]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: MutableMapping[str, Any] = {}
        body = b""

        async def altered(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            try:
                answer = json.dumps(self._mutation(json.loads(body))).encode()
            except ValueError:
                answer = body
            kept = [each for each in start["headers"] if each[0].lower() != b"content-length"]
            start["headers"] = [*kept, (b"content-length", str(len(answer)).encode())]
            await send(start)
            await send({"type": "http.response.body", "body": answer})

        await self._app(scope, receive, altered)


@for_each(("kind", "mutation"), some(list(product(PATHS, MUTATIONS)), 3))
async def test_what_is_recorded_of_any_answer_can_be_published(kind: str, mutation: str) -> None:
    clock = SystemClock()
    with World(clock) as world:
        async with served(Altering(simulator_app(world), mutation)) as url, open_directory(clock) as directory:
            base_url = f"{url}/acme/{PATHS[kind]}"
            pms = directory.connect(
                AccountConnection("acc", kind, base_url, "key:secret", options=OPTIONS.get(kind, {}))
            )
            created = await pms.create(booking())
            found: LookupOutcome = await pms.find(booking()) if pms.capabilities.find_by_reference else created  # type: ignore[assignment]
    if mutation == "as it is" and kind != "smoobu":  # its simulator lets in a key pair of its own alone
        assert isinstance(created, Confirmed)
    for outcome in (created, found):
        if isinstance(outcome, Confirmed | Rejected | Deferred | InDoubt):
            recorded(work(), outcome)


# --- and adapters of other distributions ------------------------------------------------------------------------------------

texts = st.text(alphabet=st.characters() | st.sampled_from('\0\ud800\udfff\U0001f600\\"'), max_size=40)
numbers = st.integers() | st.floats() | st.sampled_from([10**400, -(10**40), float("nan"), float("inf")])
json_like = st.recursive(
    st.none()
    | st.booleans()
    | numbers
    | texts
    | texts.map(lambda text: text * 3_000)
    | texts.map(lambda text: [text] * 900),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(["source", "codes", "notes", "paymentUrl", "finances", "totalPrice", "primaryGuest", "other"])


@lives(LIVES)
@given(st.dictionaries(names, json_like), texts, st.booleans())
def test_whatever_an_adapter_returns_can_be_published(given: dict[str, Any], words: str, shaped: bool) -> None:
    if "finances" in given and not isinstance(given["finances"], dict):
        del given["finances"]
    recorded(work(), Confirmed((words or "1") * 500, record_fields(given) if shaped else given))
    recorded(work(), Rejected(catalogue.PMS_REFUSED.problem(words * 50_000)))
    recorded(work(), InDoubt(words * 1000, words * 50_000))
    recorded(work(), Deferred("card_gone", words * 50_000))


@lives(LIVES)
@given(json_like, st.sampled_from([100, 1_000, 20_000]))
def test_what_is_bounded_is_written_within_its_bytes(value: Any, most: int) -> None:
    assert len(json.dumps(bounded(value, most), ensure_ascii=False, separators=(",", ":")).encode()) <= most


def test_a_breakdown_that_is_cut_still_adds_up() -> None:
    lines = [{"name": f"Night {number}", "type": "RoomRate", "total": 0.1} for number in range(700)]
    record = record_fields({"finances": {"basePrice": {"totalBasePrice": 70, "breakdown": lines}}})
    kept = record["finances"]["basePrice"]["breakdown"]
    assert (len(kept), kept[-1]) == (200, {"name": "… [501 more]", "type": "Cut", "total": 50.1})
    assert record_fields({"notes": "n" * 20_000})["notes"].endswith("… [cut]")


def test_an_ordinary_record_is_as_it_was() -> None:
    record = {"notes": "Late", "finances": {"totalPaid": 5}, "source": "WEB"}
    ended = recorded(replace(work()), Confirmed("1", record))
    assert {name: ended.event.data["reservation"][name] for name in ("notes", "source")} == {
        "notes": "Late",
        "source": "WEB",
    }
