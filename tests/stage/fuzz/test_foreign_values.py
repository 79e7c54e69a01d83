"""Every parser of what others write, by itself: it understands a value or says that it does not, and raises nothing else.

Parsers are found, not listed, where their form shows what they read: each public function of `parsing` and `fields`, and each
function of a PMS's adapter that reads a response. A new parser without values to try fails a test, and so does a module that reads
dates its own way without being named here.
"""

import ast
import importlib
import inspect
import json
import math
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forwarder.pms.kinds
from forwarder.console.responses import moment_of
from forwarder.http import parameters
from forwarder.http.parameters import MAX_RETRY_AFTER, Wait
from forwarder.notifier.posting import next_try
from forwarder.pms.http import outcomes, response
from forwarder.pms.http.response import MAX_WAIT_SECONDS, Response
from forwarder.pms.mapping import response as mapping_response
from forwarder.pms.mapping.values import DoesNotFit, written
from forwarder.pms.responses import Echo, amount, identifier, record_fields
from forwarder.reservation import parsing
from forwarder.reservation.booking import Booking
from forwarder.reservation.problems import FieldFault
from reservation_forwarder_client.problems import retry_after as client_retry_after
from reservation_forwarder_client.webhooks import WebhookInvalid, verify_webhook
from reservation_forwarder_client.wire import Malformed, members_of
from tests.support.cases import for_each
from tests.support.pms.kinds.mapped import LODGIFY_LIKE, mapping_of
from tests.support.profile import Profile, lives
from tests.support.simulator.server import booking

LIVES: Final[Mapping[Profile, int]] = {"change": 10, "full": 5_000, "long": 100_000}
PACKAGE: Final = Path(forwarder.pms.kinds.__file__).parents[3]
NOW: Final = datetime(2027, 1, 1, tzinfo=UTC)
OURS: Final = booking()

TEXTS: Final = (
    *(
        "",
        " ",
        ",",
        "-",
        "+",
        ".",
        "\0",
        "\ud83d",
        "²",
        "٣",
        "1_0",
        "0x10",
        "nan",
        "NaN",
        "inf",
        "-Infinity",
        "true",
        "null",
        "-0",
    ),
    *(
        "0",
        "1",
        "-1",
        "1.5",
        "1e308",
        "1e309",
        "1e999999999",
        "-1e999999999",
        "0e999999999",
        "1e-999999999",
        "sNaN",
        "1e9999999999999999",
    ),
    *("9" * 20, "9" * 400, "9" * 5_000, "0" * 5_000, "-" + "9" * 5_000, "0." + "3" * 5_000, str(2**63), str(2**64)),
    *(
        "2027-01-01",
        "0001-01-01",
        "9999-12-31",
        "2027-02-30",
        "2027-W01-1",
        "20270101",
        "0000-00-00",
        "\uff12\uff10\uff12\uff17-01-01",
    ),
    *(
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "2027-01-01T00:00:00+99:99",
        "2027-01-01T24:00:00Z",
        "2027-01-01T00:00:60Z",
    ),
    "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
    "Mon, 99999999999999999999 Jan 2027 00:00:00 GMT",
    "Mon, 01 Jan 2027 00:00:00 +99999999999999999999",
    "Mon, 01 Jan 2027 00:00:00 +9999",
    "Fri, 31 Dec 9999 23:59:59 -2359",
    "Mon, 01 Jan 0001 00:00:00 +2359",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "Sun Nov  6 08:49:37 1994",
    "Mon, 01 Jan 2027 99:99:99 GMT",
    *(
        "http://[",
        "http://[::1",
        "//[",
        "?a=%",
        "/%zz",
        "http://a:99999999/",
        "http://\u2100/",
        "https://pms.test:x/",
        "%ff%fe",
        "\r\nx: y",
    ),
    *(
        '"default";r=0;t=30',
        '"a";r=0;t=' + "9" * 30,
        "application/json; charset=zip",
        "a/b;charset=undefined",
        "a/b;charset=utf-16",
    ),
    *(
        "a/b;charset=" + "x" * 100,
        "application/json; charset=ISO-8859-1",
        "wait=5",
        'wait="5',
        "wait=" + "9" * 400,
        "respond-async;;,,=,",
    ),
)
texts = st.sampled_from(TEXTS) | st.text(max_size=20) | st.lists(st.sampled_from(TEXTS), max_size=4).map(" ".join)
header_texts = texts.map(
    lambda text: text.encode("latin-1", "replace").decode("latin-1").translate({10: 32, 13: 32, 0: 32})
)
NUMBERS: Final = (
    0,
    -1,
    2**31,
    2**63,
    2**64,
    10**30,
    10**31,
    10**400,
    -(10**400),
    1.5,
    1e308,
    math.inf,
    -math.inf,
    math.nan,
    True,
    None,
)
RAW: Final = (
    "1e999999999",
    "1e400",
    "NaN",
    "Infinity",
    "9" * 4_000,
    "9" * 5_000,
    "0." + "1" * 5_000,
    "1e99999999999999999999",
    '"\\ud83d"',
)
"""JSON that `json.dumps` does not write."""


def values(names: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """JSON of any depth, with these names."""
    leaf = texts | st.sampled_from(NUMBERS) | st.sampled_from([OURS.reference, OURS.property_id, "confirmed", 17])
    return st.recursive(
        leaf, lambda part: st.lists(part, max_size=3) | st.dictionaries(names, part, max_size=6), max_leaves=12
    )


def headers_of() -> st.SearchStrategy[list[tuple[bytes, bytes]]]:
    names = ["retry-after", "ratelimit", "x-total-pages", "content-type", "content-length", "location", "link", "date"]
    names += ["ratelimit-remaining", "ratelimit-reset", "x-ratelimit-remaining", "x-ratelimit-reset"]
    pairs = st.tuples(st.sampled_from(names), header_texts)
    return st.lists(pairs.map(lambda pair: (pair[0].encode(), pair[1].encode("latin-1"))), max_size=4)


@st.composite
def responses(draw: st.DrawFn, names: st.SearchStrategy[str]) -> Response:
    body = json.dumps(draw(values(names)), ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    match draw(st.integers(0, 8)):
        case 0:
            body = b"\xef\xbb\xbf" + body
        case 1:
            body = draw(st.binary(max_size=40))
        case 2:
            body = body.replace(b'"', draw(st.sampled_from(RAW)).encode(), draw(st.integers(0, 4)))
        case 3:
            body = body.replace(b"17", draw(st.sampled_from(RAW)).encode())
        case 4:
            body = draw(st.sampled_from([b"[", b'{"a":'])) * 100_000
        case 5:
            body = body.decode("utf-8", "replace").encode("latin-1", "replace")
        case 6:
            body = body.decode("utf-8", "replace").encode("utf-16")
    return Response(draw(st.sampled_from([200, 201, 400, 404, 429, 503])), draw(headers_of()), body)


# --- numbers, days, moments and header fields ---

anything = texts | values(texts) | st.sampled_from([Decimal("sNaN"), Decimal("1e999999"), b"1", object])
ARGUMENTS: Final[Mapping[str, tuple[st.SearchStrategy[Any], ...]]] = {
    "whole_number": (texts,),
    "number": (texts,),
    "decimal": (anything,),
    "day": (anything,),
    "moment": (anything,),
    "unix_moment": (st.floats() | st.integers(),),
    "days_later": (st.dates(), st.integers(-(10**12), 10**12)),
    "http_date": (texts,),
    "read_wait": (texts, st.just(Wait(0)), st.just(60)),
    "read_retry_after": (texts, st.datetimes(timezones=st.just(UTC))),
    "charset_of": (texts,),
    "is_digits": (texts,),
    "positive": (texts, st.just(2**53)),
}


def functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, each in vars(module).items():
        if inspect.isfunction(each) and each.__module__ == module.__name__ and not name.startswith("_"):
            yield name, each


def of_a_text(parser: Callable[..., Any]) -> bool:
    signature = inspect.signature(parser)
    return next(iter(signature.parameters.values())).annotation is str and signature.return_annotation is not FieldFault


OF_CALLERS: Final = [(name, each) for name, each in functions(parameters) if of_a_text(each)]
PARSERS: Final = dict([*functions(parsing), *OF_CALLERS])


def test_every_parser_has_values_to_be_tried_with() -> None:
    assert PARSERS.keys() == ARGUMENTS.keys()


@for_each("name", ARGUMENTS)
def test_a_parser_understands_a_value_or_says_that_it_does_not(name: str) -> None:
    @lives(LIVES)
    @given(st.tuples(*ARGUMENTS[name]))
    def tried(arguments: tuple[Any, ...]) -> None:
        match PARSERS[name](*arguments):
            case Decimal() as exact:
                assert len(format(exact, "f")) < 10_000, "short enough to be written in any form"
            case float() as found:
                assert math.isfinite(found)
            case datetime() as found:
                assert found.utcoffset() == NOW.utcoffset()
            case int() as found:
                assert found < 10**18
            case Wait(seconds=seconds):
                assert 0 <= seconds <= 60
            case str() as codec:
                assert isinstance(b"\xff".decode(codec, "replace"), str)
            case found:
                assert found is None or isinstance(found, date)

    tried()


@for_each(
    ("text", "seconds"),
    [
        ("Fri, 01 Jan 2027 00:02:00 GMT", 120),
        ("Friday, 01-Jan-27 00:02:00 GMT", 120),
        ("Fri Jan  1 00:02:00 2027", 120),
        ("Fri, 01 Jan 2027 01:02:00 +0100", 120),
        ("Thursday, 31-Dec-98 23:59:00 GMT", -883612860),
        ("9" * 6_000, MAX_RETRY_AFTER),
        ("1" + "0" * 300, MAX_RETRY_AFTER),
        ("0" * 6_000, 0),
    ],
)
def test_retry_after_is_read_in_every_form_of_rfc_9110(text: str, seconds: float) -> None:
    assert parameters.read_retry_after(text, NOW) == seconds


@lives(LIVES)
@given(
    st.floats(allow_nan=False) | st.none(),
    st.datetimes(timezones=st.just(UTC)).filter(lambda each: 1970 < each.year < 9998),
)
def test_a_delivery_is_put_off_by_no_more_than_is_planned_however_long_it_is_asked_for(
    asked: float | None, now: datetime
) -> None:
    due = next_try(1, retrying_since=now, now=now, retry_after_seconds=asked, jitter=0.5)
    assert due is not None
    assert now < due


# --- what a PMS answers ---

SCALARS: Final[Mapping[Any, Any]] = {datetime: NOW, int: 1, str: "apiReference", Booking: OURS}


def reading_functions() -> Iterator[tuple[str, ModuleType, Callable[..., Any], tuple[Any, ...]]]:
    """The functions of the PMSs' adapters that read a response, with the rest of their arguments."""
    kinds = pkgutil.walk_packages(forwarder.pms.kinds.__path__, "forwarder.pms.kinds.")
    for module in (response, outcomes, mapping_response, *(importlib.import_module(each.name) for each in kinds)):
        for name, function in vars(module).items():
            if not inspect.isfunction(function) or function.__module__ != module.__name__:
                continue
            first, *others = [each.annotation for each in inspect.signature(function).parameters.values()] or [None]
            if first is Response and all(each in SCALARS for each in others):
                yield f"{module.__name__}.{name}", module, function, tuple(SCALARS[each] for each in others)


READING: Final = {name: (module, function, others) for name, module, function, others in reading_functions()}


def words_in(module: ModuleType) -> list[str]:
    """The names that a module knows of a vendor's answers."""
    tree = ast.parse(inspect.getsource(module))
    said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    said |= {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return sorted(word for word in said if word.isidentifier() and len(word) < 40)


@for_each("name", READING)
def test_an_answer_is_read_or_not_understood(name: str) -> None:
    module, function, others = READING[name]
    returned = inspect.signature(function).return_annotation

    @lives(LIVES)
    @given(responses(st.sampled_from(words_in(module) or ["id"])))
    def tried(answer: Response) -> None:
        match function(answer, *others):
            case list() as shown:
                for each in shown:
                    with suppress(AttributeError):
                        each.record()
                        each.may_be(OURS)
                        each.may_be_on(OURS)
            case float() as seconds if returned is not Any:  # any JSON, such as a number, is a body
                assert 0 <= seconds <= MAX_WAIT_SECONDS

    tried()


@lives(LIVES)
@given(values(texts), values(texts))
def test_what_is_shown_of_a_reservation_is_kept_or_left_out(value: Any, other: Any) -> None:
    exact = amount(value)
    assert exact is None or abs(exact) <= 10**12
    assert identifier(value) is None or isinstance(value, str | int)
    kept = record_fields({"finances": value, "totalPrice": other, "notes": value, "codes": {"accessCode": [other]}})
    json.dumps(kept, allow_nan=False)
    Echo("a", "b", "c", "d").contradicts({"a": value, "b": other, "c": value, "d": other}, OURS)
    for amounts in ("asTheyAre", "minorUnits"):
        mapping = mapping_of(
            LODGIFY_LIKE.replace('id: ""', 'id: "id"').replace("  record:", f"  amounts: {amounts}\n  record:")
        )
        body = {
            "id": 17,
            "status": "Booked",
            "total": value,
            "paid": other,
            "taxes": value,
            "currency": "EUR",
            "notes": other,
        }
        mapping_response.made(mapping, mapping_response.Answer(Response(200), body, True), OURS)


@lives(LIVES)
@given(texts, st.sampled_from(["integer", "number", "text", "minorUnits"]))
def test_a_field_is_written_for_a_pms_or_does_not_fit(text: str, form: Any) -> None:
    with suppress(DoesNotFit):
        assert len(str(written(OURS, "propertyId", text, form, None))) <= 6_000


@for_each(
    ("body", "content_type"),
    [
        (b'\xef\xbb\xbf{"id":"R1","guest":"Jos\xc3\xa9"}', "application/json"),
        (b'{"id":"R1","guest":"Jos\xe9"}', "application/json; charset=ISO-8859-1"),
        (b'{"id":"R1","guest":"Jos\xe9"}', "application/json"),
        (b'{"id":"R1","guest":"A\\ud83d"}', "application/json"),
        (b'{"id":"R1","guest":"A\xed\xa0\xbd"}', "application/json"),
        ('{"id":"R1","guest":"José"}'.encode("utf-16"), "application/json"),
        (b'{"id":"R1","guest":"\\\\ud83d"}', "application/json"),
        (b'{"id":"R1","guest":"\\ud83c\\udfe0"}', "application/json; charset=nonsense"),
    ],
)
def test_a_confirmation_is_understood_whatever_one_of_its_texts_is_encoded_in(body: bytes, content_type: str) -> None:
    answer = Response(201, [(b"Content-Type", content_type.encode())], body)
    for read in (response.read_object, mapping_response.body_of):
        understood: Any = read(answer)
        assert understood["id"] == "R1"
        assert understood["guest"].startswith(("Jos", "A", "\\ud83d", "\U0001f3e0"))


def test_an_identifier_that_came_damaged_is_none() -> None:
    assert identifier("R\ufffd1") is None
    assert [identifier(text) for text in ("", " ", "null", "None", "undefined", "NaN")] == [None] * 6


# --- what the client reads ---


@lives(LIVES)
@given(header_texts, responses(texts))
def test_the_client_raises_only_what_it_documents(text: str, answer: Response) -> None:
    seconds = client_retry_after(httpx.Response(503, headers=[(b"Retry-After", text.encode("latin-1"))]), NOW)
    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER
    with suppress(Malformed):
        members_of(answer.content)


@lives(LIVES)
@given(texts, texts, texts, st.binary(max_size=30))
def test_a_delivery_that_nobody_signed_is_invalid_whatever_its_headers(
    one: str, two: str, three: str, body: bytes
) -> None:
    said = {"webhook-id": one, "webhook-timestamp": two, "webhook-signature": f"v1,{three}"}
    with pytest.raises(WebhookInvalid):
        verify_webhook(body, said, "whsec_c2VjcmV0", now=0.0)


@lives(LIVES)
@given(texts)
def test_a_moment_from_a_browser_is_none_or_in_utc(text: str) -> None:
    found = moment_of(text)
    assert found is None or found >= datetime(1970, 1, 1, tzinfo=UTC)


# --- nobody reads dates in another way ---

OWN_WAYS: Final = {
    "fromisoformat",
    "strptime",
    "parsedate_to_datetime",
    "parsedate_tz",
    "fromtimestamp",
    "utcfromtimestamp",
}
READ_THEIR_OWN: Final = {
    "forwarder/operate/results.py",
    "forwarder/operate/command.py",
    "forwarder/console/responses.py",
    "forwarder/process/certificates.py",
    "forwarder/ingress/publisher.py",
    "forwarder/notifier/posting.py",
    "forwarder/operate/submissions/search.py",
    "forwarder/pms/port.py",
    "forwarder/pms/mapping/values.py",
    "forwarder/pms/mapping/parts.py",
    "forwarder/query/routes.py",
    "forwarder/reservation/booking.py",
    "forwarder/reservation/checks/fields.py",
    "forwarder/reservation/record.py",
    "forwarder/reservation/submission.py",
    "forwarder/store/lists/overview.py",
    "forwarder/store/sql.py",
    "forwarder/tenancy/port.py",
    "forwarder/tenancy/sql/secrets.py",
    "clients/python/reservation_forwarder_client/problems.py",
    "clients/python/reservation_forwarder_client/wire.py",
}
"""Modules that read what the forwarder wrote or has validated, or that refuse what cannot be read in words of their own."""


def test_dates_are_read_in_one_place() -> None:
    found = {
        str(file.relative_to(PACKAGE))
        for root in ("forwarder", "clients/python/reservation_forwarder_client")
        for file in (PACKAGE / root).rglob("*.py")
        if any(way in file.read_text() for way in OWN_WAYS)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in OWN_WAYS
    }
    simulated = {file for file in found if file.startswith("forwarder/simulator/")}
    assert found - simulated == READ_THEIR_OWN | {"forwarder/reservation/parsing.py"}
