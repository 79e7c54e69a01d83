"""A message of the results topic as a CloudEvent in one JSON object; what is not one says why."""

import pytest

from forwarder.reservation.record import RESULT_TYPES
from forwarder.topics.codec import TEST_MODE, Undecodable, decode_data, structured_event
from forwarder.topics.port import Message
from tools.contracts.messages import result_messages


def test_every_type_of_result_event_is_one() -> None:
    seen = []
    for one in result_messages():
        event = structured_event(one.example)
        headers = {name: value.decode() for name, value in one.example.headers}
        for name in ("specversion", "id", "source", "type", "time", "subject"):
            assert event.pop(name) == headers[f"ce_{name}"]
        assert {name: event.pop(name) for name in ("traceparent", "tracestate")}.items() <= headers.items()
        assert event == {"datacontenttype": "application/json", "data": decode_data(one.example)}
        seen.append(headers["ce_type"])
    assert sorted(seen) == sorted(RESULT_TYPES)


def test_what_an_event_may_lack_is_left_out() -> None:
    needed = tuple((f"ce_{name}", b"1") for name in ("specversion", "id", "source", "type"))
    assert structured_event(Message(b"key", b"{}", needed)) == {
        "specversion": "1",
        "id": "1",
        "source": "1",
        "type": "1",
        "datacontenttype": "application/json",
        "data": {},
    }


def test_what_extends_an_event_is_an_attribute_too() -> None:
    one = result_messages()[0].example
    event = structured_event(Message(one.key, one.value, (*one.headers, TEST_MODE)))
    assert event.pop("test") == "true"
    assert event == structured_event(one)


@pytest.mark.parametrize("lost", ["ce_specversion", "ce_id", "ce_source", "ce_type"])
def test_without_an_attribute_that_every_event_has_it_is_none(lost: str) -> None:
    whole = result_messages()[0].example
    headers = tuple(each for each in whole.headers if each[0] != lost)
    with pytest.raises(Undecodable, match=lost.removeprefix("ce_")):
        structured_event(Message(whole.key, whole.value, headers))


@pytest.mark.parametrize("value", [b"", b"[1]", b'{"open": ', b"\xff"])
def test_without_a_json_object_it_is_none(value: bytes) -> None:
    whole = result_messages()[0].example
    with pytest.raises(Undecodable):
        structured_event(Message(whole.key, value, whole.headers))
