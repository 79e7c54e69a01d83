"""What can happen in a history: one class for each kind of move. Importing this package registers all of them in `MOVES`.

A new move is a frozen dataclass that extends `Move`: a field for each thing that is drawn, and `happen`. It names what it
concerns by a number modulo what there is, so that it still makes sense when the moves before it are taken away.
"""

from tests.net.moves import callers, infrastructure, operators, pmss
from tests.net.moves.move import MOVES, Move, one_of, some

__all__ = ["MOVES", "Move", "callers", "infrastructure", "one_of", "operators", "pmss", "some"]
