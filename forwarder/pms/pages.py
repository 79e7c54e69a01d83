"""The pages of the built-in kinds of PMS: a YAML file of `forwarder.pms.kinds` each, named as the kind."""

from importlib.resources import files
from typing import Final

_PLACE: Final = files("forwarder.pms").joinpath("kinds")

PAGES: Final = frozenset(page.name.removesuffix(".yaml") for page in _PLACE.iterdir() if page.name.endswith(".yaml"))
"""The kinds that have a page."""


def page_text(kind: str) -> str:
    """The page of that kind."""
    return _PLACE.joinpath(f"{kind}.yaml").read_text(encoding="utf-8")
