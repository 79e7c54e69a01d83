"""Explores every history up to a bound, and prints what it found.

python -m tests.stage.protocol.exploration [--submissions 3] [--workers 2] [--faults 1] [--pms find] [--seconds 600]
"""

import argparse
import logging
import sys

import structlog

from tests.stage.protocol.exploration.search import PMS, explore
from tests.stage.protocol.exploration.world import FAULTS, Bound


def main() -> int:
    """1 if something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submissions", type=int, choices=(1, 2, 3), default=3)
    parser.add_argument("--workers", type=int, choices=(1, 2), default=2)
    parser.add_argument("--faults", type=int, default=1, help="how many faults a history has, one of each kind")
    parser.add_argument("--only", default="", help=f"these faults, separated by commas, of: {', '.join(FAULTS)}")
    parser.add_argument("--pms", choices=PMS, default="find", help="what the PMS can do")
    parser.add_argument("--settles", type=float, default=30.0, help="seconds until the PMS shows what it made")
    parser.add_argument("--seconds", type=float, default=600.0, help="when to stop, if there is more")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    allowed = frozenset(given.only.split(",")) if given.only else frozenset(FAULTS)
    bound = Bound(given.submissions, given.workers, given.faults, allowed)
    explored = explore(bound, pms=given.pms, settles=given.settles, max_seconds=given.seconds)
    print(explored)
    return 1 if explored.violation else 0


if __name__ == "__main__":
    sys.exit(main())
