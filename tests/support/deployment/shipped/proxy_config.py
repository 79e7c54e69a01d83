"""`deploy/proxy/nginx.conf`, parsed: where it sends a request, told as nginx would decide, and the same file for local ports."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import crossplane

from tools.servers.certificates import Certificate
from tools.servers.server_process import Command

PROXY_CONFIG = Path(__file__).parents[4] / "deploy" / "proxy" / "nginx.conf"
_Directive = dict[str, Any]


def nginx() -> str | None:
    """The program, where it is installed; Debian keeps it out of a user's PATH."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """The parts of the configuration that decide where a request goes."""

    stages: tuple[tuple[str, str], ...]
    locations: tuple[tuple[tuple[str, ...], str | None], ...]
    upstreams: Mapping[str, str]

    @classmethod
    def read(cls) -> Self:
        """Parse the file. An error in it is an error here."""
        parsed = crossplane.parse(str(PROXY_CONFIG), single=True, catch_errors=False)
        (http,) = _named("http", parsed["config"][0]["parsed"])
        (stage_map,) = _named("map", http)
        (server,) = _named("server", http)
        return cls(
            stages=tuple((entry["directive"], entry["args"][0]) for entry in stage_map["block"]),
            locations=tuple((tuple(location["args"]), _target(location)) for location in _named("location", server)),
            upstreams={
                upstream["args"][0]: next(_named("server", upstream))["args"][0]
                for upstream in _named("upstream", http)
            },
        )

    def upstream(self, method: str, path: str) -> str | None:
        """The upstream that is asked, None where the proxy answers by itself."""
        target = self._location(path)
        return self._stage(method, path) if target == "$stage" else target

    def _location(self, path: str) -> str | None:
        """An exact location, else the first expression that matches, else the one with the longest prefix."""
        for where, target in self.locations:
            if where == ("=", path):
                return target
        for where, target in self.locations:
            if where[0] == "~" and re.search(where[1], path):
                return target
        prefixes = [(where[0], target) for where, target in self.locations if len(where) == 1]
        return max(((len(prefix), target) for prefix, target in prefixes if path.startswith(prefix)))[1]

    def _stage(self, method: str, path: str) -> str:
        """The first pattern that matches, else the default."""
        for pattern, stage in self.stages:
            if pattern.startswith("~") and re.search(pattern[1:], f"{method} {path}"):
                return stage
        return dict(self.stages)["default"]


def _named(name: str, within: _Directive | list[_Directive]) -> Iterator[_Directive]:
    directives = within if isinstance(within, list) else within["block"]
    return (directive for directive in directives if directive["directive"] == name)


def _target(location: _Directive) -> str | None:
    for directive in _named("proxy_pass", location):
        address: str = directive["args"][0]
        return address.removeprefix("http://").removesuffix("/")
    return None


def local_config(directory: Path, upstreams: Mapping[str, str], listen: str, within: str, shown: Certificate) -> Path:
    """The same configuration with its upstreams, its own addresses and its files where this machine has them. `within` is where it
    answers plain HTTP."""
    text = PROXY_CONFIG.read_text().replace("/tmp/", f"{directory}/")
    here = {
        "listen 8443 ssl;": f"listen {listen} ssl;",
        "listen 127.0.0.1:8080;": f"listen {within};",
        "/run/secrets/tls_certificate;": f"{shown.certificate};",
        "/run/secrets/tls_key;": f"{shown.key};",
    }
    for there, ours in here.items():
        assert there in text, there
        text = text.replace(there, ours)
    for name, address in ProxyConfig.read().upstreams.items():
        text = text.replace(f"server {address};", f"server {upstreams[name]};")
    local = directory / "nginx.conf"
    local.write_text(text)
    return local


def nginx_command(program: str, config: Path) -> Command:
    """nginx in the foreground, which says that it is ready in its log."""
    user = "user root; " if os.geteuid() == 0 else ""
    arguments = [program, "-e", "stderr", "-p", str(config.parent), "-c", str(config)]
    foreground = f"{user}daemon off; error_log stderr notice;"
    return Command("nginx", [*arguments, "-g", foreground], config.parent / "nginx.log", ready="start worker process")
