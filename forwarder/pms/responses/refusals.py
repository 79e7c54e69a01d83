"""A PMS's no: its codes, and what its messages mean where a failure has no code that could be read."""

import re
from collections.abc import Mapping
from enum import Enum, auto
from http import HTTPStatus
from typing import Final, assert_never

from forwarder.pms.responses.record import discreet
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Deferred, InDoubt, Rejected
from forwarder.reservation.problems import catalogue

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


_UNSAID: Final[Mapping[str, str]] = {
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

_NO_LETTERS: Final = re.compile(r"[\W\d_]+")
_HTTP: Final = frozenset({"http", "status", "code", "error"})


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in _NO_LETTERS.split(text.casefold()) if word and word not in _HTTP)


_PHRASES: Final = frozenset({(), *(_words(status.phrase) for status in HTTPStatus)})


class Meaning(Enum):
    """The meanings of a failure that does not concern the reservation."""

    UNAUTHORIZED = auto()
    THROTTLED = auto()
    FAILED = auto()


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_OFF: Final = r"(blocked|suspended|disabled|locked|inactive|expired|closed|not (active|allowed|enabled))"
_NEVER_A_NO: Final = (
    (
        _any(
            r"\b(rate|usage|request)[\s-]?limit(s|ing)?\b(?!ed)|limit of requests|\bquota\b|\bapi credits?\b",
            r"too many (requests|calls|attempts)|throttl|\bslow down\b",
        ),
        Meaning.THROTTLED,
    ),
    (
        _any(
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
        Meaning.UNAUTHORIZED,
    ),
    (
        _any(
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
        Meaning.FAILED,
    ),
)
"""Words that are no refusal of a reservation, though vendors answer a refusal in the same form: "Service unavailable"."""

_LATER: Final = _any(r"\b(again|retry|back) (later|shortly|soon|in (a|some|few|\d+)\b)")
_OF_THE_STAY: Final = _any(
    r"\b(dates?|nights?|rooms?|units?|listing|property|apartment|stay|period)\b.{0,200}availab",
    r"availab.{0,200}\b(dates?|nights?|rooms?|units?|listing|property|apartment|stay|period)\b|\bcard\b.{0,40}declin",
)


def never_a_no(said: str) -> Meaning | None:
    """What a text means that speaks of the server or of the account instead of the reservation; None for any other."""
    said = said[:_MOST_READ]
    for words, meaning in _NEVER_A_NO:
        if words.search(said) is not None:
            return meaning
    put_off = _LATER.search(said) is not None and _OF_THE_STAY.search(said) is None
    return Meaning.FAILED if put_off else None


_CANCELLED_BEFORE: Final = _any(
    r"already (been )?cancel|cancell?ed already|bereits storniert|déjà (été )?annul|ya (est[aá]|fue|ha sido) cancelad|già cancellat"
)


def cancelled_before(said: str) -> bool:
    """Whether the refusal of a cancellation says that the reservation is cancelled already, which was wanted."""
    return _CANCELLED_BEFORE.search(said[:_MOST_READ]) is not None


_MOST_READ: Final = 2_000


def outcome_of_message(meaning: Meaning | str, message: str, booking: Booking) -> Rejected | Deferred | InDoubt:
    """The outcome of a failure with that message. A meaning that is a text is the refusal's code in `REFUSALS`."""
    if isinstance(meaning, str):
        return refusal(booking, meaning, message)
    return outcome_of_meaning(meaning, message, booking)


def outcome_of_meaning(meaning: Meaning, message: str, booking: Booking) -> Deferred | InDoubt:
    """The outcome of a failure that does not concern the reservation."""
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
