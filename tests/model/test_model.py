"""The smallest configuration of the model holds, and TLC finds two of its mutants. `make model` runs all of them."""

import pytest

from tests.model.check import MUTANTS, PAIRS, Config, Mutant, Outcome, run
from tests.servers.base import ServerUnavailable

QUICK = {"statistics are not widened", "compaction checks nothing"}


def checked(config: Config) -> Outcome:
    try:
        return run(config)
    except ServerUnavailable as missing:
        pytest.skip(str(missing))


def test_the_model_of_two_writers_holds() -> None:
    assert checked(PAIRS).violated is None


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.fault in QUICK], ids=lambda it: it.fault)
def test_a_mutant_of_the_model_is_found(mutant: Mutant) -> None:
    assert checked(mutant.config()).violated == mutant.invariant
