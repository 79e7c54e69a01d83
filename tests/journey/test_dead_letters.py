"""An operator repairs: reads what failed, puts it back, settles what is in doubt, by commands beside a running forwarder."""

import asyncio
import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any

from forwarder.assembly.backend import open_backend
from forwarder.topics.codec import header
from forwarder.topics.port import Message, read_to_end
from tests.support.backends import slow_on
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, Said, Typed, booking
from tests.support.deployment.site import settings_of

CARD_NUMBER = "4242424242424242"
POISON = b'{"cardNumber": "' + CARD_NUMBER.encode() + b'", "esc": "\x1b[2J"'
FAILURES = 6


class _Operator:
    """Types commands."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def begin(self, *arguments: str) -> Typed:
        return Typed(self._deployment, *arguments)

    async def types(self, *arguments: str) -> Said:
        return await self.begin(*arguments).done()

    async def letters(self, *options: str) -> list[dict[str, Any]]:
        said = await self.types("dead-letters", "list", "--json", *options)
        assert said.code == 0, said.err
        found: list[dict[str, Any]] = said.data
        return found


@slow_on("distributed")
async def test_what_failed_is_read_put_back_and_what_is_in_doubt_is_settled(deployment: Deployment) -> None:
    operator = _Operator(deployment)
    doubted, failed, poison = await asyncio.gather(_doubted(deployment), _failed(deployment), _poison(deployment))
    await _settle(deployment, operator, doubted)
    letters = await _every_letter_is_there(operator, failed, poison)
    await _each_can_be_read(operator, letters, poison)
    await _mend(deployment, "generic")
    await _replaying_may_be_interrupted(deployment, operator, failed)
    await _the_rest_is_put_back_twice_and_made_once(deployment, operator, failed, poison)
    await _named_what_cannot_be_read_goes_back_and_what_was_replayed_does_not(operator, failed, poison)
    await _every_word_was_announced(deployment, doubted)


async def _break(deployment: Deployment, account: str, mode: str) -> None:
    answer = await deployment.client.put(f"{deployment.url('simulate')}/{account}/faults", json={"mode": mode})
    assert answer.is_success


async def _mend(deployment: Deployment, account: str) -> None:
    await deployment.client.delete(f"{deployment.url('simulate')}/{account}/faults")


async def _end(deployment: Deployment, account: str, numbers: range, status: str, **fields: Any) -> list[str]:
    """Submissions that are worth forwarding for seconds only, once they have that status; their ids."""
    answers = [
        await deployment.submit(account, booking(number, **fields), **{"Forward-Deadline": "2"}) for number in numbers
    ]
    assert {answer.status_code for answer in answers} == {202}
    ids = [answer.json()["data"]["requestId"] for answer in answers]
    ends = await asyncio.gather(*(deployment.settled(account, each) for each in ids))
    assert {end["status"] for end in ends} == {status}
    return ids


async def _doubted(deployment: Deployment) -> list[str]:
    """The PMS is sent them and breaks the connection: they may have been made."""
    await _break(deployment, "websites", "reset")
    return await _end(deployment, "websites", range(101, 104), "IN_DOUBT", paymentProviderId=42)


async def _failed(deployment: Deployment) -> list[str]:
    await _break(deployment, "generic", "down")
    return await _end(deployment, "generic", range(1, FAILURES + 1), "FAILED")


async def _poison(deployment: Deployment) -> str:
    """A message that no worker can read; the id that its letter will have."""
    async with open_backend(settings_of(deployment.site)) as backend, backend.log.publisher() as publisher:
        topic = backend.settings.topics.requests
        await publisher.publish(topic, [Message(b"generic:7", POISON)])
        async for batch in read_to_end(backend.log, topic):
            for each in batch:
                if each.message.value == POISON:
                    return f"{each.partition}:{each.offset}"
    raise AssertionError("the message is not on its topic")


async def _settle(deployment: Deployment, operator: _Operator, doubted: Sequence[str]) -> None:
    made, unmade, unwanted = doubted
    confirmed, again, rejected = await asyncio.gather(
        operator.types("submissions", "settle", made, "--confirmed", "pms-77", "--json"),
        operator.types("submissions", "settle", unmade, "--not-made"),
        operator.types("submissions", "settle", unwanted, "--rejected", "The guest [/b] gave up."),
    )
    assert (confirmed.code, again.code, rejected.code) == (0, 0, 0), confirmed.err + again.err + rejected.err
    assert confirmed.data["status"] == "CONFIRMED"
    assert f"{unmade} is PENDING" in again.out
    assert "86,400 s" in again.out
    assert f"{unwanted} is REJECTED" in rejected.out
    await _mend(deployment, "websites")
    too_late = await operator.types("submissions", "settle", made, "--not-made")
    assert (too_late.code, "CONFIRMED" in too_late.err) == (1, True)
    ends = await asyncio.gather(*(deployment.settled("websites", each) for each in doubted))
    assert [end["status"] for end in ends] == ["CONFIRMED", "CONFIRMED", "REJECTED"]
    assert ends[0]["record"]["pmsReservationId"] == "pms-77"
    assert ends[2]["problem"]["detail"] == "The guest [/b] gave up."
    assert (await deployment.made())["made"] == 1


async def _every_letter_is_there(operator: _Operator, failed: Sequence[str], poison: str) -> list[dict[str, Any]]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(letters := await operator.letters()) < FAILURES + 1:
            pass  # they are published after the outcome is recorded, in another process
    assert {letter["id"] for letter in letters} == {*(f"{each}.1" for each in failed), poison}
    assert Counter(letter["standing"] for letter in letters) == {"open": FAILURES, "undecodable": 1}
    assert letters == sorted(letters, key=lambda letter: letter["at"], reverse=True)
    of_failures = [letter for letter in letters if letter["standing"] == "open"]
    assert {letter["requestId"] for letter in of_failures} == {*failed}
    assert {(letter["account"], letter["failureClass"]) for letter in of_failures} == {("generic", "unavailable")}
    assert {letter["attempts"] > 0 for letter in of_failures} == {True}
    selected = await operator.letters("--account", "generic", "--class", "unavailable", "--since", "1h", "--limit", "2")
    assert selected == of_failures[:2]
    return letters


async def _each_can_be_read(operator: _Operator, letters: Sequence[dict[str, Any]], poison: str) -> None:
    a_failure = next(letter for letter in letters if letter["standing"] == "open")
    shown, for_a_person, unread, raw = await asyncio.gather(
        operator.types("dead-letters", "show", a_failure["id"], "--json"),
        operator.types("dead-letters", "show", a_failure["id"]),
        operator.types("dead-letters", "show", poison),
        operator.types("dead-letters", "show", poison, "--raw"),
    )
    assert shown.data.items() >= a_failure.items()
    assert shown.data["value"]["card"] is None
    assert shown.data["value"]["requestId"] == a_failure["requestId"]
    assert shown.data["headers"]["dlt-event-id"] == a_failure["id"]
    assert "424242" not in shown.out + for_a_person.out + unread.out
    assert POISON.decode().replace("\x1b", r"\x1b") in raw.out


async def _replaying_may_be_interrupted(deployment: Deployment, operator: _Operator, failed: Sequence[str]) -> None:
    planned = await operator.types("dead-letters", "replay", "--account", "generic", "--dry-run", "--json")
    assert (planned.data["selected"], planned.data["putBack"]) == (FAILURES, 0)
    assert {letter["requestId"] for letter in planned.data["letters"]} == {*failed}
    slowly = operator.begin("dead-letters", "replay", "--all-open", "--rate", "0.5", "--json")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await _put_back(deployment, failed):
            await asyncio.sleep(0.05)
    slowly.signal(signal.SIGINT)
    said = await slowly.done()
    assert said.code == 1
    assert said.data["interrupted"] is True
    assert 0 < said.data["putBack"] < FAILURES
    assert f"{FAILURES - said.data['putBack']} were not replayed" in said.err


async def _put_back(deployment: Deployment, failed: Sequence[str]) -> bool:
    statuses = [(await deployment.submission("generic", each))["status"] for each in failed]
    return any(status != "FAILED" for status in statuses)


async def _the_rest_is_put_back_twice_and_made_once(
    deployment: Deployment, operator: _Operator, failed: Sequence[str], poison: str
) -> None:
    filtered = ("--account", "generic", "--class", "unavailable", "--since", "1h", "--rate", "1000")
    first, second = await asyncio.gather(
        operator.types("dead-letters", "replay", "--all-open", "--rate", "1000"),
        operator.types("dead-letters", "replay", *filtered, "--json"),
    )
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "1 undecodable" in first.out
    assert second.data["putBack"] == second.data["selected"]
    async with asyncio.timeout(PATIENCE_SECONDS):  # each is FAILED until a worker ingests its replay
        for each in failed:
            while (await deployment.settled("generic", each))["status"] != "CONFIRMED":
                await asyncio.sleep(0.05)
    ids = [f"{each}.1" for each in failed]
    every = {letter["id"]: letter["standing"] for letter in await operator.letters("--all")}
    assert every == {**dict.fromkeys(ids, "replayed"), poison: "undecodable"}
    made = await deployment.made()
    assert (made["made"], made["duplicates"]["surplus"]) == (FAILURES + 1, 0)


async def _named_what_cannot_be_read_goes_back_and_what_was_replayed_does_not(
    operator: _Operator, failed: Sequence[str], poison: str
) -> None:
    named = await operator.types("dead-letters", "replay", *(f"{each}.1" for each in failed), poison, "--json")
    assert (named.code, named.data["putBack"]) == (0, 1)
    assert named.data["passedOver"] == {
        "replayed": FAILURES,
        "undecodable": 0,
        "too_large": 0,
        "superseded": 0,
        "erased": 0,
        "card_gone": 0,
        "forged": 0,
    }
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(letters := await operator.letters("--class", "undecodable")) < 2:
            pass
    assert letters[1]["id"] == poison
    assert letters[0]["id"].partition(":")[0] == poison.partition(":")[0]


async def _every_word_was_announced(deployment: Deployment, doubted: Sequence[str]) -> None:
    expected = {f"{each}.{revision}" for each in doubted for revision in (1, 2)}
    async with open_backend(settings_of(deployment.site)) as backend, asyncio.timeout(PATIENCE_SECONDS):
        while True:
            events = [
                header(each.message.headers, "ce_id")
                async for batch in read_to_end(backend.log, backend.settings.topics.results)
                for each in batch
            ]
            if {*events} >= expected:
                break
            await asyncio.sleep(0.1)
