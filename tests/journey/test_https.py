"""`forwarder up` over HTTPS, with a certificate of its operator's own."""

import ssl
from pathlib import Path

import httpx
from dotenv import dotenv_values

from tests.support.backends import missing
from tests.support.deployment.deployment import Deployment, Site, booking, site_settings
from tools.servers.certificates import Authority
from tools.servers.ladder import Unavailable
from tools.servers.real_servers import RealServers


async def test_a_reservation_is_confirmed_over_https(tmp_path: Path, real_servers: RealServers) -> None:
    try:
        authority = Authority(tmp_path / "certificates")
    except Unavailable as reason:
        missing(reason)
    own = authority.issue("forwarder", "IP:127.0.0.1")
    files = {"FORWARDER_TLS_CERTIFICATE_FILE": str(own.certificate), "FORWARDER_TLS_KEY_FILE": str(own.key)}
    settings = site_settings("embedded", tmp_path, None, None) | files
    deployment = Deployment(Site("embedded", tmp_path, settings, real_servers.reaper))
    deployment.add("up")
    try:
        await deployment.start()
        (demo,) = tmp_path.rglob("demo.env")
        told = {name: value or "" for name, value in dotenv_values(demo).items()}
        assert told["FORWARDER_URL"].startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=authority.file)
        async with httpx.AsyncClient(verify=trusted, base_url=told["FORWARDER_URL"], timeout=30.0) as client:
            headers = {
                "Authorization": f"Bearer {told['FORWARDER_TOKEN']}",
                "workspaceId": told["FORWARDER_WORKSPACE"],
                "integrationAccountId": "demo-generic",
                "Prefer": "wait=20",
            }
            answer = await client.post("/api/v1/vrs/reservations", headers=headers, json=booking(1))
            assert (answer.status_code, answer.json()["data"]["status"]) == (201, "CONFIRMED"), answer.text
    finally:
        await deployment.stop()
        await deployment.client.aclose()
