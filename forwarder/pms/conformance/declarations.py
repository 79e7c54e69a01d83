"""Checks of what an adapter declares for people to read and for settings to be held against."""

import asyncio
from typing import Final

from forwarder.pms.conformance.check import Findings
from forwarder.pms.conformance.trial import Trial
from forwarder.pms.port import BadOptions
from forwarder.pms.registry import check_options, lacks

_NO_OPTION: Final = "noSuchOption"
_MOMENT_SECONDS: Final = 0.05
_SECRET: Final = "a-secret-in-the-wrong-place"  # noqa: S105 - a planted one


async def describes_its_options(trial: Trial) -> Findings:
    """Each option has a description and a name in camel case; one that is unknown is refused by name, and never quoted."""
    if lacking := lacks(trial.adapter):
        yield f"it is not the class of an adapter: {lacking}"
        return
    schema = trial.adapter.options.model_json_schema(by_alias=True)
    for name, option in schema.get("properties", {}).items():
        if not str(option.get("description", "")).strip():
            yield f"option {name} has no description"
        if "_" in name or name[:1].isupper():
            yield f"option {name} is not in camel case"
    check_options(trial.kind, trial.options, trial.registry)
    try:
        check_options(trial.kind, {**trial.options, _NO_OPTION: _SECRET}, trial.registry)
    except BadOptions as refused:
        if _SECRET in str(refused):
            yield "what is refused of the options is quoted, and may be a secret"
    else:
        yield "an option that it does not have is not refused: extend NoOptions, which forbids them"


async def opens_nothing_by_itself(trial: Trial) -> Findings:
    """Connecting asks the PMS nothing: an account costs nothing until a reservation comes for it."""
    trial.wire.begin()
    taken = trial.wire.connections
    kept = trial.connect()
    await asyncio.sleep(_MOMENT_SECONDS)
    if trial.wire.exchanges or trial.wire.connections > taken:
        yield f"making {type(kept).__name__} asked the PMS something"
