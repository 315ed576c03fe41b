import pytest

from archloom.core.errors import SettingError
from archloom.spaces import Nb201
from archloom.strategies.candidates import Candidates

ARCHITECTURES = list(Nb201(nodes=2).enumerate())


@pytest.mark.parametrize(("final", "best"), [(True, 3), (False, 1)])
def test_the_best_of_as_many_as_asked_for_is_taken_and_the_first_wins_a_tie(final, best):
    scores = dict(zip(ARCHITECTURES, [0.1, 0.4, 0.4, 0.7, 0.9], strict=True))
    drawn = iter(ARCHITECTURES)
    taken = Candidates(4, 3).best(lambda: next(drawn), scores.__getitem__, final=final)
    assert taken == ARCHITECTURES[best]
    assert len(list(drawn)) == (1 if final else 2)


def test_all_broken_rules_are_reported_together():
    with pytest.raises(SettingError) as caught:
        Candidates(0, -1)
    assert caught.value.problems == (
        "strategy.candidates must be at least 1, got 0",
        "strategy.candidates_each_epoch must be at least 1, got -1",
    )
