"""How a PostgreSQL URL says that its server is reached: where, whether encrypted, with which files. libpq's words, read as asyncpg
reads them; connects to nothing."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_ENCRYPTED: Final = _MODES[3:]
_VERIFIED: Final = _MODES[4:]
_SESSION_ATTRS: Final = (("target_session_attrs", "PGTARGETSESSIONATTRS"), ("service", "PGSERVICE"))


class BadTransport(ValueError):
    """The URL asks for what cannot be had. Says which of its parameters, and quotes nothing else of it."""


@dataclass(frozen=True, slots=True)
class Transport:
    """`hosts` is empty where the server's socket on this machine is used. A path is a socket, too."""

    hosts: tuple[str, ...]
    encrypted: bool


def transport_of(url: str, environment: Mapping[str, str]) -> Transport:
    """What the URL and libpq's own variables in `environment` come to. Raises `BadTransport`."""
    try:
        parts = urlsplit(url)
    except (
        ValueError
    ) as error:  # an address of IPv6 in brackets that are not paired, or in a list, which Python may refuse
        raise BadTransport("its hosts cannot be read: name one host, or each by a name or an IPv4 address") from error
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    mode = query.get("sslmode") or environment.get("PGSSLMODE") or "prefer"
    if mode not in _MODES:
        raise BadTransport(f"sslmode must be one of {', '.join(_MODES)}")
    if mode in _ENCRYPTED:
        _check_files(query, environment, verified=mode in _VERIFIED)
    # A service is a file of its own, and may name any host.
    service = "(of the service)" if query.get("service") or environment.get("PGSERVICE") else ""
    hosts = unquote(parts.netloc.rpartition("@")[2]) or query.get("host") or service or environment.get("PGHOST") or ""
    return Transport(tuple(_host(each) for each in hosts.split(",") if each), mode in _ENCRYPTED)


def names_session_attrs(url: str, environment: Mapping[str, str]) -> bool:
    """Whether the URL, or libpq's own variables, say which kind of server to connect to, or name a service, whose file may."""
    query = parse_qs(urlsplit(url).query)
    return any(query.get(name) or environment.get(variable) for name, variable in _SESSION_ATTRS)


def _host(address: str) -> str:
    if address.startswith("/"):
        return address
    return urlsplit(f"//{address}").hostname or address


def _check_files(query: Mapping[str, str], environment: Mapping[str, str], *, verified: bool) -> None:
    """That they are there and fit together: the driver finds out only when it connects, and does not say which of them it was."""
    authority = query.get("sslrootcert") or environment.get("PGSSLROOTCERT")
    certificate, key = query.get("sslcert"), query.get("sslkey")
    if verified and authority is None and not (Path.home() / ".postgresql/root.crt").exists():
        raise BadTransport("sslmode=verify-ca and verify-full need sslrootcert=, the file of the authority to trust")
    if (certificate is None) != (key is None):
        raise BadTransport(
            f"{'sslcert' if key else 'sslkey'} is missing: a client certificate needs sslcert= and sslkey="
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if authority is not None:
            context.load_verify_locations(authority)
    except OSError as error:
        raise BadTransport(f"sslrootcert={authority} cannot be used: {error.strerror}") from None
    try:
        if certificate is not None:
            context.load_cert_chain(certificate, key, password=query.get("sslpassword", ""))
    except OSError as error:
        raise BadTransport(f"sslcert={certificate} and sslkey={key} cannot be used: {error.strerror}") from None
