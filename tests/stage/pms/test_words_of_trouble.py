"""Words about the server or the account are told from words about a reservation."""

from forwarder.pms.http.outcomes import Meaning, never_a_no
from tests.support.cases import for_each


@for_each(
    ("meaning", "texts"),
    [
        (
            Meaning.THROTTLED,
            ["Rate limit exceeded", "Too many attempts", "Request was throttled", "API calls quota exceeded"],
        ),
        (
            Meaning.UNAUTHORIZED,
            [
                "Unauthenticated.",
                "Token has expired",
                "Invalid access token",
                "Your account is suspended",
                "Your IP address is not allowed",
                "You do not have access to this property",
                "Calendars are not available on your plan",
            ],
        ),
        (
            Meaning.FAILED,
            [
                "503 Service Temporarily Unavailable",
                "The availability service is down",
                "Servicio no disponible",
                "Dienst ist derzeit nicht verfügbar",
                "Something went wrong",
                "An error occurred while processing your request",
                "java.lang.NullPointerException",
                "SQLSTATE[HY000] [2002] Connection refused",
                "Lock wait timeout exceeded",
                "context deadline exceeded",
                "The system is under maintenance",
                "The property could not be loaded, please try again later",
                "The booking is being processed",
            ],
        ),
        (
            None,
            [
                "",
                "Minimum stay is 3 nights",
                "The property is currently unavailable",
                "No availability for these dates, please try again later",
                "Not available: choose other dates and try again",
                "Room service is not available",
                "Room 5 is down for maintenance",
                "Check-in time out of range",
                "Rate limited offer is not available",
                "The listing is blocked by the owner",
                "The guest's card was declined, try again later",
                "Exception: price mismatch",
            ],
        ),
    ],
)
def test_what_words_are_about(meaning: Meaning | None, texts: list[str]) -> None:
    assert {text: never_a_no(text) for text in texts} == dict.fromkeys(texts, meaning)
