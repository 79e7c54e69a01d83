"""Names of countries, as callers of the general operation write them, to the codes of two letters that PMSs take. Pure."""

import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_CODE = re.compile(r"[A-Z]{2}")
_BETWEEN = re.compile(r"[^a-z0-9]+")
_OTHER_CODES = {"UK": "GB", "EL": "GR"}


def code_of(country: object) -> str | None:
    """The ISO 3166-1 code of two letters of a country that is given by its code or by a usual name; None for any other text. A code
    that is in no list is kept: the PMS may know it."""
    text = str(country).strip()
    if _CODE.fullmatch(text):
        return _OTHER_CODES.get(text, text)
    return _codes().get(_plain(text))


@cache
def _codes() -> Mapping[str, str]:
    """The names as `_plain` has them, with both codes of each country."""
    codes: dict[str, str] = {}
    for line in files("forwarder.pms").joinpath("countries.tsv").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            code, longer, names = line.split("\t")
            for name in (code, longer, *names.split(" | ")):
                codes[_plain(name)] = code
    return codes


def _plain(name: str) -> str:
    """Without case, accents, punctuation and a leading article."""
    letters = unicodedata.normalize("NFKD", name.casefold().replace("&", " and "))
    words = _BETWEEN.sub(" ", "".join(letter for letter in letters if not unicodedata.combining(letter))).strip()
    return words.removeprefix("the ")
