"""GDAS and DARTS on a recurrent cell: gradients summed over time, one sample per segment, clipped virtual steps."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from archloom.core.events import Advanced, Event
from archloom.data import load
from archloom.data.text import TextData, TextLoader
from archloom.execution.checkpoint import decode, encode
from archloom.execution.loop import Interrupted
from archloom.families import build_network
from archloom.families.recurrent import RecurrentNetwork
from archloom.families.recurrent_cell import CellWeights, plan_cell, run_step
from archloom.fast import use_kernels
from archloom.policies import gumbel
from archloom.searches.build import build_search
from archloom.searches.one_shot import OneShotLoop
from archloom.searches.short_training import build_standalone
from archloom.searches.spec import SearchSpec
from archloom.spaces import Recurrent
from archloom.spaces.published import PUBLISHED
from archloom.strategies.base import SearchBatch
from archloom.strategies.darts import Darts
from archloom.strategies.gdas import Gdas
from archloom.supernet import EveryOption, Gate, Gates, SharedWeights, WeightSettings
from archloom.supernet.shared_weights import clip_factor
from archloom.tasks import LANGUAGE, TextShape
from archloom.testing.searches import make_tiny_text

SPACE = Recurrent(nodes=3)
WORDS, HIDDEN = 11, 5
DRY = {f"dropout_{part}": 0.0 for part in ("output", "hidden", "input", "embedding", "words")}
PTB2K = {
    "hidden": 64,
    "dropout_output": 0.2,
    "dropout_hidden": 0.1,
    "dropout_input": 0.2,
    "dropout_embedding": 0.1,
}
SMOOTH = Recurrent(nodes=3, activations=("tanh", "sigmoid", "identity"))  # second derivatives exist everywhere


def make_weights(space: Recurrent = SPACE, *, clip: float = 0.25, learning_rate: float = 2.0) -> SharedWeights:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build_network(space, EveryOption(), TextShape(WORDS), hidden=HIDDEN, **DRY, change_penalty=0.0)
        with torch.no_grad():
            for parameter in network.double().parameters():
                parameter.uniform_(-0.6, 0.6)
    settings = WeightSettings(learning_rate=learning_rate, momentum=0.0, weight_decay=0.01, clip=clip)
    return SharedWeights(network, settings, task=LANGUAGE)


def make_stream(name: str, seed: int, **options: Any) -> TextLoader:
    tokens = torch.randint(WORDS, (200,), generator=torch.Generator().manual_seed(seed))
    return TextLoader(tokens, columns=4, segment=6, stream=name, **options)


def search_batch(step: int = 0, *, epoch: int = 0, epochs: int = 3, rate: float = 1.0) -> SearchBatch:
    train, valid = make_stream("train", 0).batch(0, step), make_stream("valid", 1).batch(0, step)
    return SearchBatch(replace(train, rate=rate), (valid,), epoch, epochs)


def in_double(strategy: Any, seed: int = 4) -> Any:
    strategy.policy.double()
    with torch.no_grad():
        values = strategy.policy.values
        values.copy_(torch.randn(values.shape, generator=torch.Generator().manual_seed(seed)))
    return strategy


# --- T13: GDAS


def gradient_over_time(network: RecurrentNetwork, words: Tensor, labels: Tensor, gates: Gates) -> dict[str, Tensor]:
    """Return, for each decision, the sum over time of the loss's gradient by the weight of the option that runs.

    Every time step has gates of its own here, so nothing but this sum adds up over time.
    """
    leaves: list[dict[str, Tensor]] = []
    cell = CellWeights(network.start[HIDDEN:], network.nodes, None, normalized=True)
    output, outputs = torch.zeros(words.shape[1], HIDDEN, dtype=torch.float64), []
    for given in F.embedding(words, network.embedding) @ network.start[:HIDDEN]:
        leaves.append({name: torch.ones(5, dtype=torch.float64, requires_grad=True) for name in gates})
        own = {name: Gate(index=gate.index, weights=leaves[-1][name]) for name, gate in gates.items()}
        output = run_step(plan_cell(SPACE, own), cell, given, output, SPACE.activations)
        outputs.append(output)
    logits = F.linear(torch.stack(outputs).flatten(0, 1), network.embedding, network.decoder_bias)
    found = torch.autograd.grad(
        F.cross_entropy(logits, labels), [leaf for row in leaves for leaf in row.values()], allow_unused=True
    )
    steps = [
        dict(zip(gates, found[place : place + len(gates)], strict=True)) for place in range(0, len(found), len(gates))
    ]
    zero = torch.zeros(5, dtype=torch.float64)
    return {name: sum((zero if one[name] is None else one[name] for one in steps), zero) for name in gates}


@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.3])
def test_the_gradient_of_a_logit_is_that_of_the_sample_times_the_sum_over_time(temperature: float) -> None:
    weights, batch, drawn = make_weights(), search_batch().valid, set()
    for seed in range(4):
        strategy = in_double(Gdas(SPACE, torch.Generator().manual_seed(seed)))
        state = strategy.generator.get_state()
        gates = gumbel.sample_gumbel_gates(strategy.policy, strategy.generator, temperature=temperature)
        found = strategy.policy.split(weights.gradient(weights.loss(batch, gates), of=strategy.policy.values))
        over_time = gradient_over_time(weights._network, batch.inputs, batch.labels, gates)  # type: ignore[arg-type]
        strategy.generator.set_state(state)
        for name, row in strategy.policy.rows().items():
            noise = gumbel.sample_gumbel_noise(row.shape, strategy.generator).to(row)
            soft, chosen = ((row.detach() + noise) / temperature).softmax(dim=0), gates[name].index
            assert chosen == int(soft.argmax())
            drawn.add(chosen)
            selected = F.one_hot(torch.tensor(chosen), 5)
            wanted = soft[chosen] * (selected - soft) / temperature * over_time[name][chosen]
            torch.testing.assert_close(found[name], wanted, rtol=0, atol=1e-12)
            assert abs(float(found[name].sum())) < 1e-12
            assert bool(found[name].any()) == (chosen != 0)  # exactly zero where `none` runs nothing
    assert drawn == set(range(5)), "samples must have all options, or this shows less"


@pytest.mark.parametrize("segment", [2, 12])
def test_a_step_samples_twice_whatever_the_length_of_a_segment(segment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, ...]] = []
    sample = gumbel.sample_gumbel_noise

    def record(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        drawn.append(tuple(shape))
        return sample(shape, generator)

    monkeypatch.setattr(gumbel, "sample_gumbel_noise", record)
    tokens = torch.randint(WORDS, (200,), generator=torch.Generator().manual_seed(0))
    train, valid = (TextLoader(tokens, columns=4, segment=segment, stream=name) for name in ("train", "valid"))
    strategy = in_double(Gdas(SPACE, torch.Generator().manual_seed(0)))
    strategy.step(make_weights(), SearchBatch(train.batch(0, 0), (valid.batch(0, 0),), 0, 1))
    assert drawn == [(5,)] * (2 * len(SPACE.decisions))  # a row of options per edge: none for time, none for columns


@pytest.mark.parametrize("preset", ["recurrent", "recurrent_soft"])
def test_the_temperature_of_the_presets_falls_from_ten_to_exactly_one(preset: str) -> None:
    settings = Gdas.presets[preset]["strategy"]
    strategy = Gdas(SPACE, torch.Generator().manual_seed(0), **settings)
    epochs = Gdas.presets[preset]["search"]["epochs"]
    found = [strategy.temperature(search_batch(epoch=epoch, epochs=epochs)) for epoch in (0, 100, epochs - 1)]
    assert found == pytest.approx([10.0, 10 - 9 * 100 / 199, 1.0], rel=1e-12)  # by e / E the end would be 1.045


# --- second order with clipped gradients, as the public search of DARTS has it


def unrolled_gradient(strategy: Darts, weights: SharedWeights, batch: SearchBatch) -> Tensor:
    """Return d/da L_valid(w'(a), a), w'(a) one clipped step, by autograd through the step; clipping is constant."""
    values, gates = list(weights.parameters.values()), strategy.policy.mixture()
    gradients = torch.autograd.grad(weights.loss(batch.train, gates), values, create_graph=True)
    factor = clip_factor(math.sqrt(sum(float(one.detach().square().sum()) for one in gradients)), weights.clip)
    rate = weights.learning_rate * batch.train.rate
    stepped = [value - rate * (factor * one + 0.01 * value) for value, one in zip(values, gradients, strict=True)]
    leaves = [one.detach().requires_grad_() for one in stepped]
    loss = weights.loss(batch.valid, gates, parameters=dict(zip(weights.parameters, leaves, strict=True)))
    *vector, direct = torch.autograd.grad(loss, [*leaves, strategy.policy.values], retain_graph=True)
    limit = clip_factor(math.sqrt(sum(float(one.square().sum()) for one in vector)), weights.clip)
    through = sum(((limit * one) * two).sum() for one, two in zip(vector, stepped, strict=True))
    (second,) = torch.autograd.grad(through, [strategy.policy.values])
    return direct + second


@pytest.mark.parametrize(("clip", "rate"), [(0.02, 1.0), (0.02, 17 / 35), (1e6, 1.0)])
def test_the_clipped_second_order_gradient_is_that_through_a_clipped_step(clip: float, rate: float) -> None:
    batch, weights = search_batch(rate=rate), make_weights(SMOOTH, clip=clip)
    found = {}
    for clips in (True, False):
        strategy = in_double(Darts(SMOOTH, torch.Generator().manual_seed(0), order="second", clip_virtual=clips))
        found[clips] = strategy.gradient(weights, batch)[0]
    with use_kernels("plain"):
        wanted = unrolled_gradient(strategy, weights, batch)
    torch.testing.assert_close(found[True], wanted, rtol=0, atol=1e-12)
    difference = float((found[True] - found[False]).abs().max())
    assert difference > 1e-4 if clip < 1 else difference < 1e-12  # clipping binds in the first two cases only


def test_a_clipped_virtual_step_goes_as_far_as_a_real_one() -> None:
    for clip, rate in ((0.02, 1.0), (0.02, 0.5), (1e6, 1.0)):
        weights, batch = make_weights(clip=clip), search_batch(rate=rate).train
        gates = {
            name: gate.detach() for name, gate in in_double(Darts(SPACE, torch.Generator())).policy.mixture().items()
        }
        moved, factor = weights.clipped_virtual_step(batch, gates)
        assert (factor < 0.5) == (clip < 1)
        weights.fit(batch, gates)
        for name, value in weights.parameters.items():
            torch.testing.assert_close(moved[name], value, rtol=1e-6, atol=1e-9)


# --- T12, of a search: both carried states belong to its state


def make_search(lengths: str) -> OneShotLoop:
    spec = SearchSpec.resolve(
        {
            "space": {"name": "recurrent", "nodes": 3},
            "strategy": {"name": "gdas", "learning_rate": 0.1},
            "data": {"name": "given", "segment": 6, "lengths": lengths},
            "network": {"hidden": 4},
            "search": {"epochs": 3, "batch_size": 8, "evaluation_images": 60, "random_baseline_samples": 0},
            "race": {"steps": 0},
            "monitor": {"action": "off"},
            "machine": {"torch_threads": 1, "device": "cpu"},
        }
    )
    loop = build_search(spec, data=make_tiny_text())
    assert isinstance(loop, OneShotLoop)
    return loop


def finish(loop: OneShotLoop) -> Tensor:
    loop.run()
    assert isinstance(loop.strategy, Gdas)
    return loop.strategy.policy.values.detach()


@pytest.mark.parametrize("lengths", ["fixed", "darts", "drawn"])
def test_a_search_resumed_after_any_step_ends_in_the_same_bits_and_needs_both_states(lengths: str) -> None:
    def make() -> OneShotLoop:
        return make_search(lengths)

    whole = make()
    wanted, total = finish(whole), whole.total
    assert total >= 4
    changed = set()
    for stop_after in range(1, total):
        saved: list[bytes] = []
        first = make()
        with pytest.raises(Interrupted):
            first.run(
                save=lambda state, step: saved.append(encode(state)),  # noqa: B023
                stop=lambda: first.position == stop_after,  # noqa: B023
            )
        for forgotten in ("", "train", "valid"):
            state = decode(saved[-1], name="saved")
            carried = state["weights"]["carried"]
            assert {"train", "valid"} <= carried.keys()
            state["weights"]["carried"] = {name: one for name, one in carried.items() if name != forgotten}
            second = make()
            second.load_state_dict(state)
            if not torch.equal(finish(second), wanted):
                changed.add(forgotten)
    assert changed == {"train", "valid"}  # either state alone decides what is found


# --- T15: it learns


def train_cell(name: str, data: TextData, *, seed: int, steps: int, learning_rate: float = 20.0) -> SharedWeights:
    space = Recurrent()
    settings = WeightSettings(
        learning_rate=learning_rate, learning_rate_end=learning_rate, momentum=0.0, weight_decay=5e-7, clip=0.25
    )
    weights = build_standalone(
        space,
        space.parse(PUBLISHED[name][1]),
        seed=seed,
        place=lambda network: network,
        shape=TextShape(len(data.words)),
        network=PTB2K,
        weights=settings,
        task=LANGUAGE,
    )
    loader = TextLoader(data.train, columns=32, segment=35, stream="train")
    for step in range(steps):
        weights.fit(loader.batch(*divmod(step, loader.steps)), {})
    return weights


def perplexity(weights: SharedWeights, data: TextData) -> float:
    loader = TextLoader(data.valid, columns=10, segment=35, stream="valid", whole=False)
    return LANGUAGE.metric.to_value(weights.deployed_score(loader.epoch(0)))


def test_a_cell_learns_what_the_last_word_says_of_the_next() -> None:
    tokens = torch.tensor([0, 1, 0, 2] * 1200)  # by frequencies a perplexity of 2.8, by the last word of 1.4
    data = TextData(name="abac", words=("a", "b", "c"), train=tokens, valid=tokens[:1000])
    assert perplexity(train_cell("gdas_rnn", data, seed=0, steps=80, learning_rate=2.0), data) < 1.5
    assert perplexity(train_cell("gdas_rnn", data, seed=0, steps=10, learning_rate=0.01), data) > 2.8


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_published_cell_learns_penn_treebank(seed: int, text_dir: Path) -> None:
    data = load("ptb", directory=text_dir, vocabulary=2000)
    assert isinstance(data, TextData)
    assert perplexity(train_cell("gdas_rnn", data, seed=seed, steps=800), data) < 105


@pytest.mark.slow
def test_the_supernet_learns_penn_treebank(text_dir: Path) -> None:
    data = load("ptb", directory=text_dir, vocabulary=2000)
    spec = SearchSpec.resolve(
        {
            "space": {"name": "recurrent"},
            "strategy": {"name": "gdas", "learning_rate": 0.03, "weight_decay": 0.0, "first_beta": 0.9},
            "data": {"name": "given", "train_words": 300 * 32 * 35 + 32},
            "network": PTB2K,
            "search": {"epochs": 1, "batch_size": 32, "random_baseline_samples": 0},
            "race": {"steps": 0},
            "monitor": {"action": "off"},
            "machine": {"torch_threads": 1, "device": "cpu"},
        }
    )
    loop = build_search(spec, data=data)
    loop.run()
    assert isinstance(loop, OneShotLoop) and loop.total == 300
    assert LANGUAGE.metric.to_value(loop.history[-1].derived_score) < 400


# --- trials


def test_trials_of_a_black_box_learn_at_the_rate_of_single_cells_and_report_perplexities() -> None:
    settings = {
        "space": {"name": "recurrent", "nodes": 2},
        "data": {"name": "given", "segment": 6},
        "network": {"hidden": 4},
        "search": {"trials": 2, "score_epochs": 1, "batch_size": 8},
        "machine": {"torch_threads": 1, "device": "cpu"},
    }
    rates = {
        name: SearchSpec.resolve({**settings, "strategy": {"name": name}}).weights.learning_rate
        for name in ("random_search", "regularized_evolution", "gdas")
    }
    assert rates == {"random_search": 20.0, "regularized_evolution": 20.0, "gdas": 5.0}
    events: list[Event] = []
    loop = build_search(
        SearchSpec.resolve({**settings, "strategy": {"name": "random_search"}}),
        data=make_tiny_text(),
        listeners=[events.append],
    )
    outcome = loop.run()
    steps = [event for event in events if isinstance(event, Advanced)]
    found = [100 / record.score for record in loop.history]
    assert [event.metrics["perplexity"] for event in steps] == pytest.approx(found)
    assert steps[-1].metrics["best_perplexity"] == pytest.approx(min(found))
    assert outcome.verdict.startswith(f"Best perplexity of 2 different architectures: {min(found):.1f}.")


def test_gibbs_reports_the_perplexity_of_the_text_that_its_logits_learn_on() -> None:
    spec = SearchSpec.resolve(
        {
            "space": {"name": "recurrent", "nodes": 2},
            "strategy": {"name": "gibbs"},
            "data": {"name": "given", "segment": 6},
            "network": {"hidden": 4},
            "search": {"epochs": 1, "batch_size": 8, "evaluation_images": 60, "random_baseline_samples": 0},
            "race": {"steps": 0},
            "monitor": {"action": "off"},
            "machine": {"torch_threads": 1, "device": "cpu"},
        }
    )
    loop = build_search(spec, data=make_tiny_text())
    loop.run()
    figures = loop.history[-1].metrics  # type: ignore[attr-defined]
    assert figures["valid_perplexity"] == pytest.approx(math.exp(figures["valid_loss"]), rel=0.05)
    assert "valid_accuracy" not in figures
