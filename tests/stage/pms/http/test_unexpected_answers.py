"""What an answer means that no adapter decided: by its status, and by when it asks to come again."""

from datetime import UTC, datetime

from forwarder.pms.http.outcomes import unexpected
from forwarder.pms.http.response import MAX_WAIT_SECONDS, Response, retry_after
from forwarder.reservation.outcome import Deferred, InDoubt
from tests.support.cases import for_each

NOW = datetime(2027, 1, 1, 12, 0, tzinfo=UTC)

STATUSES: list[tuple[int, type[Deferred | InDoubt], str]] = [
    (101, InDoubt, "pms_failed"),
    (200, InDoubt, "pms_answer_not_understood"),
    (201, InDoubt, "pms_answer_not_understood"),
    (202, InDoubt, "pms_answer_not_understood"),
    (204, InDoubt, "pms_answer_not_understood"),
    (300, InDoubt, "pms_redirected"),
    (301, InDoubt, "pms_redirected"),
    (302, InDoubt, "pms_redirected"),
    (303, InDoubt, "pms_redirected"),
    (304, InDoubt, "pms_redirected"),
    (307, InDoubt, "pms_redirected"),
    (308, InDoubt, "pms_redirected"),
    (400, Deferred, "pms_refused_request"),
    (401, Deferred, "pms_unauthorized"),
    (403, Deferred, "pms_unauthorized"),
    (404, Deferred, "pms_refused_request"),
    (405, Deferred, "pms_refused_request"),
    (406, InDoubt, "pms_failed"),
    (407, Deferred, "pms_unauthorized"),
    (408, InDoubt, "pms_timed_out_reading"),
    (409, InDoubt, "pms_refused_request"),
    (410, Deferred, "pms_refused_request"),
    (413, Deferred, "pms_refused_request"),
    (415, Deferred, "pms_refused_request"),
    (418, Deferred, "pms_refused_request"),
    (422, Deferred, "pms_refused_request"),
    (424, InDoubt, "pms_failed"),
    (425, Deferred, "pms_refused_request"),
    (429, Deferred, "pms_throttled"),
    (460, InDoubt, "pms_timed_out_reading"),
    (499, InDoubt, "pms_timed_out_reading"),
    (500, InDoubt, "pms_failed"),
    (501, InDoubt, "pms_failed"),
    (502, InDoubt, "pms_failed"),
    (503, InDoubt, "pms_unavailable"),
    (504, InDoubt, "pms_failed"),
    (520, InDoubt, "pms_failed"),
    (599, InDoubt, "pms_failed"),
]


@for_each(("status", "kind", "reason"), STATUSES)
def test_what_a_status_means_that_no_adapter_decided(status: int, kind: type, reason: str) -> None:
    outcome = unexpected(Response(status), NOW)
    assert type(outcome) is kind
    assert outcome.reason == reason
    assert outcome.detail.endswith((".", "?"))


@for_each(
    ("header", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("1.5", 1.5),
        (" 7 ", 7.0),
        ("-5", 0.0),
        ("99999999999999999999", MAX_WAIT_SECONDS),
        ("Fri, 01 Jan 2027 12:02:00 GMT", 120.0),
        ("Fri, 01 Jan 2027 12:02:00 -0000", 120.0),
        ("Fri, 01 Jan 2027 11:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_WAIT_SECONDS),
        ("", None),
        ("soon", None),
        ("inf", None),
        ("nan", None),
        ("Fri, 99 Foo 2027", None),
    ],
)
def test_when_a_pms_asks_to_come_again(header: str, seconds: float | None) -> None:
    for status in (413, 423, 425, 429, 503):
        outcome = unexpected(Response(status, [(b"Retry-After", header.encode())]), NOW)
        assert isinstance(outcome, InDoubt if status == 503 else Deferred)
        assert outcome.retry_after_seconds == seconds


def test_of_several_wishes_the_first_counts() -> None:
    twice = [(b"Retry-After", b"5"), (b"Retry-After", b"60")]
    assert retry_after(Response(503, twice), NOW) == 5.0
    assert retry_after(Response(503), NOW) is None
