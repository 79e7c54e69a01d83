"""The adapter for PMSs that a mapping describes, and the kinds that a page describes, with the class that it names, if any."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel, Field, create_model
from pydantic_core import to_json

from forwarder.pms import sdk
from forwarder.pms.accounts import page_text
from forwarder.pms.http.outcomes import is_ambiguous, refused_in_words
from forwarder.pms.mapping import response as answers
from forwarder.pms.mapping.access import Credentials
from forwarder.pms.mapping.document import DocumentFault, load_document
from forwarder.pms.mapping.model import PmsMapping
from forwarder.pms.mapping.operations import Cancel, Find, MappedOperation, Show
from forwarder.pms.mapping.parts import Rule
from forwarder.pms.mapping.request import Asked, Requests, table_of
from forwarder.pms.mapping.values import MISSING, DoesNotFit, assembled, texts_at, value_at
from forwarder.pms.port import REFUSED_IN_WORDS, SEARCH_UNPROVEN
from forwarder.process.loading import load

_NOT_MAPPED: Final = sdk.Deferred("mapping_lacks_it", "The account's mapping does not say how this is asked.")
_MEANINGS: Final = {meaning.name.lower(): meaning for meaning in sdk.Meaning}
_REFUSED_BY_WORDS: Final = {"pms_refused", "room_unavailable"}
_STAND_IN_ID: Final = "THE-PMS-ID"

Failure = sdk.Rejected | sdk.Deferred | sdk.InDoubt
F = TypeVar("F", bound=Failure)


class MappedAdapter:
    """An account of the PMS that `mapping` describes. `settings`: its options; `token_url`: replaces the mapping's."""

    def __init__(
        self,
        connection: sdk.AccountConnection,
        mapping: PmsMapping,
        clock: sdk.Clock,
        settings: Mapping[str, Any] | None = None,
        token_url: str | None = None,
    ) -> None:
        self._settings = mapping.with_defaults(settings or {})
        mapping = self._mapping = self.mapping_for(mapping, self._settings)
        self._requests = Requests(mapping, connection.base_url.rstrip("/"), self._settings)
        self.table, self._clock = self._requests.table, clock
        self.capabilities = mapping.capabilities(self._settings)
        self._auth = next(one for one in mapping.auth if one.only_if.items() <= self._settings.items())
        self._credentials = Credentials(self._auth, connection, clock, ended=self._has_ended, token_url=token_url)

    @property
    def fields(self) -> sdk.FieldTable:
        return self.table

    # --- for kinds with code to override ---

    @staticmethod
    def mapping_for(mapping: PmsMapping, settings: Mapping[str, Any]) -> PmsMapping:  # noqa: ARG004 - a kind's code reads it
        """The mapping of an account with these options, if it depends on them."""
        return mapping

    def record(self, shown: Mapping[str, Any], booking: sdk.Booking) -> dict[str, Any]:
        return answers.record_of(self._mapping.reservation, shown, booking.currency)

    def words(self, body: Any) -> str:
        return answers.words(self._mapping, body)

    def _record(self, outcome: sdk.Confirmed, shown: Any, booking: sdk.Booking) -> sdk.Confirmed:
        return replace(outcome, record=self.record(shown, booking)) if isinstance(shown, dict) else outcome

    async def create(self, booking: sdk.Booking, send: sdk.Send) -> sdk.Outcome:
        create = self._mapping.create
        try:
            request = self._requests.build(create, Asked(booking))
        except DoesNotFit as misfit:
            return self.misfit(misfit, booking)
        if not self._mapping.rooms and booking.room_id != booking.property_id:
            return sdk.refusal(booking, "room_not_found", "The PMS has no rooms below the property.")
        if create.guest is not None:  # it books nothing, so after a failure it is simply tried again
            try:
                answer = await self._ask(create.guest, Asked(booking), send)
            except sdk.NoResponse as failure:
                return sdk.harmless(sdk.outcome_of(failure))
            if answer.meaning is not True:
                failed = self._failed(answer, booking)
                return failed if isinstance(failed, sdk.Rejected) else sdk.harmless(failed)
            guest_id = sdk.identifier(value_at(answer.body, create.guest.id))
            if guest_id is None:
                return sdk.harmless(sdk.not_understood(answer.response))
            request = self._requests.build(create, Asked(booking, guest_id=guest_id))
        outcome = self.read(await self._credentials.send(request, send), booking)
        return await self._confirm(outcome.pms_id, booking, send) if isinstance(outcome, answers.Tentative) else outcome

    def misfit(self, misfit: DoesNotFit, booking: sdk.Booking) -> sdk.Rejected:
        code = {"propertyId": "property_not_found", "roomId": "room_not_found"}.get(misfit.name, "pms_refused")
        return self.refusal(code, str(misfit), booking)

    def read(self, response: sdk.Response, booking: sdk.Booking) -> sdk.Outcome | answers.Tentative:
        answer = answers.answer_to(self._mapping, self._mapping.create, response)
        if answer.meaning is not True:
            return self._failed(answer, booking)
        outcome = answers.made(self._mapping, answer, booking)
        shown = value_at(answer.body, self._mapping.create.reservation)
        return self._record(outcome, shown, booking) if isinstance(outcome, sdk.Confirmed) else outcome

    async def _confirm(self, pms_id: str, booking: sdk.Booking, send: sdk.Send) -> sdk.Outcome:
        """The second request. A reservation exists: anything uncertain is in doubt, and a refusal counts once it is undone."""

        def half_made(why: str) -> sdk.InDoubt:
            detail = f"The PMS made it under the id {pms_id}, and it is not known to be confirmed. {why}"
            return sdk.InDoubt("pms_half_made", detail, made=True, pms_reservation_id=pms_id)

        confirm = self._mapping.confirm
        if confirm is None:
            return half_made("The mapping has no `confirm`.")
        try:
            answer = await self._ask(confirm, Asked(booking, pms_id), send)
            by_rule = answer.meaning.becomes if isinstance(answer.meaning, Rule) else ""
            outcome: sdk.Outcome = sdk.Confirmed(pms_id)
            if by_rule not in ("", "confirmed"):
                outcome = self._failed(answer, booking)
            elif confirm.read_back is not None:
                state, response = await self._read_back(confirm.read_back, Asked(booking, pms_id), send)
                outcome = outcome if state == "confirmed" else sdk.not_understood(response)
            elif not by_rule and answer.meaning is not True:
                outcome = self._failed(answer, booking)
            if isinstance(outcome, sdk.Rejected):
                undone = await self.cancel(booking, pms_id, send)
                return outcome if isinstance(undone, sdk.Cancelled) else half_made("It could not be undone.")
        except (sdk.NotSent, sdk.NoResponse) as failure:
            return half_made(sdk.outcome_of(failure).detail)
        if isinstance(outcome, sdk.InDoubt):
            return replace(outcome, made=True, pms_reservation_id=pms_id)
        return half_made(outcome.detail) if isinstance(outcome, sdk.Deferred) else outcome

    async def _read_back(self, show: Show, asked: Asked, send: sdk.Send) -> tuple[str, sdk.Response]:
        """The state of the reservation that the PMS shows now; empty if it shows none."""
        answer, seen_as, state = await self._ask(show, asked, send), self._mapping.reservation, ""
        if isinstance(answer.meaning, Rule):
            state = answer.meaning.becomes if answer.meaning.becomes in ("cancelled", "absent") else ""
        elif answer.meaning is True:
            shown = value_at(answer.body, show.reservation)
            listed, _, position = show.reservation.rpartition(".")
            if shown is MISSING and position == "0" and value_at(answer.body, listed) == []:
                state = "absent"
            elif isinstance(shown, dict) and shown and answers.id_of(seen_as, shown) in (None, asked.pms_id):
                state = answers.state_of(seen_as, shown)
        return state, answer.response

    async def find(self, booking: sdk.Booking, send: sdk.Send) -> sdk.LookupOutcome:
        mapping, find, shows = self._mapping, self._mapping.find, self._mapping.read_backs
        if find is None:
            return _NOT_MAPPED
        found = await self._search(find, booking, send)
        if isinstance(found, sdk.Absent) and booking.pms_id is not None and shows:
            # By the id that our create was answered with, if it is shown and nothing in it is another's.
            answer = await self._ask(shows[0], Asked(booking, booking.pms_id), send)
            item = value_at(answer.body, shows[0].reservation) if answer.meaning is True else MISSING
            is_ours = answers.has_our_id(mapping.reservation, item, booking)
            if is_ours and answers.state_of(mapping.reservation, item) == "confirmed":
                found = answers.confirmed(mapping, booking.pms_id, item, booking)
        if isinstance(found, sdk.Absent) and not find.empty_proves:
            detail = "The PMS shows no such reservation, and its search may leave some out."
            return sdk.Deferred(SEARCH_UNPROVEN, detail)
        if isinstance(found, sdk.Absent) and not self.capabilities.find_by_reference:
            detail = "With the account's options, the PMS may not show our reference."
            return sdk.Deferred("pms_scope_too_small", detail)
        if not isinstance(found, answers.Tentative):
            return found
        outcome = await self._confirm(found.pms_id, booking, send)
        if isinstance(outcome, sdk.Rejected):  # made, refused in the second step, and undone
            return sdk.Deferred("pms_still_working", "What had been made of it could not be confirmed, and was undone.")
        return outcome if isinstance(outcome, sdk.Confirmed) else sdk.harmless(outcome)

    async def _search(self, find: Find, booking: sdk.Booking, send: sdk.Send) -> sdk.LookupOutcome | answers.Tentative:
        """`Absent` only after an empty list that was filtered by our reference, or after all pages of one that was not."""
        pages, mapping = find.pages, self._mapping
        if pages is None:
            looked = await self._look(find, Asked(booking), send)
            if isinstance(looked, tuple) and looked[0]:
                detail = "The PMS was asked for our reference, and answered with reservations that do not carry it."
                return sdk.Deferred("pms_answer_not_understood", detail)
            return answers.end_of_list(looked[1], 0) if isinstance(looked, tuple) else looked
        first = {"page": str(pages.first), "offset": "0"}.get(pages.by)
        step: str | sdk.Absent | sdk.Deferred | None = None if pages.first_unsaid else first
        known: set[str | None] = set()
        seen, count = 0, None
        unclear: sdk.Deferred | None = None
        for number in range(1, pages.most + 1):
            asked = Asked(booking, page=(pages.query, step) if isinstance(step, str) else None)
            looked = await self._look(find, asked, send)
            if not isinstance(looked, tuple):
                return (unclear or looked) if isinstance(looked, sdk.Absent) else looked
            items, body = looked
            unclear = unclear or answers.inconclusive(mapping, items, known, booking)
            known |= {answers.id_of(mapping.reservation, item) for item in items}
            seen += len(items)
            if number == 1 or pages.by != "lastId":  # by last id, later pages may count only what follows
                shown = value_at(body, pages.count)
                count = shown if isinstance(shown, int) and not isinstance(shown, bool) else None
            last_id = answers.id_of(mapping.reservation, items[-1]) if items else None
            step = answers.page_after(pages, body, last_id, number, seen, count)
            if not isinstance(step, str):
                return unclear or step
        return unclear or sdk.Deferred("pms_lists_too_much", f"The PMS lists more than {pages.most} pages.")

    async def _look(
        self, find: Find, asked: Asked, send: sdk.Send
    ) -> sdk.LookupOutcome | answers.Tentative | tuple[list[Any], Any]:
        """The outcome for ours; or, if it is not among the reservations that are shown, these and the body."""
        answer = await self._ask(find, asked, send)
        mapping, booking, body, response = self._mapping, asked.booking, answer.body, answer.response
        if isinstance(answer.meaning, Rule) and answer.meaning.becomes == "absent":
            return sdk.Absent()
        if answer.meaning is None:
            return sdk.harmless(sdk.unexpected(response, self._clock.now()))
        if answer.meaning is not True:
            failed = self._failed(answer, booking)
            if isinstance(failed, sdk.Rejected):
                return sdk.Deferred("pms_refused_request", f"The PMS does not search. It says: {failed.problem.detail}")
            return sdk.harmless(failed)
        items = value_at(body, find.items)
        if not isinstance(items, list) or None in (ids := [answers.id_of(mapping.reservation, item) for item in items]):
            return sdk.harmless(sdk.not_understood(response))  # anything else than reservations proves nothing
        ours = [item for item in items if answers.is_ours(mapping, item, booking)]
        if not items and any(value_at(body, path) not in (MISSING, None, 0) for path in find.counts):
            return sdk.harmless(sdk.not_understood(response))
        if not ours:
            return items, body
        outcome = answers.found_among(mapping, ours, response, booking)
        if not isinstance(outcome, sdk.Confirmed):
            return outcome
        return self._record(outcome, items[ids.index(outcome.pms_reservation_id)], booking)

    async def cancel(self, booking: sdk.Booking, pms_reservation_id: str, send: sdk.Send) -> sdk.CancelOutcome:
        cancel = self._mapping.cancel
        if cancel is None:
            return _NOT_MAPPED
        asked = Asked(booking, pms_reservation_id)
        answer = await self._ask(cancel, asked, send)
        said = self._said_of_cancelling(cancel, answer, booking)
        if cancel.read_back is None or (isinstance(said, sdk.Deferred) and said.retry_after_seconds):
            return said
        failure = self._mapping.failure
        fails = failure.reads_the_body and failure.passes(answer.response.status_code, answer.body)
        if cancel.read_back.after == "refusal" and not (isinstance(answer.meaning, Rule) or fails):
            return said
        state, shown = await self._read_back(cancel.read_back, asked, send)
        match state:
            case "cancelled":
                return sdk.Cancelled()
            case "absent" if self.capabilities.find_by_reference:
                there = await MappedAdapter.find(self, booking, send)
                if isinstance(there, sdk.Deferred) and there.reason != sdk.CANCELLED_IN_PMS:
                    return there
                gone = isinstance(there, sdk.Absent | sdk.Deferred)
                return sdk.Cancelled() if gone else sdk.harmless(sdk.not_understood(shown))
            case "confirmed" | "tentative" if isinstance(said, sdk.Cancelled):
                detail = "The PMS said that it was cancelled, and shows it as before."
                return sdk.Deferred("pms_answer_not_understood", detail)
            case "confirmed" | "tentative":
                return said
            case _ if isinstance(said, sdk.Rejected):  # a refusal counts only for a reservation that is shown
                detail = "The PMS does not cancel the reservation, and does not show it."
                return sdk.Deferred("pms_refused_request", detail)
            case _ if cancel.read_back.after == "refusal":
                return sdk.harmless(self._put_off_by_status(shown, booking))
            case _:
                return said if not isinstance(said, sdk.Cancelled) else sdk.harmless(sdk.not_understood(shown))

    def _said_of_cancelling(self, cancel: Cancel, answer: answers.Answer, booking: sdk.Booking) -> sdk.CancelOutcome:
        """By the response alone: it shows the reservation as cancelled, or no state of it."""
        if isinstance(answer.meaning, Rule) and answer.meaning.becomes == "cancelled":
            return sdk.Cancelled()
        shown, status = self._mapping.reservation, self._mapping.reservation.status
        if answer.meaning is True:
            item = value_at(answer.body, cancel.reservation)
            if status is None or value_at(item, status.path) is MISSING or answers.state_of(shown, item) == "cancelled":
                return sdk.Cancelled()
        failed = self._failed(answer, booking)
        if isinstance(failed, sdk.Rejected):
            said = self.words(answer.body)
            return sdk.Cancelled() if sdk.cancelled_before(said) else sdk.refusal(booking, "cancellation_refused", said)
        in_words = failed.reason == REFUSED_IN_WORDS and sdk.cancelled_before(failed.detail)
        return sdk.Cancelled() if in_words else sdk.harmless(failed)

    async def _ask(self, operation: MappedOperation, asked: Asked, send: sdk.Send) -> answers.Answer:
        try:
            request = self._requests.build(operation, asked)
        except DoesNotFit as misfit:  # it was made under another mapping
            raise sdk.NotSent("mapping_does_not_fit", str(misfit)) from misfit
        return answers.answer_to(self._mapping, operation, await self._credentials.send(request, send))

    def _failed(self, answer: answers.Answer, booking: sdk.Booking) -> Failure:
        match answer.meaning:
            case Rule() as rule:
                return self._ruled(rule, answer.response, answer.body, booking)
            case None:
                return self._put_off_by_status(answer.response, booking)
            case _:
                create, shown = self._mapping.create, self._mapping.reservation
                places = (value_at(value_at(answer.body, path), shown.id) for path in (create.reservation, ""))
                if any(sdk.identifier(one) not in (None, "0") for one in (value_at(answer.body, create.id), *places)):
                    return sdk.not_understood(answer.response)  # with an id, something may have been made all the same
                return refused_in_words(answer.response, booking) or sdk.not_understood(answer.response)

    def _has_ended(self, response: sdk.Response) -> bool:
        """Whether a token has expired; not if one of the rules reads something else in the response."""
        oauth = self._auth.oauth
        if oauth is None or response.status_code not in oauth.ended.status:
            return False
        body = answers.body_of(response)
        if oauth.ended.when:  # the PMS's own word for it has precedence over the rules
            return oauth.ended.passes(response.status_code, body)
        own = [rule for operation in self._mapping.operations.values() for rule in operation.errors]
        rule = answers.rule_for(self._mapping, [rule for rule in own if rule.reads_the_body], response, body)
        return rule is None or self._meaning(rule, body) is sdk.Meaning.UNAUTHORIZED

    def _meaning(self, rule: Rule, body: object) -> sdk.Meaning | None:
        """The meaning of a failure that is no refusal: by its rule, or by what a rule for refusals found in words."""
        if rule.becomes not in _REFUSED_BY_WORDS:
            return _MEANINGS.get(rule.becomes)
        read = (text for path in rule.matches for text in texts_at(body, path))
        return sdk.never_a_no(" ".join([self.words(body), *read]))

    def _ruled(self, rule: Rule, response: sdk.Response, body: object, booking: sdk.Booking) -> Failure:
        said, code = self.words(body), rule.becomes
        if (meaning := self._meaning(rule, body)) is not None:
            if code in _REFUSED_BY_WORDS and is_ambiguous(response.status_code):
                meaning = sdk.Meaning.FAILED
            return self._with_pause(sdk.outcome_of_message(meaning, said, booking), response)
        if code in ("deferred", "in_doubt"):
            detail = f"By the account's mapping, this answer (HTTP {response.status_code}) says so."
            wait = sdk.retry_after(response, self._clock.now())
            if code == "in_doubt" or (is_ambiguous(response.status_code) and not rule.reads_the_body):
                return sdk.InDoubt("pms_failed", detail, wait)
            return sdk.Deferred("pms_put_off", detail, wait)
        if code == "pms_refused":
            code = next((meaning for pattern, meaning in sdk.PRICE_AND_CARD if pattern.search(said)), code)
        return self.refusal(code, said, booking)

    def refusal(self, code: str, said: str, booking: sdk.Booking) -> sdk.Rejected:
        return sdk.refusal(booking, code, said)

    def _put_off_by_status(self, response: sdk.Response, booking: sdk.Booking) -> sdk.Deferred | sdk.InDoubt:
        outcome = refused_in_words(response, booking) or sdk.unexpected(response, self._clock.now())
        return self._with_pause(outcome, response)

    def _with_pause(self, outcome: F, response: sdk.Response) -> F:
        if not isinstance(outcome, sdk.Deferred) or outcome.retry_after_seconds is not None:
            return outcome
        return replace(outcome, retry_after_seconds=sdk.hold_off_asked(response, self._clock.now()) or None)

    def stand_in(self, request: sdk.Request, _booking: sdk.Booking) -> sdk.StandIn | None:
        """The answer to the first request of a create that takes two."""
        create, shown = self._mapping.create, self._mapping.reservation
        if create.guest is not None and request.url.endswith(create.guest.path):
            what, status, values = "guest", min(create.guest.success.status), {create.guest.id: _STAND_IN_ID}
        elif self._mapping.confirm is None or request.method != create.method or "/" + _STAND_IN_ID in request.url:
            return None
        else:
            at = ".".join(filter(None, (create.reservation, shown.id))) if create.id is None else create.id
            what, status, values = "reservation", min(create.success.status), {at: _STAND_IN_ID}
            if create.id is None and shown.status is not None and shown.status.tentative:
                where = ".".join(filter(None, (create.reservation, shown.status.path)))
                values[where] = min(shown.status.tentative)
        means = f"The PMS makes the {what}, under the id {_STAND_IN_ID}."
        return sdk.StandIn(sdk.Response(status, (), to_json(assembled(values))), means)


# --- kinds ---


@dataclass(frozen=True, slots=True)
class MappedKind(sdk.Kind):
    mapping: PmsMapping


@cache
def shipped(kind: str) -> MappedKind:
    """The kind of that name. Raises `DocumentFault` for a mistake in this distribution."""
    try:
        mapping = load_document(page_text(kind), PmsMapping)
    except DocumentFault as fault:
        raise DocumentFault([f"{kind}.yaml, {one}" for one in fault.faults]) from fault
    fields: dict[str, Any] = {}
    for name, option in mapping.options.items():
        value = option.type_of_value()
        preset: Any = ... if option.required else {} if option.table else option.default
        optional = value if preset is not None else value | None
        fields[name] = (optional, Field(preset, alias=name, description=option.description))
    if any(one.oauth is not None and one.oauth.grant != "header" for one in mapping.auth):
        about = "Where tokens are requested, instead of the vendor's own address."
        fields["token_url"] = (str | None, Field(None, alias="tokenUrl", description=about))
    options: type[BaseModel] = create_model("Options", __base__=sdk.NoOptions, **fields) if fields else sdk.NoOptions
    table = table_of(mapping, "no_rooms")  # the rules of the kind refuse another room before the adapter is called
    adapter_class: type[MappedAdapter] = MappedAdapter if mapping.code is None else load(mapping.code)

    def adapter(connection: sdk.AccountConnection, clock: sdk.Clock) -> sdk.Adapter:
        given = options.model_validate(connection.options).model_dump(by_alias=True, exclude_none=True)
        token_url = given.pop("tokenUrl", None)
        made = adapter_class(connection, mapping, clock, given, token_url)
        made.table = table
        return made

    capabilities = mapping.capabilities(mapping.with_defaults({}))
    return MappedKind(adapter, options, capabilities, mapping.published_limits, table, mapping)
