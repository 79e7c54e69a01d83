"""A certificate authority for tests, and what it signs. By the `openssl` of this machine."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.servers.ladder import Unavailable

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files."""

    certificate: Path
    key: Path

    def chained(self) -> Path:
        """Key and certificate in one file, as Kafka's keystores have them."""
        file = self.key.with_suffix(".keystore.pem")
        file.write_text(self.key.read_text() + self.certificate.read_text())
        return file


class Authority:
    """Signs certificates for whoever asks. Writes to `directory`. Making one raises `Unavailable` where there is no openssl."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.own = self._made(name, "-x509", "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    @property
    def file(self) -> Path:
        return self.own.certificate

    def issue(self, name: str, *alternative_names: str) -> Certificate:
        """To `name`; a server's with the alternative names that it is reached by, such as `DNS:localhost`."""
        extension = ["-addext", f"subjectAltName={','.join(alternative_names)}"] if alternative_names else []
        by = ("-x509", "-CA", str(self.own.certificate), "-CAkey", str(self.own.key))
        return self._made(name, *by, "-addext", "basicConstraints=critical,CA:FALSE", *extension)

    def issue_expired(self, name: str, *alternative_names: str) -> Certificate:
        """As `issue`, and no longer valid since yesterday."""
        asked = self._made(name, "-new", "-addext", f"subjectAltName={','.join(alternative_names)}")
        by = ("-CA", str(self.own.certificate), "-CAkey", str(self.own.key), "-copy_extensions", "copyall")
        signed = asked.certificate.with_suffix(".expired.pem")
        run_openssl("x509", "-req", "-in", str(asked.certificate), *by, "-days", "-1", "-out", str(signed))
        return Certificate(signed, asked.key)

    def _made(self, name: str, *arguments: str) -> Certificate:
        made = Certificate(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        files = ("-out", str(made.certificate), "-keyout", str(made.key))
        run_openssl("req", *_KEY, "-subj", f"/CN={name}", *files, *arguments)
        return made


def run_openssl(*arguments: str, content: bytes = b"") -> bytes:
    """What it writes when it is given `content`. Raises `Unavailable`."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise Unavailable("openssl is not installed")
    done = subprocess.run([openssl, *arguments], input=content, capture_output=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"openssl {arguments[0]} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
