"""Whether publishing failed just now: what every backend's `ready` has in common.

Touches nothing but the loop's clock.
"""

import asyncio

_REMEMBERED_SECONDS = 5.0


class RecentFailure:
    """Remembers a failure until something succeeds, or for five seconds.

    It forgets, because whoever is not ready is sent no work, and could never prove itself.
    """

    def __init__(self) -> None:
        self._at: float | None = None

    def happened(self) -> None:
        self._at = asyncio.get_running_loop().time()

    def over(self) -> None:
        self._at = None

    def recent(self) -> bool:
        return self._at is not None and asyncio.get_running_loop().time() - self._at < _REMEMBERED_SECONDS
