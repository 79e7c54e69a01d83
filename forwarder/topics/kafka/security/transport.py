"""TLS and authentication settings for the brokers. Independent of the driver, so that settings can be checked without it."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """A client of an authorization server that grants tokens by client credentials (RFC 6749, section 4.4)."""

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """A consistent combination: a mechanism only with a SASL protocol, files only with a TLS one.

    `username` and `password` are for PLAIN and SCRAM, `oauth` for OAUTHBEARER: the client that gets tokens, or a file with one.
    Without `ca_file` the system's authorities are trusted.
    """

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    oauth: OAuthClient | Path | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    @property
    def encrypted(self) -> bool:
        return self.protocol in {"SSL", "SASL_SSL"}

    def tls(self) -> ssl.SSLContext | None:
        """The context that verifies the brokers' certificates and host names; None without encryption. Raises `OSError`, whose
        `filename` is None if a file is readable but has the wrong content."""
        if not self.encrypted:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate_file is not None:
            # Without a password OpenSSL would ask for one at the terminal. With an empty one it refuses a key that has one.
            context.load_cert_chain(self.certificate_file, self.key_file, password="")
        return context
