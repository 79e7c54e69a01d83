"""What a state machine draws from: where, when, and what befalls whom."""

from hypothesis import strategies as st

from tests.support.machine import extremes
from tests.support.machine.callers import Order
from tests.support.machine.site import HOSTS, Meanwhile
from tests.support.machine.worlds.mishap import Effect, Mishap, Seam
from tests.support.machine.worlds.pms import KINDS, PUSH_SECONDS, LookReply, Reply, Says

places = st.integers(0, HOSTS - 1)
kinds = st.sampled_from([*sorted(KINDS), "searched", "searched", "neither"])
"""Those more often that depend on us alone."""
kinds_without_a_key = st.sampled_from(["searched", "searched", "calendar", "neither"])
accounts = st.integers(0, 2)
options = st.fixed_dictionaries({}, optional={"idempotent_create": st.booleans(), "find_by_reference": st.booleans()})
settings = st.builds(
    extremes.worker_settings,
    lease_seconds=st.sampled_from(extremes.leases()),
    grace_seconds=st.sampled_from(extremes.graces()),
    max_held=st.sampled_from(extremes.HELD),
    sweep_seconds=st.sampled_from([7.0, 7.0, 3.0, 30.0]),
)
delays = st.sampled_from([0.0, 1.0, 10.0, 20.0, 29.0])
whiles = st.sampled_from([10.0, 50.0, 100.0])
jumps = st.sampled_from([100.0, -100.0, 3600.0, -3600.0])

answered = st.builds(Reply, st.just(Says.YES), delays)
answered_late = st.builds(Reply, st.just(Says.YES), st.just(PUSH_SECONDS), delays)
unanswered = st.builds(Reply, st.just(Says.NOTHING), st.sampled_from([0.0, 10.0, PUSH_SECONDS]), delays | st.none())
refused = st.builds(Reply, st.sampled_from([Says.NO, Says.DOWN, Says.BUSY]), delays, st.none())
orders = st.builds(
    Order,
    room=st.integers(1, 2),
    card=st.booleans(),
    deadline_seconds=st.sampled_from([None, 60, 300]),
    copies=st.sampled_from([1, 1, 2]),
    cancelled=st.sampled_from([False, False, False, True]),
    transaction=st.booleans(),
)
steps = st.sampled_from(
    [
        ("store", None),
        ("store", "ingest"),
        ("store", "claim"),
        ("store", "record"),
        ("store", "release"),
        ("store", "mark_pushing"),
        ("store", "published"),
        ("store", "renew"),
        ("store", "request_cancellations"),
        ("log", "publish"),
        ("log", "commit"),
        ("pms", None),
    ]
)
lasting = st.sampled_from([0.0, 5.0, 20.0, 60.0])


def _mishap(step: tuple[Seam, str | None], nth: int, effect: Effect, seconds: float, jump: float) -> Mishap:
    return Mishap(step[0], nth, effect, jump if effect is Effect.CLOCK_JUMPS else seconds, step[1])


mishaps = st.builds(_mishap, steps, st.integers(1, 3), st.sampled_from(Effect), lasting, jumps)
slow_replies = st.sampled_from(
    [
        Reply(Says.YES, 29.0, 28.0),
        Reply(Says.YES, 29.0, 10.0),
        Reply(Says.NOTHING, 1.0, 29.0),
        Reply(Says.NOTHING, 1.0, 29.0),
        Reply(Says.NOTHING, PUSH_SECONDS, 28.0),
    ]
)
meanwhiles = st.builds(
    Meanwhile,
    account=accounts,
    orders=st.lists(orders, max_size=2),
    replies=st.lists(answered | answered_late | unanswered | refused, max_size=3),
    look_replies=st.lists(st.builds(LookReply, st.booleans(), delays), max_size=2),
    place=places,
    mishaps=st.lists(mishaps, max_size=2),
    seconds=st.sampled_from([0.0, 1.0, 5.0, 15.0, 35.0, 50.0, 100.0]),
)
