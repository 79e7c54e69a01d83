"""What the commands on webhooks take alike, and how they say what they refuse."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from forwarder.cli.output import Failed, WrongUsage
from forwarder.notifier.webhooks import EndpointDisabled, UnknownType
from forwarder.tenancy.webhooks import TooManyEndpoints
from forwarder.webhooks.port import BadTarget

EndpointId = Annotated[str, typer.Argument(metavar="ID", help="The webhook's identifier: whk_….")]
OfWorkspace = Annotated[str | None, typer.Option("--workspace", help="Only if it is this workspace's.")]


@contextmanager
def in_words() -> Iterator[None]:
    """What the block refuses, for the person who asked: `WrongUsage` where another command would do, else `Failed`."""
    try:
        yield
    except (BadTarget, UnknownType) as error:
        raise WrongUsage(str(error)) from error
    except (EndpointDisabled, TooManyEndpoints) as error:
        raise Failed(str(error)) from error
