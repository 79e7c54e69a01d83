"""Text from anywhere, made fit for people's eyes. Pure."""

import re
from typing import Final

OBEYED: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and line feed, what turns the direction of text or ends lines, and halves of characters."""


def printable(text: str) -> str:
    """`text` with characters that a terminal or a browser would interpret escaped as their code points."""
    return OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)
