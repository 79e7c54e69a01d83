"""`forwarder listen --api`: with an API key and an address, a program on this machine is posted what becomes of submissions."""

import json
import signal

from standardwebhooks import Webhook

from tests.support.backends import slow_on
from tests.support.deployment.deployment import Deployment, booking
from tests.support.deployment.following import Following, begin, ended, next_line
from tests.support.network.receiver import receiver


def listen(deployment: Deployment, forward_to: str, *arguments: str, token: str | None = None) -> Following:
    """The command in an environment that knows neither Kafka nor the database."""
    command = ["listen", "--forward-to", forward_to, "--api", deployment.url("query"), "--workspace", "demo"]
    accounts = ["--account", "generic", "--account", "websites"]
    nothing = dict.fromkeys(deployment.site.settings, "")
    return begin(
        deployment.site, *accounts, *arguments, command=command, **nothing, FORWARDER_TOKEN=token or deployment.token
    )


async def submitted(deployment: Deployment, number: int, **more: object) -> str:
    """The id of a submission that has its outcome."""
    answer = await deployment.submit("generic", booking(number, **more))
    request_id: str = answer.json()["data"]["requestId"]
    await deployment.settled("generic", request_id)
    return request_id


@slow_on("distributed")
async def test_what_becomes_of_submissions_is_posted_signed_and_once(deployment: Deployment) -> None:
    earlier = await submitted(deployment, 1)
    async with receiver() as program:
        listening = listen(deployment, program.url)
        secret = (await next_line(listening)).split()[-1]
        confirmed = await submitted(deployment, 2)
        lines = [await next_line(listening)]
        rejected = await submitted(deployment, 3, propertyId="unknown")
        lines.append(await next_line(listening))
        cancelled = await deployment.cancel("generic", confirmed, Prefer="wait=20")
        assert cancelled.status_code == 200, cancelled.text
        lines.append(await next_line(listening))
        listening.process.send_signal(signal.SIGINT)
        assert await ended(listening) == (0, "", "")
        posted = [Webhook(secret).verify(each.body, each.headers) for each in program.answered]
        assert [line.split()[3] for line in lines] == ["204", "204", "204"]
        assert [(each["type"].split(".")[1], each["data"]["requestId"]) for each in posted] == [
            ("confirmed", confirmed),
            ("rejected", rejected),
            ("cancelled", confirmed),
        ]
        assert posted[-1]["data"]["reservation"] == (await deployment.submission("generic", confirmed))["record"]
        numbers = [int(each.id.rpartition(".")[2]) for each in program.answered]
        assert numbers == sorted(set(numbers))

        again = listen(deployment, program.url, "--from", "beginning", "--type", "confirmed")
        await next_line(again)
        assert f"{earlier}." in await next_line(again)
        again.process.send_signal(signal.SIGINT)
        assert (await ended(again))[0] == 0
    assert json.loads(program.answered[-1].body)["data"]["requestId"] == earlier


@slow_on("distributed")
async def test_who_may_not_read_is_told_why(deployment: Deployment) -> None:
    code, out, err = await ended(listen(deployment, "http://127.0.0.1:9/in", token="fwd_live_nobody"))
    assert (code, out) == (1, "")
    assert "unauthenticated" in err
    code, out, err = await ended(listen(deployment, "http://127.0.0.1:9/in", "--account", "nowhere"))
    assert (code, out) == (1, "")
    assert "account_not_found" in err
