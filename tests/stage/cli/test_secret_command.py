"""`forwarder secret …` as an operator types it, on an embedded forwarder: the whole rotation, and what is refused on the way."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from forwarder.assembly.backend import secret_in
from forwarder.cli.program import run
from forwarder.tenancy.sealing import Secret

NEW = "the-secret-that-follows-the-first-one"


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Ended]


@pytest.fixture
def forwarder(data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setenv("FORWARDER_DATA_DIR", str(data_dir))

    def command(*arguments: str, **settings: str) -> Ended:
        with monkeypatch.context() as told:
            told.setattr(sys, "argv", ["forwarder", *arguments])
            for name, value in settings.items():
                told.setenv(f"FORWARDER_{name}", value)
            try:
                run()
                code: Any = 0
            except SystemExit as ended:
                code = ended.code or 0
        said = capsys.readouterr()
        return Ended(int(code), said.out, said.err)

    return command


def test_a_secret_is_rotated_by_the_commands_alone(forwarder: Command, tmp_path: Path) -> None:
    assert forwarder("workspace", "add", "acme").code == 0
    where = ("--workspace", "acme", "--kind", "generic", "--base-url", "https://pms.test", "--id", "acc")
    assert forwarder("account", "add", *where, "--credential", "s3cret").code == 0
    old, both = secret_in(tmp_path), {"SECRET_KEY": NEW, "EARLIER_SECRET_KEYS": secret_in(tmp_path)}
    old_id, new_id = Secret.from_text(old).id, Secret.from_text(NEW).id

    for mistyped in ({"SECRET_KEY": NEW}, both):
        refused = forwarder("account", "list", **mistyped)
        assert refused.code == 1
        assert "forwarder secret add" in refused.err
        assert old_id in refused.err and new_id in refused.err  # noqa: PT018 - one message
    assert forwarder("secret", "rotate", **both).code == 1
    assert forwarder("secret", "add", "--json", **both).data == {"id": new_id, "added": True}
    assert forwarder("secret", "rotate", "--json", **both).data == {"active": new_id, "before": old_id}
    refused = forwarder("secret", "retire", old_id, **both)
    assert (refused.code, "1 credentials" in refused.err) == (1, True)
    assert forwarder("account", "list").code == 1  # with the old secret alone
    resealed = forwarder("secret", "reseal", "--json", **both).data
    assert resealed[0] == {"what": "credentials", "resealed": 1, "notOpened": 0}
    assert forwarder("secret", "retire", old_id, **both).code == 0
    assert forwarder("account", "list", SECRET_KEY=NEW).code == 0
    known = {row["id"]: row for row in forwarder("secret", "status", "--json", SECRET_KEY=NEW).data}
    assert (known[old_id]["state"], known[old_id]["givenHere"]) == ("retired", False)
    assert (known[new_id]["state"], known[new_id]["sealed"]["credentials"]) == ("active", 1)
    assert known[new_id]["verifyKey"] == Secret.from_text(NEW).verify_key.hex()


def test_a_generated_secret_comes_with_the_keys_of_those_who_do_not_get_it(forwarder: Command) -> None:
    settings = forwarder("secret", "generate", "--json").data
    secret = Secret.from_text(settings["FORWARDER_SECRET_KEY"])
    assert settings["FORWARDER_SEALING_VERIFY_KEY"] == secret.verify_key.hex()
    assert settings["FORWARDER_NOTIFIER_KEY"] == secret.webhooks.private_key.hex()
    lines = dict(line.split("=", 1) for line in forwarder("secret", "generate").out.split())
    assert lines.keys() == settings.keys()
    assert lines["FORWARDER_SECRET_KEY"] != settings["FORWARDER_SECRET_KEY"]
    assert forwarder("secret", "status", "--notifier-key", SECRET_KEY=NEW).out.split() == [
        Secret.from_text(NEW).webhooks.private_key.hex()
    ]


def test_a_published_secret_is_refused_where_others_can_reach_what_it_protects(forwarder: Command) -> None:
    published = {"SECRET_KEY": "DEVELOPMENT-ONLY-secret-key-never-use-it-with-real-cards"}
    assert forwarder("account", "list", **published).code == 0
    refused = forwarder("account", "list", HOST="0.0.0.0", **published)
    assert (refused.code, "forwarder secret generate" in refused.err) == (2, True)
    away = {"KAFKA_BOOTSTRAP_SERVERS": "kafka:9092", "DATABASE_URL": "postgresql://u:p@db/f", "ALLOW_PLAINTEXT": "true"}
    refused = forwarder("account", "list", **away, **published)
    assert (refused.code, "kafka" in refused.err) == (2, True)
