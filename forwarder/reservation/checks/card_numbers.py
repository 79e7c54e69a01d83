"""Finds and masks card numbers and security codes in free text, in any notation. Pure.

A card number has 13 to 19 digits with a valid check digit (Luhn) and an issuer's prefix for that length. Its digits may be of any
script, contiguous or in groups separated by up to eight characters that are neither letters nor digits; or in the groups that
are printed on cards, with the same few letters between all. Within a longer row of numbers only printed groups count (4-4-4-4,
4-6-5 and the like); a row that is only a number, its expiry and its code may be grouped in any way. Dates, times, coordinates,
decimal fractions, IBANs, phone numbers with their `+`, and hexadecimal hashes or keys are skipped.

Not found: numbers spread over several fields, spelt in words or backwards, or joined with further digits. One in ten numbers with
an issuer's prefix and length is mistaken for a card's by chance: of random numbers of 16 digits that is one in 37.
"""

import re
import unicodedata
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

from pydantic_core import from_json

MIN_DIGITS: Final = 13
MAX_DIGITS: Final = 19
MAX_EXAMINED: Final = 64 * 1024
"""How many characters of a text are examined. No text of a request or a record is that long."""

# Visa's old 13 digits do not count after +43, +46 and +49, whose phone numbers (ITU-T E.164) can be that long.
_ISSUED: Final = re.compile(
    r"""
      4(?!3|6|9)\d{12} | 4\d{15}(?:\d{3})?                                          # Visa
    | (?:5[1-5]\d\d | 222[1-9] | 22[3-9]\d | 2[3-6]\d\d | 27[01]\d | 2720)\d{12}    # Mastercard
    | 3[47]\d{13}                                                                   # American Express
    | 3(?:0[0-5]|[689]\d)\d{11}                                                     # Diners Club
    | (?:6011|64[4-9]\d|65\d\d)\d{12}(?:\d{3})?                                     # Discover
    | 35(?:2[89]|[3-8]\d)\d{12}(?:\d{3})?                                           # JCB
    | (?:62|81)\d{14,17}                                                            # UnionPay
    | 220[0-4]\d{12,15}                                                             # Mir
    | (?:5018|5020|5038|5893|6304|6759|676[1-3])\d{9,15}                            # Maestro
    | (?:60\d\d|82\d\d|50(?:41|[689]\d)|636\d|9792)\d{12}                           # RuPay, Elo, Verve, Troy
    """,
    re.VERBOSE,
)

_MAX_GAP: Final = 8
_LONGEST_SPELT: Final = MAX_DIGITS + (MAX_DIGITS - 1) * _MAX_GAP + 64
"""Maximum characters of a number with its separators, expiry and code."""
_MAX_DIGITS_AFTER: Final = 4
_PRINTED: Final = frozenset(
    {
        *((4, 4, 4, 4), (4, 4, 4, 4, 1), (4, 4, 4, 4, 2), (4, 4, 4, 4, 3), (4, 4, 4, 1), (4, 4, 4, 2), (4, 4, 4, 3)),
        *((4, 6, 5), (4, 6, 4), (4, 3, 3, 3), (8, 8), (6, 10), (4, 12), (6, 6, 4), (6, 13)),
    }
)
"""The groups in which card numbers are printed and typed."""
_MIN_PRINTED: Final = 4  # minimum digits in the first printed group

_NOT_A_CARD: Final = re.compile(
    r"""
      (?<!\d)(?<!\d[./-]) (?: (?:19|20)\d\d ([./-]) (?:0?[1-9]|1[0-2]) \1 (?:0?[1-9]|[12]\d|3[01])
        | (?:0?[1-9]|[12]\d|3[01]) ([./-]) (?:0?[1-9]|[12]\d|3[01]) \2 (?:19|20)?\d\d ) (?![./-]?\d)           # a date
    | (?<!\d)(?<!\d:) (?:[01]?\d|2[0-4]) : [0-5]\d (?: : [0-5]\d (?:[.,]\d+)? )? (?!:?\d)                      # a time
    | (?<![\d.]) (?:[0-8]?\d|90) \. \d{3,} \s*,\s* -? (?:1[0-7]\d|180|\d?\d) \. \d{3,} (?![\d.])               # a place
    | (?<![\d.,]) \d{1,3} \. \d{6,} (?![\d.])                                                                  # a fraction
    """,
    re.VERBOSE,
)
_HEXADECIMAL: Final = re.compile(
    r"""
      (?<![0-9a-z]) (?:
        00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}                                             # a W3C traceparent
      | (?=(?:[0-9-]{0,32}[a-f]){4}) [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}              # a UUID
      | (?=(?:[0-9]*[a-f]){4}) [0-9a-f]{32,}                                                 # a hash, a key, a signature
      | req_ (?=(?:[0-9]*[a-f]){4}) [0-9a-f]{24}                                             # our id of an HTTP request
      ) (?![0-9a-z])
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Of some thousand such texts one has digits that would count. Fewer than four letters may be put around a number by hand."""
_IBAN: Final = re.compile(r"(?<![A-Za-z0-9])([A-Z]{2})\d\d(?:[ ]?[A-Z0-9]){11,30}")
_IBAN_LENGTHS: Final[Mapping[str, str]] = dict(
    re.findall(
        r"([A-Z]{2})(\d\d)",
        "AD24AE23AT20BE16BG22BR29CH21CY28CZ24DE22DK18EE20ES24FI18FO18FR27GB22GI23GL18GR27HR21HU28IE22IL23IS26IT27"
        "LI21LT20LU20LV21MC27MD24ME22MK19MT31NL18NO15PL28PT25RO24RS22SA24SE24SI19SK24SM27TN24TR26UA29",
    )
)
_BARRIER: Final = "\0"
_MAX_PHONE_DIGITS: Final = 15  # the maximum of ITU-T E.164

_BETWEEN: Final = r"[^0-9A-Za-z]{0,6}(?:(?:is|no|nr|num|code|number|ist|es|est)\b[^0-9A-Za-z]{0,6}){0,2}"
_CODE: Final = r"(?P<after>[0-9](?:[ .-]?[0-9]){2,3})(?![0-9])"
_CODE_BY_NAME: Final = re.compile(
    rf"\bcv[vcn]2?{_BETWEEN}{_CODE}"
    rf"|(?<![0-9*])(?P<before>[0-9]{{3,4}})[^0-9A-Za-z]{{0,3}}\bcv[vcn]\b(?!{_BETWEEN}[0-9*]{{3}})",
    re.IGNORECASE,
)
# Doors have codes too: these words count only in a text with a card number. A limit to how many follow each other keeps the time
# linear.
_CODE_BESIDE_NUMBER: Final = re.compile(
    r"\b(?:(?:card |security |verification |sicherheits|kartenprüf|prüf|c[oó]digo de ){1,4}(?:code|value|number|nummer|ziffer|"
    rf"seguridad)?|csc|cid|code|cryptogramme){_BETWEEN}{_CODE}",
    re.IGNORECASE,
)

What = Literal["card_number", "security_code"]
CardNumbersInText = Literal["refuse", "mask"]  # what to do with a request that has such a text


class Found(NamedTuple):
    start: int
    end: int
    what: What


def is_card_number(digits: str) -> bool:
    return _ISSUED.fullmatch(digits) is not None and passes_luhn(digits)


_DOUBLED: Final = str.maketrans("0123456789", "0246813579")  # for each digit the digit sum of its double


def passes_luhn(digits: str) -> bool:
    """ISO/IEC 7812-1, annex B: every second digit from the right counts twice, as the sum of its digits. `digits` are ASCII."""
    counted = (digits[::-2] + digits[-2::-2].translate(_DOUBLED)).encode()
    return (sum(counted) - len(counted) * ord("0")) % 10 == 0


_USUAL_DIGITS: Final = 16


def masked(card_number: str) -> str:
    """The first six and last four digits, the rest as asterisks; all if it is no card number, or one with a security code."""
    digits = digits_of(card_number)
    with_code = len(digits) > _USUAL_DIGITS and is_card_number(digits[:-3])
    if with_code or not is_card_number(digits):
        return "*" * len(card_number)
    return digits[:6] + "*" * (len(digits) - 10) + digits[-4:]


def digits_of(text: str) -> str:
    """The digits in `text`, of any script, as ASCII digits."""
    return "".join(character for character in plain(text) if "0" <= character <= "9")


def mask(text: str) -> str:
    """`text` with every card number and security code masked; the same object if there is none."""
    found = find(text) if may_hold(text) else ()
    if not found:
        return text
    parts, end = [], 0
    for each in found:
        hidden = text[each.start : each.end]
        parts += [text[end : each.start], masked(hidden) if each.what == "card_number" else "*" * len(hidden)]
        end = each.end
    return "".join([*parts, text[end:]])


def mask_all(value: Any) -> Any:
    """`value`, JSON of any depth, with `mask` applied to each text; the same object if nothing was masked."""
    match value:
        case str():
            return mask(value)
        case dict():
            masked_members = {name: mask_all(part) for name, part in value.items()}
            return masked_members if any(value[name] is not part for name, part in masked_members.items()) else value
        case list() | tuple():
            masked_items = [mask_all(part) for part in value]
            return masked_items if any(old is not new for old, new in zip(value, masked_items, strict=True)) else value
        case _:
            return value


# --- a quick first look ---

_DIGITS: Final = b"0123456789" + bytes(range(0x80, 0xC0))
"""ASCII digits, and the bytes with which other digits end in UTF-8."""
_DIGITS_ALONE: Final = bytes.maketrans(_DIGITS, b"0" * len(_DIGITS))
_REST: Final = bytes(set(range(256)) - set(_DIGITS) - {ord('"')})
_ENOUGH: Final = b"0" * MIN_DIGITS
_GROUP: Final = re.compile(r"[0-9]+")
_LIKE_AN_IBAN: Final = re.compile(r"[A-Z]{2}[0-9]{2}(?:[ ]?[A-Z0-9]){11}")
"""A group of digits after an IBAN is separate."""


def may_hold_any(document: bytes) -> bool:
    """Whether the texts of a JSON document (UTF-8) need a closer look. Usually takes a microsecond."""
    digits = document.translate(_DIGITS_ALONE, _REST)
    # Escaped quotes: texts do not end where they seem to. One byte is found faster than two.
    if b"\\" in document and b'\\"' in document:
        return True
    at = digits.find(_ENOUGH)
    if at >= 0:
        texts, number, counted = document.split(b'"'), 0, 0
        while at >= 0:
            number += digits.count(b'"', counted, at)
            content = texts[number]  # of a JSON string, as written between its quotes
            text: str = from_json(b'"%b"' % content) if b"\\" in content else content.decode()
            if may_hold(text) and find(text):
                return True
            counted = digits.find(b'"', at)
            at = digits.find(_ENOUGH, counted) if counted >= 0 else -1
    lowered = document.lower()
    return b"cv" in lowered and any(name in lowered for name in (b"cvv", b"cvc", b"cvn"))


def may_hold(text: str) -> bool:
    if len(text) > MAX_EXAMINED:
        return True
    text = plain(text)
    number = next(_numbers_by_digits(_GROUP.findall(text)), None)
    return number is not None or bool(re.search(r"cv[vcn]", text, re.IGNORECASE) or _LIKE_AN_IBAN.search(text))


def _numbers_by_digits(groups: Sequence[str]) -> Iterator[tuple[int, int]]:
    """First and last index of each run of groups whose digits form a card number, in order. Linear: tries seven lengths at most."""
    digits = "".join(groups)
    if len(digits) < MIN_DIGITS:
        return
    if len(groups) == 1:  # as nearly always
        if len(digits) <= MAX_DIGITS and is_card_number(digits):
            yield 0, 0
        return
    if _ISSUED.search(digits) is None:  # ten times cheaper than to try each group
        return
    passes, ends = _luhn_of_parts(digits), list(accumulate(map(len, groups)))
    shortest = 0
    for first, group in enumerate(groups):
        start = ends[first] - len(group)
        while shortest < len(ends) and ends[shortest] - start < MIN_DIGITS:
            shortest += 1
        if group[0] in "017":  # no issuer's prefix begins with these
            continue
        for last in range(shortest, len(ends)):
            end = ends[last]
            if end - start > MAX_DIGITS:
                break
            if passes(start, end) and _ISSUED.fullmatch(digits, start, end):
                yield first, last


def _luhn_of_parts(digits: str) -> Callable[[int, int], bool]:
    """`passes_luhn` for many parts of `digits`, each from a start to an end, by the difference of two sums."""
    once, doubled = bytes(map(int, digits)), bytes(map(int, digits.translate(_DOUBLED)))
    even, odd = bytearray(once), bytearray(once)  # digits at even, or at odd, positions count once
    even[1::2], odd[0::2] = doubled[1::2], doubled[0::2]
    sums = [[0, *(total % 10 for total in accumulate(counted))] for counted in (odd, even)]

    def passes(start: int, end: int) -> bool:
        total = sums[end & 1]  # the last digit counts once
        return total[end] == total[start]

    return passes


# --- a close look ---


_FOREIGN_DIGIT: Final = re.compile(r"(?![0-9])[\d²³¹⁰⁴-⁹₀-₉①-⑨⑴-⑼⒈-⒐⓪⓵-⓽⓿❶-❾➀-➈➊-➒]")
_ESCAPED: Final = re.compile(r"(?i)%(?:c2%a0|a0|0[9ad]|2[0def])|&#x?[0-9a-f]{2,4};|\\u[0-9a-f]{4}")
"""What separates digits and is written with digits itself: in a URL, HTML, or JSON within a text."""


def plain(text: str) -> str:
    """`text` with the digits of all scripts as ASCII's, character by character, and spaces for escaped separators."""
    if "%" in text or "&" in text or "\\" in text:
        text = _ESCAPED.sub(lambda found: " " * len(found[0]), text)
    if text.isascii():
        return text
    return _FOREIGN_DIGIT.sub(lambda found: str(unicodedata.digit(found[0])), text)


def find(text: str) -> Sequence[Found]:
    """Every card number and code, in order, without overlaps. What is beyond `MAX_EXAMINED` is one if it has a digit."""
    if len(text) > MAX_EXAMINED:
        # Up to the last `_LONGEST_SPELT` examined characters, where a number may begin; and the rest as one match.
        begin = MAX_EXAMINED - _LONGEST_SPELT
        kept = [each for each in find(text[:MAX_EXAMINED]) if each.start < begin]
        begin = max(begin, *(each.end for each in kept)) if kept else begin
        has_digits = _GROUP.search(text, begin) or _FOREIGN_DIGIT.search(text, begin)
        return [*kept, Found(begin, len(text), "card_number")] if has_digits else kept
    digits = plain(text)
    found = list(_numbers(_Groups(_without_others(digits))))
    codes = list(_CODE_BY_NAME.finditer(digits))
    if found:
        codes += _CODE_BESIDE_NUMBER.finditer(digits)
    for code in codes:
        start, end = next(code.span(name) for name, given in code.groupdict().items() if given is not None)
        place = bisect(found, (start,))
        if not (place and found[place - 1].end > start) and not (place < len(found) and found[place].start < end):
            found.insert(place, Found(start, end, "security_code"))
    return found


class _Groups:
    """The groups of digits in a text, and the separators between them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.spans = [match.span() for match in _GROUP.finditer(text)]
        self.digits = [text[start:end] for start, end in self.spans]

    def gap(self, at: int) -> str:
        """The text between this group and the next; empty after the last."""
        return self._text[self.spans[at][1] : self.spans[at + 1][0]] if at + 1 < len(self.spans) else ""

    def joined(self, at: int) -> bool:
        """Whether this group may belong to one number with the next."""
        gap = self.gap(at)
        return 0 < len(gap) <= _MAX_GAP and _BARRIER not in gap and "**" not in gap

    def goes_on(self, at: int) -> bool:
        """Whether the next group is in the same row of numbers: without a letter in between."""
        return self.joined(at) and not any(map(str.isalpha, self.gap(at)))

    def called(self, at: int) -> bool:
        """Whether a `+` precedes this group, as in phone numbers."""
        start = self.spans[at][0]
        return re.search(r"\+\s?$", self._text[max(0, start - 2) : start]) is not None

    def after(self, at: int) -> int:
        """How many groups from `at` on belong to the number before: its expiry and its code."""
        count = 0
        for group, digits in enumerate(self.digits[at : at + 3], at):
            if not self.goes_on(group - 1) or len(digits) > _MAX_DIGITS_AFTER:
                break
            count += 1
        return count


def _without_others(text: str) -> str:
    for others in (_HEXADECIMAL, _NOT_A_CARD):
        text = others.sub(lambda found: _BARRIER * len(found[0]), text)
    return _IBAN.sub(_without_iban, text)


def _without_iban(found: re.Match[str]) -> str:
    length, seen = int(_IBAN_LENGTHS.get(found[1], "0")), 0
    for at, character in enumerate(found[0]):
        seen += character != " "
        if seen == length:
            compact = found[0][: at + 1].replace(" ", "")
            number = "".join(str(int(each, 36)) for each in compact[4:] + compact[:4])
            return _BARRIER * (at + 1) + found[0][at + 1 :] if int(number) % 97 == 1 else found[0]
    return found[0]


def _numbers(groups: _Groups) -> Iterator[Found]:
    free = 0
    for first, last in _numbers_by_digits(groups.digits):
        if first < free or not _is_spelt(groups, first, last, new_row=first == free or not groups.goes_on(first - 1)):
            continue
        yield Found(groups.spans[first][0], groups.spans[last][1], "card_number")
        free = last + 1 + groups.after(last + 1)
        for start, end in groups.spans[last + 1 : free]:
            yield Found(start, end, "security_code")


def _is_spelt(groups: _Groups, first: int, last: int, *, new_row: bool) -> bool:
    """Whether these groups look like one number. `new_row`: no group before them is in the same row of numbers."""
    within, sizes = range(first, last), tuple(map(len, groups.digits[first : last + 1]))
    begins_printed = sizes[0] >= _MIN_PRINTED
    if not (begins_printed or new_row) or not all(map(groups.joined if begins_printed else groups.goes_on, within)):
        return False
    if groups.called(first) and sum(sizes) <= _MAX_PHONE_DIGITS:
        return False
    if not all(map(groups.goes_on, within)):
        return len(within) > 1 and len({groups.gap(at).casefold() for at in within}) == 1 and sizes in _PRINTED
    if not within or sizes in _PRINTED:
        return True
    after = last + 1 + groups.after(last + 1)
    alone = new_row and not groups.called(first) and (after == len(groups.spans) or not groups.goes_on(after - 1))
    # Some characters separate two numbers rather than the groups of one.
    return alone and (max(sizes) == 1 or not any(re.search(r"[,;:#+=()&\r\n]", groups.gap(at)) for at in within))
