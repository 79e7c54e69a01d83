"""Sealing: what the public key seals, the secret alone opens, and nothing of it shows on the way."""

import base64

import pytest

from forwarder.reservation.request import CardDetails, SealedCard
from forwarder.tenancy.port import CannotOpen
from forwarder.tenancy.sealing import KeyPair, PublicKeySealer, SecretUnsealer

SECRET = "a secret that nobody can guess"
OLD_SECRET = "the secret before that one"
CARD = CardDetails.model_validate(
    {
        "cardNumber": "4111111111111111",
        "cardHolderName": "Zoë O'Hara \N{GRINNING FACE}",
        "expiryMonth": "03",
        "expiryYear": "2031",
        "cvv": "907",
    }
)


def sealer(secret: str = SECRET) -> PublicKeySealer:
    pair = KeyPair.from_secret(secret)
    return PublicKeySealer(pair.key_id, pair.public_key)


def test_a_sealed_card_is_opened_whole() -> None:
    assert SecretUnsealer([SECRET]).open_card(sealer().seal_card(CARD)) == CARD


def test_an_incomplete_card_is_opened_as_it_was() -> None:
    card = CardDetails.model_validate({"cardNumber": "4111111111111111"})
    opened = SecretUnsealer([SECRET]).open_card(sealer().seal_card(card))
    assert (opened.card_number, opened.cvv) == ("4111111111111111", None)


@pytest.mark.parametrize("text", ["", "s3cret", '{"token": "é\N{GRINNING FACE}"}', "x" * 10_000])
def test_a_sealed_text_is_opened_whole(text: str) -> None:
    assert SecretUnsealer([SECRET]).open_text(sealer().seal_text(text)) == text


def test_nothing_of_a_card_shows_in_what_is_sealed() -> None:
    sealed = sealer().seal_card(CARD)
    content = base64.b64decode(sealed.sealed)
    said = repr(sealed).replace(sealed.sealed, "")
    for value in CARD.model_dump().values():
        if len(value) > len("03"):  # two digits stand in random bytes by chance
            assert value.encode() not in content
        assert value not in said


def test_the_same_card_never_seals_alike() -> None:
    assert sealer().seal_card(CARD) != sealer().seal_card(CARD)
    assert sealer().seal_text("x") != sealer().seal_text("x")


def test_a_key_pair_is_always_that_of_its_secret() -> None:
    assert KeyPair.from_secret(SECRET) == KeyPair.from_secret(SECRET)
    assert KeyPair.from_secret(SECRET).key_id != KeyPair.from_secret(OLD_SECRET).key_id


def test_a_key_id_is_16_hexadecimal_characters_and_the_private_key_does_not_show() -> None:
    pair = KeyPair.from_secret(SECRET)
    assert len(pair.key_id) == 16
    assert int(pair.key_id, 16) >= 0
    assert repr(pair.private_key) not in repr(pair)


def test_a_vault_opens_what_was_sealed_with_any_of_its_keys() -> None:
    unsealer = SecretUnsealer([SECRET, OLD_SECRET])
    for secret in (SECRET, OLD_SECRET):
        assert unsealer.open_card(sealer(secret).seal_card(CARD)) == CARD
        assert unsealer.open_text(sealer(secret).seal_text("credential")) == "credential"


def test_a_vault_without_the_key_says_which_one_it_misses() -> None:
    unsealer = SecretUnsealer([SECRET])
    missing = KeyPair.from_secret(OLD_SECRET).key_id
    with pytest.raises(CannotOpen, match=missing):
        unsealer.open_card(sealer(OLD_SECRET).seal_card(CARD))
    with pytest.raises(CannotOpen, match=missing):
        unsealer.open_text(sealer(OLD_SECRET).seal_text("credential"))


@pytest.mark.parametrize("sealed", ["", "AAAA", "not base64!", "é", base64.b64encode(b"x" * 200).decode()])
def test_what_was_never_sealed_is_not_opened(sealed: str) -> None:
    unsealer = SecretUnsealer([SECRET])
    with pytest.raises(CannotOpen):
        unsealer.open_text(sealed)
    with pytest.raises(CannotOpen):
        unsealer.open_card(SealedCard(KeyPair.from_secret(SECRET).key_id, sealed))


def test_what_was_damaged_is_not_opened() -> None:
    content = bytearray(base64.b64decode(sealer().seal_text("credential")))
    content[-1] ^= 1
    with pytest.raises(CannotOpen, match="damaged"):
        SecretUnsealer([SECRET]).open_text(base64.b64encode(content).decode())


def test_a_sealed_text_that_is_no_card_is_refused_without_being_quoted() -> None:
    sealed = base64.b64decode(sealer().seal_text('{"cardNumber": 4111111111111111}'))[8:]
    card = SealedCard(KeyPair.from_secret(SECRET).key_id, base64.b64encode(sealed).decode())
    with pytest.raises(CannotOpen) as caught:
        SecretUnsealer([SECRET]).open_card(card)
    assert "4111" not in f"{caught.value!r}{caught.value.__cause__!r}"
