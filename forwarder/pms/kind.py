"""A kind of PMS that is more than the class of its adapter: what an account can rely on follows from its options.

Private to the seam. Where it does not, the class of the adapter is its own kind.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel

from forwarder.pms.adapter import Adapter
from forwarder.pms.port import AccountConnection, Capabilities, Limits
from forwarder.process.clock import Clock


@dataclass(frozen=True, slots=True)
class Kind:
    """An `AdapterKind`. `capabilities` are those of an account without options; an adapter may have others."""

    make: Callable[[AccountConnection, Clock], Adapter]
    options: type[BaseModel]
    capabilities: Capabilities
    limits: Limits

    def __call__(self, connection: AccountConnection, clock: Clock) -> Adapter:
        return self.make(connection, clock)
