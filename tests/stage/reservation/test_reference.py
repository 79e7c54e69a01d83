"""Our reference: the form in which it is sent, and the forms in which it is recognised."""

import pytest

from forwarder.reservation.booking import AS_IT_IS, ReferenceForm, is_reference, names_another
from tests.support.cases import for_each

OURS = "rsv_abcdefghijklmnopqrstuvwxyz234567"
OTHER = "rsv_abcdefghijklmnopqrstuvwxyz234562"


@for_each(
    "shown",
    [
        OURS,
        OURS.upper(),
        OURS[:30],
        OURS[:24],
        OURS.replace("_", "-"),
        OURS.replace("_", ""),
        f" {OURS} ",
        f"Booked online, {OURS}, thank you",
        f"ref:{OURS}",
        f"HA-{OURS}",
        f"API_{OURS}",
        f"{OURS}-1",
        OURS.upper().replace("I", "İ"),
        f"Reference: {OURS.replace('_', chr(92) + '_')}",
        f"Reference: {OURS.replace('_', '&#95;')}&lt;br&gt;",
        OURS.replace("_", "%5F"),
        f"https://pms.test/?ref%3D{OURS.replace('_', '%5F')}",
        OURS.removeprefix("rsv_").upper(),
    ],
)
def test_what_is_ours(shown: str) -> None:
    assert is_reference(shown, OURS)
    assert shown == OURS or not is_reference(shown, OTHER) or OTHER.startswith(shown[:30])


@for_each("shown", [OTHER, OURS[:12], "HA-7QX2", "", None, 7, ["a"], f"{OURS}x", f"x{OURS}"])
def test_what_is_not(shown: object) -> None:
    assert not is_reference(shown, OURS)


@pytest.mark.timeout(60)
@for_each("unit", ["r s v ", "a\u0316\u0301"])
def test_a_long_text_is_read_in_linear_time(unit: str) -> None:
    assert is_reference(f"{unit * 200_000} {OURS}", OURS)


@pytest.mark.parametrize(
    ("form", "sent", "name"),
    [
        (AS_IT_IS, OURS, "id"),
        (ReferenceForm(30), OURS[:30], "30"),
        (ReferenceForm(24, upper=True), OURS[:24].upper(), "24-upper"),
        (ReferenceForm(alphanumeric=True), OURS.replace("_", ""), "alphanumeric"),
    ],
)
def test_what_is_sent_is_recognised(form: ReferenceForm, sent: str, name: str) -> None:
    assert (form.of(OURS), form.name) == (sent, name)
    assert is_reference(sent, OURS)


@pytest.mark.parametrize("form", [AS_IT_IS, ReferenceForm(24, upper=True), ReferenceForm(alphanumeric=True)])
def test_another_submissions_reference_is_known_in_any_form(form: ReferenceForm) -> None:
    ours, another = form.of(OURS), form.of("rsv_3bcdefghijklmnopqrstuvwxyz234567")
    assert names_another(f"id 7, {another}: made", ours)
    assert names_another(OTHER, OURS), "also one that differs in its end alone"
    assert not names_another(f"{another}, and {ours}", ours)
    assert not names_another(f"{ours}1", ours), "a PMS may append something"
    assert not names_another("rsvConfirmationNumber, RSV_RESERVATION_IDENTIFIER, rsv_12", ours)


def test_fewer_characters_than_tell_references_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="24"):
        ReferenceForm(23)
