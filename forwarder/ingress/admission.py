"""How much one process takes on at a time. What is beyond is sent away before its body is read, so that memory stays bounded."""

from forwarder.ingress.request import Call
from forwarder.reservation.request import MAX_BODY_BYTES


class Admission:
    """Places for `most_calls` calls, whose bodies have `most_bytes` together. A body is counted as long as it is said to be; where
    nothing is said, as long as a body may be. A call keeps its place until it was decided what to answer it, while it waits
    for its outcome too."""

    def __init__(self, *, most_calls: int, most_bytes: int) -> None:
        self._most_calls = most_calls
        self.most_bytes = max(most_bytes, MAX_BODY_BYTES)
        self._calls = 0
        self._bytes = 0

    def place(self, call: Call, at_most: int = MAX_BODY_BYTES) -> "_Place":
        """A place for the block; False where there is none. `at_most`: the longest body that is read of such a call."""
        return _Place(self, _size_of_body(call, at_most))

    def take(self, size: int) -> bool:
        """Count a call with a body of that many bytes, where it has a place."""
        if self._calls >= self._most_calls or self._bytes + size > self.most_bytes:
            return False
        self._calls += 1
        self._bytes += size
        return True

    def leave(self, size: int) -> None:
        """What `take` has counted is over."""
        self._calls -= 1
        self._bytes -= size


class _Place:
    """Taken on entering, if there is one, and then left on the way out."""

    __slots__ = ("_admission", "_size", "_taken")

    def __init__(self, admission: Admission, size: int) -> None:
        self._admission = admission
        self._size = size
        self._taken = False

    def __enter__(self) -> bool:
        self._taken = self._admission.take(self._size)
        return self._taken

    def __exit__(self, *_raised: object) -> None:
        if self._taken:
            self._admission.leave(self._size)


def _size_of_body(call: Call, at_most: int) -> int:
    """In bytes. One that is too long is not read."""
    declared = call.fields.get(b"content-length", b"")
    return min(int(declared), at_most) if declared.isdigit() else at_most
