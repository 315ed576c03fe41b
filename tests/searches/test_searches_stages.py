import pytest

from archloom.searches.stages import StageEpoch, StagePlan
from archloom.strategies.base import Stage

PLAN = StagePlan([Stage(2, "shallow"), Stage(3, "deep")])


@pytest.mark.parametrize(
    ("epoch", "wanted"),
    [(0, (0, 0, 2)), (1, (0, 1, 2)), (2, (1, 0, 3)), (4, (1, 2, 3)), (5, (1, 3, 3))],  # 5: after the end
)
def test_an_epoch_lies_in_its_stage(epoch, wanted):
    assert PLAN.at(epoch) == StageEpoch(*wanted)


def test_progress_starts_anew_in_every_stage():
    assert [PLAN.at(epoch).start for epoch in range(5)] == [0, 1 / 2, 0, 1 / 3, 2 / 3]


def test_stages_have_names_where_there_are_several():
    assert [PLAN.describe(number) for number in range(2)] == ["stage 1/2, shallow", "stage 2/2, deep"]
    assert StagePlan([Stage(7)]).describe(0) == ""
    assert (PLAN.epochs, PLAN.epochs_of(1), PLAN.first_epoch(1)) == (5, 3, 2)
