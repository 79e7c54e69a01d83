"""Card numbers in free text: found in whatever spelling, and little else taken for one."""

import random
import re
import sys
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from forwarder.reservation.checks.card_numbers import (
    _CODE_BESIDE_NUMBER,
    MAX_EXAMINED,
    digits_of,
    find,
    is_card_number,
    mask,
    mask_all,
    may_hold,
    may_hold_any,
)
from tests.stage.reservation import plain_card_search
from tests.support.cards import ESCAPED, MASKED, NUMBER, SPELLINGS
from tests.support.cases import for_each
from tests.support.profile import lives

CARDS = (
    *("4222222222222", "30569309025904", "378282246310005", "5555555555554444", "2223000048400011", "6011111111111117"),
    *("3530111333300000", "6200000000000005", "6759649826438453", "6304000000000000000", "4111111111111111110"),
)
ORDINARY = (
    "+34 600 111 222, arrival 2027-06-01 15:30, departure 05/06/2027 11:00",
    "23/05/2027 - 30/05/2027",
    "22.01.27 15:00 - 29.01.27 10:30",
    "+49 (0) 8142 123456-789 or 0049 151 12345678",
    "4915112345678",
    "+43 660 1234567-890",
    "IBAN DE89 3704 0044 0532 0130 00, ES91 2100 0418 4502 0005 1332, FI2112345600000785",
    "41.387437, 2.168649",
    "lat 41.3874374332345 lon 2.1686492123456",
    "1765400000000 and 1765400000000000",
    "550e8400-e29b-41d4-a716-446655440000",
    "Room 401, 402, 403, 404; door code 4821#; the gate's security code 4821",
    "4.100,50 EUR x 7 = 28.703,50 EUR",
    "411111******1111",
)


@for_each("spelt", (SPELLINGS | ESCAPED).values(), ids=SPELLINGS | ESCAPED)
@for_each("around", ["{}", "Please charge {} for the stay of 2027-06-01."])
def test_a_number_is_found_in_every_spelling(spelt: str, around: str) -> None:
    text = around.format(spelt)
    assert may_hold(text)
    assert may_hold_any(to_json({"notes": text}))
    assert digits_of(mask(text)).count("1" * 12) == 0
    assert MASKED in mask(text)


@for_each("number", CARDS)
def test_numbers_of_every_issuer_are_found(number: str) -> None:
    assert [(found.start, found.end) for found in find(f"card {number}.")] == [(5, 5 + len(number))]


@for_each("text", ORDINARY)
def test_what_is_no_card_is_left_alone(text: str) -> None:
    assert mask(text) is text


@for_each(
    ("text", "shown"),
    [
        ("cvv 123", "cvv ***"),
        ("CVC2: 1234.", "CVC2: ****."),
        ("my cvv code is 9 8 7", "my cvv code is *****"),
        ("123 is not, 987 (CVV) is", "123 is not, *** (CVV) is"),
        (f"{MASKED}, cvv 123", f"{MASKED}, cvv ***"),
        (f"{NUMBER} cvv 123", f"{MASKED} cvv ***"),
        ("room 412, cvv 123", "room 412, cvv ***"),
        (f"{NUMBER}, security code 123", f"{MASKED}, security code ***"),
        (f"{NUMBER} 12/31 123, door 4", f"{MASKED} **/** ***, door 4"),
        ("4111111111111111 5555555555554444", f"{MASKED} 555555******4444"),
    ],
)
def test_a_security_code_is_masked_by_its_name_or_beside_a_number(text: str, shown: str) -> None:
    assert mask(text) == shown


def test_masking_goes_to_any_depth_and_leaves_what_holds_none_the_same() -> None:
    said = {"notes": ["ok", {"more": f"no {NUMBER}"}], "total": 4111111111111111}
    assert mask_all(said) == {"notes": ["ok", {"more": f"no {MASKED}"}], "total": 4111111111111111}
    assert mask_all(clean := {"notes": ["ok"]}) is clean


# --- what it takes ---


class CountedBytes(bytes):
    """Counts the bytes that its methods read."""

    gone_through = 0


def _counted(name: str) -> Callable[..., Any]:
    def method(self: bytes, *arguments: Any) -> Any:
        result = getattr(bytes, name)(self, *arguments)
        start = arguments[1] if name in {"count", "find"} and len(arguments) > 1 else 0
        end = arguments[2] if name == "count" and len(arguments) > 2 else len(self)
        if name == "find" and result >= 0:
            end = result + len(arguments[0])
        CountedBytes.gone_through += end - start
        return CountedBytes(result) if isinstance(result, bytes) else result

    return method


for _name in ("translate", "split", "count", "find", "lower"):
    setattr(CountedBytes, _name, _counted(_name))


DENSE = (
    "4 ",
    "4%20",
    "4\u200b",
    "4x",
    "4-1x",
    "4111-",
    "2026-1",
    "DE89 ",
    "cvv ",
    "٤",
    "4111 1111 1111 1111 cvv 123 ",
    "1.",
    "9/9/",
    "+4 ",
    "\U0001f3e0",
)


@for_each("piece", DENSE)
def test_a_document_of_twice_the_length_takes_twice_the_work(piece: str) -> None:
    def work(texts: int) -> int:
        document = CountedBytes(to_json({f"n{number}": piece * (256 // len(piece)) for number in range(texts)}))
        CountedBytes.gone_through = 0
        may_hold_any(document)
        return CountedBytes.gone_through

    assert work(100) <= 2.2 * work(50)


def steps(piece: str, length: int) -> int:
    """How many functions are called to search a text of that many characters."""
    calls = 0

    def count(_frame: object, _event: str, _argument: object) -> None:
        nonlocal calls
        calls += 1

    text = piece * (length // len(piece))
    sys.setprofile(count)
    try:
        find(text)
        may_hold(text)
    finally:
        sys.setprofile(None)
    return calls


@for_each("piece", DENSE)
def test_a_text_of_twice_the_length_takes_twice_the_steps(piece: str) -> None:
    assert steps(piece, 4_000) <= 2.2 * steps(piece, 2_000) + 100
    assert steps(piece, 4_000) <= 40 * 4_000


@for_each("word", ["card ", "verification ", "código de "])
def test_the_words_of_a_code_are_not_read_again_from_each_of_them(word: str) -> None:
    """A row of them took the square of its length."""
    [*_, code] = find(f"4111 1111 1111 1111, {word * 2_000}code 123")
    assert code.what == "security_code"
    found = _CODE_BESIDE_NUMBER.search(f"{word * 100}code 123")
    assert found is not None
    assert len(found[0]) <= 80


def test_the_part_beyond_is_not_examined() -> None:
    assert steps("cvv ", 64 * MAX_EXAMINED) <= 2 * steps("cvv ", MAX_EXAMINED) + 100


@pytest.mark.parametrize("spelt", ["4111 1111 1111 1111", "\n".join(NUMBER)])
def test_no_digit_of_a_number_is_left_where_the_examined_part_of_a_text_ends(spelt: str) -> None:
    for before in (0, MAX_EXAMINED - 400, *range(MAX_EXAMINED - 40, MAX_EXAMINED + 2, 3), 3 * MAX_EXAMINED):
        text = "x" * before + " " + spelt + " " + "y" * (2 * MAX_EXAMINED)
        assert may_hold(text)
        assert digits_of(mask(text)) in ("", digits_of(MASKED))


def test_a_long_text_without_a_digit_is_left_as_it_is() -> None:
    assert mask(text := "word " * MAX_EXAMINED) is text


# --- the plain form finds the same ---

_PIECES = (
    *(
        "4111 1111 1111 1111",
        NUMBER,
        "378282246310005",
        "3782 822463 10005",
        "4111x1111x1111x1111",
        "6304000000000000000",
        "4222222222222",
    ),
    *(
        " ",
        "-",
        ".",
        "/",
        ",",
        "x",
        "+",
        "cvv 123",
        "cvc: 1234",
        "card code 987",
        "12/31",
        "DE89370400440532013000",
        "2027-01-01",
        "15:30",
    ),
    *(
        "4",
        "41",
        "411",
        "5555",
        "0049",
        "٤",
        "\u200b",
        "\n",
        '"',
        "**",
        "is",
        "4.123456",
        "550e8400-e29b-41d4-a716-446655440000",
        "no 7 ",
    ),
)
_drawn = st.lists(st.sampled_from(_PIECES) | st.text("0123456789", max_size=6), max_size=30).map("".join)


@lives({"change": 400, "full": 20_000, "long": 500_000})
@given(_drawn | st.text("0123456789 -x4", max_size=120))
def test_what_is_found_is_what_the_plain_search_finds(text: str) -> None:
    assert list(find(text)) == list(plain_card_search.find(text))
    assert may_hold(text) == plain_card_search.may_hold(text)
    document = to_json({"a": text, "b": [text, "4 4"], "c": "x"})
    assert may_hold_any(document) == plain_card_search.may_hold_any(document)


# --- how often something else is taken for a card ---

_CHANCE = random.Random(16)


def _filled(shape: str) -> str:
    """`#` is any digit, `@` any but zero."""
    return "".join(str(_CHANCE.randrange(each == "@", 10)) if each in "#@" else each for each in shape)


def _one_of(*shapes: str) -> Callable[[], str]:
    return lambda: _filled(_CHANCE.choice(shapes))


PHONES = _one_of(
    *(
        "+34 @## ### ###",
        "+34@########",
        "0034 @## ## ## ##",
        "+49 (0) @### ######-##",
        "+49@### #######",
        "+1 (@##) ###-####",
    ),
    *(
        "1-@##-###-#### x####",
        "+44 7### ######",
        "06.##.##.##.##",
        "+55 11 9@###-####",
        "+86 13@ #### ####",
        "+7 (###) ###-##-##",
    ),
    *(
        "tel:+41-44-###-##-##",
        "+41 44 ### ## ## / +41 79 ### ## ##",
        "34@########",
        "49151########",
        "+62 812-####-####",
    ),
)
IDS = _one_of(
    "@#########", "###-#######-#######", "17@##########", "17@#############", "RES-2026-######", "############"
)
AMOUNTS = _one_of("@##.## EUR", "€@.###,##", "@##.## x @ = @###.##", "@##.#############")
PLACES = _one_of(
    "Calle Mayor @##, @º @ª, 08###", "@### NW @##th St Apt ###, Miami FL #####-####", "@#.######, @.######"
)
NOTES = _one_of(
    "Room ###, code ####, wifi ########",
    "@ adults, @ kids (@, @)",
    "rooms @##, @##, @##, @##, @##",
    "passport #########",
)
DATES = _one_of("2027-0@-1# 1#:0# - 2027-0@-2#", "2#/0@/2027 - 2#/0@/2027", "1#.0@.27")
KINDS = (PHONES, IDS, AMOUNTS, PLACES, NOTES, DATES)
_BETWEEN = (" ", ", ", " - ", " / ", "\n", " please call ", "; ")


def _text() -> str:
    return "".join(_CHANCE.choice(KINDS)() + _CHANCE.choice(_BETWEEN) for _ in range(_CHANCE.randint(2, 5)))


_WITHIN = ("{}", "v1,{}", "sha256={}", "order_{}", "00-{:.32}-{:.16}-01", "took 12 ms, signature={} key 4")


def test_no_hash_and_no_key_is_taken_for_one() -> None:
    drawn = random.Random(7)
    hexadecimal = (drawn.randbytes(size).hex() for size in (16, 32, 64) for _ in range(1_000))
    texts = [within.format(each, each) for each, within in zip(hexadecimal, cycle(_WITHIN), strict=False)]
    assert any(is_card_number(digits) for text in texts for digits in re.findall("[0-9]{13,19}", text))
    assert [text for text in texts if find(text)] == []


@for_each(
    "name",
    [
        "booking-c70fe002-4d4a-4609-8623-54170730daf9",
        "order_30916e477d5cef6e38356696020546cb",
        "req_b0cfb6cd4412421764476de0",
        f"v1,{NUMBER}abcdef0123456789",
        f"00-{NUMBER}abcdef0123456789-00f067aa0ba902b7-01",
    ],
)
def test_nor_one_that_says_what_it_is_of(name: str) -> None:
    assert mask(name) == name


@pytest.mark.parametrize("within", ["v1,{}", "sha256={}", "{} 30916e477d5cef6e38356696020546cb", "key_{}abc"])
def test_a_number_beside_or_like_a_hash_is_found(within: str) -> None:
    text = within.format(NUMBER)
    assert [text[each.start : each.end] for each in find(text)] == [NUMBER]


def test_a_number_beside_few_letters_is_no_hash() -> None:
    assert mask(f"{NUMBER} card 0000 0000 0000") != f"{NUMBER} card 0000 0000 0000"
    assert may_hold(f"{NUMBER}abc{NUMBER}")


def test_of_ordinary_texts_fewer_than_one_in_a_thousand_is_taken_for_one() -> None:
    samples = 4000
    assert sum(bool(find(make())) for make in KINDS for _ in range(samples // len(KINDS))) <= samples / 2000
    assert sum(bool(find(_text())) for _ in range(samples)) <= samples / 1000
