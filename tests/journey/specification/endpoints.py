"""Sections 4, 5, 8 and 9: addresses and rules, headers, lists and their pages."""

from collections.abc import Sequence

from tests.journey.specification.requirement import (
    ABSENT,
    BOOKING_ENGINE_PATH,
    CARD,
    GENERAL_PATH,
    LIST_PATH,
    LISTED,
    Answer,
    Call,
    Row,
    a_number,
    a_text,
    accepted,
    arrives,
    at,
    engine,
    general,
    listed,
    many,
    record,
    refused,
    shows,
)

_CARD = CARD | {"expiryYear": "2035"}
_EVERYWHERE = (engine(), general(), listed())


def _without(header: str) -> Sequence[Call]:
    return [call.but(headers={header: ABSENT}) for call in _EVERYWHERE]


def _goes_to_website(answer: Answer) -> None:
    accepted(answer)
    assert answer.pushed_to.endswith("/websites/42/reservations")


def _goes_to_other(answer: Answer) -> None:
    accepted(answer)
    assert answer.pushed_to.startswith("/other/")


def _room_is_the_property(answer: Answer) -> None:
    accepted(answer)
    assert answer.pushed["roomId"] == answer.pushed["propertyId"] == answer.sent["propertyId"]


def _whole(answer: Answer) -> None:
    """Every page but the last has a next one; each begins where that said; together they have everything once."""
    cursors = [at(page, "meta.cursors") for page in answer.body]
    nexts = [each.get("next", "") for each in cursors]
    assert all(nexts[:-1])
    assert not nexts[-1]
    assert [each["current"] for each in cursors] == ["1", *nexts[:-1]]
    assert [each["previous"] for each in cursors] == ["", *(each["current"] for each in cursors[:-1])]
    ids = [each["id"] for page in answer.body for each in page["data"]]
    assert len(ids) == len({*ids}) == LISTED


# fmt: off
BOOKING_ENGINE_ENDPOINT: Sequence[Row] = [
    Row("path", "it is posted to its own address", engine(), accepted),
    Row("charset", "a body of JSON may be declared with its encoding",
        engine().but(headers={"Content-Type": "application/json; charset=utf-8"}), accepted),
    Row("body", "the body is an object", engine().but(content="[]"), refused()),
    Row("rule-1-website", "a website builder takes its website from the payment provider",
        engine({"paymentProviderId": "42"}, account="websites"), _goes_to_website),
    Row("rule-1-number", "also from a number", engine({"paymentProviderId": 42}, account="websites"), _goes_to_website),
    Row("rule-1-float", "however it is written", engine({"paymentProviderId": 42.0}, account="websites"), _goes_to_website),
    Row("rule-1-missing", "without one it is refused", engine({"paymentProviderId": ABSENT}, account="websites"),
        refused("paymentProviderId")),
    Row("rule-2-card", "booking-sync with payment by the PMS takes a card",
        engine({"morChannel": "PMS", "cardDetails": _CARD, "propertyId": 7, "roomId": 7}, account="sync"), accepted),
    Row("rule-2-missing", "without one it is refused",
        engine({"morChannel": "PMS", "propertyId": 7, "roomId": 7}, account="sync"), refused("cardDetails")),
    Row("rule-2-self", "which it needs in no other case",
        engine({"morChannel": "SELF", "propertyId": 7, "roomId": 7}, account="sync"), accepted),
    Row("rule-3-same", "where there are no rooms, the room is the property",
        engine({"propertyId": 8, "roomId": "8"}, account="sync"), accepted),
    Row("rule-3-other", "and no other", engine({"propertyId": 8, "roomId": 9}, account="sync"), refused("roomId")),
    Row("rule-4", "who takes the payment may name its transaction",
        engine({"morChannel": "SELF", "transactionId": "pi_4SELF"}), arrives),
]

GENERAL_ENDPOINT: Sequence[Row] = [
    Row("path", "it is posted to its own address", general(), accepted),
    Row("envelope", "it answers with the record in an envelope", general(), record({"id": a_number, "status": a_text})),
    Row("room-absent", "without a room, it is the property", general({"propertyId": 51, "roomId": ABSENT}),
        _room_is_the_property),
    Row("room-empty", "an empty room is none", general({"propertyId": 53, "roomId": ""}), _room_is_the_property),
    Row("room-same", "which a caller may also say", general({"propertyId": 52, "roomId": 52}), _room_is_the_property),
]

LIST_ENDPOINT: Sequence[Row] = [
    Row("path", "a list has its own address, without a version", listed(), shows({"data": many(10)})),
    Row("path-slash", "with a slash at the end it is the same", listed(path=LIST_PATH + "/"), shows({"data": many(10)})),
    Row("shape", "reservations, and beside them where in the list they are", listed(),
        shows({"data.0.id": a_number, "meta.limit": a_number, "meta.cursors.current": a_text})),
    Row("made", "it has what was made", listed("?limit=200"),
        shows({"data": lambda items: {each["status"] for each in items} >= {"CONFIRMED"} and len(items) >= LISTED})),
    Row("refused", "and not what was refused", listed("?limit=200"), shows({"data": many(LISTED)})),
]

HEADERS: Sequence[Row] = [
    Row("token", "a token is needed everywhere", _without("Authorization"), refused("Authorization")),
    Row("token-known", "one that is known", [call.but(headers={"Authorization": "Bearer made-up"}) for call in _EVERYWHERE],
        refused()),
    Row("token-bearer", "as a bearer's", [call.but(headers={"Authorization": "Basic bWFkZTp1cA=="}) for call in _EVERYWHERE],
        refused("Bearer")),
    Row("workspace", "the workspace is needed everywhere", _without("workspaceId"), refused("workspaceId")),
    Row("workspace-own", "the token's own", [call.but(headers={"workspaceId": "elsewhere"}) for call in _EVERYWHERE],
        refused("workspaceId")),
    Row("account", "the account is needed everywhere", _without("integrationAccountId"), refused("integrationAccountId")),
    Row("account-known", "one of the workspace", [call.but(headers={"integrationAccountId": "nobody"}) for call in _EVERYWHERE],
        refused("integrationAccountId")),
    Row("account-selects", "the account tells which PMS is meant", general(account="other"), _goes_to_other),
]

PAGES: Sequence[Row] = [
    Row("limit-absent", "a page has ten items unless more are wanted", listed(),
        shows({"meta.limit": 10, "data": many(10)})),
    Row("limit-20", "a page has as many as are wanted", listed("?limit=20"), shows({"meta.limit": 20, "data": many(20)})),
    Row("limit-1", "one at the least", listed("?limit=1"), shows({"meta.limit": 1, "data": many(1)})),
    Row("limit-200", "up to two hundred", listed("?limit=200"), shows({"meta.limit": 200})),
    Row("limit-201", "never more", listed("?limit=201"), shows({"meta.limit": 200})),
    Row("cursor-absent", "without a cursor it is the first page, which is 1", listed(), shows({"meta.cursors.current": "1"})),
    Row("cursor-empty", "an empty cursor is none", listed("?cursor="), shows({"meta.cursors.current": "1"})),
    Row("cursor-first", "the first page may be named", listed("?cursor=1"),
        shows({"meta.cursors.current": "1", "meta.cursors.previous": ""})),
    Row("cursor-alias", "the cursor's other name", listed("?cursors=1"), shows({"meta.cursors.current": "1"})),
    Row("previous-first", "before the first page is none", listed(), shows({"meta.cursors.previous": ""})),
    Row("next-text", "the next page's cursor is a text", listed(), shows({"meta.cursors.next": a_text})),
    Row("next-last", "after the last page is none", listed("?limit=200"),
        shows({"meta.cursors": lambda cursors: not cursors.get("next")})),
    Row("follow", "from page to page, everything is read once", listed().but(follow=True), _whole),
    Row("follow-limit", "in pages of any size", listed("?limit=7").but(follow=True), _whole),
]

VERSIONS: Sequence[Row] = [
    Row("creations", "creations carry a version",
        [engine().but(path=BOOKING_ENGINE_PATH), general().but(path=GENERAL_PATH)], accepted),
    Row("lists", "lists may carry it too", listed(path=GENERAL_PATH), shows({"data": many(10)})),
]
# fmt: on
