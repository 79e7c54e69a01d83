"""What may be seen of a card: its masked number. And the card as it travels: sealed. Pure."""

from dataclasses import dataclass

_SHORTEST_CARD_NUMBER = 12
_LONGEST_CARD_NUMBER = 19


@dataclass(frozen=True, slots=True)
class SealedCard:
    """Card details that only the holder of the private key named by `key_id` can open. `sealed` is base64."""

    key_id: str
    sealed: str


def masked(card_number: str) -> str:
    """The first six and last four digits, the rest as asterisks. Nothing at all of what is too short or too long to be a card
    number: its last digits may be a security code."""
    digits = "".join(character for character in card_number if character.isdigit())
    if not _SHORTEST_CARD_NUMBER <= len(digits) <= _LONGEST_CARD_NUMBER:
        return "*" * len(card_number)
    return digits[:6] + "*" * (len(digits) - 10) + digits[-4:]
