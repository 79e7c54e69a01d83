"""The catalogue of problems, by chapter, in the order of the documentation, and by code."""

from collections.abc import Mapping
from typing import Final

from forwarder.reservation.problems import endings, requests, service
from forwarder.reservation.problems.problem import ProblemType

CHAPTERS: Final = (
    requests.AUTHENTICATION,
    requests.REQUEST,
    requests.RULES,
    requests.LOOKUPS,
    service.SERVICE,
    endings.REJECTIONS,
    endings.UNCERTAIN,
    endings.CANCELLATIONS,
    requests.WEBHOOKS,
)

CATALOGUE: Final[Mapping[str, ProblemType]] = {one.code: one for chapter in CHAPTERS for one in chapter.problems}
