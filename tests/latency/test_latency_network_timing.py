"""Times of networks for a model, by an invented clock."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from math import log

import pytest
import torch

from archloom.latency.network_timing import (
    FEWEST_NETWORKS,
    choose_clock,
    count_networks,
    explain_bad_fit,
    prepare_in_torch,
    time_networks,
)
from archloom.latency.timings import Timings
from archloom.objectives.cost_model_file import TimingSetup
from archloom.objectives.linear_cost import Fit, LinearCost, fit_linear_cost
from archloom.spaces import Nb201

SPACE = Nb201(nodes=3, cells_per_stage=1)
MILLISECONDS = {option: float(place) for place, option in enumerate(SPACE.operations)}


def make_setup(**changes) -> TimingSetup:
    setup = TimingSetup(
        space="nb201",
        space_settings={},
        classes=10,
        image_shape=(3, 8, 8),
        batch=1,
        network={"channels": 2},
        device="cpu",
        threads=1,
        repeats=30,
        seed=0,
        versions={},
    )
    return replace(setup, **changes)


def cost(architecture) -> float:
    return 2 + sum(MILLISECONDS[option] for option in architecture.values())


class Machine:
    """A clock, and calls that take their time on it; the machine slows down by and by."""

    def __init__(self, slower: float = 0.0) -> None:
        self.now, self.slower, self.calls = 0.0, slower, 0

    def prepare(self, architecture):
        def call():
            self.calls += 1
            self.now += cost(architecture) / 1000 * (1 + self.slower * self.calls)

        return call


def test_networks_are_timed_after_a_warm_up():
    machine = Machine()
    drawn, timings = time_networks(
        SPACE, machine.prepare, networks=13, repeats=30, warm_up=5, clock=lambda: machine.now
    )
    assert timings.milliseconds == pytest.approx([cost(one) for one in drawn])
    assert machine.calls == 35 * (2 * 13 + 2)  # each with the constant one behind it; that begins both turns, too
    rng = random.Random(0)
    assert drawn == [SPACE.sample(rng) for _ in range(13)]


def test_slowing_machine_does_not_bias_networks():
    machine = Machine(slower=1e-3)
    drawn, timings = time_networks(SPACE, machine.prepare, networks=60, repeats=30, clock=lambda: machine.now)
    ratios = [measured / cost(one) for measured, one in zip(timings.milliseconds, drawn, strict=True)]
    assert max(ratios) / min(ratios) < 1.02
    fit = fit_linear_cost(SPACE, drawn, timings.milliseconds, timings.slowness)
    assert fit.r2 > 0.99 and explain_bad_fit(fit) is None


def test_earlier_timings_are_reused():
    machine, kept = Machine(), []

    def after_group(timings):
        kept.append(Timings(list(timings.ratios), list(timings.constants)))

    common = {"repeats": 30, "clock": lambda: machine.now}
    whole, timings = time_networks(SPACE, machine.prepare, networks=33, after_group=after_group, **common)
    assert [len(one.ratios) for one in kept] == [10, 20, 30, 33]
    assert [len(one.constants) for one in kept] == [10, 20, 30, 33]
    before = machine.calls
    again, continued = time_networks(SPACE, machine.prepare, networks=33, earlier=kept[1], **common)
    assert again == whole and continued.milliseconds == pytest.approx(timings.milliseconds)
    assert machine.calls - before == 35 * (2 * 13 + 2)
    fewer, those = time_networks(SPACE, machine.prepare, networks=5, earlier=kept[0], **common)
    assert fewer == whole[:5] and those.milliseconds == pytest.approx(timings.milliseconds[:5])


def test_changing_machine_speed_cancels_against_the_reference():
    machine, rng, speeds = Machine(), random.Random(0), [1.0]

    def prepare(architecture):
        call = machine.prepare(architecture)

        def slowed():
            if rng.random() < 0.05:  # every now and then it is another machine
                speeds.append(rng.choice((1.0, 1.7)))
            before = machine.now
            call()
            machine.now = before + (machine.now - before) * speeds[-1]

        return slowed

    drawn, timings = time_networks(SPACE, prepare, networks=40, repeats=30, clock=lambda: machine.now)
    ratios = [measured / cost(one) for measured, one in zip(timings.milliseconds, drawn, strict=True)]
    assert len(speeds) > 50
    assert max(ratios) / min(ratios) < 1.01


def test_fit_corrects_for_a_reference_that_slows_down_more():
    rng = random.Random(0)
    drawn = [SPACE.sample(rng) for _ in range(100)]
    speeds = [rng.choice((1.0, 1.3, 2.0)) for _ in drawn]
    ratios = [cost(one) / 5 * speed**-0.1 for one, speed in zip(drawn, speeds, strict=True)]
    timings = Timings(ratios, [0.005 * speed for speed in speeds])
    assert timings.slowness[:3] == pytest.approx([log(speed / 1.3) for speed in speeds[:3]])
    fit = fit_linear_cost(SPACE, drawn, timings.milliseconds, timings.slowness)
    scale = 1.3**0.9
    misses = [fit.model.measure(one) / (scale * cost(one)) - 1 for one in drawn]
    assert max(map(abs, misses)) < 0.02 and fit.r2 > 0.995
    assert fit_linear_cost(SPACE, drawn, timings.milliseconds).r2 < fit.r2 - 0.002


def test_bad_fit_comes_with_a_fix():
    bad = Fit(LinearCost(SPACE, 0.0, {}), networks=50, uncovered=3, r2=0.9, error=0.05)
    line = explain_bad_fit(bad)
    assert "got 0.900 and 5.0 %; 3 of its choices were in no training network; time more networks" in line
    assert explain_bad_fit(Fit(bad.model, 50, 0, r2=0.985, error=0.03)) is not None  # each rule by itself
    assert explain_bad_fit(Fit(bad.model, 50, 0, r2=0.97, error=0.01)) is not None
    assert explain_bad_fit(Fit(bad.model, 50, 0, r2=0.985, error=0.01)) is None


def test_number_of_networks_is_twice_the_features():
    assert count_networks(SPACE) == FEWEST_NETWORKS
    assert count_networks(Nb201(nodes=6)) == 2 * 15 * 5


def test_one_thread_uses_the_process_clock():
    assert choose_clock(1) is time.process_time
    assert choose_clock(2) is time.perf_counter


def test_torch_network_runs_in_evaluation_mode_without_gradient():
    prepare = prepare_in_torch(SPACE, make_setup(classes=4, batch=2))
    call = prepare(SPACE.sample(random.Random(0)))
    first, second = call(), call()
    assert first.shape == (2, 4) and not first.requires_grad
    assert torch.equal(first, second)
