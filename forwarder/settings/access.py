"""Access settings: who may call, and from where."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, SecretStr

from forwarder.tenancy.access import DEFAULT_PER_MINUTE
from forwarder.tenancy.api_keys import read_networks


def _networks(text: str) -> str:
    networks = read_networks([text])
    if text and not networks:
        raise ValueError("Name the proxies: an address or a network in CIDR notation, several with commas between.")
    return ",".join(map(str, networks))


class AccessVariables(BaseModel):
    """A part of `Environment`."""

    trusted_proxies: Annotated[str, AfterValidator(_networks)] = ""
    """Trust `X-Forwarded-For` and `X-Forwarded-Proto` only from these proxies: addresses or networks (CIDR), comma-separated.
    Default: none."""
    bad_tokens_per_minute: Annotated[int, Field(ge=1)] = DEFAULT_PER_MINUTE
    """How many requests with unknown API keys from one address get 401 per minute; more get 429. Valid keys from there still
    work."""
    metrics_token: Annotated[SecretStr, Field(min_length=16)] | None = None
    """Bearer token required for `/metrics`; at least 16 characters. Default: no authentication."""
    metrics_token_file: Path | None = None
    """A file with the token, instead of `FORWARDER_METRICS_TOKEN`."""
