"""Card numbers of test cards, and the ways in which people write one into a text."""

from typing import Final

from forwarder.reservation.checks.card_numbers import passes_luhn

NUMBER: Final = "4111111111111111"
MASKED: Final = "411111******1111"


def _digits_from(zero: int) -> str:
    return NUMBER.translate({ord("0") + digit: zero + digit for digit in range(10)})


SPELLINGS: Final[dict[str, str]] = {
    "digits": NUMBER,
    "spaces": "4111 1111 1111 1111",
    "dashes": "4111-1111-1111-1111",
    "dots": "4111.1111.1111.1111",
    "slashes": "4111/1111/1111/1111",
    "non-breaking spaces": "4111\u00a01111\u00a01111\u00a01111",
    "zero-width spaces": "\u200b".join(NUMBER),
    "line breaks": "4111\n1111\r\n1111\n1111",
    "em dashes": "4111—1111—1111—1111",
    "letters": "4111x1111x1111x1111",
    "words": "4111 and 1111 and 1111 and 1111",
    "digit by digit": " ".join(NUMBER),
    "pairs": "41-11-11-11-11-11-11-11",
    "mixed": "411 11111-1111.1111",
    "full-width": _digits_from(0xFF10),
    "Arabic-Indic": _digits_from(0x0660),
    "mathematical": _digits_from(0x1D7CE),
    "quotes": 'No. "4111" "1111" "1111" "1111"',
    "beside a word": "visa4111111111111111exp",
    "with expiry and code": "4111 1111 1111 1111 12/31 987",
}

ESCAPED: Final[dict[str, str]] = {
    "a URL's spaces": "4111%201111%201111%201111",
    "a URL's non-breaking spaces": "4111%C2%A01111%C2%A01111%C2%A01111",
    "a URL's dashes": "4111%2d1111%2d1111%2d1111",
    "HTML's non-breaking spaces": "4111&#160;1111&#xA0;1111&#160;1111",
    "JSON in a text": "4111\\u00a01111\\u00A01111\\u00a01111",
}
"""The same with separators that are written with digits."""


def planted_card(number: int) -> str:
    """A card number of its own for each of a million."""
    body = f"424242{number:06d}424"
    return next(body + str(check) for check in range(10) if passes_luhn(body + str(check)))
