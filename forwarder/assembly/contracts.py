"""The published contracts, generated."""

from collections.abc import Mapping

from forwarder.published.files import contract_files, page_files


def contracts() -> Mapping[str, str]:
    """Those of schemas/: path below it → text."""
    return contract_files()


def pages() -> Mapping[str, str]:
    """The pages for readers that are generated: path below docs/ → text."""
    return page_files()
