"""TLS of the HTTP server: which variables belong together, and whether their files are usable."""

from forwarder.http.tls import TlsFiles
from forwarder.settings.environment import BadSettings, Environment

_NAMES = ("FORWARDER_TLS_CERTIFICATE_FILE", "FORWARDER_TLS_KEY_FILE", "FORWARDER_TLS_CLIENT_CA_FILE")


def tls_files(environment: Environment) -> TlsFiles | None:
    """The files to serve HTTPS with; None for plain HTTP."""
    certificate, key = environment.tls_certificate_file, environment.tls_key_file
    if certificate is None or key is None:
        return None
    return TlsFiles(certificate, key, environment.tls_client_ca_file)


def check_tls(environment: Environment) -> None:
    """Raises `BadSettings` for incomplete or unusable TLS settings."""
    given = (environment.tls_certificate_file, environment.tls_key_file, environment.tls_client_ca_file)
    named = [f"{name}={path}" for name, path in zip(_NAMES, given, strict=True) if path is not None]
    files = tls_files(environment)
    if files is None and named:
        missing = [name for name, path in zip(_NAMES[:2], given, strict=False) if path is None]
        raise BadSettings(f"{' and '.join(missing)} must be set, because {', '.join(named)} is: HTTPS needs both.")
    try:
        if files is not None:
            files.context()
    except OSError as error:
        raise BadSettings(f"{', '.join(named)} cannot be used: {error.strerror or error}") from None
