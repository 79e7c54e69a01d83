"""The outcome of a request for the reservation. Pure.

NotSent, NoResponse                          → `outcome_of`: Deferred, InDoubt
a refusal by its code or its words           → `refusal`, `outcome_of_message`
a response that the adapter did not decide   → `unexpected`, by its status
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from enum import Enum, auto
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, assert_never

from forwarder.pms.http.response import NoResponse, NotSent, Response, read_object, retry_after
from forwarder.pms.port import REFUSED_IN_WORDS
from forwarder.pms.responses import discreet
from forwarder.reservation import problems as catalogue
from forwarder.reservation.booking import Booking, is_reference, names_another
from forwarder.reservation.fast import read_json
from forwarder.reservation.outcome import Deferred, InDoubt, Outcome, Rejected

# --- a refusal, by its code or its words ---

_KINDS: Final = {one.code: one for one in catalogue.REFUSALS}

REFUSALS: Final[Mapping[str, str]] = {code: one.title for code, one in _KINDS.items()}
"""The codes of recognised refusals, and their titles. Any other refusal is `pms_refused`."""

PRICE_AND_CARD: Final = (
    (re.compile(r"price\b.{0,40}\b(chang|differ|mismatch|(not|n't) match)", re.IGNORECASE), "price_changed"),
    (re.compile(r"\bcard\b.{0,40}\b(declin|refus|reject|expired|not accepted)", re.IGNORECASE), "card_refused"),
)
"""Words for two refusals that no vendor here has written down, and that every one of them may have to say."""


def refusal(booking: Booking, code: str, detail: str) -> Rejected:
    """The PMS's no, with `detail` in its own words as far as they may be kept."""
    known = _KINDS.get(code, catalogue.PMS_REFUSED)
    # Servers put no more than an HTTP status and its name where a reason belongs: "400 Bad Request".
    said = "" if _words(detail) in _PHRASES else discreet(detail, booking)
    return Rejected(known.problem(said or f"{known.title}. {_UNSAID[known.code]}", booking.reference))


_UNSAID: Final = {
    catalogue.ROOM_UNAVAILABLE.code: "The PMS says no more. Check roomId, arrivalDate and departureDate.",
    catalogue.CARD_REFUSED.code: "The PMS says no more. Check cardDetails.",
    catalogue.PRICE_CHANGED.code: "The PMS says no more. Check totalPrice and currency.",
    catalogue.PROPERTY_NOT_FOUND.code: "The PMS says no more. Check propertyId.",
    catalogue.ROOM_NOT_FOUND.code: "The PMS says no more. Check roomId.",
    catalogue.GUEST_REFUSED.code: "The PMS does not say which part. Check each member of guest.",
    catalogue.CANCELLATION_REFUSED.code: "It does not say why. Ask the property.",
    catalogue.PMS_REFUSED.code: (
        "It does not say why. Check propertyId, roomId, the dates, the number of guests, totalPrice and currency against what the "
        "property offers."
    ),
}
"""Advice after a refusal without a reason, in terms of the caller's fields."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(w for w in re.findall(r"[^\W\d_]+", text.casefold()) if w not in ("http", "status", "code", "error"))


_PHRASES: Final = frozenset({(), *(_words(status.phrase) for status in HTTPStatus)})


class Meaning(Enum):
    """What a failure means that does not concern the reservation."""

    UNAUTHORIZED = auto()
    THROTTLED = auto()
    FAILED = auto()


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_OFF: Final = r"(blocked|suspended|disabled|locked|inactive|expired|closed|not (active|allowed|enabled))"
_NEVER_A_NO: Final = {
    Meaning.THROTTLED: _any(
        r"\b(rate|usage|request)[\s-]?limit(s|ing)?\b(?!ed)|limit of requests|\bquota\b|\bapi credits?\b",
        r"too many (requests|calls|attempts)|throttl|\bslow down\b",
    ),
    Meaning.UNAUTHORIZED: _any(
        r"unauthori[sz]ed|not authori[sz]ed|unauthenticated|authentication (is )?(required|failed)|\blog ?in\b",
        r"(access|permission)s? (is |was )?(denied|required|restricted)|not have access|insufficient scope",
        r"(no|not have|lacks?|insufficient|missing) (the |any )?(\w+ )?permission|^\W*(403 )?forbidden\W*$",
        r"(invalid|expired|missing|unknown|another|bad|revoked) (\w+ )?(api.?key|token|signature|credentials?|session)\b",
        r"\b(api.?key|token|session|credentials?|subscription|trial) (is|has|was|have|are|expired|revoked|invalid)\b",
        rf"\b(account|licen[cs]e|ip|ip address) (is |has been |was )?{_OFF}",
        rf"\b(your|the|this) (account|licen[cs]e|ip)\b.{{0,40}}\b{_OFF}",
        r"\b(ip|address)\b.{0,20}not (allowed|whitelisted|permitted)|not (enabled|active) for (this|your) account",
        r"\b(on|in|by) (your|this|the current) (api |subscription )?(plan|subscription)\b",
    ),
    Meaning.FAILED: _any(
        r"(internal|server|system|unknown|fatal|unexpected|application|database) (\w+ )?(error|exception|failure|response)",
        r"\berror( has| was)? occur|error (while |when |in )?processing|went wrong|unhandled",
        r"exception (occurred|in|at|while)\b",
        r"(nullpointer|nullreference|illegalstate|runtime|timeout|sql|io)\w*exception|null reference|object reference not set",
        r"cannot read propert|undefined (index|variable|method|offset)|member function|allowed memory|traceback|sqlstate",
        r"tim(e|ed)[\s-]?out\b(?! of)|context deadline|^\W*deadline exceeded|operation was cancel|too many connections",
        r"(unable|failed|not) (to )?connect\b|connection (\w+ )?(failed|refused|reset|closed|lost)|deadlock|lock wait",
        r"acquire (a |the )?lock|may have been (made|created|booked)|\b(is|being|still) process(ed|ing)\b",
        r"(performing|scheduled) maintenance|maintenance mode|^\W*temporar(y|ily) (failure|error|unavailable|not available)",
        r"(^\W*(50\d )?|\b(the|this|our|web|api|http|booking|reservations?|availability|calendar|inventory|pricing|upstream|"
        r"remote) )(service|server|system|gateway|database|back.?end|api|channel manager)s? (is |are |was )?"
        r"((currently|temporarily|too) )*(unavailable|not (available|reachable|responding)|down|busy|overloaded|unreachable"
        r"|(under|in) maintenance)",
        r"\b(dienst|servicio|service|servizio|serviço|server) (ist |est |está |è )?(derzeit |momentan )?"
        r"(nicht (verfügbar|erreichbar)|no disponible|indisponible|indisponível|non disponibile)",
    ),
}
"""Words that are no refusal of a reservation, though vendors answer a refusal in the same form: "Service unavailable"."""

_MOST_READ: Final = 2_000
_LATER: Final = _any(r"\b(again|retry|back) (later|shortly|soon|in (a|some|few|\d+)\b)")
_OF_THE_STAY: Final = _any(
    r"\b(dates?|nights?|rooms?|units?|listing|property|apartment|stay|period)\b.{0,200}availab",
    r"availab.{0,200}\b(dates?|nights?|rooms?|units?|listing|property|apartment|stay|period)\b|\bcard\b.{0,40}declin",
)


def never_a_no(said: str) -> Meaning | None:
    """What a text means that speaks of the server or of the account instead of the reservation; None for any other."""
    said = said[:_MOST_READ]
    put_off = _LATER.search(said) is not None and _OF_THE_STAY.search(said) is None
    known = (meaning for meaning, words in _NEVER_A_NO.items() if words.search(said) is not None)
    return next(known, Meaning.FAILED if put_off else None)


def cancelled_before(said: str) -> bool:
    """Whether the refusal of a cancellation says that the reservation is cancelled already, which was wanted."""
    words = "already (been )?cancel|cancell?ed already|bereits storniert|déjà (été )?annul|ya (est[aá]|fue|ha sido) cancelad"
    return re.search(f"{words}|già cancellat", said[:_MOST_READ], re.IGNORECASE) is not None


def outcome_of_message(meaning: Meaning | str, message: str, booking: Booking) -> Rejected | Deferred | InDoubt:
    """The outcome of a failure with that message. A meaning that is a text is the refusal's code in `REFUSALS`."""
    if isinstance(meaning, str):
        return refusal(booking, meaning, message)
    return _outcome_of_meaning(meaning, message, booking)


def _outcome_of_meaning(meaning: Meaning, message: str, booking: Booking) -> Deferred | InDoubt:
    said = discreet(message, booking) or "nothing more"
    match meaning:
        case Meaning.UNAUTHORIZED:
            return Deferred("pms_unauthorized", f"The PMS does not let the account do this. It says: {said}")
        case Meaning.THROTTLED:
            return Deferred("pms_throttled", f"The PMS takes no more requests for now. It says: {said}")
        case Meaning.FAILED:
            return InDoubt("pms_failed", f"The PMS failed while it had the request. It says: {said}")
        case _:
            assert_never(meaning)


# --- what the adapter did not decide ---

_REASONS: Final = ("detail", "message", "error_description", "reason", "title", "error")
_GAVE_UP: Final = {HTTPStatus.REQUEST_TIMEOUT, 444, 460, 499}  # nginx, AWS's load balancers, gateways of gRPC
_AFTER_THE_FACT: Final = {HTTPStatus.NOT_ACCEPTABLE, HTTPStatus.FAILED_DEPENDENCY}
"""What servers answer when they cannot write the response, or a later step failed: by then the request may be carried out."""


def outcome_of(failure: NotSent | NoResponse) -> Deferred | InDoubt:
    if isinstance(failure, NotSent):
        return Deferred(failure.reason, failure.detail, failure.retry_after_seconds)
    return InDoubt(failure.reason, failure.detail, made=is_yes(failure.status), status=failure.status or None)


def harmless(outcome: Deferred | InDoubt) -> Deferred:
    """The same for a request that is safe to repeat: an ambiguous answer only delays it."""
    if isinstance(outcome, Deferred):
        return outcome
    return Deferred(outcome.reason, outcome.detail, outcome.retry_after_seconds)


def not_understood(response: Response, pms_id: str | None = None) -> InDoubt:
    """A response with the right status and the wrong form. `pms_id`: the id that it gives nevertheless."""
    detail = f"The PMS answered HTTP {response.status_code} with a body that is not as agreed."
    return InDoubt("pms_answer_not_understood", detail, made=is_yes(response.status_code), pms_reservation_id=pms_id)


def says_no(body: Any) -> bool:
    """Whether a body says that there was no success, or that it is not whole, whatever status came with it."""
    return isinstance(body, dict) and any(_is_no(name, one) for name, one in body.items())


def _is_no(name: str, said: Any, *, inside: bool = False) -> bool:
    known = name[:_NAME_LENGTH].casefold().replace("_", "").replace("-", "")
    if isinstance(said, dict) and known in {"status", "result", "response", "meta", "header"} and not inside:
        return any(
            _is_no(each, one, inside=True) for each, one in said.items()
        )  # which says how it went, as a body may
    if known in {"success", "issuccess", "successful", "succeeded", "ok"}:
        return _is_one_of("false|no?|0", said)
    if known in {"status", "result", "statuscode", "httpstatus", "ack"} or (inside and known == "code"):
        failed = "error|fail(ed|ure)?|nok|ko|unsuccessful|time(d )?out|[45][0-9]{2}"
        return said is False or _is_one_of(failed, said)
    if re.fullmatch("(has|is)?errors?(code|message|msg|text|description)?|exception|fault(string|code)?", known):
        return bool(said) and not _is_one_of("|ok|none|null|no error|success|false|0", said)
    return known in {"partial", "timedout", "incomplete", "incompleteresults", "truncated"} and said is True


def _is_one_of(words: str, said: Any) -> bool:
    return isinstance(said, int | str) and re.fullmatch(words, str(said).strip(), re.IGNORECASE) is not None


def gateway_failure(_response: Response) -> None:
    """Deprecated: use `unexpected`."""


def is_ambiguous(status: int) -> bool:
    """Whether nothing follows from that status alone about a request that creates: proxies, caches and PMSs send it for requests
    that were carried out, as well as for others."""
    redirected = HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST
    return redirected or status in _GAVE_UP | _AFTER_THE_FACT or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def is_yes(status: int) -> bool:
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def unexpected(response: Response, now: datetime) -> Deferred | InDoubt:
    """The outcome of a response that the adapter did not decide, by its status alone. Any redirect, 406, 408, 424, 444, 460, 499
    and 5xx is a doubt, whatever its headers: servers, proxies and caches send them for a request that is carried out. So is a 409,
    which may be about the reservation itself that an earlier copy of the request made. Deferred, never Rejected, where an operator
    can repair the account (credential, address): nothing is lost meanwhile."""
    status, wait = response.status_code, retry_after(response, now)
    match status:
        case HTTPStatus.TOO_MANY_REQUESTS:
            return Deferred("pms_throttled", "The PMS takes no more requests for now (HTTP 429).", wait)
        case HTTPStatus.SERVICE_UNAVAILABLE:
            detail = "The PMS, or a gateway in front of it, was not in service while it had the request (HTTP 503)."
            return InDoubt("pms_unavailable", detail, wait)
        case _ if status in _GAVE_UP:
            detail = f"The PMS, or a gateway in front of it, gave up waiting (HTTP {status})."
            return InDoubt("pms_timed_out_reading", detail, wait)
        case _ if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            detail = f"The PMS answered with a redirect (HTTP {status}); check the account's base URL."
            return InDoubt("pms_redirected", detail, wait)
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN | HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            return Deferred("pms_unauthorized", f"The PMS does not accept the account's credential (HTTP {status}).")
        case HTTPStatus.CONFLICT:
            detail = "The PMS says that the reservation conflicts with something, perhaps with itself (HTTP 409)."
            return InDoubt("pms_refused_request", detail)
        case _ if status in _AFTER_THE_FACT:
            return InDoubt("pms_failed", f"The PMS may have done it before it failed (HTTP {status}).", wait)
        case _ if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            # Which may be the PMS's no to the reservation, or the answer of some other server. Nothing was made.
            detail = (
                f"The PMS has nothing at this address (HTTP {status}). Ask the operator whether the account's base URL is right."
                if status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.GONE)
                else f"The PMS refused the request without saying why (HTTP {status}). Check propertyId, roomId, the dates, the "
                "guest and the price; if they are right, ask the operator to check the account."
            )
            return Deferred("pms_refused_request", detail, wait)
        case _ if is_yes(status):
            return not_understood(response)
        case _:
            return InDoubt("pms_failed", f"The PMS failed while it had the request (HTTP {status}).", wait)


def read_again(outcome: Outcome, response: Response | None, reference: str, sent: bytes = b"") -> Outcome:
    """`outcome` of a create, the body `sent`, that was last answered by `response`, with what any kind's response may say besides.
    "This reference exists already" is no refusal: nobody else has our reference. An answer that names the reference of another
    submission was meant for that one, and says nothing about ours."""
    if response is None:
        return outcome
    if isinstance(outcome, InDoubt):
        text, pms_id = _text_of(response), outcome.pms_reservation_id
        is_read = len(response.content) <= _READ_BYTES  # else ours may be in the rest
        if is_read and outcome.made and (pms_id is None or pms_id in text) and names_another(text, reference):
            outcome = replace(outcome, made=False, pms_reservation_id=None)  # the id in it is another's, too
        return replace(outcome, status=response.status_code)
    is_no = HTTPStatus.BAD_REQUEST <= response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR
    if not is_no and response.status_code not in (HTTPStatus.OK, HTTPStatus.CREATED):
        return outcome
    sayings = _sayings(response, reference if is_no else None)
    return _unless_it_exists(outcome, sayings, reference, response.status_code, sent)


def read_words(outcome: Outcome, reference: str) -> Outcome:
    """As `read_again` for one of several that were created together, by as much of the response as its outcome quotes."""
    said = outcome.problem.detail if isinstance(outcome, Rejected) else getattr(outcome, "detail", "")
    return _unless_it_exists(outcome, [str(said)], reference)


def _unless_it_exists(
    outcome: Outcome, sayings: Iterable[str], reference: str, status: int | None = None, sent: bytes = b""
) -> Outcome:
    if not isinstance(outcome, Rejected | Deferred):
        return outcome
    names = [_REFERENCE]  # and those under which the body sent has it as the whole value: what the PMS may call it
    value = re.escape(reference)
    as_a_whole = rf'"([\w.-]+)"\s*:\s*"{value}"|(?:^|&)([\w.-]+)={value}(?![^&])'
    for found in re.finditer(as_a_whole, sent.decode("utf-8", "replace")):
        words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+", found[1] or found[2])
        if len(words) > 1 or any(len(word) >= 5 and word.casefold() not in _OF_ANYTHING for word in words):  # noqa: PLR2004
            names.append(r"[\s_-]?".join(words))
    exists = _it_exists("|".join(names))
    if not any(exists.search(said) is not None and not names_another(said, reference) for said in sayings):
        return outcome
    answered = "" if status is None else f" (HTTP {status})"
    detail = f"The PMS says that it has a reservation with our reference already{answered}."
    return InDoubt("pms_has_it", detail, made=True, status=status)


@lru_cache(maxsize=64)
def _it_exists(reference: str) -> re.Pattern[str]:
    return re.compile(rf"({reference}){_BETWEEN}{_EXISTS}|{_EXISTS}{_BETWEEN}({reference})|{_TWICE}", re.IGNORECASE)


_OF_ANYTHING: Final = {"booking", "dates", "guest", "number", "order", "price", "property", "reservation", "rooms"}
"""What may be the name of anything, and not of our reference alone; so may words of less than five letters, such as `code`."""
_REFERENCE: Final = (
    r"r[eé]f[eé]r[eéê]n(ce|cia|z|tie)|riferimento|(?<![a-z])ref(?=: | (has|is|was|must|already|exists)\b)"
    r"|(external|channel|partner|agent|ota|source|third[\s_-]?party)[\s_-]?"
    r"((booking|reservation)[\s_-]?)?(id|identifier|code|number|ref)(?![a-z])|confirmation[\s_-]?(code|number)"
    r"|customer[\s_-]?user[\s_-]?id|idempotency[\s_-]?key|\brsv_[a-z2-7]{8,}"
)
_BETWEEN: Final = r"(?:[^.]|\.(?=\w)){0,80}"
_TWICE: Final = (
    r"duplicated?[\s_-](booking|reservation|request|order|submission|transaction)|already (been )?(processed|submitted|received)"
    r"|: *(this |the )?(booking|reservation) (already exists|exists already)[.!]?$"
)
"""That the PMS has had the same before, by whatever it knows it."""
_EXISTS: Final = (
    r"(already|(?<!not)(?<!not[\W_])(?<!n't )(?<!non)(?<!non[\W_])(?<!no )exist(s|ing|e|iert)?(?![a-z])|duplicate|repeated"
    r"|(?<![a-z])taken(?![a-z])|not[\s_](be )?unique|must be unique|unique[\s_](key[\s_])?constraint|in use|in[\s_-]progress"
    r"|(been|was|is|only be) used(?! (for|to|by|in|as)\b)|previously|bereits|schon|bestaat|esiste"
    r"|\b(ya|já|déjà|deja|già)\b)"
)
_READ_BYTES: Final = 20_000
_IDS: Final = frozenset({"id", "_id", "uid", "reservationId", "reservation_id", "bookingId", "booking_id"})
_NAME_LENGTH: Final = 100
"""Of names that are read with each text in a list: a response must not become much longer by them."""


def _text_of(response: Response) -> str:
    return response.content[:_READ_BYTES].decode("utf-8", "replace")


def _sayings(response: Response, ours: str | None) -> Iterator[str]:
    """What the response says, text by text, each with its name and the words around it. "The room is already booked" next to our
    reference, which many PMSs repeat in every response, does not say that the reference exists. An object that has the reference
    `ours` and an id, and is not the failure itself, does."""
    try:
        body = read_json(response.json_text) if len(response.content) <= _READ_BYTES else _text_of(response)
    except ValueError:
        body = _text_of(response)
    left: list[tuple[str, Any]] = [("", body)]
    while left:
        name, part = left.pop()
        match part:
            case str():
                yield f"{name}: {part}"
            case dict():
                # The texts of the object and of the objects in it, except for references and addresses that are only repeated.
                values = [each for one in part.values() for each in (one.values() if isinstance(one, dict) else [one])]
                words = [text for text in values if isinstance(text, str) and not _is_repeated(text)]
                yield " ".join([name, *words])
                is_one = not _IDS.isdisjoint(part) and part.keys().isdisjoint(_REASONS)
                if ours is not None and is_one and any(is_reference(one, ours) for one in part.values()):
                    yield "This reference exists"
                field = " ".join(word for word in words if " " not in word)[:_NAME_LENGTH]  # such as `external_id`
                for key, one in part.items():
                    left.append((key if isinstance(one, str) else f"{field} {key[:_NAME_LENGTH]}", one))
            case list():
                left += [(name, one) for one in part]


def _is_repeated(text: str) -> bool:
    """Whether a text without spaces, an id or an address, has a reference in it. In linear time: PMSs repeat what guests wrote."""
    found = re.search(r"rsv[\W_]?[a-z0-9]{17}", text, re.IGNORECASE)
    return found is not None and len((text[: found.start()] + "_" + text[found.end() :]).split()) == 1


def refused_in_words(response: Response, booking: Booking) -> Deferred | InDoubt | None:
    """A refusal that the adapter does not recognise: 400, 409 or 422 with a text where servers usually give the reason, or a 200
    with such a text and `success: false`. A text that cannot be one means what it says. None for any other response."""
    status, body = response.status_code, read_object(response) or {}
    is_no = status in (400, 409, 422) or (status == HTTPStatus.OK and body.get("success") is False)
    said = next(_reasons(body), "") if is_no else ""
    if not said:
        return None
    if (meaning := never_a_no(said)) is not None:
        return _outcome_of_meaning(meaning, said, booking)
    return Deferred(REFUSED_IN_WORDS, f"The PMS refused it (HTTP {status}). It says: {discreet(said, booking)}")


def _reasons(body: Mapping[str, Any]) -> Iterator[str]:
    errors = body.get("errors")
    lists = [one for one in (errors, body.get("messages")) if isinstance(one, list)]
    for part in (body, body.get("error"), errors, *(one for each in lists for one in each[:1])):
        texts = [part.get(name) for name in _REASONS] if isinstance(part, dict) else [part]
        yield from (text.strip() for text in texts if isinstance(text, str) and text.strip())
    if isinstance(errors, dict):  # by field, as many frameworks list them
        said = ((name, one[0] if isinstance(one, list) and one else one) for name, one in errors.items())
        if told := [f"{name}: {text}" for name, text in said if isinstance(text, str)]:
            yield "; ".join(told)
