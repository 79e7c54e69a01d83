"""The mutants: in which file which text is replaced by which, and what hole that reopens.

`old` must occur exactly once in its file (tests/mutants/test_mutants.py): when code is moved or rewritten, move the mutant along.
`moves`, `values`, `shape` and `settings` say where to look: the kinds of moves that meet there, besides submissions; the values
that their fields are drawn from, if not from all; the account's PMS and settings; the seconds between the moves; and whether
the moves happen once, in this order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.net.worlds.mishap import Effect


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mend taken back."""

    id: str
    hole: str
    path: str
    old: str
    new: str
    moves: tuple[str, ...]
    shape: str = "searched"
    settings: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    pauses: Sequence[float] = ()
    ordered: bool = False


_EVIDENCE: Final = "forwarder/reservation/evidence.py"
_RUN: Final = "forwarder/worker/push/run.py"
_PIPELINE: Final = "forwarder/worker/push/pipeline.py"
_OUTCOMES: Final = "forwarder/pms/http/outcomes.py"
_ACCOUNTS: Final = "forwarder/operate/tenants/accounts.py"
_DUPLICATES: Final = "forwarder/reservation/submission.py"
_RECOVER: Final = "forwarder/operate/deployment/recovery.py"
_TOPIC_COPY: Final = "forwarder/operate/deployment/topic_copy.py"
_WATCH: Final = "forwarder/worker/lease.py"
_LEASES: Final = "forwarder/store/submissions/leases.py"
_DIRECTORY: Final = "forwarder/pms/directory.py"

_LOST: Final = ("makes it and loses the answer", "makes it in the end and never answers")
_MANY: Final[dict[str, Mapping[str, Sequence[Any]]]] = {"Submit": {"more": (3,)}}
_ONE_LOST: Final[Mapping[str, Mapping[str, Sequence[Any]]]] = {
    "Submit": {"more": (0,)},
    "NextReplies": {"first": ("says 429", "says that it did nothing"), "second": _LOST, "count": (2,)},
    "FailOver": {"seconds": (30.0,)},
}


def _struck(effect: Effect) -> Mapping[str, Mapping[str, Sequence[Any]]]:
    """Workers are struck right before they send something, for longer than a lease."""
    return _MANY | {"Strike": {"step": ("pms create",), "effect": (effect,), "seconds": (100.0,)}}


MUTANTS: Final = (
    Mutant(
        "settles-ignored",
        "A reservation that the PMS shows late, or commits late, is taken for absent and made again.",
        _EVIDENCE,
        "    settles = max(facts.settles, facts.push_seconds)\n",
        "    settles = 0.0\n",
        ("NextReplies", "ShowsLate"),
    ),
    Mutant(
        "yes-is-made-again",
        "A PMS that said yes, and shows our reference in another form, is asked to make it again.",
        _EVIDENCE,
        "Push(at, to, Came.POSITIVE, reason, outcome.status, outcome.pms_reservation_id)",
        "Push(at, to, Came.AMBIGUOUS, reason, outcome.status)",
        ("NextReplies", "Keeps"),
    ),
    Mutant(
        "doubt-is-created",
        "After a push without an answer it is created again without a look-up.",
        _EVIDENCE,
        "    pushes = evidence.open\n    if not pushes:",
        "    pushes = []\n    if not pushes:",
        ("NextReplies",),
    ),
    Mutant(
        "exists-already-is-a-no",
        "A PMS that says that our reference exists already is believed to have refused.",
        _OUTCOMES,
        "exists.search(said) is not None and not names_another(said, reference) for said in sayings",
        "False for said in sayings",
        ("NextReplies", "Repeats"),
    ),
    Mutant(
        "503-means-not-made",
        "A 503 with Retry-After, as proxies send it, counts as surely not made.",
        _OUTCOMES,
        'return InDoubt("pms_unavailable", detail, wait)',
        'return Deferred("pms_unavailable", detail, wait)',
        ("NextReplies",),
    ),
    Mutant(
        "408-means-not-made",
        "A 408, as proxies send it, counts as surely not made.",
        _OUTCOMES,
        'return InDoubt("pms_timed_out_reading", detail, wait)',
        'return Deferred("pms_timed_out_reading", detail, wait)',
        ("NextReplies",),
    ),
    Mutant(
        "redirect-means-not-made",
        "A redirect counts as surely not made.",
        _OUTCOMES,
        'return InDoubt("pms_redirected", detail, wait)',
        'return Deferred("pms_redirected", detail, wait)',
        ("NextReplies",),
    ),
    Mutant(
        "500-means-not-made",
        "A 500 counts as surely not made.",
        _OUTCOMES,
        'return InDoubt("pms_failed", f"The PMS failed while it had the request (HTTP {status}).", wait)',
        'return Deferred("pms_failed", f"The PMS failed while it had the request (HTTP {status}).", wait)',
        ("NextReplies",),
    ),
    Mutant(
        "timeout-means-not-made",
        "A lost answer counts as surely not made.",
        _DIRECTORY,
        "            outcome = sdk.outcome_of(failure)\n        except FAULTS",
        '            outcome = sdk.Deferred("pms_unreachable", "lost")\n        except FAULTS',
        ("NextReplies",),
    ),
    Mutant(
        "one-reading-of-a-list",
        "A list that shifts while it is read hides our reservation.",
        _DIRECTORY,
        "        if not shown or shown == before:\n",
        "        if shown or not shown:\n",
        ("NextReplies", "ListShifts"),
        settings={"deadline_seconds": 1800},
        values={"NextReplies": {"first": _LOST}, "ListShifts": {"shifts": (True,)}},
    ),
    Mutant(
        "doubles-are-not-told",
        "Two reservations under one reference are seen, and nobody is told.",
        "forwarder/pms/mapping/response.py",
        "        return replace(standing, doubles=doubles) if isinstance(standing, sdk.Confirmed) else standing",
        "        return standing",
        ("NextReplies",),
        "immediate",
        values={"NextReplies": {"first": ("makes it twice and loses the answer",)}},
    ),
    Mutant(
        "cancelled-at-another-pms",
        "A cancellation goes to the address that the account has now, and cancels a stranger's reservation there.",
        _PIPELINE,
        "            elif origin is not None and not run.facts.same_pms(origin):",
        "            elif origin is not None and origin is None:",
        ("ChangeAddress", "Cancel"),
    ),
    Mutant(
        "vouched-for-another-pms",
        "That pushes went to the account's PMS, as an operator said once, holds when it is another PMS later.",
        _ACCOUNTS,
        "        elif credential is not None or changed.base_url != account.base_url:\n",
        "        elif account is None:\n",
        ("NextReplies", "Submit", "ChangeCredential", "ChangeAddress"),
        "immediate",
        values={
            "NextReplies": {"first": _LOST},
            "ChangeCredential": {"form": ("token-of-{}-rotated",), "same": (True,)},
            "ChangeAddress": {"away": (True,)},
        },
        pauses=(1.0,),
        ordered=True,
    ),
    Mutant(
        "looked-up-at-another-pms",
        "A doubt is looked up at another PMS than it was sent to, and made there again.",
        _EVIDENCE,
        "    if not all(facts.same_pms(push) for push in pushes):",
        "    if not pushes:",
        ("NextReplies", "ChangeAddress"),
        "immediate",
        values={"NextReplies": {"first": _LOST}},
    ),
    Mutant(
        "reference-in-capitals",
        "A reference that the PMS keeps in capitals is not recognised.",
        "forwarder/reservation/booking.py",
        "plain = text.casefold()",
        "plain = text",
        ("NextReplies", "Keeps"),
    ),
    Mutant(
        "reference-that-is-cut",
        "A reference of which the PMS keeps the first characters only is not recognised.",
        "forwarder/reservation/booking.py",
        "    return found == wanted or (len(found) >= _KNOWN_BY and wanted.startswith(found))",
        "    return found == wanted",
        ("NextReplies", "Keeps"),
    ),
    Mutant(
        "deadline-ends-a-doubt",
        "What may have been made is given up as FAILED when its deadline passes.",
        _RUN,
        "                case LookUp() | Park(look=LookUp()) if not looked:",
        "                case LookUp() | Park(look=LookUp()) if self.clock.now() >= work.deadline_at:\n"
        "                    return self._end(too_late(), evidence.settled(iso(self.clock.now())))\n"
        "                case LookUp() | Park(look=LookUp()) if not looked:",
        ("NextReplies",),
        settings={"deadline_seconds": 20},
    ),
    Mutant(
        "takeover-forgets-the-push",
        "The row of a worker that died over a push is free, as if nothing had been sent.",
        _LEASES,
        'sa.or_(_row.pushing, target.like(literal("{%")))',
        "_row.pushing, target == none",
        ("NextReplies", "KillWorker", "Strike"),
    ),
    Mutant(
        "intent-is-not-durable",
        "A push that nothing could show later is sent without a mark in the store.",
        _PIPELINE,
        "        if not (target.key or target.reference) and not await self.intend(push.work.id):",
        "        if not push.work.id:",
        ("NextReplies", "KillWorker", "Strike"),
        "neither",
    ),
    Mutant(
        "stopped-worker-sends",
        "A worker that was stopped past its lease sends what another worker has. Its lease is checked before each push and again "
        "before each request, so both checks are taken back.",
        _PIPELINE,
        "        self.pushes = PushClock(self.clock)\n",
        "        self.pushes, self.may_send = PushClock(self.clock), lambda _work: True\n",
        ("Strike",),
        "immediate",
        settings={"deadline_seconds": 1800},
        values=_struck(Effect.STOP_BEFORE),
    ),
    Mutant(
        "door-answers-with-the-cancelled",
        "A caller who cancels and asks again at once gets the submission that is being cancelled.",
        "forwarder/ingress/publisher.py",
        "        self._cancelled[request_id] = requested_at",
        "        self._cancelled.pop(request_id, None)",
        ("CancelAndSendAgain", "SuspendWorker", "CutOff"),
    ),
    Mutant(
        "door-remembers-what-is-lost",
        "An ingress answers with what it published once, though the log or the store lost it.",
        "forwarder/ingress/publisher.py",
        "        fresh = self._clock.monotonic() - recent.acknowledged_at < _BELIEVED_SECONDS",
        "        fresh = recent.acknowledged_as is not None",
        ("LogForgets", "SendAgain"),
    ),
    Mutant(
        "sent-again-is-made-again",
        "What is sent again without a key is made again.",
        _DUPLICATES,
        "        keyed = self.natural.keyed and natural.keyed",
        "        keyed = natural.window_seconds",
        ("SendAgain", "DoorRestarts"),
    ),
    Mutant(
        "second-room-is-swallowed",
        "A second room that differs in its notes is taken for the first, sent again.",
        _DUPLICATES,
        "        fields: dict[str, Any] = from_json(body)\n        if amount:",
        '        fields: dict[str, Any] = from_json(body)\n        fields.pop("notes", None)\n        if amount:',
        ("Cart",),
    ),
    Mutant(
        "equal-rooms-of-a-cart",
        "Equal rooms under keys of their own are taken for one.",
        _DUPLICATES,
        "        if keyed or not self._asks_the_same(natural)",
        "        if not self._asks_the_same(natural)",
        ("Cart",),
    ),
    Mutant(
        "key-with-another-body",
        "Another body under a key that was used is answered with the receipt of the first.",
        "forwarder/ingress/publisher.py",
        "            return receipt if same else key_reused(submission.request_id)",
        "            return receipt",
        ("ReuseKey",),
    ),
    Mutant(
        "conflict-is-not-told",
        "Two ingresses accept two bodies under one key; the second is dropped, and nobody is told.",
        "forwarder/store/submissions/intake.py",
        "            await connection.execute(duplicates.note_conflicts(), {BATCH: noted})",
        "            _ = noted",
        ("ReuseKey", "CutOff"),
    ),
    Mutant(
        "replay-beside-another",
        "A dead letter is put back, and made, though the caller had sent it again and that was made.",
        _DUPLICATES,
        "        if (self.natural.keyed and failed.keyed) or not self.stands(None):",
        "        if failed.key or not self.stands(None):",
        ("ReplayDeadLetters", "Down", "SendAgain"),
        settings={"deadline_seconds": 20},
        values={"Down": {"seconds": (50.0,)}, "SendAgain": {"nth": (0,)}},
    ),
    Mutant(
        "failover-is-not-noticed",
        "A database that lacks the last seconds takes over, and workers push again what they had pushed.",
        _WATCH,
        "        another = self._identity.changes != self._changes\n",
        "        another = False\n",
        ("FailOver", "NextReplies"),
    ),
    Mutant(
        "suspended-machine",
        "A machine that slept pushes what it holds, and others took over.",
        _WATCH,
        "abs(self._clocks_apart() - self._apart) > _CLOCKS_APART_SECONDS",
        "not self",
        ("Strike",),
        "immediate",
        settings={"deadline_seconds": 1800},
        values=_struck(Effect.SLEEP_BEFORE),
    ),
    Mutant(
        "slept-while-it-connected",
        "A machine that slept between the last check and the first byte sends what others took over.",
        "forwarder/worker/service.py",
        "self.lease.covers(work) and not self._store_watch.in_doubt(),\n",
        "self.lease.covers(work),\n",
        ("Strike",),
        "immediate",
        settings={"deadline_seconds": 1800},
        values=_struck(Effect.SLEEP_BEFORE),
    ),
    Mutant(
        "one-worker-looks-for-itself",
        "After a failover a worker pushes before the others have looked, and makes what one of them had made.",
        _WATCH,
        '                if lacks.keys() == {"workers"}:\n',
        '                lacks.pop("workers", None)\n                if lacks.keys() == {"workers"}:\n',
        ("FailOver", "NextReplies"),
        "immediate",
        values=_ONE_LOST,
        pauses=(3.0, 40.0),
    ),
    Mutant(
        "ingests-before-it-looks",
        "After a failover what is sent again is ingested as new, and a recovery brings back the first as well.",
        "forwarder/worker/intake.py",
        "        changes = self.parts.recorder.identity.changes\n        if not await self.sure():\n",
        "        changes = None\n        if not received:\n",
        ("Submit", "FailOver", "SendAgain"),
        "keyed",
        values={
            "Submit": {"lost": (True,), "keyed": (False,), "more": (0,), "card": (False,), "transaction": (False,)},
            "FailOver": {"seconds": (2.0,)},
        },
        pauses=(0.5,),
    ),
    Mutant(
        "recover-forgets-replays",
        "A dead letter that was put back after the snapshot is FAILED after a recovery, and sent blindly.",
        _RECOVER,
        "                replayed += await self._replay(some)\n",
        "                replayed += 0 * len(some)\n",
        ("Down", "Submit", "NextReplies", "ReplayDeadLetters", "FailOver"),
        "immediate",
        settings={"deadline_seconds": 20},
        values={
            "Submit": {"more": (0,)},
            "Down": {"seconds": (50.0,)},
            "NextReplies": {"first": _LOST[1:]},
            "FailOver": {"seconds": (30.0,)},
        },
        pauses=(12.0, 40.0),
        ordered=True,
    ),
    Mutant(
        "recover-books-repetitions",
        "A recovery takes what was sent again of a decided submission for a new one.",
        _RECOVER,
        "            await self._recognise(some)\n",
        "",
        ("FailOver", "SendAgain"),
    ),
    Mutant(
        "recover-sends-blindly",
        "What was under way when the store was lost is sent again after a recovery without a look.",
        _RECOVER,
        "                await recorder.mark_pushing(self._worker_id, [work.id for work in works])\n",
        "                await recorder.release(self._worker_id, [work.id for work in works])\n",
        ("FailOver", "NextReplies"),
        "immediate",
        values=_ONE_LOST,
        pauses=(3.0, 40.0),
    ),
    Mutant(
        "ends-what-the-store-lacks",
        "In a database that lacks a confirmation, its reservation is IN_DOUBT, and readers of the topic see both.",
        _PIPELINE,
        "        if not await self.pusher.sure():\n",
        "        if not pushes:\n",
        ("Submit", "IsWell", "Read", "FailOver"),
        "neither",
        settings={"concurrency": 1, "deadline_seconds": 1800},
        values={"Submit": {"more": (7,)}, "FailOver": {"seconds": (2.0,)}},
        pauses=(1.0,),
        ordered=True,
    ),
    Mutant(
        "recover-only-what-was-committed",
        "A recovery leaves out what was ingested and made before its offset was committed; workers wait for its outcome for ever.",
        _TOPIC_COPY,
        "            ends[partition] = max(ends.get(partition, 0), end)\n",
        "            ends.setdefault(partition, 0 * end)\n",
        ("FailOver", "DeliverAgain", "Strike"),
    ),
    Mutant(
        "lost-cancellations",
        "A restored store that lacks only cancellations counts as whole.",
        "forwarder/oversight/restored.py",
        '            "cancellations": await self.store.cancellations_not_noted(cancelled),',
        '            "cancellations": 0 * len(cancelled),',
        ("RestoreSnapshot", "Cancel", "CancelsBadly"),
        values={"RestoreSnapshot": {"seconds": (30.0,)}, "CancelsBadly": {"how": ("fails",)}},
    ),
    Mutant(
        "gap-is-not-told",
        "Messages that the log lost before anybody received them are passed over in silence.",
        "forwarder/oversight/losses.py",
        "        await self._store.note(NotedGap(gap.topic, gap.partition, gap.position, gap.resumed_at, self._clock.now()))\n",
        "",
        ("LogForgets", "CutOff"),
    ),
    Mutant(
        "cancellations-open-the-breaker",
        "Cancellations that a PMS fails keep new reservations from it.",
        "forwarder/worker/dispatch/throttle.py",
        "        self.breaker, self._cancel_breaker = (Breaker(clock, most) for _ in range(2))",
        "        self.breaker = self._cancel_breaker = Breaker(clock, most)",
        ("CancelsBadly", "Cancel"),
        values=_MANY | {"CancelsBadly": {"how": ("fails",)}, "Cancel": {"nth": (0, 2, 4), "more": (3,)}},
        pauses=(0.0, 20.0, 100.0),
    ),
    Mutant(
        "others-can-read",
        "A submission of one workspace can be read by another.",
        "forwarder/query/routes.py",
        "        if self.ids.vouches(caller.account.id, request_id):",
        "        if request_id:",
        ("ReadAsAnother",),
    ),
    Mutant(
        "committed-before-it-is-stored",
        "Offsets are committed before what they stand for is in the store.",
        "forwarder/worker/intake.py",
        '            await self.commits.rest()\n            return\n        self.watch.doing = "store"\n',
        "            await self.commits.rest()\n            return\n        await consumer.commit(messages)\n",
        ("CutOff", "Submit", "KillWorker"),
        values=_MANY | {"CutOff": {"seam": ("store",), "seconds": (100.0,)}, "KillWorker": {"again": (False,)}},
        pauses=(3.0,),
        ordered=True,
    ),
)
"""Every one is found by the net.

Two more are no mutants, because a second defence makes them harmless: that a cancellation is not looked at before the push,
and that it is not looked at again while the row waits in a queue, from which the cancellation withdraws it. The exploration
(tests/stage/protocol/test_exploration.py) shows both.
"""
