"""Our reference at a PMS: the form sent, which the PMS keeps unshortened, and the forms recognized in responses.

It is derived from the request id alone, and is as unique: its first 24 characters have at least 100 bits.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import unescape
from typing import Final
from unicodedata import combining, normalize
from urllib.parse import unquote

_LEAST: Final = 24
_BETWEEN_WORDS: Final = re.compile(r"[\W_]+")
_KNOWN_BY: Final = 20
"""How many letters and digits identify our reference if a PMS cut the rest off: no two ids share them."""
_ANY: Final = re.compile(
    rf"(?<![a-z0-9])rsv[\W_]?(?:[a-z0-9]{{32}}|(?=[a-z]*[0-9])[a-z0-9]{{{_KNOWN_BY - 3},}})", re.IGNORECASE
)
"""Any submission's reference. A shortened one needs a digit, or a field name such as `rsvConfirmationNumber` would be one."""


@dataclass(frozen=True, slots=True)
class ReferenceForm:
    """The form of a reference that a PMS keeps: its first `max_length` characters (at least 24), in capitals if `upper`, without
    the underscore if `alphanumeric`."""

    max_length: int | None = None
    upper: bool = False
    alphanumeric: bool = False

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < _LEAST:
            raise ValueError(f"a reference needs {_LEAST} characters at least")

    @property
    def name(self) -> str:
        """The form's name in evidence."""
        parts = (str(self.max_length or ""), "upper" if self.upper else "", "alphanumeric" if self.alphanumeric else "")
        return "-".join(filter(None, parts)) or "id"

    def of(self, request_id: str) -> str:
        """The reference that is sent for that submission."""
        text = request_id.replace("_", "") if self.alphanumeric else request_id
        text = text[: self.max_length]
        return text.upper() if self.upper else text


AS_IT_IS: Final = ReferenceForm()


def is_reference(shown: object, ours: str) -> bool:
    """Whether `shown` is or contains our reference: unchanged, in other case, with other punctuation, escaped for HTML or
    an address, cut by the PMS, alone without `rsv`, behind a prefix of its own, or in a text."""
    if shown == ours:  # nearly always
        return True
    if not isinstance(shown, str):
        return False
    words, wanted = _words(unquote(unescape(shown))), _bare(ours)
    if "".join(words) == wanted.removeprefix("rsv"):
        return True
    # No more words than letters can be ours together: a PMS repeats texts of guests, which may be long.
    return any(_begins(words[start : start + len(wanted)], wanted) for start in range(len(words)))


def names_another(text: str, ours: str) -> bool:
    """Whether `text` names another submission's reference, in any form in which references are sent, and not ours."""
    text = unquote(text)
    named, wanted = [_bare(found) for found in _ANY.findall(text)], _bare(ours)
    return bool(named) and wanted not in _bare(text) and not any(_is_same(found, wanted) for found in named)


def _is_same(found: str, wanted: str) -> bool:
    return found == wanted or (len(found) >= _KNOWN_BY and wanted.startswith(found))


def _begins(words: Iterable[str], wanted: str) -> bool:
    """Whether the first of `words` together are `wanted`, or as much of it as identifies it."""
    found = ""
    for word in words:
        found += word
        if not wanted.startswith(found) or _is_same(found, wanted):
            break
    return _is_same(found, wanted)


def _words(text: str) -> list[str]:
    plain = text.casefold()
    if not plain.isascii():
        # A Turkish PMS has İ for the capital of i: its dot is a sign of its own in NFKD. One by one: normalizing sorts long runs of
        # such signs, in quadratic time.
        plain = "".join(each for letter in plain for each in normalize("NFKD", letter) if not combining(each))
    return [word for word in _BETWEEN_WORDS.split(plain) if word]


def _bare(text: str) -> str:
    return "".join(_words(text))
