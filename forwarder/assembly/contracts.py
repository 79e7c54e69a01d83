"""The published contracts, generated."""

from collections.abc import Mapping
from functools import cache

from forwarder.published.compatibility import broken_promises, promises
from forwarder.published.files import contract_files, page_files


@cache
def contracts() -> Mapping[str, str]:
    """Those of schemas/: path below it → text."""
    return contract_files()


def pages() -> Mapping[str, str]:
    """The pages for readers that are generated: path below docs/ → text."""
    return page_files()


def promised() -> Mapping[str, str]:
    """Those of the contracts that a release promises to keep: path below schemas/ → text."""
    return promises(contracts())


def breaks_of(released: Mapping[str, str]) -> list[str]:
    """What a client of the contracts that were `released` would find broken; empty where everything was only added."""
    return broken_promises(released, contracts())
