"""Sealing texts: what the public key seals, the secret alone opens, and only as what it was sealed for."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from forwarder.settings import BadSettings
from forwarder.settings.reading import read_keys, secret_lines
from forwarder.tenancy.port import Account, CannotOpen, NotBound
from forwarder.tenancy.sealing import KeyPairUnsealer, NotTrusted, PublicKeySealer, Secret, of_credential
from tests.support.cases import for_each
from tests.support.sealing import keyring_of

SECRET = "a secret that nobody can guess"
OLD_SECRET = "the secret before that one"
BOUND = "what it is for"
ACCOUNT = Account(
    "acc", "ws", "booking-sync", "https://pms.example/api", "", options={"tokenUrl": "https://id.example/x"}
)


@pytest.mark.parametrize("text", ["", "s3cret", '{"token": "é\N{GRINNING FACE}"}', "x" * 10_000])
def test_a_sealed_text_is_opened_whole(text: str) -> None:
    assert keyring_of(SECRET).open_text(keyring_of(SECRET).seal_text(text, BOUND), BOUND) == text


def test_the_same_text_never_seals_alike_and_does_not_show() -> None:
    one, other = (keyring_of(SECRET).seal_text("credential", BOUND) for _ in range(2))
    assert one != other
    assert b"credential" not in base64.b64decode(one.partition(".")[2])


def test_what_is_opened_as_something_else_is_refused_and_not_told() -> None:
    sealed = keyring_of(SECRET).seal_text("credential", BOUND)
    with pytest.raises(NotBound, match=BOUND) as refused:
        keyring_of(SECRET).open_text(sealed, "something else")
    assert "credential" not in str(refused.value)


@for_each(
    ("moved", "same"),
    [
        ({"base_url": "https://pms.example:443/other"}, True),
        (
            {"base_url": "https://PMS.example/api", "options": {"tokenUrl": "https://id.example/y", "liveQuote": True}},
            True,
        ),
        ({"id": "other"}, False),
        ({"base_url": "http://pms.example/api"}, False),
        ({"base_url": "https://pms.example:8443/api"}, False),
        ({"base_url": "https://evil.example/api"}, False),
        ({"options": {"tokenUrl": "https://evil.example/x"}}, False),
        ({"base_url": "https://pms.example@evil.example/"}, False),
    ],
)
def test_a_credential_is_for_the_origins_that_its_account_had(moved: dict[str, Any], same: bool) -> None:
    assert (of_credential(replace(ACCOUNT, **moved)) == of_credential(ACCOUNT)) is same


@pytest.mark.parametrize("mapping", [dict, str])
def test_a_credential_is_for_where_the_mapping_asks_for_tokens(mapping: type) -> None:
    def bound(token_url: str, title: str) -> str:
        written = f"title: {title}\nauth: {{form: oauth, oauth: {{tokenUrl: {token_url}, scope: all}}}}\n"
        table = {"title": title, "auth": {"form": "oauth", "oauth": {"tokenUrl": token_url}}}
        return of_credential(replace(ACCOUNT, options={"mapping": table if mapping is dict else written}))

    own = bound("https://id.example/token", "Harbour")
    assert bound("https://id.example/other", "Harbour, v2") == own
    assert bound("https://evil.example/token", "Harbour") != own


def test_keys_of_one_secret_are_always_the_same_and_each_for_one_purpose() -> None:
    secret = Secret.from_text(SECRET)
    assert secret == Secret.from_text(SECRET) != Secret.from_text(OLD_SECRET)
    private = {secret.accounts.private_key, secret.webhooks.private_key, secret.wrapping_key}
    assert len(private) == 3
    assert not [key for key in private if repr(key) in repr(secret)]
    assert (len(secret.id), len(secret.accounts.key_id)) == (16, 16)


def test_the_notifiers_key_opens_no_credential() -> None:
    notifier = KeyPairUnsealer([Secret.from_text(SECRET).webhooks])
    with pytest.raises(CannotOpen):
        notifier.open_text(keyring_of(SECRET).seal_text("credential", BOUND), BOUND)
    hooks = PublicKeySealer(Secret.from_text(SECRET).webhooks.public_key)
    assert notifier.open_text(hooks.seal_text("whsec", BOUND), BOUND) == "whsec"


def test_public_keys_are_trusted_by_the_signature_of_a_pinned_secret_alone() -> None:
    ours, foreign = Secret.from_text(SECRET), Secret.from_text(OLD_SECRET)
    keys = ours.public_keys()
    keys.require_trusted({ours.verify_key})
    replaced = replace(keys, accounts_key=foreign.accounts.public_key)
    for forged in (replaced, foreign.public_keys(), replace(foreign.public_keys(), secret_id=ours.id)):
        with pytest.raises(NotTrusted):
            forged.require_trusted({ours.verify_key})


def test_what_was_sealed_to_any_of_several_secrets_is_opened_and_a_missing_one_is_named() -> None:
    sealed = keyring_of(OLD_SECRET).seal_text("credential", BOUND)
    assert keyring_of(SECRET, OLD_SECRET).open_text(sealed, BOUND) == "credential"
    with pytest.raises(CannotOpen, match=Secret.from_text(OLD_SECRET).accounts.key_id):
        keyring_of(SECRET).open_text(sealed, BOUND)


def test_what_was_never_sealed_or_was_damaged_is_not_opened() -> None:
    key_id, _, content = keyring_of(SECRET).seal_text("credential", BOUND).partition(".")
    damaged = bytearray(base64.b64decode(content))
    damaged[-1] ^= 1
    for sealed in (
        "",
        "AAAA",
        key_id,
        f"{key_id}.not base64!",
        f"{key_id}.é",
        f"{key_id}.{base64.b64encode(damaged).decode()}",
    ):
        with pytest.raises(CannotOpen):
            keyring_of(SECRET).open_text(sealed, BOUND)


def test_configured_keys_are_read_by_the_line_and_bad_ones_are_not_quoted() -> None:
    assert secret_lines(" a-secret-of-16-characters \n\n another-one-as-long-as-it \n") == [
        "a-secret-of-16-characters",
        "another-one-as-long-as-it",
    ]
    assert read_keys("X", ["", " " + "0f" * 32 + " "]) == [b"\x0f" * 32]
    for read in (lambda: secret_lines("too short"), lambda: read_keys("X", ["too short"])):
        with pytest.raises(BadSettings) as refused:
            read()
        assert "too short" not in str(refused.value)
