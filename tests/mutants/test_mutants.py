"""Every mutant still applies: to the file that it names, once, and what comes out is Python."""

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.hunting import mutated
from tests.net.moves import MOVES
from tests.net.pms import SHAPES
from tests.support.cases import for_each

_KINDS = {each.__name__ for each in MOVES}


@for_each("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_it_applies(mutant: Mutant) -> None:
    compile(mutated(mutant), mutant.path, "exec")


def test_each_is_looked_for_where_moves_and_a_pms_are() -> None:
    assert {move for mutant in MUTANTS for move in mutant.moves} <= _KINDS
    assert {mutant.shape for mutant in MUTANTS} <= set(SHAPES)


def test_they_have_names_of_their_own() -> None:
    assert len({each.id for each in MUTANTS}) == len(MUTANTS)
