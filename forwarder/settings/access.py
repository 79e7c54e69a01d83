"""The settings of who may call, and from where: a part of the environment's variables."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, SecretStr

from forwarder.tenancy.bad_tokens import DEFAULT_PER_MINUTE
from forwarder.tenancy.key_terms import read_networks


def _networks(text: str) -> str:
    networks = read_networks([text])
    if text and not networks:
        raise ValueError("Name the proxies: an address or a network in CIDR notation, several with commas between.")
    return ",".join(map(str, networks))


class AccessVariables(BaseModel):
    """As `Environment`, of which it is a part."""

    trusted_proxies: Annotated[str, AfterValidator(_networks)] = ""
    """Addresses or networks (CIDR, commas between) of proxies, whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed. Unset:
    nobody's."""
    bad_tokens_per_minute: Annotated[int, Field(ge=1)] = DEFAULT_PER_MINUTE
    """Requests with unknown API keys that are answered 401 to one address; more get 429. Right keys from there are let in."""
    metrics_token: Annotated[SecretStr, Field(min_length=16)] | None = None
    """What `/metrics` must be asked with, as `Authorization: Bearer …`; at least 16 characters. Unset: whoever reaches the port may
    ask."""
    metrics_token_file: Path | None = None
    """A file with the token, instead of `FORWARDER_METRICS_TOKEN`."""
