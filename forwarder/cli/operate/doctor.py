"""`forwarder doctor`: checks how the deployment is set up."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

from forwarder.assembly.commands.doctor import open_doctor
from forwarder.cli.output import AsJson, Failed, show_json, show_table
from forwarder.cli.run.serve import settings_and_logging
from forwarder.operations.show.doctor import Step, examine
from forwarder.settings import Settings


def doctor(as_json: AsJson = False) -> None:
    """Check how the deployment is set up: settings, log, topics, store, clock, secret, keys and simulator, and say what to do.

    Read-only. Exit code 1 if a step fails. `forwarder status` shows how the deployment is doing.
    """
    steps = asyncio.run(_examined(settings_and_logging("error")))
    if as_json:
        show_json([asdict(step) for step in steps])
    else:
        show_table([row for step in steps for row in _rows(step)])
    failed = [step for step in steps if step.verdict == "failed"]
    if failed:
        raise Failed(f"{len(failed)} of {len(steps)} steps failed")


async def _examined(settings: Settings) -> Sequence[Step]:
    async with open_doctor(settings) as parts:
        return await examine(parts)


def _rows(step: Step) -> Sequence[tuple[str, str, str]]:
    row = (step.verdict, step.name, step.says)
    return [row] if step.mend is None else [row, ("", "", f"-> {step.mend}")]
