"""What may be seen of a card: its masked number. And the card as it travels: sealed. Pure."""

from dataclasses import dataclass

_SHORTEST_CARD_NUMBER = 12


@dataclass(frozen=True, slots=True)
class SealedCard:
    """Card details that only the holder of the private key named by `key_id` can open. `sealed` is base64."""

    key_id: str
    sealed: str


def masked(card_number: str) -> str:
    """The first six and last four digits, the rest as asterisks; nothing at all of what is too short to be a card number."""
    digits = "".join(character for character in card_number if character.isdigit())
    if len(digits) < _SHORTEST_CARD_NUMBER:
        return "*" * len(card_number)
    return digits[:6] + "*" * (len(digits) - 10) + digits[-4:]
