"""The part of docs/explanation/reliability.md that `make net ARGS=--write` writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.fault.campaign.report import RANDOM_HISTORIES

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "reliability.md"

_HEAD: Final = f"""{RANDOM_HISTORIES}

`make net` lives through random histories of the whole deployment, in one process and in simulated time
(`tests/net`). A seed makes a list of moves: callers submit, send again, cancel and read at two ingresses; operators
pause, replay, settle, change accounts and recover; PMSs, and proxies in front of them, take on the habits of real ones;
processes are killed and suspended, connections die around a commit, the database fails over to a standby that lacks the last
seconds, the log delivers again, forgets, or gets messages from others. The ingresses, workers, adapters, SQL and recovery
are the real ones. In the end everything is repaired, callers ask again for what they got no answer to, and `forwarder recover`
runs if a worker asks for it. Then a judge that saw only what callers, PMSs and readers of the results topic saw
(`tests/net/judge.py`) decides whether each guarantee held. A history that breaks one is shrunk to a few moves and
printed as a story; `python -m tests.net story SEED` prints any.

Even seeds draw a few kinds of moves, a few values of their fields and weights of their own, so that rare combinations meet
(swarm testing). Odd seeds walk through the pairs of kinds: of all ordered pairs, the first 140 seeds see 96 % next to each
other, 200 see 98 %, and 300 all.

To add a move, write one class in `tests/net/moves`: a field for each thing that is drawn, and `happen`, which does
it to the `World`. A new habit of PMSs is a line in `REPLIES` or `PROXIES` of `tests/net/pms.py`. A new guarantee is a
function in the judge, and a case in `tests/net/test_judge.py`. A history that broke a guarantee stays in
`tests/net/test_found.py`. New moves change what other seeds draw; `make net` then searches again for the mutants.

`make net HOURS=1` runs for an hour from a new seed, with `BACKEND=postgres` on PostgreSQL, which it starts or finds as the
suites do. There the database does not go back, because only a file of SQLite can be put back within a moment.

The net found three defects of `forwarder recover`, two of which left workers waiting for ever: it left out submissions that had
been made before their offset was committed, and it began too late where a worker's clock was an hour ahead.
And it left a repeat in the store that had been ingested before the loss was found, and brought back the first beside it.
It also found a reservation that was made twice after a failover: the worker that found a loss stopped, and the one that got
its partitions pushed again. A machine that slept between the last check and the first byte of a request made what another
worker had made meanwhile. And after a failover that lost a confirmation, a worker reported IN_DOUBT for the same reservation.
All have histories in `tests/net/test_found.py`.

An hour on PostgreSQL, from seed 2000000: 274 histories of 7,256 moves, 0 broke a guarantee, and every pair of kinds of moves
was seen. An hour on SQLite, from seed 1000000: 410 histories of 11,025 moves; one broke a guarantee, which is mended, and its
history holds now.

Each mend of the past was taken back (`tests/mutants/catalogue.py`), and the net searched for each: **seed** is a history that
showed it, of as many **moves**, after so many **histories** and **seconds** of CPU; the same history holds with the mend. The
seed that is known from the last time (`tests/mutants/found.json`) is tried first.
"""


def write(parts: Sequence[str]) -> None:
    """These lines follow the explanation, below what the fault suite wrote."""
    before, _, old = PAGE.read_text().partition(RANDOM_HISTORIES)
    _, heading, after = old.partition("\n## ")
    PAGE.write_text("\n".join([before.rstrip(), "", _HEAD, *parts]) + "\n" + heading + after)
