"""What responses mean under a mapping. Pure. What the mapping does not decide is left to the caller."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_core import from_json

from forwarder.pms import sdk
from forwarder.pms.fields import as_text
from forwarder.pms.mapping.model import PmsMapping
from forwarder.pms.mapping.operations import MappedOperation, Pages
from forwarder.pms.mapping.parts import Rule, Shown
from forwarder.pms.mapping.values import MISSING, same, value_at
from forwarder.pms.port import LOOKS_ALIKE
from forwarder.reservation.request import CURRENCY_DECIMALS

_LINES: Final = {"basePrice": "Room rate", "fee": "Fees", "tax": "Taxes", "discount": "Discounts"}


def body_of(response: sdk.Response) -> Any:
    """The JSON in the body; `MISSING` if it is not JSON."""
    try:
        return from_json(response.json_text, allow_inf_nan=False)
    except ValueError:
        return MISSING


@dataclass(frozen=True, slots=True)
class Answer:
    """A response to an operation. `meaning`: True: it succeeded; a rule: what that says; None: the mapping does not know; False:
    it contradicts itself: `success.when` with a rule or in a status of no success, or a no in a status of success."""

    response: sdk.Response
    body: Any
    meaning: bool | Rule | None


def answer_to(mapping: PmsMapping, operation: MappedOperation, response: sdk.Response) -> Answer:
    body, success = body_of(response), operation.success
    meaning: bool | Rule | None = rule_for(mapping, operation.errors, response, body)
    if success.says(body):
        meaning = meaning is None and response.status_code in success.status
    elif meaning is None and success.passes(response.status_code, body):
        meaning = not sdk.says_no(body)
    return Answer(response, body, meaning)


def rule_for(mapping: PmsMapping, own: Sequence[Rule], response: sdk.Response, body: Any) -> Rule | None:
    """The first rule that applies: of an operation's own, then of those for all operations."""
    status, said = response.status_code, words(mapping, body)
    general = mapping.errors if mapping.failure.passes(status, body) else ()
    return next((rule for rule in (*own, *general) if rule.applies(status, body, said)), None)


@dataclass(frozen=True, slots=True)
class Tentative:
    """A reservation that is made under that id, and to be confirmed."""

    pms_id: str


def made(mapping: PmsMapping, answer: Answer, booking: sdk.Booking) -> sdk.Outcome | Tentative:
    """What a create that succeeded made. Without an id, or if it shows another's reservation, it is in doubt."""
    shown, create, response = mapping.reservation, mapping.create, answer.response
    item = value_at(answer.body, create.reservation)
    pms_id = id_of(shown, item) if create.id is None else id_of(shown, answer.body, create.id)
    if pms_id is None or not may_be_ours(mapping, item, booking):
        return sdk.not_understood(response, pms_id)
    shows_state = shown.status is not None and isinstance(value_at(item, shown.status.path), str)
    if create.id is not None and not shows_state:
        return confirmed(mapping, pms_id, item, booking) if mapping.confirm is None else Tentative(pms_id)
    if (standing := _standing(mapping, pms_id, item, booking)) is not None:
        return standing
    if state_of(shown, item) == "cancelled":
        return sdk.refusal(booking, "pms_refused", words(mapping, answer.body) or "The PMS made it as a refused one.")
    return sdk.not_understood(response, sdk.identifier(value_at(item, shown.id)))


def id_of(shown: Shown, item: Any, path: str | None = None) -> str | None:
    """The PMS's id in a reservation that it shows, or at `path`; None if there is none."""
    value = value_at(item, shown.id if path is None else path)
    return sdk.identifier(value) if shown.ids == "any" or (isinstance(value, int) and value > 0) else None


def _standing(mapping: PmsMapping, pms_id: str, shown: Any, booking: sdk.Booking) -> sdk.Confirmed | Tentative | None:
    state, says_nothing = state_of(mapping.reservation, shown), mapping.reservation.status is None
    if state == "tentative" or (state == "confirmed" and says_nothing and mapping.confirm is not None):
        return Tentative(pms_id)
    return confirmed(mapping, pms_id, shown, booking) if state == "confirmed" else None


def is_ours(mapping: PmsMapping, item: Any, booking: sdk.Booking) -> bool:
    """Whether a reservation in a list is ours by `find.match`; by stay: whether it may be."""
    shown = mapping.reservation
    if mapping.finds_by_stay:
        return _is_alike(shown, item, booking)
    return sdk.is_reference(value_at(item, shown.reference), booking.reference) or has_our_id(shown, item, booking)


def has_our_id(shown: Shown, item: Any, booking: sdk.Booking) -> bool:
    """Whether it has the id that our create was answered with, is of the same stay, and carries nobody else's reference."""
    return (
        booking.pms_id is not None
        and sdk.identifier(value_at(item, shown.id)) == booking.pms_id
        and not _names_another(value_at(item, shown.reference), booking)
        and not _contradicts(shown, item, booking)
    )


def _may_have_lost_its_reference(shown: Shown, item: Any, booking: sdk.Booking) -> bool:
    """Whether a reservation has the same days and guest, or shows neither guest nor reference, and is not known to be another's."""
    if None in (shown.arrival, shown.departure, shown.email):
        return False
    email, reference = value_at(item, shown.email), value_at(item, shown.reference)
    no_email = not (isinstance(email, str) and email.strip())
    return (
        not (no_email and reference and booking.guest.get("email"))
        and _is_alike(shown, item, booking)
        and not _names_another(reference, booking)
        and state_of(shown, item) != "cancelled"
    )


def inconclusive(
    mapping: PmsMapping, items: Sequence[Any], known: AbstractSet[str | None], booking: sdk.Booking
) -> sdk.Deferred | None:
    """Why no page can prove ours absent, after one with `items`; `known`: the ids on earlier pages."""
    shown, ids = mapping.reservation, [id_of(mapping.reservation, item) for item in items]
    known_by = shown.email if mapping.finds_by_stay else shown.reference
    dates = (shown.arrival, shown.departure) if mapping.finds_by_stay else ()
    for item in items:
        if value_at(item, known_by) is MISSING or None in [shown.day(value_at(item, path)) for path in dates]:
            return sdk.Deferred("pms_scope_too_small", "The PMS shows reservations without what ours is known by.")
    if alike := [item for item in items if _may_have_lost_its_reference(shown, item, booking)]:
        return _looks_alike([id_of(shown, item) for item in alike])
    if ids and known >= set(ids):
        return sdk.Deferred("pms_answer_not_understood", "The PMS lists the same reservations on several pages.")
    return None


def page_after(
    pages: Pages, body: Any, last_id: str | None, number: int, seen: int, count: int | None
) -> str | sdk.Absent | sdk.Deferred:
    """What the next request names, or `end_of_list`. `number`, `seen`: pages and reservations so far; `last_id`: on this page."""
    unclear = sdk.Deferred("pms_answer_not_understood", "Where the PMS's list ends is not clear.")
    if pages.by == "cursor":
        cursor = value_at(body, pages.next)
        if cursor is True or isinstance(cursor, float | dict | list):
            return unclear
        is_one = isinstance(cursor, str | int) and cursor is not False and str(cursor)
        return str(cursor) if is_one else end_of_list(body, seen)
    read, more = number if pages.by == "page" else seen, value_at(body, pages.more)
    if pages.more is None:
        if last_id is None and count is not None and read < count:
            return unclear
        more = last_id is not None and read != count
    elif not isinstance(more, bool) or (more and last_id is None and pages.by == "lastId"):
        return unclear
    if not more:
        return end_of_list(body, seen)
    return {"offset": str(seen), "lastId": last_id or ""}.get(pages.by, str(pages.first + number))


def end_of_list(body: Any, seen: int) -> sdk.Absent | sdk.Deferred:
    """`Absent`, unless the last page counts more than the `seen` reservations, or says that more follow, under usual names."""
    places = [body, *(body.get(name) for name in ("meta", "pagination", "paging"))] if isinstance(body, dict) else []
    more = ("hasMore", "has_more", "hasNext", "has_next", "hasNextPage", "has_next_page")
    counts = "total count totalCount total_count totalItems total_items totalResults total_results".split()
    for said in sdk.objects(places):
        counted = max(sdk.decimal(said.get(name)) or 0 for name in counts)
        if counted > seen or any(said.get(name) is True for name in more):
            detail = "The PMS says that there are more reservations than it lists."
            return sdk.Deferred("pms_answer_not_understood", detail)
    return sdk.Absent()


def found_among(
    mapping: PmsMapping, ours: Sequence[Any], response: sdk.Response, booking: sdk.Booking
) -> sdk.LookupOutcome | Tentative:
    """What became of ours, of which there is at least one."""
    shown, ids = mapping.reservation, [id_of(mapping.reservation, item) for item in ours]
    if mapping.finds_by_stay:
        if booking.pms_id not in ids:
            return _looks_alike(ids)
        ours, ids = [ours[ids.index(booking.pms_id)]], [booking.pms_id]
    states = {state_of(shown, item): item for item in ours}
    there = ("confirmed", "tentative")
    held = {one: item for one, item in zip(ids, ours, strict=True) if one and state_of(shown, item) in there}
    if held:
        pms_id = min(held, key=lambda one: state_of(shown, held[one]) != "confirmed")
        standing = _standing(mapping, pms_id, held[pms_id], booking) or sdk.harmless(sdk.not_understood(response))
        doubles = tuple(other for other in held if other != pms_id)
        return replace(standing, doubles=doubles) if isinstance(standing, sdk.Confirmed) else standing
    if states.keys() == {"cancelled"}:
        return sdk.Deferred(sdk.CANCELLED_IN_PMS, "The PMS made the reservation, and it was cancelled there since.")
    if "" not in states:
        return sdk.harmless(sdk.not_understood(response))
    word = value_at(states[""], None if shown.status is None else shown.status.path)
    said = sdk.discreet(word, booking) if isinstance(word, str) else "none"
    detail = f"The PMS holds the reservation, but not as a confirmed one. Its status: {said}"
    return sdk.Deferred("pms_still_working", detail)


def _looks_alike(ids: Sequence[str | None]) -> sdk.Deferred:
    """The outcome of a look-up that found reservations which may be ours."""
    named = ", ".join(pms_id for pms_id in ids if pms_id is not None) or "without an id"
    alike = f"The PMS shows a reservation of the same property, days and guest ({named})"
    unknown = "and keeps no reference that could tell whether it is this one. Look at it there, and settle it."
    return sdk.Deferred(LOOKS_ALIKE, f"{alike}, {unknown}")


def words(mapping: PmsMapping, body: Any) -> str:
    """The PMS's own reason for a refusal; empty if it gives none."""
    said = (value_at(body, path) for path in mapping.message)
    return next((text.strip() for text in said if isinstance(text, str) and text.strip()), "")


def may_be_ours(mapping: PmsMapping, item: Any, booking: sdk.Booking) -> bool:
    """Whether nothing that is shown of a reservation proves that it is another's."""
    shown, reference = mapping.reservation, value_at(item, mapping.reservation.reference)
    in_text = mapping.find is not None and mapping.find.match == "text"
    ours = sdk.is_reference(reference, booking.reference) or (in_text and not _names_another(reference, booking))
    if reference not in (MISSING, None, "") and not ours:
        return False
    for path, asked in ((shown.property, booking.property_id), (shown.room, booking.room_id)):
        seen = value_at(item, path)
        if isinstance(seen, int | str) and str(seen) != asked:
            return False
    return not _contradicts(shown, item, booking)


def _contradicts(shown: Shown, item: Any, booking: sdk.Booking) -> bool:
    named = {"arrival": shown.arrival, "departure": shown.departure, "price": shown.price, "email": shown.email}
    values = {name: value_at(item, path) for name, path in named.items() if path is not None}
    for name in values.keys() & {"arrival", "departure"}:
        asked = booking.fields[f"{name}Date"]
        values[name] = asked if shown.may_be(values[name], asked) else shown.day(values[name])
    if "price" in values:
        values["price"] = _in_currency(values["price"], _decimals(shown, item, booking.currency))
    return sdk.Echo("arrival", "departure", "price", "email").contradicts(values, booking)


def _names_another(text: Any, booking: sdk.Booking) -> bool:
    return isinstance(text, str) and sdk.names_another(text, booking.reference)


def _is_alike(shown: Shown, item: Any, booking: sdk.Booking) -> bool:
    """Whether the days are the same, and the guest if the PMS shows one."""
    for path, asked in ((shown.arrival, "arrivalDate"), (shown.departure, "departureDate")):
        if not shown.may_be(value_at(item, path), booking.fields[asked]):
            return False
    emails = (value_at(item, shown.email), booking.guest.get("email"))
    return len({one.strip().casefold() for one in emails if isinstance(one, str) and one.strip()}) < 2  # noqa: PLR2004


def state_of(shown: Shown, item: Any) -> str:
    """confirmed, tentative or cancelled; empty for a word that the mapping does not know. Confirmed if it knows none."""
    states = shown.status
    if states is None:
        return "confirmed"
    if any(same(value_at(item, path), value) for path, value in states.cancelled_when.items()):
        return "cancelled"
    word = value_at(item, states.path)
    if word in (MISSING, None):
        return states.missing or ""
    return "" if isinstance(word, dict | list) else states.meant_by(as_text(word))


def confirmed(mapping: PmsMapping, pms_id: str, item: Any, booking: sdk.Booking) -> sdk.Confirmed:
    """Under that id, and whether what is shown names our reference."""
    shown = value_at(item, mapping.reservation.reference)
    return sdk.Confirmed(pms_id, named=sdk.is_reference(shown, booking.reference))


def record_of(shown: Shown, item: Any, asked_currency: str | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    finances: dict[str, Any] = {}
    decimals = _decimals(shown, item, asked_currency)
    for name, path in shown.record.items():
        value, last = value_at(item, path), name.removeprefix("finances.")
        part = finances if last != name else fields
        if last in {"totalPrice", "totalPaid", "remainingBalance", *_LINES} and value is not MISSING:
            value = _in_currency(value, decimals)
            if last in _LINES and (exact := sdk.decimal(value)) is not None:
                value = sdk.price_part(last, [(_LINES[last], exact)] if exact else [], exact)
        part[last] = None if value is MISSING else value
    if (code := fields.pop("accessCode", None)) is not None:
        fields["codes"] = {"accessCode": code if isinstance(code, list) else [str(code)]}
    record = sdk.record_fields(fields | {"finances": finances})
    return record if record.get("finances") else {name: value for name, value in record.items() if name != "finances"}


def _decimals(shown: Shown, item: Any, asked_currency: str | None) -> int | None:
    """How many of an amount's last digits are cents; None if its currency is not known."""
    if shown.amounts == "asTheyAre":
        return 0
    path = shown.record.get("currency") or shown.record.get("finances.currency")
    currency = asked_currency if path is None else value_at(item, path)
    return CURRENCY_DECIMALS.get(currency) if isinstance(currency, str) else None


def _in_currency(value: Any, decimals: int | None) -> Any:
    """An amount with that many last digits as cents; None if they are not known, or it is no amount."""
    if decimals is None:
        return None
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if (text := sdk.amount(value)) is not None:
        number = sdk.json_number(text)
    exact = sdk.decimal(number) if decimals else None
    return number if exact is None else sdk.json_number(exact.scaleb(-decimals))
