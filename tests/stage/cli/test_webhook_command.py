"""`forwarder webhook …` on an embedded forwarder: what it prints, what it refuses, and its exit codes."""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from forwarder.assembly.backend import secret_in
from forwarder.cli.program import run
from forwarder.store.engine import open_engine
from forwarder.tenancy.port import Endpoint
from forwarder.tenancy.sealing import of_webhook_secret
from forwarder.tenancy.sql.endpoints import Endpoints
from forwarder.webhooks.port import public_key
from tests.support.sealing import keyring_of

URL = "https://127.0.0.1:9/in"


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Command = Callable[..., Ended]


@pytest.fixture
def webhook(data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `forwarder webhook`, where there are the workspaces "acme" and "other"."""
    monkeypatch.setenv("FORWARDER_DATA_DIR", str(data_dir))

    def forwarder(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["forwarder", *arguments])
        with pytest.raises(SystemExit) as ended:
            run()
        said = capsys.readouterr()
        return Ended(ended.value.code if isinstance(ended.value.code, int) else 0, said.out, said.err)

    for workspace in ("acme", "other"):
        assert forwarder("workspace", "add", workspace).code == 0
    return lambda *arguments: forwarder("webhook", *arguments)


def kept(directory: Path, endpoint_id: str) -> Endpoint:
    async def read() -> Endpoint | None:
        engine = open_engine(directory / "store.sqlite3")
        try:
            return await Endpoints(engine).endpoint(endpoint_id)
        finally:
            await engine.dispose()

    found = asyncio.run(read())
    assert found is not None
    return found


def test_a_webhook_from_its_beginning_to_its_end(webhook: Command, tmp_path: Path) -> None:
    unsealer = keyring_of(secret_in(tmp_path))
    made = webhook("add", URL, "--workspace", "acme", "--type", "reservation.confirmed.v1", "--json").data
    hook, secret = made["id"], made.pop("secret")
    assert made.pop("publicKey") == public_key(secret)
    assert unsealer.open_text(kept(tmp_path, hook).secret, of_webhook_secret(hook)) == secret
    assert webhook("list", "--json").data == [made]
    assert webhook("list", "--workspace", "other", "--json").data == []
    assert webhook("show", hook, "--json").data == made
    assert (made["workspace"], made["url"], made["types"]) == ("acme", URL, ["reservation.confirmed.v1"])

    changed = webhook("set", hook, "--type", "all", "--description", "Ours", "--json").data
    assert changed == {**made, "types": None, "description": "Ours"}
    file = tmp_path / "headers"
    file.write_text("X-Key: opensesame\n\nX-Tenant:7\n")
    own = webhook("set", hook, "--headers-file", str(file), "--property", "A7", "--v1a", "--json")
    assert own.data == {
        **changed,
        "propertyIds": ["A7"],
        "headerNames": ["X-Key", "X-Tenant"],
        "asymmetricSignature": True,
    }
    none = webhook("set", hook, "--no-headers", "--property", "all", "--no-v1a", "--json").data
    assert none == changed
    file.write_text("X-Key: a\nno header\n")
    for wrong in (
        ("--headers-file", str(file)),
        ("--headers-file", "x", "--no-headers"),
        ("--property", "a", "--property", "all"),
    ):
        assert webhook("set", hook, *wrong).code == 2
    rotated = webhook("rotate", hook, "--overlap", "60", "--json").data
    (previous,) = kept(tmp_path, hook).previous
    assert (
        unsealer.open_text(previous.secret, of_webhook_secret(hook)),
        unsealer.open_text(kept(tmp_path, hook).secret, of_webhook_secret(hook)),
    ) == (
        secret,
        rotated["secret"],
    )

    number = webhook("test", hook, "--json").data["deliveryId"]
    delivery = webhook("delivery", hook, str(number), "--json").data
    assert (delivery["type"], delivery["status"], delivery["tries"]) == ("webhook.test.v1", "PENDING", 0)
    assert webhook("deliveries", hook, "--status", "pending", "--json").data == [delivery]
    assert webhook("disable", hook, "--json").data["disabledReason"] == "by_hand"
    assert webhook("deliveries", hook, "--status", "pending", "--json").data == []
    assert webhook("delivery", hook, str(number), "--json").data["status"] == "STOPPED"
    for command in (("test", hook), ("resend", hook, str(number)), ("recover", hook, "--since", "1h")):
        refused = webhook(*command)
        assert (refused.code, "disabled" in refused.err, refused.out) == (1, True, "")
    assert webhook("enable", hook, "--json").data["enabled"] is True
    assert webhook("recover", hook, "--since", "1h", "--json").data["putBack"] == 1
    assert webhook("resend", hook, str(number), "--json").data["status"] == "PENDING"

    assert webhook("remove", hook, "--json").data == {"id": hook, "removed": True}
    assert webhook("list", "--json").data == []


def test_people_are_told_what_they_need(webhook: Command) -> None:
    added = webhook("add", URL, "--workspace", "acme")
    secret = added.out.splitlines()[-1]
    hook = added.out.split()[1]
    assert secret.startswith("whsec_")
    assert "not shown again" in added.out
    said = [webhook(*command).out for command in (("list",), ("show", hook), ("deliveries", hook), ("test", hook))]
    assert hook in said[0]
    assert f"forwarder webhook delivery {hook} 1" in said[3]
    assert all(secret not in text for text in said)
    assert "webhook.test.v1" in webhook("deliveries", hook).out
    for command, words in (
        (("set", hook, "--url", "https://127.0.0.1:9/b"), "changed"),
        (("rotate", hook, "--overlap", "0"), "out of use"),
        (("disable", hook), "disabled"),
        (("enable", hook), "enabled"),
        (("recover", hook, "--since", "1h"), "1 sent again"),
        (("resend", hook, "1"), "sent again"),
        (("remove", hook), "removed"),
    ):
        done = webhook(*command)
        assert (done.code, words in done.out, done.err) == (0, True, "")


REFUSED = (
    ("add 127.0.0.1/in --workspace acme", 2, "https://"),
    ("add https://me:pass@127.0.0.1/in --workspace acme", 2, "user name or password"),
    ("add https://10.0.0.1/in --workspace acme", 2, "public internet"),
    (f"add {URL} --workspace acme --type reservation.lost.v1", 2, "reservation.confirmed.v1"),
    (f"add {URL} --workspace acme --account nobodys", 2, "nobodys"),
    (f"add {URL} --workspace nobody", 1, "nobody"),
    ("show whk_none", 1, "whk_none"),
    ("set whk_none --type all", 1, "whk_none"),
    ("deliveries whk_none", 1, "whk_none"),
    ("delivery whk_none 1", 1, "whk_none"),
    ("resend whk_none 1", 1, "whk_none"),
    ("recover whk_none --since 1h", 1, "whk_none"),
    ("remove whk_none", 1, "whk_none"),
)


def test_what_is_refused_says_why(webhook: Command) -> None:
    for command, code, says in REFUSED:
        refused = webhook(*command.split())
        assert (refused.code, says in refused.err, refused.out) == (code, True, ""), (command, refused.err)
    assert webhook("list", "--json").data == []


def test_of_another_workspace_it_is_as_if_it_were_not_there(webhook: Command) -> None:
    hook = webhook("add", URL, "--workspace", "acme", "--json").data["id"]
    for command in ("show", "disable", "enable", "rotate", "test", "deliveries", "remove"):
        refused = webhook(command, hook, "--workspace", "other")
        assert (refused.code, hook in refused.err) == (1, True)
    assert webhook("show", hook, "--workspace", "acme", "--json").data["enabled"] is True
