"""What a stolen key did: operators list it, cancel it, and see who used which key."""

from typing import Any

from tests.support.backends import slow_on
from tests.support.deployment.deployment import Deployment, booking


@slow_on("distributed")
async def test_what_a_stolen_key_submitted_is_listed_and_cancelled(deployment: Deployment) -> None:
    await deployment.start()
    await deployment.add_account("pms")
    stolen = await deployment.command("key", "add", "--workspace", "demo", "--name", "Channel manager")
    theirs = {"Authorization": f"Bearer {stolen['token']}"}
    ours: list[str] = []
    wanted: list[str] = []
    for number in range(1, 7):
        by_thief = number % 3 == 0
        answer = await deployment.submit("pms", booking(number), **(theirs if by_thief else {}))
        (wanted if by_thief else ours).append(answer.json()["data"]["requestId"])
    for request_id in (*ours, *wanted):
        assert (await deployment.settled("pms", request_id))["status"] == "CONFIRMED"

    listed = await deployment.listed("submissions", "list", "--key", stolen["id"], "--newer-than", "1h")
    assert {each["requestId"] for each in listed} == set(wanted)
    assert {each["apiKeyId"] for each in listed} == {stolen["id"]}
    await deployment.command("key", "revoke", stolen["id"])
    cancelled = await deployment.command("submissions", "cancel", "--key", stolen["id"], "--yes")
    assert (cancelled["done"], cancelled["failed"]) == (len(wanted), {})
    for request_id in wanted:
        data: dict[str, Any] = {}
        while data.get("status") != "CANCELLED":
            data = await deployment.submission("pms", request_id)
    for request_id in ours:
        assert (await deployment.submission("pms", request_id))["status"] == "CONFIRMED"
    entries = await deployment.listed("audit", "list", "--action", "key")
    trail = [each for each in entries if each["target"] == stolen["id"]]
    assert [each["action"] for each in trail] == ["key.revoke", "key.add"]
    assert trail[1]["details"]["name"] == "Channel manager"
