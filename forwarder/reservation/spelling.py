"""Finds the known name that a misspelt one probably means. Pure."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final

_MIN_LETTERS: Final = 4
_MAX_NAME: Final = 32
"""No name of ours is longer."""


def nearest(name: str, known: Collection[str]) -> str | None:
    """The one of `known` that differs from `name` by one letter or two swapped ones; ignores case, hyphens and underscores."""
    spelt = _spelt(frozenset(known))
    return next((spelt[each] for each in _spellings(name) if each in spelt), None)


@lru_cache(maxsize=64)
def _spelt(known: frozenset[str]) -> Mapping[str, str]:
    """Each of `known` by all its spellings. A look-up takes microseconds, because a bulk may have thousands of names; `difflib`
    would cost more than the rest of a request."""
    return {spelling: name for name in sorted(known) for spelling in _spellings(name)}


def _spellings(name: str) -> Sequence[str]:
    """Its letters; then its letters without one of them, where they are some: names that differ by a letter share one."""
    if len(name) > _MAX_NAME:
        return ()
    letters = "".join([each for each in name if each.isalnum()]).lower()
    shorter = range(len(letters)) if len(letters) >= _MIN_LETTERS else ()
    return [letters, *[letters[:at] + letters[at + 1 :] for at in shorter]]
