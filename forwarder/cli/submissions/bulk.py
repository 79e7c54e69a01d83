"""Shared by the commands that repair many submissions at once: selection, preview, confirmation prompt and summary."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any

import typer

from forwarder.assembly.backend import Backend
from forwarder.cli.output import Failed, WrongUsage, note, say, show_json, show_rows
from forwarder.operations.repair.bulk import Outcome, Plan
from forwarder.operations.show.search import SubmissionQuery, SubmissionSearch
from forwarder.store.lists.port import SubmissionSummary

RequestIds = Annotated[
    list[str] | None, typer.Argument(metavar="REQUEST_ID...", help="Only these, by the requestId of their 202: rsv_….")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done, and what is refused.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]

_PAGE = 1000
_NAMED = 10


async def selected(
    backend: Backend, request_ids: Sequence[str], query: SubmissionQuery
) -> tuple[Sequence[SubmissionSummary], Sequence[str]]:
    """The submissions with these request ids, or all that match `query`; and the request ids that no worker has ingested. Raises
    `WrongUsage` unless exactly one of the two selects."""
    if bool(request_ids) == (query != SubmissionQuery()):
        raise WrongUsage("Select submissions: by request ids, or by filters such as --account, --status or --reason.")
    if request_ids:
        found = await backend.overview.summaries(request_ids)
        statuses = await backend.overview.statuses(request_ids)
        unknown = [each for each in request_ids if each not in statuses]
        # A duplicate's id resolves to the submission that it duplicates.
        return found, unknown if len(found) + len(unknown) >= len({*request_ids}) else ()
    rows: list[SubmissionSummary] = []
    async with aclosing(SubmissionSearch(backend.overview, backend.request_ids).pages(query, page=_PAGE)) as pages:
        async for page, _ in pages:
            rows += page
    return rows, ()


def preview(groups: Iterable[Mapping[str, str]], plan: Plan[Any], doing: str) -> None:
    """Prints how many of each group would be repaired, and how many are refused for which reason."""
    counts = Counter(tuple(group.items()) for group in groups)
    rows = [{**dict(group), "count": count} for group, count in sorted(counts.items())]
    if rows:
        show_rows(rows, [*rows[0]], as_json=False)
    say(f"{len(plan.chosen)} would be {doing}.{_passed_over(plan)}")


def preview_json(groups: Iterable[Mapping[str, str]], plan: Plan[Any]) -> None:
    """The preview as JSON."""
    counts = Counter(tuple(group.items()) for group in groups)
    rows = [{**dict(group), "count": count} for group, count in sorted(counts.items())]
    show_json(
        {
            "dryRun": True,
            "selected": len(plan.chosen),
            "groups": rows,
            "already": len(plan.settled),
            "refused": plan.refused,
        }
    )


def agreed(question: str, *, yes: bool) -> None:
    """Asks for confirmation on a terminal. Raises `Failed` if the answer is no."""
    if not yes and sys.stdin.isatty() and not typer.confirm(question, err=True):
        raise Failed("nothing was changed")


def finish(outcome: Outcome, plan: Plan[Any], done: str, *, as_json: bool) -> None:
    """Prints the result. Raises `Failed` if some failed, were refused, or are left."""
    refused = {**plan.refused, **outcome.failed}
    already = outcome.already + len(plan.settled)
    if as_json:
        show_json(
            {
                "dryRun": False,
                "selected": len(plan.chosen),
                "done": outcome.done,
                "already": already,
                "failed": refused,
                "left": outcome.left,
            }
        )
    else:
        counts = (f"{outcome.done} {done}", f"{already} were so already" if already else "")
        say(", ".join(count for count in counts if count) + ".")
    for request_id, why in list(refused.items())[:_NAMED]:
        note(f"{request_id}: {why}")
    if len(refused) > _NAMED:
        note(f"and {len(refused) - _NAMED} more; --json lists all")
    if outcome.left:
        why = outcome.outage or "interrupted"
        raise Failed(f"{outcome.left} were not tried: {why}. Run the same command again to continue.")
    if refused:
        raise Failed(f"{len(refused)} could not be {done}.")


def _passed_over(plan: Plan[Any]) -> str:
    already = [f"{len(plan.settled)} are so already"] if plan.settled else []
    refused = [f"{count} refused ({why})" for why, count in plan.refusals().items()]
    return f" {'; '.join([*already, *refused])}." if already or refused else ""
