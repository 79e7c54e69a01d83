"""The search for card numbers in its plain form: from each group of digits every length is put together and looked at. What
`card_numbers` finds in linear time is the same, for texts that it examines whole."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from pydantic_core import from_json

from forwarder.reservation.checks.card_numbers import (
    _BARRIER,
    _CODE_BESIDE_NUMBER,
    _CODE_BY_NAME,
    _DIGITS_ALONE,
    _ENOUGH,
    _GROUP,
    _LIKE_AN_IBAN,
    _MAX_DIGITS_AFTER,
    _MAX_GAP,
    _MAX_PHONE_DIGITS,
    _MIN_PRINTED,
    _PRINTED,
    _REST,
    MAX_DIGITS,
    MIN_DIGITS,
    Found,
    _without_others,
    is_card_number,
    plain,
)


def may_hold_any(document: bytes) -> bool:
    """Whether it is worth reading a JSON document (UTF-8) for what its texts hold. Takes a microsecond, as a rule."""
    digits = document.translate(_DIGITS_ALONE, _REST)
    if (
        b"\\" in document and b'\\"' in document
    ):  # texts do not end where they seem to; one byte is found faster than two
        return True
    at = digits.find(_ENOUGH)
    while at >= 0:
        number = digits.count(b'"', 0, at)
        if _holds(document.split(b'"', number + 1)[number]):
            return True
        end = digits.find(b'"', at)
        at = -1 if end < 0 else digits.find(_ENOUGH, end)
    lowered = document.lower()
    return b"cv" in lowered and any(name in lowered for name in (b"cvv", b"cvc", b"cvn"))


def _holds(content: bytes) -> bool:
    """Whether a text, as it is between its quotes in JSON, holds anything."""
    text = from_json(b'"%b"' % content) if b"\\" in content else content.decode()
    return may_hold(text) and bool(find(text))


def may_hold(text: str) -> bool:
    """Whether it is worth looking closer."""
    text = plain(text)
    enough = (
        _groups_may_be_number(_GROUP.findall(text))
        or re.search(r"cv[vcn]", text, re.IGNORECASE)
        or _LIKE_AN_IBAN.search(text)
    )
    return bool(enough)


def _groups_may_be_number(groups: Sequence[str]) -> bool:
    """Whether some that follow each other have the digits of a card number, whatever is between them: a necessary condition, by
    which identifiers with many digits, which are many, are passed over."""
    for at, first in enumerate(groups):
        if first[0] in "017":
            continue
        digits = ""
        for end in range(at, len(groups)):
            digits += groups[end]
            if len(digits) > MAX_DIGITS:
                break
            if len(digits) >= MIN_DIGITS and is_card_number(digits):
                return True
    return False


def find(text: str) -> Sequence[Found]:
    """Every card number and security code in `text`, in their order, none over another."""
    digits = plain(text)
    groups = _groups(_without_others(digits))
    found = list(_numbers(groups))
    codes = list(_CODE_BY_NAME.finditer(digits))
    if found:
        codes += _CODE_BESIDE_NUMBER.finditer(digits)
    for code in codes:
        start, end = next(code.span(name) for name, given in code.groupdict().items() if given is not None)
        if not any(start < each.end and each.start < end for each in found):
            found.append(Found(start, end, "security_code"))
    return sorted(found)


class _Group(NamedTuple):
    """Digits that stand together, and what is between them and the next."""

    start: int
    digits: str
    gap: str
    joined: bool
    """Whether they may be one number with the next."""
    goes_on: bool
    """Whether the next is in the same row of numbers: no letter is between."""
    called: bool
    """Whether a `+` is before them, as in phone numbers."""


def _groups(text: str) -> list[_Group]:
    matches = list(re.finditer(r"[0-9]+", text))
    groups = []
    for match, following in zip_longest(matches, matches[1:]):
        gap = "" if following is None else text[match.end() : following.start()]
        joined = 0 < len(gap) <= _MAX_GAP and _BARRIER not in gap and "**" not in gap
        called = re.search(r"\+\s?$", text[max(0, match.start() - 2) : match.start()]) is not None
        goes_on = joined and not any(map(str.isalpha, gap))
        groups.append(_Group(match.start(), match[0], gap, joined, goes_on, called))
    return groups


def _numbers(groups: Sequence[_Group]) -> Iterator[Found]:
    at, new_row = 0, True
    while at < len(groups):
        count = _number_at(groups, at, new_row=new_row)
        if not count:
            new_row = not groups[at].goes_on
            at += 1
            continue
        last = groups[at + count - 1]
        yield Found(groups[at].start, last.start + len(last.digits), "card_number")
        at += count
        for group in groups[at : at + _after(groups, at)]:
            yield Found(group.start, group.start + len(group.digits), "security_code")
        at += _after(groups, at)
        new_row = True


def _after(groups: Sequence[_Group], at: int) -> int:
    """How many groups from `at` on are said in one breath with the number before: its expiry and its code."""
    count = 0
    while (
        count < 3
        and at + count < len(groups)
        and groups[at + count - 1].goes_on
        and len(groups[at + count].digits) <= _MAX_DIGITS_AFTER
    ):
        count += 1
    return count


def _number_at(groups: Sequence[_Group], at: int, *, new_row: bool) -> int:
    """How many groups from `at` on are a card number; 0 if none."""
    digits, begins_printed = "", len(groups[at].digits) >= _MIN_PRINTED
    if not (begins_printed or new_row):
        return 0
    for end in range(at, len(groups)):
        digits += groups[end].digits
        if len(digits) > MAX_DIGITS:
            break
        if len(digits) >= MIN_DIGITS and is_card_number(digits) and _is_spelt(groups, at, end, new_row=new_row):
            return end - at + 1
        if not (groups[end].joined if begins_printed else groups[end].goes_on):
            break
    return 0


def _is_spelt(groups: Sequence[_Group], at: int, end: int, *, new_row: bool) -> bool:
    """Whether these groups look like one number."""
    within, sizes = groups[at:end], tuple(len(group.digits) for group in groups[at : end + 1])
    if groups[at].called and sum(sizes) <= _MAX_PHONE_DIGITS:
        return False
    if not all(group.goes_on for group in within):
        return len(within) > 1 and len({group.gap.casefold() for group in within}) == 1 and sizes in _PRINTED
    if not within or sizes in _PRINTED:
        return True
    after = end + 1 + _after(groups, end + 1)
    alone = new_row and not groups[at].called and (after == len(groups) or not groups[after - 1].goes_on)
    return alone and (max(sizes) == 1 or not any(re.search(r"[,;:#+=()&\r\n]", group.gap) for group in within))
