"""How the brokers are reached, and as whom. Says nothing of the driver, so that the settings can be checked without it."""

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
    """What fits together: a mechanism exactly where the protocol has SASL, files only where it has TLS.

    `username` and `password` are for PLAIN and SCRAM, `oauth` for OAUTHBEARER: who is granted tokens, or the file that has one.
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
        """What checks the brokers' certificates and host names; None where nothing is encrypted. Raises `OSError`, whose `filename`
        is None where a file can be read but is not what it should be."""
        if not self.encrypted:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate_file is not None:
            # Without a password OpenSSL would ask for one at the terminal. With an empty one it refuses a key that has one.
            context.load_cert_chain(self.certificate_file, self.key_file, password="")
        return context
