"""Messages, lists' parameters and mapping files, whatever they hold: read, or refused by the error that is expected."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from forwarder.notifier.posting import decode_event
from forwarder.pms.kinds.generic import GenericOptions
from forwarder.pms.mapping.document import read_document
from forwarder.pms.mapping.values import is_path, value_at
from forwarder.query.routes import PageRequest, read_page_request
from forwarder.reservation.request import SealedCard
from forwarder.topics.codec import (
    Undecodable,
    decode_cancellation,
    decode_data,
    decode_submission,
    encode_cancellation,
    replay_revision,
)
from forwarder.topics.port import Message
from tests.support.log.foreign_messages import foreign_to
from tests.support.pms.kinds.mapped import CLOUDBEDS_LIKE, LODGIFY_LIKE
from tests.support.profile import Profile, lives
from tests.support.worker.worker_bench import cancellation, fresh, message_of
from tools.contracts.messages import result_messages

LIVES: Final[Mapping[Profile, int]] = {"change": 25, "full": 4_000, "long": 100_000}
MAPPINGS: Final = [read_document(CLOUDBEDS_LIKE)[0], read_document(LODGIFY_LIKE)[0]]

leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.sampled_from(["a..b", "/{x}"])
)
documents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
messages = foreign_to(
    lambda: message_of(fresh(1, numberOfGuests=2, notes="é")),
    lambda: message_of(replace(fresh(2), card=SealedCard("key-1", "c2VhbGVk"))),
    lambda: encode_cancellation(cancellation(3)),
    lambda: result_messages()[0].example,
)


def spoilt(document: Any, path: list[int], leaf: Any) -> Any:
    """`document` with something else somewhere."""
    if not path or not isinstance(document, dict | list) or not document:
        return leaf
    if isinstance(document, list):
        place = path[0] % len(document)
        return [spoilt(each, path[1:], leaf) if at == place else each for at, each in enumerate(document)]
    name = sorted(document)[path[0] % len(document)]
    return {**document, name: spoilt(document[name], path[1:], leaf)}


def _replayed(message: Message) -> object:
    return replay_revision(message, decode_submission(message))


READERS: Final[list[Callable[[Message], object]]] = [
    decode_submission,
    decode_cancellation,
    decode_data,
    decode_event,
    _replayed,
]


@lives(LIVES)
@given(messages)
def test_a_message_is_read_or_undecodable(message: Message) -> None:
    for read in READERS:
        with suppress(Undecodable):
            read(message)


NAMES: Final = tuple(
    "limit cursor cursors order status propertyId arrivalFrom arrivalTo departureFrom departureTo updatedSince x".split()
)
values = st.text(max_size=24) | st.sampled_from(
    ["", "0", "-1", "1", "9" * 30, "٣", "2027-02-30", "9999-12-31T23:59:59-12:00"]
)


@lives(LIVES)
@given(st.dictionaries(st.sampled_from(NAMES), st.lists(values, min_size=1, max_size=3), max_size=5))
def test_a_lists_parameters_are_a_page_or_a_problem(parameters: dict[str, list[str]]) -> None:
    read = read_page_request(parameters)
    if not isinstance(read, PageRequest):
        assert read.status == 400
        assert read.faults


@lives(LIVES)
@given(st.sampled_from(MAPPINGS), st.lists(st.integers(0, 40), max_size=5), documents)
def test_a_mapping_is_one_or_its_faults_are_named(mapping: dict[str, Any], path: list[int], leaf: Any) -> None:
    with suppress(ValidationError):
        GenericOptions.model_validate({"mapping": spoilt(mapping, path, leaf)})


@lives(LIVES)
@given(
    st.text(max_size=60) | st.sampled_from([CLOUDBEDS_LIKE, LODGIFY_LIKE]), st.integers(0, 3000), st.text(max_size=3)
)
def test_a_mapping_file_is_one_or_its_faults_are_named(text: str, place: int, typed: str) -> None:
    at = place % (len(text) + 1)
    with suppress(ValidationError):
        GenericOptions.model_validate({"mapping": text[:at] + typed + text[at + 1 :]})


@lives(LIVES)
@given(documents, st.text(alphabet="a0.[]*'\"\\ é", max_size=12))
def test_a_path_leads_somewhere_or_nowhere(document: Any, path: str) -> None:
    if is_path(path):
        value_at(document, path)
