"""`forwarder submissions …`, and its command `list`: submissions and their outcomes, in every workspace."""

from contextlib import aclosing
from functools import partial
from typing import Annotated

import typer

from forwarder.assembly.backend import Backend
from forwarder.operate.backend import with_backend
from forwarder.operate.options import grouped
from forwarder.operate.output import json_line, show_lines, show_rows, while_read
from forwarder.operate.submissions.bulk import retry
from forwarder.operate.submissions.cancel import cancel
from forwarder.operate.submissions.history import show
from forwarder.operate.submissions.look_up import look_up
from forwarder.operate.submissions.search import Filters, SubmissionQuery, SubmissionSearch, row
from forwarder.operate.submissions.settle import settle

_COLUMNS = ("acceptedAt", "status", "requestId", "account", "attempts", "reason", "dueAt", "pmsReservationId")
_PAGE = 500


def commands() -> typer.Typer:
    """show, list, look-up, retry, settle, cancel"""
    group = typer.Typer(help="Submissions: search, show, look up, retry, settle and cancel them.", no_args_is_help=True)
    group.command("show")(show)
    group.command("list")(list_submissions)
    group.command("look-up")(look_up)
    group.command("retry")(retry)
    group.command("settle")(settle)
    group.command("cancel")(cancel)
    return group


@grouped
def list_submissions(
    *,
    filters: Filters,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, an object a line, instead of a table.")] = False,
) -> None:
    """Search submissions of any status, newest first; also REJECTED and FAILED ones, which callers' lists leave out.

    Filters are combined with AND. Filters other than account, status, property, PMS id and transaction scan the matching
    submissions, and can be slow.
    """
    query = filters.query()
    with while_read():
        if as_json:
            with_backend(partial(_print_lines, query, limit))
        else:
            found = with_backend(lambda backend: _search(backend).newest(query, limit))
            show_rows([row(summary) for summary in found], _COLUMNS, as_json=False)


async def _print_lines(query: SubmissionQuery, limit: int, backend: Backend) -> None:
    left = limit
    async with aclosing(_search(backend).pages(query, page=min(limit, _PAGE))) as pages:
        async for rows, _ in pages:
            show_lines(json_line(row(summary)) for summary in rows[:left])
            left -= len(rows)
            if left <= 0:
                return


def _search(backend: Backend) -> SubmissionSearch:
    return SubmissionSearch(backend.overview, backend.request_ids)
