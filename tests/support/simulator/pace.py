"""A `Pace` that writes down what it hears."""


class HeardPace:
    """`heard`: "requested" for each request, a number for each pause that was asked for, in their order."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def requested(self) -> None:
        self.heard.append("requested")

    def hold_off(self, seconds: float) -> None:
        self.heard.append(seconds)
