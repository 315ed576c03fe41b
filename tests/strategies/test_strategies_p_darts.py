"""P-DARTS: what is dropped, when dropout falls, how skips are limited, and that stages resume exactly."""

from __future__ import annotations

import random

import pytest
import torch

from archloom.core.errors import SettingError
from archloom.execution.checkpoint import decode
from archloom.families import build_network
from archloom.fast import use_kernels
from archloom.spaces import NONE, Darts, Decision, Nb201
from archloom.strategies.base import SearchBatch
from archloom.strategies.p_darts import PDarts, keep_options, stage_spaces
from archloom.strategies.skip_limit import limit_skips
from archloom.supernet import DropSkips, EveryOption, SharedWeights, SkipDropout
from archloom.testing import find_differences, finish, make_search, save_interrupted

SKIP = "skip_connect"


def make(space=None, **settings) -> PDarts:
    return PDarts(space or Darts(), torch.Generator().manual_seed(0), **settings)


def set_logits(strategy: PDarts, rows: dict[str, list[float]]) -> None:
    """Set the logits of some decisions; the others stay near 0."""
    with torch.no_grad():
        for name, row in strategy.policy.rows().items():
            if name in rows:
                row.copy_(torch.tensor(rows[name]))


# --- dropping


def test_the_least_probable_options_are_dropped_and_of_equal_ones_the_earlier():
    decision = Decision("edge", tuple("abcdefgh"))
    assert keep_options(decision, [0.1, 0.3, 0.05, 0.2, 0.05, 0.05, 0.15, 0.1], 3) == list("abdgh")
    assert keep_options(decision, [0.125] * 8, 3) == list("defgh")
    assert keep_options(Decision("edge", ("a", "b", "c")), [0.2, 0.5, 0.3], 3) == ["b", "c"]


def test_every_stage_has_the_options_that_a_table_by_hand_says():
    strategy = make()
    name = "normal/0->2"
    set_logits(strategy, {name: [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]})  # none is dropped like any other
    strategy.begin_stage(1)
    assert strategy.supernet_space.decision(name).options == (SKIP, *Darts().operations[4:])
    assert {len(decision.options) for decision in strategy.supernet_space.decisions} == {5}
    assert len(strategy.supernet_space.decisions) == 28
    set_logits(strategy, {name: [5.0, 4.0, 1.0, 1.0, 3.0]})
    strategy.begin_stage(2)
    assert strategy.supernet_space.decision(name).options == (SKIP, "sep_conv_3x3", "dil_conv_5x5")
    assert {len(decision.options) for decision in strategy.supernet_space.decisions} == {3}
    dropped = [stage["dropped"].get(name) for stage in strategy.findings().others["stages"]]
    assert dropped == [[NONE, "max_pool_3x3", "avg_pool_3x3"], ["sep_conv_5x5", "dil_conv_3x3"], None]


def test_a_stage_starts_with_new_logits_and_a_new_optimizer():
    strategy = make()
    set_logits(strategy, {"normal/0->2": [9.0] * 8})
    before = strategy.optimizer
    strategy.begin_stage(1)
    assert strategy.policy.values.abs().max() < 0.01 and strategy.policy.values.numel() == 28 * 5
    assert (
        strategy.optimizer is not before and strategy.optimizer.param_groups[0]["params"][0] is strategy.policy.values
    )


def test_dropped_options_have_probability_zero():
    strategy = make(Nb201(), drops=(2,), skip_dropout=(0.0, 0.0))
    set_logits(strategy, {"0->1": [0.0, 1.0, 2.0, 3.0, 4.0]})
    strategy.begin_stage(1)
    row = strategy.probabilities()["0->1"]
    assert row[:2] == [0.0, 0.0] and sum(row) == pytest.approx(1)
    assert torch.equal(strategy.expected_choice()["0->1"].detach()[:2], torch.zeros(2))


def test_depths_rise_to_that_of_the_space_and_keep_its_decisions():
    assert [space.cells for space in stage_spaces(Darts(cells=17), (5, 11, 17), 3)] == [5, 11, 17]
    assert [space.cells for space in stage_spaces(Darts(cells=8), (), 3)] == [3, 6, 8]
    assert [space.cells for space in stage_spaces(Darts(cells=3), (), 3)] == [3, 3, 3]  # fewer have no reduction
    assert [space.cells_per_stage for space in stage_spaces(Nb201(), (), 3)] == [2, 4, 5]
    own = Darts(cells=8, sharing="none")
    assert stage_spaces(own, (), 3) == [own] * 3
    with pytest.raises(SettingError, match="must stay as it is"):
        stage_spaces(own, (5, 11, 17), 3)


def test_the_stages_of_the_paper():
    strategy = make(**PDarts.presets["paper"]["strategy"])
    stages = strategy.stages(75)
    assert [stage.epochs for stage in stages] == [25, 25, 25]
    assert [stage.name for stage in stages] == ["5 cells, 8 options", "11 cells, 5 options", "17 cells, 3 options"]
    slots = [[place for place, slot in enumerate(space.slots) if slot.reduction] for space in strategy._spaces]
    assert slots == [[1, 3], [3, 7], [5, 11]]
    assert [stage.epochs for stage in strategy.stages(5)] == [1, 2, 2]
    with pytest.raises(SettingError, match=r"search.epochs must be at least 3, one for each stage of p_darts, got 2"):
        strategy.stages(2)


# --- dropout on skips


@pytest.mark.parametrize(
    ("epoch", "public", "monotone"), [(0, 0.384, 0.384), (9, 0.24, 0.24), (10, 0.4, 0.224), (24, 0.0243, 0.0)]
)
def test_the_dropout_of_skips_falls_as_published(epoch, public, monotone):
    for schedule, wanted in (("public", public), ("monotone", monotone)):
        strategy = make(skip_dropout=(0.4, 0.4, 0.4), skip_dropout_schedule=schedule)
        rate = strategy.skip_rate(SearchBatch(None, (), epoch, 25))
        assert rate == pytest.approx(wanted, abs=1e-4)


def test_only_identities_have_dropout():
    space = Darts(cells=3)
    network = build_network(space, DropSkips(rate=0.3), classes=2, colours=3, channels=4)
    cells = [
        {name for name, module in cell.named_modules() if isinstance(module, SkipDropout)} for cell in network.cells
    ]
    assert len(cells[0]) == 14  # a normal cell: every edge
    assert len(cells[1]) == 14 - 8  # a reduction cell: not where the resolution halves
    assert all(name.endswith(f"candidates.{SKIP}") for name in cells[0] | cells[1])


def test_dropout_keeps_the_mean_and_is_off_where_paths_are_evaluated():
    torch.manual_seed(0)
    dropped = SkipDropout(0.4)(torch.ones(10_000))
    assert float(dropped.mean()) == pytest.approx(1, abs=0.02)
    assert float((dropped == 0).float().mean()) == pytest.approx(0.4, abs=0.02)
    assert torch.equal(SkipDropout(0.4).eval()(torch.ones(10)), torch.ones(10))


def test_the_strategy_sets_the_rate_of_the_present_epoch():
    search = make_search(
        "p_darts", network={"channels": 2}, search={"epochs": 3}, strategy={"skip_dropout": [0.6, 0.0, 0.5]}
    )
    search.advance()
    found = [module for module in search.weights._network.modules() if isinstance(module, SkipDropout)]
    assert {module.p for module in found} == {0.6 * 0}  # the only epoch of its stage: (1 - 0 - 1) / 1
    search.weights.set_skip_dropout(0.25)
    assert found and {module.p for module in found} == {0.25}
    assert search.strategy.resolve() == DropSkips(rate=0.6)
    for _ in range(3):
        search.advance()
    assert search.strategy.resolve() == EveryOption()
    assert not [module for module in search.weights._network.modules() if isinstance(module, SkipDropout)]


def test_recomputing_cells_is_refused_with_dropout_on_skips():
    with use_kernels("torch", recompute=True), pytest.raises(SettingError, match=r"machine.recompute must be false"):
        SkipDropout(0.4)(torch.ones(4))


def test_a_dropped_skip_is_the_same_for_all_evaluations_of_a_step():
    space = Nb201(nodes=2, cells_per_stage=1)
    network = build_network(space, DropSkips(rate=0.5), classes=3, colours=3, channels=4)
    search = make_search("darts", network={"channels": 4})
    weights, batch = SharedWeights(network, noise_seed=1), search.train.batch(0, 0)
    path = {"0->1": type(next(iter(search.strategy.policy.mixture().values())))(index=1)}
    first, again = (float(weights.loss(batch, path).detach()) for _ in range(2))
    assert first == again


# --- the limit of skips


def cell_rows(first: list[float], second: list[float], third: list[float]) -> dict[str, list[float]]:
    """Scores of (none, skip, conv, pool) for a cell of two nodes: two convolutions, then the three edges given."""
    plain = [0.0, 0.1, 0.8, 0.1]
    names = ["0->2", "1->2", "0->3", "1->3", "2->3"]
    return dict(zip((f"normal/{name}" for name in names), [plain, plain, first, second, third], strict=True))


SMALL = Darts(nodes=2, cells=1, operations=(NONE, SKIP, "sep_conv_3x3", "max_pool_3x3"))


def test_an_edge_that_lost_its_skip_may_lose_its_place():
    rows = cell_rows([0.2, 0.50, 0.30, 0.0], [0.3, 0.1, 0.45, 0.15], [0.35, 0.1, 0.40, 0.15])
    kept = [f"normal/{source}->3" for source in range(3)]
    before = SMALL.decode(limit_skips(SMALL, rows, 8), keep_none=False)
    assert [before[name] for name in kept] == [SKIP, "sep_conv_3x3", NONE]
    after = SMALL.decode(limit_skips(SMALL, rows, 0), keep_none=False)
    assert [after[name] for name in kept] == [NONE, "sep_conv_3x3", "sep_conv_3x3"]


def test_only_skips_of_kept_edges_are_deleted():
    """The least probable skip of all edges is on an edge that is not kept: deleting it would change nothing."""
    rows = cell_rows([0.0, 0.6, 0.3, 0.1], [0.0, 0.5, 0.4, 0.1], [0.4, 0.35, 0.2, 0.05])
    after = SMALL.decode(limit_skips(SMALL, rows, 1), keep_none=False)
    assert [after[f"normal/{source}->3"] for source in range(3)] == [SKIP, "sep_conv_3x3", NONE]


def skips(space: Darts, architecture, cell: str) -> int:
    return sum(option == SKIP for name, option in architecture.items() if name.startswith(f"{cell}/"))


def test_random_cells_keep_the_limit_and_reductions_stay_as_they_are():
    space, rng = Darts(), random.Random(0)
    for _ in range(60):
        rows = {
            d.name: torch.tensor([rng.gauss(0, 1) + (o == SKIP) for o in d.options]).softmax(0).tolist()
            for d in space.decisions
        }
        free = space.decode(limit_skips(space, rows, 8), keep_none=False)
        limited = space.decode(limit_skips(space, rows, 2), keep_none=False)
        assert skips(space, limited, "normal") <= 2
        assert free == space.decode(rows, keep_none=False)
        assert all(limited[name] == free[name] for name in free if name.startswith("reduce/"))
        space.check(limited)


def test_where_nothing_but_a_skip_is_left_the_limit_ends():
    space = SMALL.restrict({decision.name: [NONE, SKIP] for decision in SMALL.decisions})
    rows = {decision.name: [0.5, 0.5] for decision in space.decisions}
    assert set(space.decode(limit_skips(space, rows, 0), keep_none=False).values()) <= {SKIP, NONE}


def test_the_findings_have_a_cell_for_every_limit():
    cells = make().findings().others["cells_by_skip_limit"]
    assert list(cells) == [str(limit) for limit in range(8, -1, -1)]
    for limit, text in cells.items():
        assert text.split("reduce=")[0].count(SKIP) <= int(limit)


# --- whole searches


def search(**settings):
    return make_search(
        "p_darts",
        "darts",
        space={"cells": 4, "nodes": 2},
        network={"channels": 2},
        search={"epochs": 6, "batch_size": 8, "random_baseline_samples": 2, "evaluation_images": 8},
        strategy={"skip_dropout": [0.3, 0.4, 0.5], "learning_rate": 0.1, "warmup": 0.4, **settings},
        monitor={"eigenvalue_steps": 0},
    )


@pytest.fixture(scope="module")
def finished():
    return finish(search())


@pytest.mark.parametrize("stop", [2, 6, 8, 12, 15])  # within each stage, and after the last step of a stage
def test_a_search_resumes_exactly_within_and_between_stages(finished, stop):
    resumed = search()
    resumed.load_state_dict(decode(save_interrupted(search(), stop), name="saved"))
    assert resumed.position == stop
    assert resumed.strategy.stage == (stop - 1) // 6
    assert not find_differences(finished, finish(resumed))


def test_records_name_their_stage_and_the_result_is_of_the_whole_space(finished):
    loop = search()
    outcome = loop.run()
    stages = [record.stage for record in loop.history]
    assert stages == [
        f"stage {n}/3, {what}"
        for n, what in [(1, "3 cells, 8 options"), (2, "3 cells, 5 options"), (3, "4 cells, 3 options")]
        for _ in range(2)
    ]
    assert loop.history[0].status.startswith("stage 1/3, 3 cells, 8 options")
    assert loop.space.check(outcome.architecture) == outcome.architecture
    rows = [sum(value > 0 for value in record.probabilities["normal/0->2"]) for record in loop.history]
    assert rows == [8, 8, 5, 5, 3, 3]
    rates = [record.learning_rate for record in loop.history]
    assert rates[0] == rates[2] == rates[4] > rates[1] == rates[3] == rates[5]  # a cosine per stage
    assert loop.read_record(loop.history[2].to_json()) == loop.history[2]


def test_every_stage_has_new_weights():
    loop, seen = search(), []
    while loop.position < 13:
        if loop.position % 6 == 0 and loop.position:
            before = {name: value.detach().clone() for name, value in loop.weights.parameters.items()}
            loop.advance()
            name = "stem.0.weight"
            seen.append(float((loop.weights.parameters[name].detach() - before[name]).abs().max()))
        else:
            loop.advance()
    assert len(seen) == 2 and min(seen) > 0.05  # weights carried over would differ by one small step
