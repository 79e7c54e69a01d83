"""Makes untrusted text safe to display. Pure."""

import re
from typing import Final

OBEYED: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and line feed, characters that change the text direction or end lines, and lone surrogates."""


def printable(text: str) -> str:
    """`text` with characters that a terminal or a browser would interpret escaped as their code points."""
    return OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)
