"""Every operation of the contract reaches the stage that serves it, through one port: as the file reads, and as nginx does it."""

import asyncio
import ssl
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.backends import missing
from tests.support.cases import for_each
from tests.support.deployment.shipped.compose_file import service
from tests.support.deployment.shipped.proxy_config import ProxyConfig, local_config, nginx, nginx_command
from tools.servers.certificates import Authority
from tools.servers.ladder import Unavailable
from tools.servers.real_servers import RealServers
from tools.servers.server_process import ServerProcess, free_ports

UPSTREAMS = ("ingress", "query", "notifier")
ROUTES = [
    ("POST", "/api/v1/vrs/reservations/booking-engine", "ingress"),
    ("POST", "/api/v1/vrs/reservations/booking-engine/", "ingress"),
    ("POST", "/api/v1/vrs/reservations", "ingress"),
    ("POST", "/api/v1/vrs/reservations/", "ingress"),
    ("GET", "/api/vrs/reservations", "query"),
    ("GET", "/api/vrs/reservations/", "query"),
    ("GET", "/api/v1/vrs/reservations", "query"),
    ("GET", "/api/v1/vrs/reservations/", "query"),
    ("GET", "/api/v1/vrs/reservations/17", "query"),
    ("HEAD", "/api/v1/vrs/reservations", "query"),
    ("GET", "/api/v1/vrs/submissions/0192f0c1-aa", "query"),
    ("DELETE", "/api/v1/vrs/reservations", "query"),
    ("GET", "/api/v2/elsewhere", "query"),
    ("POST", "/api/v1/vrs/reservations/17/cancel", "ingress"),
    ("GET", "/api/v1/vrs/webhooks", "notifier"),
    ("POST", "/api/v1/vrs/webhooks", "notifier"),
    ("PATCH", "/api/v1/vrs/webhooks/whk_1", "notifier"),
    ("DELETE", "/api/v1/vrs/webhooks/whk_1", "notifier"),
    ("POST", "/api/v1/vrs/webhooks/whk_1/deliveries/7/resend", "notifier"),
    ("GET", "/api/v1/vrs/webhooks2", "query"),
    ("GET", "/openapi.json", "query"),
    ("GET", "/docs", "query"),
    ("GET", "/problems", "query"),
    ("GET", "/problems/card_refused", "query"),
    ("GET", "/simulator/count", None),
    ("GET", "/healthz", None),
    ("GET", "/metrics", None),
    ("GET", "/", "query"),
    ("GET", "/asyncapi.yaml", "query"),
    ("GET", "/docs/scalar.js", "query"),
    ("GET", "/docs/guides/first-steps", "query"),
    ("GET", "/docsx", None),
    ("GET", "/nowhere", None),
]


@for_each(("method", "path", "stage"), ROUTES)
def test_the_configuration_routes_by_path_and_method(method: str, path: str, stage: str | None) -> None:
    assert ProxyConfig.read().upstream(method, path) == stage


def test_the_upstreams_are_the_services_and_their_ports() -> None:
    upstreams = ProxyConfig.read().upstreams

    assert upstreams == {name: f"{name}:{service(name).port}" for name in UPSTREAMS}


@pytest.fixture
async def stages() -> AsyncIterator[dict[str, str]]:
    """A server in the place of each stage, which answers with its own name and the request's first line."""

    async def answer(name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line = head.split(b"\r\n")[0].decode().removesuffix(" HTTP/1.1")
        writer.write(f"HTTP/1.1 200 OK\r\nx-stage: {name}\r\nx-line: {line}\r\ncontent-length: 0\r\n\r\n".encode())
        writer.close()
        await writer.wait_closed()

    servers = {
        name: await asyncio.start_server(
            lambda reader, writer, name=name: answer(name, reader, writer),  # type: ignore[misc]
            "127.0.0.1",
            0,
        )
        for name in UPSTREAMS
    }
    yield {name: f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for name, server in servers.items()}
    for server in servers.values():
        server.close()
        await server.wait_closed()


@pytest.fixture
async def proxy(real_servers: RealServers, stages: dict[str, str]) -> AsyncIterator[httpx.AsyncClient]:
    """nginx itself, in front of the stages."""
    program = nginx()
    if program is None:
        missing(Unavailable("nginx is not installed"))
    directory = real_servers.reaper.directory()
    port, within = free_ports(2)
    try:
        authority = Authority(directory / "certificates")
    except Unavailable as reason:
        missing(reason)
    shown = authority.issue("proxy", "IP:127.0.0.1")
    config = local_config(directory, stages, f"127.0.0.1:{port}", f"127.0.0.1:{within}", shown)
    process = ServerProcess(nginx_command(program, config), real_servers.reaper)
    await asyncio.to_thread(process.start)
    trusted = ssl.create_default_context(cafile=authority.file)
    async with httpx.AsyncClient(base_url=f"https://127.0.0.1:{port}", verify=trusted) as client:
        yield client
    await asyncio.to_thread(process.stop)


async def test_nginx_routes_by_path_and_method(proxy: httpx.AsyncClient) -> None:
    found = [(method, path, (await proxy.request(method, path)).headers.get("x-stage")) for method, path, _ in ROUTES]

    assert found == ROUTES


async def test_nginx_passes_on_the_path_and_the_query_as_they_came(proxy: httpx.AsyncClient) -> None:
    listed = await proxy.get("/api/vrs/reservations/?cursor=11&limit=20")
    one = await proxy.get("/api/v1/vrs/submissions/a%2Fb")

    assert listed.headers["x-line"] == "GET /api/vrs/reservations/?cursor=11&limit=20"
    assert one.headers["x-line"] == "GET /api/v1/vrs/submissions/a%2Fb"


async def test_without_tls_nothing_is_answered(proxy: httpx.AsyncClient) -> None:
    async with httpx.AsyncClient() as plain:
        refused = await plain.get(f"http://127.0.0.1:{proxy.base_url.port}/api/vrs/reservations/")

    assert refused.status_code == httpx.codes.BAD_REQUEST
    assert "x-stage" not in refused.headers


async def test_what_the_proxy_refuses_is_a_problem(proxy: httpx.AsyncClient) -> None:
    refused = await proxy.get("/metrics")

    assert refused.status_code == httpx.codes.NOT_FOUND
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["code"] == "not_found"
