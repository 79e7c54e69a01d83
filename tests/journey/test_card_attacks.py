"""The deployment, attacked by somebody who can write to its database, or mistypes its secret: nothing is sent where it should not
go, nothing is sealed to a stranger, and who has it all afterwards reads no card."""

import asyncio
import sqlite3
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from forwarder.tenancy.sealing import Secret
from tests.support.backends import slow_on
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, booking

CARD = {"cardNumber": "4242424242424242", "cvv": "987", "expiryMonth": "12", "expiryYear": "2031"}
MISTYPED = "a-secert-of-the-tests-and-of-nothing-else"


@slow_on("distributed")
async def test_whoever_writes_to_the_database_gets_no_card(deployment: Deployment) -> None:
    await deployment.add_account("thief")
    await _down(deployment, "generic", "thief")
    theirs = await _submitted(deployment, "generic", 1)
    mine = await _submitted(deployment, "thief", 2)
    await _move_the_card(deployment, theirs, mine)
    await deployment.client.delete(f"{deployment.url('simulate')}/thief/faults")
    ended = await deployment.settled("thief", mine)
    assert (ended["status"], ended["problem"]["code"]) == ("FAILED", "card_not_bound")
    assert (await deployment.made())["made"] == 0


@slow_on("distributed")
async def test_a_credential_does_not_go_to_an_address_that_was_written_into_the_database(
    deployment: Deployment,
) -> None:
    elsewhere = "replace(base_url, '127.0.0.1', 'localhost')"
    await _sql(deployment, f"UPDATE integration_accounts SET base_url = {elsewhere} WHERE id = 'generic'")
    async with asyncio.timeout(PATIENCE_SECONDS):
        request_id, made = await _first_that_is_not_made(deployment)
    shown = await deployment.command("submissions", "show", request_id)
    assert {(each["action"], each["reason"]) for each in shown["attempts"]} == {("prepare", "cannot_open")}
    assert (await deployment.made())["made"] == made


@pytest.mark.slow  # `tests/contract/tenancy/test_card_shredding.py` shows it of the store
@slow_on("embedded")
async def test_a_finished_cards_keys_are_gone_and_a_dead_letter_has_none(deployment: Deployment) -> None:
    answer = await deployment.submit("generic", booking(1, cardDetails=CARD), Prefer="wait=20")
    assert answer.status_code == 201
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await _sql(deployment, "SELECT request_id FROM card_keys"):
            await asyncio.sleep(0.05)
    assert [row for (row,) in await _sql(deployment, "SELECT card FROM reservations") if row] == []
    await _down(deployment, "generic")
    failed = (await deployment.submit("generic", booking(2, cardDetails=CARD), **{"Forward-Deadline": "2"})).json()
    request_id = failed["data"]["requestId"]
    assert (await deployment.settled("generic", request_id))["status"] == "FAILED"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (letters := await deployment.command("dead-letters", "list")):
            pass  # it is published after the outcome is recorded
    assert [letter["standing"] for letter in letters] == ["card_gone"]
    replayed = await deployment.command("dead-letters", "replay", "--all-open")
    assert (replayed["putBack"], replayed["passedOver"]["card_gone"]) == (0, 1)
    await deployment.client.delete(f"{deployment.url('simulate')}/generic/faults")
    assert (await deployment.command("dead-letters", "replay", f"{request_id}.1"))["putBack"] == 1
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (ended := await deployment.submission("generic", request_id))["status"] != "FAILED" or (
            ended["problem"]["code"] != "card_gone"
        ):
            await asyncio.sleep(0.05)
    assert (await deployment.made())["made"] == 1


@pytest.mark.slow  # `tests/stage/worker/test_missing_secret.py` shows it of a worker
@slow_on("embedded")
async def test_a_mistyped_secret_is_refused_and_what_runs_beside_it_goes_on(deployment: Deployment) -> None:
    before = await _sql(deployment, "SELECT id, state FROM secrets")
    role = "worker" if "worker" in deployment.processes else "up"
    wrong = {"FORWARDER_SECRET_KEY": MISTYPED}
    for command in (
        ["account", "list"],
        ["worker", "--port", "0"] if role == "worker" else ["account", "list"],
        ["migrate"],
    ):
        ended = await _typed(deployment, wrong, *command)
        assert ended[0] == 1
        assert Secret.from_text(MISTYPED).id in ended[1]
        assert before[0][0] in ended[1]
    assert await _sql(deployment, "SELECT id, state FROM secrets") == before
    assert not await _sql(deployment, f"SELECT key_id FROM sealing_keys WHERE secret_id <> '{before[0][0]}'")
    answer = await deployment.submit("generic", booking(1, cardDetails=CARD), Prefer="wait=20")
    assert answer.status_code == 201


async def _first_that_is_not_made(deployment: Deployment) -> tuple[str, int]:
    """And how many were, where they always are, until the worker had seen the change."""
    number = 1
    while True:
        answer = await deployment.submit("generic", booking(number, cardDetails=CARD), Prefer="wait=3")
        if answer.status_code == 202:
            return answer.json()["data"]["requestId"], number - 1
        number += 1


async def _typed(deployment: Deployment, settings: dict[str, str], *command: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "forwarder", *command),
        env={**deployment.environment, **settings, **_python()},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        _, error = await process.communicate()
    return process.returncode or 0, error.decode()


def _python() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"}


async def _submitted(deployment: Deployment, account: str, number: int) -> str:
    """Taken in, and waiting for its PMS."""
    answer = await deployment.submit(account, booking(number, cardDetails=CARD))
    assert answer.status_code == 202
    request_id: str = answer.json()["data"]["requestId"]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await _sql(deployment, f"SELECT 1 FROM reservations WHERE request_id = '{request_id}' AND tries > 0"):
            await asyncio.sleep(0.05)
    return request_id


async def _down(deployment: Deployment, *accounts: str) -> None:
    for account in accounts:
        await deployment.client.put(f"{deployment.url('simulate')}/{account}/faults", json={"mode": "down"})


async def _move_the_card(deployment: Deployment, theirs: str, mine: str) -> None:
    """The sealed card and its keys, from one row to another."""
    for table, columns in (("reservations", ("card",)), ("card_keys", ("secret_id", "number_key", "code_key"))):
        for column in columns:
            await _sql(
                deployment,
                f"UPDATE {table} SET {column} = (SELECT {column} FROM {table} WHERE request_id = '{theirs}') "
                f"WHERE request_id = '{mine}'",
            )


async def _sql(deployment: Deployment, statement: str) -> list[Any]:
    if deployment.site.backend == "embedded":
        path = Path(deployment.site.settings["FORWARDER_DATA_DIR"]) / "store.sqlite3"
        return await asyncio.to_thread(_sqlite, path, statement)
    connection = await asyncpg.connect(deployment.site.settings["FORWARDER_DATABASE_URL"].replace("+asyncpg", ""))
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


def _sqlite(path: Path, statement: str) -> list[Any]:
    connection = sqlite3.connect(path, timeout=10)
    try:
        with connection:
            return connection.execute(statement).fetchall()
    finally:
        connection.close()
