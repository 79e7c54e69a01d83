"""The linters that others hold OpenAPI documents against have nothing to say of ours."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.contracts import openapi_linters
from tools.contracts.openapi import openapi
from tools.servers.ladder import Unavailable


@pytest.mark.slow
@pytest.mark.parametrize("lint", [openapi_linters.redocly, openapi_linters.spectral])
async def test_nothing_is_wrong_with_the_contract(lint: Callable[[Path], list[str]], tmp_path: Path) -> None:
    faulty = openapi()
    del faulty["servers"], faulty["info"]["description"]
    faulty["paths"]["/docs/"] = faulty["paths"].pop("/docs")
    found = []
    for name, document in (("whole", openapi()), ("faulty", faulty)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        try:
            found.append(await asyncio.to_thread(lint, path))
        except Unavailable as reason:
            pytest.skip(str(reason))
    assert found[0] == []
    assert len(found[1]) >= 2, "the linter sees nothing at all"
