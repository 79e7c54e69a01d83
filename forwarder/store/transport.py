"""The connection settings in a PostgreSQL URL: hosts, encryption, certificate files; libpq's, interpreted as by asyncpg."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

_ENCRYPTED: Final = ("require", "verify-ca", "verify-full")
_MODES: Final = ("disable", "allow", "prefer", *_ENCRYPTED)


class BadTransport(ValueError):
    """The URL has unusable settings. The message names the parameter, and quotes nothing else of the URL."""


@dataclass(frozen=True, slots=True)
class DatabaseTransport:
    """`hosts` is empty if the server's local socket is used. A path is a socket, too. `certificate`: the file of our own one."""

    hosts: tuple[str, ...]
    encrypted: bool
    certificate: Path | None = None


def transport_of(url: str, environment: Mapping[str, str]) -> DatabaseTransport:
    """The settings from the URL and libpq's variables in `environment`. Raises `BadTransport`."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        # An address of IPv6 in brackets that are not paired, or in a list, which Python may refuse.
        raise BadTransport("its hosts cannot be read: name one host, or each by a name or an IPv4 address") from error
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    mode = query.get("sslmode") or environment.get("PGSSLMODE") or "prefer"
    if mode not in _MODES:
        raise BadTransport(f"sslmode must be one of {', '.join(_MODES)}")
    if mode in _ENCRYPTED:
        _check_files(query, environment, verified=mode != "require")
    # A service is a file of its own, and may name any host.
    service = "(of the service)" if query.get("service") or environment.get("PGSERVICE") else ""
    hosts = unquote(parts.netloc.rpartition("@")[2]) or query.get("host") or service or environment.get("PGHOST") or ""
    named: list[str] = []
    for each in filter(None, hosts.split(",")):
        port = "" if each.startswith("/") else each.rpartition("]")[2].partition(":")[2]
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):  # noqa: PLR2004
            raise BadTransport("a port must be a number from 1 to 65535")
        named.append(each if each.startswith("/") else urlsplit(f"//{each}").hostname or each)
    own = query.get("sslcert") if mode in _ENCRYPTED else None
    return DatabaseTransport(tuple(named), mode in _ENCRYPTED, Path(own) if own else None)


def names_session_attrs(url: str, environment: Mapping[str, str]) -> bool:
    """Whether the URL, or libpq's variables, set the kind of server to connect to, or name a service, whose file may set it."""
    query = parse_qs(urlsplit(url).query)
    names = {"target_session_attrs": "PGTARGETSESSIONATTRS", "service": "PGSERVICE"}
    return any(query.get(name) or environment.get(variable) for name, variable in names.items())


def _check_files(query: Mapping[str, str], environment: Mapping[str, str], *, verified: bool) -> None:
    """Checks that the files exist and match: the driver would fail only when it connects, without naming the file."""
    authority = query.get("sslrootcert") or environment.get("PGSSLROOTCERT")
    certificate, key = query.get("sslcert"), query.get("sslkey")
    if verified and authority is None and not (Path.home() / ".postgresql/root.crt").exists():
        raise BadTransport("sslmode=verify-ca and verify-full need sslrootcert=, the file of the authority to trust")
    if (certificate is None) != (key is None):
        missing = "sslcert" if key else "sslkey"
        raise BadTransport(f"{missing} is missing: a client certificate needs sslcert= and sslkey=")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    read = f"sslrootcert={authority}"
    try:
        if authority is not None:
            context.load_verify_locations(authority)
        read = f"sslcert={certificate} and sslkey={key}"
        if certificate is not None:
            context.load_cert_chain(certificate, key, password=query.get("sslpassword", ""))
    except OSError as error:
        raise BadTransport(f"{read} cannot be used: {error.strerror}") from None
