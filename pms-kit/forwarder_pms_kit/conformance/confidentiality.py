"""Checks that cards and credentials are nowhere but in the request that carries them."""

import io
import logging
import re
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, Final

from pydantic_core import from_json, to_json
from structlog.testing import capture_logs

from forwarder.reservation.outcome import Confirmed
from forwarder_pms_kit.conformance.faults import LOST, PUT_OFF, UNREADABLE, after, before, no_that_says, of_body, say
from forwarder_pms_kit.conformance.site import CARD
from forwarder_pms_kit.conformance.trial import Findings, Trial, check

_NUMBER: Final = (CARD.card_number or "").replace(" ", "")
_SPELLINGS: Final = (_NUMBER, CARD.card_number or "", "-".join(re.findall("....", _NUMBER)))
_CVV: Final = re.compile(rf"(?<!\d){CARD.cvv}(?!\d)")
_BETWEEN_DIGITS: Final = re.compile(r"(?<=\d)[ -](?=\d)")
_MIN_SECRET_LENGTH: Final = 8
_STATUSES: Final = (200, 201, 400, 402, 409, 422, 500)
_FREE_TEXTS: Final = {"notes", "comments", "message", "detail", "description", "title", "source", "name"}


class CapturedOutput(logging.Handler):
    """All that was written while it was listened: log lines of both kinds, what was printed, warnings."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def add(self, thing: object) -> None:
        self.lines.append(repr(thing))
        if isinstance(thing, BaseException):
            self.lines.extend(traceback.format_exception(thing))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {record.args!r}")
        if record.exc_info and record.exc_info[1] is not None:
            self.add(record.exc_info[1])


@check
async def hides_cards(trial: Trial) -> Findings:
    """No digit group of a card, and no security code, is in a log line, a printed line, an error, an outcome or a `repr`: not
    even where the PMS repeats the card in what it answers."""
    normal = await trial.normal_push()
    with captured_output() as captured:
        captured.add(trial.pms)
        captured.add(getattr(trial.pms, "_adapter", None))
        captured.add(await _with_card(trial))
        for disruption in (*after(LOST), *after(UNREADABLE), *before(PUT_OFF)):
            captured.add(await trial.disrupted(disruption, normal.booking_exchange, lambda: _with_card(trial)))
        for at in range(1, len(normal.exchanges) + 1):
            for spelling in _SPELLINGS:
                captured.add(await _repeated_by_the_pms(trial, spelling, at))
                said = f"Card {spelling} with code {CARD.cvv} was not taken"
                for status in _STATUSES:
                    disruption = next(before([(f"HTTP {status}", say(status, no_that_says(said, "card_refused")))]))
                    captured.add(await trial.disrupted(disruption, at, lambda: _with_card(trial)))
    for line in dict.fromkeys(captured.lines):
        if _NUMBER in _BETWEEN_DIGITS.sub("", line) or _CVV.search(line):
            shown = _CVV.sub("<its security code>", _without(_SPELLINGS, line, "<the card's number>"))
            yield f"card data in: {shown[:300]}"


def _without(secrets: Sequence[str], line: str, instead: str) -> str:
    for secret in secrets:
        line = line.replace(secret, instead)
    return line


async def _with_card(trial: Trial) -> object:
    outcome = await trial.create(trial.site.booking(card=CARD))
    if isinstance(outcome, Confirmed) and trial.can.find_by_reference:
        return outcome, repr(outcome), str(outcome)
    return outcome


async def _repeated_by_the_pms(trial: Trial, spelling: str, at: int) -> object:
    """What comes of a reservation that was made, where the PMS put the card into the free texts of its response."""
    disruption = next(after([("a card in free texts", of_body(lambda body: _with_free_texts(body, spelling)))]))
    booking = trial.site.booking(card=CARD)
    made = await trial.disrupted(disruption, at, lambda: trial.create(booking))
    if not trial.can.find_by_reference:
        return made
    return made, await trial.disrupted(disruption, None, lambda: trial.find(booking))


@check
async def hides_the_credential(trial: Trial) -> Findings:
    """The account's credential is in no log line, printed line, error, outcome or `repr`."""
    secrets = [part for part in re.split(r"[:\s]", trial.site.credential) if len(part) >= _MIN_SECRET_LENGTH]
    normal = await trial.normal_push()
    with captured_output() as captured:
        captured.add(trial.pms)
        captured.add(getattr(trial.pms, "_adapter", None))
        for disruption in (*after(LOST), *before([(str(status), say(status)) for status in _STATUSES])):
            captured.add(
                await trial.disrupted(disruption, normal.booking_exchange, lambda: trial.create(trial.site.booking()))
            )
        captured.add(await trial.create(trial.site.booking(), trial.connect(base_url="http://[half")))
    for line in dict.fromkeys(captured.lines):
        if any(secret in line for secret in secrets):
            yield f"the credential is in: {_without(secrets, line, '***')[:60]}…"


@contextmanager
def captured_output() -> Iterator[CapturedOutput]:
    """Hear all that this process writes meanwhile, of every level."""
    captured, printed, root = CapturedOutput(), io.StringIO(), logging.getLogger()
    level = root.level
    root.addHandler(captured)
    root.setLevel(logging.DEBUG)
    try:
        with (
            redirect_stdout(printed),
            redirect_stderr(printed),
            capture_logs() as events,
            warnings.catch_warnings(record=True) as warned,
        ):
            yield captured
    finally:
        root.setLevel(level)
        root.removeHandler(captured)
        captured.lines += [repr(event) for event in events] + [str(warning.message) for warning in warned]
        captured.lines += printed.getvalue().splitlines()


def _with_free_texts(body: bytes, spelling: str) -> bytes:
    try:
        value = from_json(body)
    except ValueError:
        return body
    return to_json(_told(value, f"Paid by {spelling}"))


def _told(value: Any, said: str) -> Any:
    if isinstance(value, dict):
        free = {name: said for name in ("notes", "paymentUrl") if "id" in value}
        told = {name for name, part in value.items() if name in _FREE_TEXTS and isinstance(part, str | None)}
        return free | {name: said if name in told else _told(part, said) for name, part in value.items()}
    return [_told(part, said) for part in value] if isinstance(value, list) else value
