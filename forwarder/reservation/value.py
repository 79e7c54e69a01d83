"""Frozen dataclasses that are cheap to create, for values of every reservation. Pure.

Python freezes a value by setting each field through a function, which takes three times as long. Code that passes the type checker
needs no such guard at run time.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen: bool, slots: bool) -> object:
        """As `dataclass`, with the same arguments. Only the type checker refuses writing to a field."""
        # Hashed by its fields like a frozen one, though `dataclass` cannot know that its fields are never written.
        return dataclass(slots=slots, unsafe_hash=frozen)


__all__ = ["value"]
