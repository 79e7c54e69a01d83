"""When certificates end, as their owners read it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from forwarder.process.certificates import ENDS_SOON, certificate_ends, ends_soon, pem_of
from tests.support.backends import missing
from tools.servers.certificates import Authority, Certificate, run_openssl
from tools.servers.ladder import Unavailable


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    try:
        return Authority(tmp_path).issue("localhost", "DNS:localhost")
    except Unavailable as reason:
        missing(reason)


def test_the_end_is_what_openssl_shows(certificate: Certificate) -> None:
    shown = run_openssl("x509", "-in", str(certificate.certificate), "-noout", "-enddate").decode().strip()
    ends = datetime.strptime(shown, "notAfter=%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
    chain = certificate.certificate.read_text()
    assert certificate_ends(f"Bag Attributes\n{chain}{chain}") == ends
    assert not ends_soon(chain, ends - ENDS_SOON - timedelta(seconds=1))
    assert ends_soon(chain, ends - ENDS_SOON)


def test_comments_in_any_encoding_do_not_matter(certificate: Certificate) -> None:
    file = certificate.certificate
    ends = certificate_ends(pem_of(file))
    file.write_bytes("friendlyName: Müller\n".encode("latin-1") + file.read_bytes())
    assert certificate_ends(pem_of(file)) == ends


def test_what_cannot_be_read_is_to_be_looked_at(certificate: Certificate) -> None:
    for text in ("", "PEM", certificate.certificate.read_text()[:90], certificate.key.read_text()):
        assert ends_soon(text, datetime.now(UTC))
