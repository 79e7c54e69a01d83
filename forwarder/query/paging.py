"""Section 8 of the contract: what page of reservations is asked for, and how it is written. Pure."""

from dataclasses import dataclass

from forwarder.http.paging import (
    DEFAULT_LIMIT,
    FIRST,
    Cursors,
    Parameters,
    invalid_query,
    read_cursor,
    read_limit,
    write_list,
)
from forwarder.query.filters import read_filters, read_order
from forwarder.reservation.problem import Fault, Problem
from forwarder.store.lists.port import EVERYTHING, Filters, Order, Page


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The page of `limit` records that starts at `cursor`, of those that `filters` let through."""

    cursor: int = FIRST
    limit: int = DEFAULT_LIMIT
    filters: Filters = EVERYTHING
    order: Order = "asc"


def read_page_request(parameters: Parameters) -> PageRequest | Problem:
    """The page that the query parameters ask for; every fault in one problem. Parameters that we do not know are left alone."""
    limit, cursor, order = read_limit(parameters), read_cursor(parameters), read_order(parameters)
    filters = read_filters(parameters)
    if isinstance(limit, Fault) or isinstance(cursor, Fault) or isinstance(order, Fault) or isinstance(filters, list):
        faults = [each for each in (limit, cursor, order) if isinstance(each, Fault)]
        return invalid_query([*faults, *(filters if isinstance(filters, list) else ())])
    return PageRequest(cursor, limit, filters, order)


def write_page(page: Page, limit: int) -> bytes:
    """`{data, meta}`, put together from the records as they are kept: none is read or written anew."""
    return write_list(page.records, Cursors(page.previous, page.current, page.next), limit)
