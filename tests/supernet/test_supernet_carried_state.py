"""The state that shared weights carry through a text: who moves it on, and who does not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from archloom.data.loader import Batch
from archloom.data.text import TextLoader
from archloom.families import build_network
from archloom.spaces import Recurrent
from archloom.supernet import Curvature, EveryOption, Gate, Gates, SharedWeights, WeightSettings
from archloom.tasks import LANGUAGE, TextShape

SPACE = Recurrent(nodes=3)
WORDS = 11


def make(*, clip: float = 0.25, learning_rate: float = 20.0, **settings: object) -> SharedWeights:
    dry = {f"dropout_{part}": 0.0 for part in ("output", "hidden", "input", "embedding", "words")}
    torch.manual_seed(0)
    network = build_network(SPACE, EveryOption(), TextShape(WORDS), hidden=5, **{**dry, **settings}).double()
    weights = WeightSettings(learning_rate=learning_rate, momentum=0.0, weight_decay=0.0, clip=clip)
    return SharedWeights(network, weights, task=LANGUAGE)


def stream(name: str = "train", seed: int = 0, **options: object) -> TextLoader:
    tokens = torch.randint(WORDS, (200,), generator=torch.Generator().manual_seed(seed))
    return TextLoader(tokens, columns=4, segment=5, stream=name, **options)  # type: ignore[arg-type]


def mixture(values: Tensor | None = None) -> Gates:
    rows = torch.zeros(6, 5, dtype=torch.float64) if values is None else values.view(6, 5)
    return {d.name: Gate(weights=row.softmax(0)) for d, row in zip(SPACE.decisions, rows, strict=True)}


def carried(weights: SharedWeights, name: str = "train") -> Tensor | None:
    found = weights._carried.get(name)
    return None if found is None else found.after


def test_a_batch_begins_where_the_one_before_ended() -> None:
    weights, loader = make(), stream()
    whole = TextLoader(torch.randint(WORDS, (200,), generator=torch.Generator().manual_seed(0)), columns=4, segment=10,
                       stream="whole")  # fmt: skip
    first, second = (weights.step_result(loader.batch(0, step), mixture()).loss for step in range(2))
    both = weights.step_result(whole.batch(0, 0), mixture()).loss
    torch.testing.assert_close((first + second) / 2, both, rtol=0, atol=1e-12)
    forgetful = make()
    alone = forgetful.step_result(loader.batch(0, 1), mixture()).loss  # nothing was read before
    assert abs(float(alone.detach() - second.detach())) > 1e-6


def test_all_passes_of_one_batch_begin_alike() -> None:
    weights, loader = make(), stream()
    weights.step_result(loader.batch(0, 0), mixture())
    losses = [weights.step_result(loader.batch(0, 1), mixture()).loss for _ in range(3)]
    assert float(losses[0].detach()) == float(losses[1].detach()) == float(losses[2].detach())


def test_an_epoch_and_a_pass_of_evaluation_begin_with_zeros() -> None:
    weights, loader = make(), stream()
    first = [float(weights.score(batch, mixture())) for batch in loader.epoch(0)]
    again = [float(weights.score(batch, mixture())) for batch in loader.epoch(1)]
    assert first == again


def test_no_gradient_crosses_from_segment_to_segment() -> None:
    tokens = torch.tensor([0, 1, 2, 3, 5, 6, 7, 8, 9] * 4)  # columns of four words, and then of five others
    weights, loader = make(), TextLoader(tokens, columns=4, segment=4, stream="train")
    with torch.no_grad():
        weights.parameters["decoder_bias"][:5] = -math.inf  # the decoder, too, has no gradient of the first words
    weights.step_result(loader.batch(0, 0), mixture())
    second = weights.step_result(loader.batch(0, 1), mixture())
    before = weights._carried["train"].before
    assert before is not None and bool(before.any())
    gradient = weights.gradient(second.loss, of=weights.parameters)["embedding"]
    assert not bool(gradient[:4].any()) and bool((gradient[5:9].abs().sum(dim=1) > 0).all())


def test_fit_moves_the_training_state_and_a_validation_batch_its_own() -> None:
    weights, train, valid = make(), stream(), stream("valid", seed=1)
    weights.fit(train.batch(0, 0), mixture())
    kept = carried(weights)
    weights.step_result(valid.batch(0, 0), mixture())
    assert kept is not None and carried(weights) is kept
    assert carried(weights, "valid") is not None


def test_virtual_steps_and_curvature_move_nothing() -> None:
    weights, loader = make(), stream()
    weights.fit(loader.batch(0, 0), mixture())
    before = dict(weights._carried)
    moved = weights.virtual_step(loader.batch(0, 1), mixture())
    weights.clipped_virtual_step(loader.batch(0, 1), mixture())
    logits = torch.zeros(30, dtype=torch.float64, requires_grad=True)
    size = sum(value.numel() for value in moved.values())
    for step in (None, 0.01):
        curvature = Curvature(weights, loader.batch(0, 1), mixture, logits, step=step)
        curvature.multiply_mixed_derivative(torch.ones(size, dtype=torch.float64))
    assert weights._carried == before


def test_evaluation_uses_streams_of_its_own() -> None:
    weights, train = make(), stream()
    weights.fit(train.batch(0, 0), mixture())
    kept = carried(weights)
    for batch in stream("evaluation", seed=2).epoch(0):
        weights.score(batch, mixture())
    assert carried(weights) is kept


def test_a_checkpoint_holds_the_states() -> None:
    weights, loader = make(), stream()
    for step in range(2):
        weights.fit(loader.batch(0, step), mixture())
    other = make()
    other.load_state_dict(weights.state_dict())
    assert torch.equal(weights.fit(loader.batch(0, 2), mixture()).loss, other.fit(loader.batch(0, 2), mixture()).loss)
    forgetful = make()
    forgetful.load_state_dict({name: part for name, part in weights.state_dict().items() if name != "carried"})
    third = loader.batch(0, 3)
    assert not torch.equal(weights.fit(third, mixture()).loss, forgetful.fit(third, mixture()).loss)


def test_a_step_is_the_rate_times_the_clipped_gradient() -> None:
    for scale, clip in ((1.0, 0.25), (1.0, 0.0), (1.0, 1e6), (17 / 35, 0.25)):
        weights, loader = make(clip=clip), stream()
        before = {name: value.detach().clone() for name, value in weights.parameters.items()}
        gradients = weights.gradient(weights.loss(loader.batch(0, 0), mixture()), of=weights.parameters)
        norm = math.sqrt(sum(float(value.square().sum()) for value in gradients.values()))
        weights.fit(replace(loader.batch(0, 0), rate=scale), mixture())
        assert weights.learning_rate == 20.0
        moved = math.sqrt(sum(float((weights.parameters[n] - before[n]).square().sum().detach()) for n in before))
        assert moved == pytest.approx(scale * 20 * (min(norm, clip) if clip else norm), rel=1e-4)


def test_penalties_train_the_weights_and_never_the_gates() -> None:
    loader = stream()
    logits = torch.zeros(30, dtype=torch.float64, requires_grad=True)
    found = []
    for penalty in (0.0, 5.0):
        weights = make(change_penalty=penalty, activation_penalty=penalty)
        result = weights.step_result(loader.batch(0, 0), mixture(logits))
        found.append((weights.gradient(result.loss, of=logits), float(result.loss.detach())))
        reported = weights.fit(loader.batch(0, 0), mixture())
        found[-1] += (weights.parameters["nodes"].detach().clone(), float(reported.loss))
    assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]
    assert found[0][3] == found[1][3]  # what is reported is without penalties
    assert not torch.equal(found[0][2], found[1][2])


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary() -> None:
    weights = make()
    with torch.no_grad():
        for value in weights.parameters.values():
            value.zero_()
    batches = list(stream(whole=False).epoch(0))
    assert LANGUAGE.metric.to_value(weights.deployed_score(batches)) == pytest.approx(WORDS, rel=1e-9)
    assert sum(map(len, batches)) == 4 * 49  # of 50 rows, the first is predicted by nothing


def test_a_batch_of_images_carries_nothing() -> None:
    batch = Batch(torch.rand(2, 3, 4, 4), torch.tensor([0, 1]))
    assert batch.stream == "" and batch.starts
