"""Health of a search: the figures against dense ones, the rules on made histories, and rolling back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.func import hessian

from archloom.core.errors import SettingError
from archloom.data.augment import Augment
from archloom.data.loader import Batch, Loader
from archloom.data.source import InMemory
from archloom.execution.loop import Interrupted
from archloom.families import build_network
from archloom.fast import use_kernels
from archloom.searches.monitor import Alarm, Monitor, MonitorSettings, largest_eigenvalue, shares
from archloom.searches.one_shot import OneShotLoop
from archloom.searches.records import EpochRecord, Health
from archloom.spaces import Darts, Mobile, Nb201
from archloom.strategies.darts import Darts as DartsStrategy
from archloom.strategies.rsps import Rsps
from archloom.supernet import EveryOption, SharedWeights, WeightSettings
from search_runs import make_epoch

SPACE = Nb201(nodes=3, cells_per_stage=1)
IMAGES = torch.randn(48, 1, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(48) % 3


def made_weights(dtype: torch.dtype = torch.float32) -> SharedWeights:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build_network(SPACE, EveryOption(), classes=3, colours=1, channels=2)
    return SharedWeights(network.to(dtype), WeightSettings(learning_rate=0.1))


def healthy(**figures: float) -> EpochRecord:
    return make_epoch(health=Health(**{"skip": 0.0, "none": 0.0, "pool": 0.0, **figures}))


# --- figures


def test_the_largest_eigenvalue_is_that_of_the_dense_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(20, 20, generator=generator, dtype=torch.float64)
    matrix = root + root.T
    right = float(torch.linalg.eigvalsh(matrix).max())
    start = torch.randn(20, generator=generator, dtype=torch.float64)
    found = [largest_eigenvalue(lambda vector: matrix @ vector, start, steps=steps) for steps in (3, 8, 20, 50)]
    assert found == sorted(found)
    assert found[1] == pytest.approx(right, rel=0.05)
    assert found[2] == found[3] == pytest.approx(right, rel=1e-10)
    assert largest_eigenvalue(lambda vector: -2 * vector, start, steps=5) == pytest.approx(-2)


def test_sharpness_is_the_largest_eigenvalue_of_the_logits_hessian() -> None:
    weights = made_weights(torch.float64)
    strategy = DartsStrategy(SPACE, torch.Generator().manual_seed(1))
    strategy.policy.double()
    batch = Batch(IMAGES[:16].double(), LABELS[:16])
    with use_kernels("plain"):
        dense = hessian(lambda values: weights.loss(batch, strategy.policy.mixture(values)))(
            strategy.policy.values.detach()
        )
    right = float(torch.linalg.eigvalsh(dense.detach()).max())
    monitor = Monitor(MonitorSettings(eigenvalue_steps=15, eigenvalue_images=16, products="exact"), epochs=1)
    architecture = strategy.best(lambda _: 0.0)
    images = Batch(IMAGES.double(), LABELS)
    health = monitor.measure(
        SPACE,
        architecture,
        strategy.probabilities(),
        policy=strategy.policy,
        weights=weights,
        images=images,
        derived_score=0.25,
    )
    assert right > 1e-4
    assert health.eigenvalue == pytest.approx(right, rel=1e-6)
    assert health.gap == pytest.approx(float(weights.score(images, strategy.policy.mixture())) - 0.25)
    assert health.entropy == pytest.approx(torch.log(torch.tensor(5.0)).item(), rel=1e-5)  # hardly decided


def test_shares_count_operations_that_are_there() -> None:
    cell = SPACE.check({"0->1": "skip_connect", "0->2": "none", "1->2": "avg_pool_3x3"})
    assert shares(SPACE, cell) == pytest.approx({"skip": 1 / 3, "none": 1 / 3, "pool": 1 / 3})
    darts = Darts(nodes=2, cells=3)
    scores = {d.name: [float(option == "skip_connect") for option in d.options] for d in darts.decisions}
    assert shares(darts, darts.decode(scores)) == {"skip": 1.0, "none": 0.0, "pool": 0.0}  # edges left out are none


def test_layers_that_are_left_out_are_skips() -> None:
    space = Mobile(blocks=(16, 24), layers=(2, 3), strides=(2, 1))
    rest = " | 24:k3e3,zero,zero | 1280"
    assert shares(space, space.parse(f"32:k3 | 16:k3 | 16:k3e3,zero{rest}"))["skip"] == pytest.approx(3 / 5)
    assert shares(space, space.parse(f"32:k3 | 16:k3 | 16:k3e3,k5e6{rest}"))["skip"] == pytest.approx(2 / 5)


# --- rules


def test_alarm_names_the_kind_of_operation_that_takes_over_and_the_last_healthy_epoch() -> None:
    monitor = Monitor(MonitorSettings(largest_share=0.5), epochs=3)
    history = [healthy(skip=0.2), healthy(skip=0.5), healthy(skip=0.7)]
    assert monitor.alarm(history[:2]) is None
    alarm = monitor.alarm(history)
    assert alarm == Alarm("70 % of the derived operations are 'skip', above monitor.largest_share = 0.5", 1)
    assert monitor.alarm([healthy(none=0.9, pool=0.6)]) == Alarm(
        "90 % of the derived operations are 'none', above monitor.largest_share = 0.5", -1
    )


def test_alarm_if_sharpness_grows_within_a_window() -> None:
    monitor = Monitor(MonitorSettings(window=2, growth=1.5), epochs=4)
    steady = [healthy(eigenvalue=value) for value in (1.0, 1.2, 1.1, 1.3, 1.2)]
    assert monitor.alarm(steady) is None
    grown = [healthy(eigenvalue=value) for value in (1.0, 1.2, 1.4, 2.0)]  # 1.1 before, 1.7 now
    assert monitor.alarm(grown) == Alarm(
        "the largest eigenvalue of the logits' Hessian grew from 1.1 to 1.7 within 2 epochs, "
        "more than monitor.growth = 1.5 times",
        1,
    )
    assert monitor.alarm(grown[:2]) is None  # too few epochs
    assert monitor.alarm([healthy(eigenvalue=-1.0), healthy(eigenvalue=1.0), healthy(eigenvalue=1.0)]) is None
    assert monitor.alarm([*grown[:-1], healthy()]) is None  # not measured
    assert monitor.alarm([]) is None
    assert monitor.alarm([make_epoch()]) is None


def test_the_first_epochs_raise_no_alarm() -> None:
    """Logits that hardly differ derive anything, and a search must not be stopped for that."""
    monitor = Monitor(MonitorSettings(quiet=0.25), epochs=8)
    history = [healthy(skip=1.0)] * 3
    assert monitor.alarm(history[:2]) is None
    assert monitor.alarm(history) is not None
    assert Monitor(MonitorSettings(quiet=0.0), epochs=8).alarm(history[:1]) is not None


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"eigenvalue_steps": -1}, "monitor.eigenvalue_steps must be 0 or more, got -1"),
        ({"eigenvalue_images": 1}, "monitor.eigenvalue_images must be at least 2, got 1"),
        ({"window": 0}, "monitor.window must be at least 1, got 0"),
        ({"quiet": 1.0}, r"monitor.quiet must lie in \[0, 1\), got 1.0"),
        ({"growth": 1.0}, "monitor.growth must be above 1, got 1.0"),
        ({"largest_share": 0.0}, r"monitor.largest_share must lie in \(0, 1\], got 0.0"),
    ],
)
def test_bad_settings_raise_one_line(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        MonitorSettings(**settings)


# --- in a search


class Collapsing(DartsStrategy):
    """Learns as DARTS does, but from the third epoch on something pushes it to skips everywhere."""

    def descend(self, gradient: torch.Tensor, batch: Any) -> None:
        super().descend(gradient, batch)
        push = torch.tensor([option == "skip_connect" for d in SPACE.decisions for option in d.options])
        with torch.no_grad():
            self.policy.values += (3.0 if batch.epoch >= 2 else 0.0) * push


def search(strategy: type = Collapsing, *, epochs: int = 6, **settings: Any) -> OneShotLoop:
    def loader(indices: torch.Tensor, batch_size: int) -> Loader:
        data = InMemory(IMAGES, LABELS)
        return Loader(data, indices, batch_size=batch_size, mean=(0.0,), std=(1.0,), augment=Augment(), seed=0)

    made = strategy(SPACE, torch.Generator().manual_seed(0), **({"keep_none": False} if strategy is not Rsps else {}))
    with torch.no_grad():
        if strategy is not Rsps:  # begin with convolutions
            made.policy.values += torch.tensor([1.0 * ("conv" in o) for d in SPACE.decisions for o in d.options])
    return OneShotLoop(
        SPACE,
        made,
        made_weights(),
        train=loader(torch.arange(16), 4),
        valid=loader(torch.arange(16, 32), 4),
        evaluation=loader(torch.arange(32, 40), 8),
        comparison=loader(torch.arange(40, 48), 8),
        epochs=epochs,
        random_baseline_samples=2,
        monitor=Monitor(
            MonitorSettings(eigenvalue_steps=2, eigenvalue_images=8, growth=100.0, **settings), epochs=epochs
        ),
    )


def state_of(made: OneShotLoop) -> dict[str, Any]:
    return copy.deepcopy({"strategy": made.strategy.state_dict(), "weights": made.weights.state_dict()})


def same(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def test_warning_of_a_collapse_changes_nothing_else() -> None:
    watched, plain = search(action="warn"), search(action="warn")
    plain._monitor = None
    watched.run()
    plain.run()
    assert same(state_of(watched), state_of(plain))
    alarms = [record.health.alarm for record in watched.history]
    assert len(alarms) == 6
    assert alarms[:2] == [None, None]
    assert all("are 'skip'" in alarm for alarm in alarms[2:])


def test_healthy_search_is_not_stopped() -> None:
    made = search(DartsStrategy, action="stop")
    outcome = made.run()
    assert len(made.history) == 6
    assert outcome.early_stop is None
    assert all(record.health.alarm is None for record in made.history)


def test_strategy_without_logits_has_shares_only() -> None:
    made = search(Rsps, epochs=2, action="warn", largest_share=1.0)
    made.run()
    health = made.history[0].health
    assert (health.entropy, health.gap, health.eigenvalue) == (None, None, None)


def test_stop_ends_the_search_at_the_alarm() -> None:
    made = search(action="stop")
    outcome = made.run()
    assert len(made.history) == 3
    assert outcome.early_stop.after_epoch == outcome.early_stop.as_of_epoch == 3
    assert set(outcome.architecture.values()) == {"skip_connect"}


def test_roll_back_restores_the_last_healthy_epoch_exactly() -> None:
    states = []
    made = search(action="roll_back")
    made.listen(lambda event: states.append(state_of(made)) if type(event).__name__ == "Recorded" else None)
    outcome = made.run()
    assert outcome.early_stop.after_epoch == 3
    assert outcome.early_stop.as_of_epoch == 2
    assert "skip_connect" not in outcome.architecture.values()
    generator = made.strategy.generator.get_state()
    made.strategy.generator.set_state(states[1]["strategy"]["generator"])  # the random baseline draws from it
    assert not torch.equal(generator, states[1]["strategy"]["generator"])
    assert same(state_of(made), states[1])
    assert not same(states[1], states[2])


def test_roll_back_after_a_resume_gives_the_same_result() -> None:
    whole = search(action="roll_back")
    wanted = whole.run()
    saved: list[Any] = []
    first = search(action="roll_back")
    with pytest.raises(Interrupted):
        first.run(save=lambda state, _: saved.append(copy.deepcopy(state)), stop=lambda: first.position == 9)
    second = search(action="roll_back")
    second.load_state_dict(saved[-1])
    found = second.run()
    assert found == wanted
    assert same(state_of(second), state_of(whole))
    third = search(action="roll_back")  # killed between the last record and the result
    done: list[Any] = []
    again = search(action="roll_back")
    again.run(save=lambda state, _: done.append(copy.deepcopy(state)))
    third.load_state_dict(done[-1])
    assert third.run().architecture == wanted.architecture
