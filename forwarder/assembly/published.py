"""What the code says of itself: the kinds of PMS, and the published contracts."""

from collections.abc import Mapping, Sequence

from pydantic_core import to_json

from forwarder.pms.directory import KINDS
from forwarder.pms.open_contract import open_pms_contract


def pms_kinds() -> Sequence[str]:
    """The kinds of PMS that an account may be of."""
    return sorted(KINDS)


def contracts() -> Mapping[str, str]:
    """The published contracts: file name → text."""
    return {"pms-openapi.json": to_json(open_pms_contract(), indent=2).decode() + "\n"}
