"""Values that are cheap to make are values all the same: equal and hashed by what they hold, and replaced, not changed."""

from dataclasses import replace

from forwarder.reservation.fast import value


@value(frozen=True, slots=True)
class _Stay:
    property_id: str
    nights: int = 1


def test_those_that_hold_the_same_are_the_same() -> None:
    assert _Stay("7", 2) == _Stay("7", nights=2) != _Stay("7")
    assert {_Stay("7", 2), _Stay("7", 2), _Stay("7")} == {_Stay("7"), _Stay("7", 2)}


def test_another_is_made_of_one() -> None:
    stay = _Stay("7")
    assert replace(stay, nights=3) == _Stay("7", 3)
    assert stay == _Stay("7")


def test_they_hold_what_they_name_and_nothing_else() -> None:
    assert not hasattr(_Stay("7"), "__dict__")
