"""When certificates in PEM end. Needs no cryptography library: a certificate's validity is two times side by side."""

import re
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

ENDS_SOON: Final = timedelta(days=14)  # Operators see a warning for certificates and API keys that end sooner
_VALIDITY: Final = re.compile(
    rb"\x30.(?:\x17\x0d\d{12}Z|\x18\x0f\d{14}Z)(?:\x17\x0d(?P<short>\d{12}Z)|\x18\x0f(?P<long>\d{14}Z))", re.DOTALL
)
"""The sequence of two times (UTCTime or GeneralizedTime) in DER: a certificate has one (RFC 5280, section 4.1)."""


def certificate_ends(pem: str) -> datetime:
    """When the first certificate in this text ends, which is the one that its owner shows. Raises `ValueError` if there is none."""
    begin = pem.find(ssl.PEM_HEADER)
    der = ssl.PEM_cert_to_DER_cert(pem[begin : pem.find(ssl.PEM_FOOTER, begin) + len(ssl.PEM_FOOTER)])
    found = _VALIDITY.search(der)
    if found is None:
        raise ValueError("there is no certificate")
    ends = found["short"] or found["long"]
    # Of the two forms, the short one has two digits for the year, up to 2049.
    century = "" if found["short"] is None else "19" if ends[:2] >= b"50" else "20"
    return datetime.strptime(century + ends.decode("ascii"), "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def pem_of(file: Path) -> str:
    """The text of a PEM file. Its comments, which tools write in any encoding, do not matter. Raises `OSError`."""
    return file.read_text(encoding="ascii", errors="replace")


def ends_soon(pem: str, now: datetime) -> bool:
    """Whether it ends within `ENDS_SOON`, has ended, or cannot be read."""
    try:
        return certificate_ends(pem) <= now + ENDS_SOON
    except ValueError:
        return True
