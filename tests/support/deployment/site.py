"""Where a deployment of the tests runs, and the settings that make it run there."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from forwarder import settings
from forwarder.process.addresses import is_local
from forwarder.settings import Environment, Settings
from tests.support.backends import Backend
from tools.servers.reaper import Reaper

SECRET_KEY = "a-secret-of-the-tests-and-of-nothing-else"


@dataclass(frozen=True, slots=True)
class Site:
    """Where a deployment runs: its backend's settings, a directory of its own, and who ends what it starts."""

    backend: Backend
    directory: Path
    settings: Mapping[str, str]
    reaper: Reaper


def site_settings(backend: Backend, directory: Path, kafka: str | None, database: str | None) -> dict[str, str]:
    """The environment that makes a forwarder run on `backend`; its topics are nobody else's."""
    common = {
        "FORWARDER_DATA_DIR": str(directory / "data"),
        "FORWARDER_PARTITIONS": "4",
        # Short, so that a test need not wait long for what a killed process held.
        "FORWARDER_PUSH_TIMEOUT_SECONDS": "4",
        "FORWARDER_SETTLES_SECONDS": "1",  # the simulator shows at once what it made
        "FORWARDER_LEASE_SECONDS": "6",
        "FORWARDER_SESSION_SECONDS": "3",
        "FORWARDER_LAME_DUCK_SECONDS": "0",  # nobody balances here
    }
    if backend == "embedded":
        return common
    assert kafka is not None
    assert database is not None
    hosts = (urlsplit(database).hostname, urlsplit(f"//{kafka.partition(',')[0]}").hostname)
    if not all(
        host and is_local(host) for host in hosts
    ):  # in a container, say: what the tests write there is nobody's
        common["FORWARDER_ALLOW_PLAINTEXT"] = "true"
    return {
        **common,
        "FORWARDER_KAFKA_BOOTSTRAP_SERVERS": kafka,
        "FORWARDER_DATABASE_URL": database,
        "FORWARDER_SECRET_KEY": SECRET_KEY,
        "FORWARDER_TOPIC_PREFIX": f"t{secrets.token_hex(4)}.",
    }


def settings_of(site: Site) -> Settings:
    """What the site's environment means to a process of ours. The values are checked as theirs are."""
    environment = Environment.model_validate(
        {name.removeprefix("FORWARDER_").lower(): value for name, value in site.settings.items()}
    )
    return settings.settings_of(environment)
