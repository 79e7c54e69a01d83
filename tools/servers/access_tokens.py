"""Access tokens (JWT, RS256) as an authorization server signs them, and the keys (JWKS) by which they are checked. By the `openssl`
of this machine."""

import base64
import json
import time
from pathlib import Path
from typing import Any, Final

from tools.servers.certificates import run_openssl

_EXPONENT: Final = 65537


class TokenSigner:
    """Signs tokens for `audience` as `issuer`. Writes to `directory`; `jwks` is the file of its public key. Making one raises
    `Unavailable` where there is no openssl."""

    def __init__(self, directory: Path, issuer: str, audience: str) -> None:
        self.issuer, self.audience = issuer, audience
        self.jwks = directory / "jwks.json"
        self._key = directory / "tokens.key"
        run_openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(self._key))
        modulus = run_openssl("rsa", "-in", str(self._key), "-noout", "-modulus").decode().strip().partition("=")[2]
        key = {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256"}
        key |= {"n": _text(bytes.fromhex(modulus)), "e": _text(_EXPONENT.to_bytes(3, "big"))}
        self.jwks.write_text(json.dumps({"keys": [key]}))

    def token(self, subject: str, *, life: float = 3600.0, **claims: Any) -> str:
        """For `subject`, until `life` seconds from now; `claims` replace its own."""
        now = int(time.time())
        own = {"iss": self.issuer, "aud": self.audience, "sub": subject, "iat": now, "exp": int(now + life)}
        parts = ({"alg": "RS256", "typ": "JWT", "kid": "1"}, own | claims)
        content = ".".join(_text(json.dumps(part).encode()) for part in parts)
        return f"{content}.{_text(run_openssl('dgst', '-sha256', '-sign', str(self._key), content=content.encode()))}"


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
