"""`forwarder doubles cancel`: what is audited of a cancellation that the PMS did not make, and that the double stays listed."""

from dataclasses import replace
from pathlib import Path

import pytest

from forwarder.operate.command import open_deployment
from forwarder.operate.output import Failed
from forwarder.operate.submissions.look_up import cancel_double
from forwarder.store.audit import AuditFilter
from forwarder.store.submissions.recorder import Recorder
from forwarder.tenancy.sealing import with_credential
from tests.support.simulator.server import running_simulator
from tests.support.store.stored import arrivals, final, lease
from tests.support.worker.works import NOW, account


async def test_a_cancellation_that_the_pms_does_not_make_is_audited_as_such(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDER_DATA_DIR", str(data_dir))
    async with running_simulator() as site:
        async with open_deployment() as backend:
            await backend.tenancy.add_workspace("demo")
            sealer = backend.required_keyring()
            await backend.tenancy.put_account(
                with_credential(replace(account(), base_url=site.base_url("generic")), "secret", sealer)
            )
            recorder = Recorder(backend.engine)
            await lease(recorder, "w1")
            (work,) = await recorder.ingest("w1", arrivals([1]), now=NOW)
            await recorder.record("w1", [replace(final(work), doubles=("4712",))], [])
        request_id = work.submission.request_id
        async with open_deployment() as backend:
            with pytest.raises(Failed, match="not a double of"):
                await cancel_double(backend, request_id, "4711", yes=True)
            site.go_wrong("down")
            with pytest.raises(Failed, match="did not cancel it"):
                await cancel_double(backend, request_id, "4712", yes=True)
    async with open_deployment() as backend:
        entries = await backend.trail.entries(AuditFilter(action="double.cancel"), before=None, limit=9)
        doubled = await backend.overview.doubled()
    assert [(entry.result, entry.reason, entry.target) for entry in reversed(entries)] == [
        ("requested", None, request_id),
        ("refused", "NotCancelled", request_id),
    ]
    assert [each.doubles for each in doubled] == [("4712",)]
