"""Whose certificates an account believes, and by which its PMS knows us: an SSL context for each, made once."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path

import certifi

from forwarder.pms.port import BadOptions, ClientTls


@cache
def system_trust() -> ssl.SSLContext:
    """Believes whom the system does; on a machine without certificates of its own, such as a bare container, whom Mozilla does."""
    return _new_context(None)


@lru_cache(maxsize=1024)
def trust_of(tls: ClientTls) -> ssl.SSLContext:
    """The same one for the same certificates. Raises `BadOptions` where they cannot be used, or do not fit together."""
    if tls.authorities == "" or (tls.certificate is None) != (tls.key is None):
        raise BadOptions("A client certificate needs its key, and authorities are one certificate or more (PEM).")
    try:
        context = _new_context(tls.authorities)
    except ssl.SSLError as error:
        raise BadOptions(f"The authorities cannot be read as PEM certificates: {error.reason or error}.") from None
    if tls.certificate is not None and tls.key is not None:
        try:
            with _as_file(f"{tls.key}\n{tls.certificate}") as file:
                # Without a password OpenSSL would ask for one at the terminal.
                context.load_cert_chain(file, password="")
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror
            detail = f"The client certificate and its key (PEM, without a password) cannot be used together: {reason}."
            raise BadOptions(detail) from None
    return context


def _new_context(authorities: str | None) -> ssl.SSLContext:
    if authorities is not None:
        context = ssl.create_default_context(cadata=authorities)
    else:
        paths = ssl.get_default_verify_paths()
        there_are = paths.cafile or (paths.capath and any(Path(paths.capath).iterdir()))
        context = ssl.create_default_context(cafile=None if there_are else certifi.where())
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """The name of a file with it, for OpenSSL, which reads keys from files alone: in memory where the system has that, else
    one that only this user may read, as long as this lasts."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("key"), "w", encoding="utf-8") as memory:
            memory.write(text)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        yield file.name
