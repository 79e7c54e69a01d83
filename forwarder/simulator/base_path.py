"""Base URLs that only one kind of PMS has, told by how they end: for the kinds whose paths are those of another one too."""

import re

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.routing import BaseRoute, Route

from forwarder.simulator.http import Endpoint


def below_base_ending_in(ending: str, path: str, method: str, endpoint: Endpoint) -> list[BaseRoute]:
    """`path` below every base URL whose path ends in the segments `ending`. To stand before the routes that take any base."""

    class BasePath(PathConvertor):
        regex = rf"(?:.*/)?{re.escape(ending)}"

    name = re.sub(r"\W", "_", ending)
    register_url_convertor(name, BasePath())
    return [Route(f"/{{base:{name}}}{path}", endpoint, methods=[method])]
