"""A real Prometheus beside a deployment, with our rules made quick: thresholds and windows of seconds instead of minutes."""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from tools.servers.reaper import Reaper
from tools.servers.server_process import LOCALHOST, Command, ServerProcess, free_ports

RULES: Final = Path(__file__).resolve().parents[3] / "deploy" / "monitoring" / "prometheus-rules.yml"
_LOOK_SECONDS: Final = 0.2
_WINDOW: Final = re.compile(r"\[\d+[mh]\]|(?<=offset )\d+[mh]")
_QUICK: Final = {
    "ForwarderLag": ("> 120", "> 10"),
    "ForwarderIntakeStalled": ("> 60", "> 10"),
    "ForwarderOldestPending": ("> 1800", "> 15"),
    "ForwarderPmsSlow": ("> 10", "> 1"),
    "ForwarderWebhookBehind": ("> 900", "> 3"),
}
"""Thresholds in seconds that nobody waits for in a test."""


def quick_rules() -> dict[str, Any]:
    """The rules as they are shipped, but for how long they wait and look back."""
    rules: dict[str, Any] = yaml.safe_load(RULES.read_text())
    for rule in alerts_of(rules):
        rule["expr"] = _WINDOW.sub(lambda found: "[15s]" if found[0].startswith("[") else "15s", rule["expr"])
        if rule["alert"] in _QUICK:
            before, after = _QUICK[rule["alert"]]
            assert before in rule["expr"], rule
            rule["expr"] = rule["expr"].replace(before, after)
        rule["for"] = "1s"
    return rules


def alerts_of(rules: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for group in rules["groups"]:
        yield from group["rules"]


class Prometheus:
    """Scrapes these targets every second."""

    def __init__(self, directory: Path, targets: Sequence[str], reaper: Reaper) -> None:
        directory.mkdir(parents=True)
        (port,) = free_ports(1)
        self.client = httpx.AsyncClient(base_url=f"http://{LOCALHOST}:{port}", timeout=30.0)
        (directory / "rules.yml").write_text(yaml.safe_dump(quick_rules()))
        every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        scraped = [{"job_name": "forwarder", "static_configs": [{"targets": list(targets)}]}]
        config = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": scraped}
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        arguments = [
            "prometheus",
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={LOCALHOST}:{port}",
        ]
        command = Command(
            "prometheus", arguments, directory / "prometheus.log", "Server is ready to receive web requests"
        )
        self.process = ServerProcess(command, reaper)

    async def _asked(self, path: str, **parameters: str) -> Any:
        answer = await self.client.get(f"/api/v1/{path}", params=parameters)
        answer.raise_for_status()
        return answer.json()["data"]

    async def up(self) -> set[str]:
        """The targets that could be scraped."""
        found = await self._asked("query", query="up == 1")
        return {each["metric"]["instance"] for each in found["result"]}

    async def names(self) -> set[str]:
        """Of all series that there ever were."""
        return set(await self._asked("label/__name__/values"))

    async def value(self, expression: str) -> list[tuple[dict[str, str], float]]:
        found = await self._asked("query", query=expression)
        return [(each["metric"], float(each["value"][1])) for each in found["result"]]

    async def firing(self) -> list[dict[str, Any]]:
        """The alerts that fire, with their labels and annotations."""
        return [each for each in (await self._asked("alerts"))["alerts"] if each["state"] == "firing"]

    async def fires(self, name: str, **labels: str) -> dict[str, Any]:
        """The alert, once it fires with these labels."""
        while True:
            for each in await self.firing():
                if {"alertname": name, **labels}.items() <= each["labels"].items():
                    return each
            await asyncio.sleep(_LOOK_SECONDS)  # it can only be asked

    async def quiet(self, name: str, **labels: str) -> None:
        """Return once it does not fire any more."""
        while any({"alertname": name, **labels}.items() <= each["labels"].items() for each in await self.firing()):
            await asyncio.sleep(_LOOK_SECONDS)
