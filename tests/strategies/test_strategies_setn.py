from collections import Counter

import torch
from smooth import SPACE, search_batch, smooth_weights

from archloom.strategies.setn import Setn
from archloom.supernet import path_gates


def make(**settings) -> Setn:
    strategy = Setn(SPACE, torch.Generator().manual_seed(0), **settings)
    strategy.policy.double()
    with torch.no_grad():
        strategy.policy.values.copy_(torch.randn(12, generator=torch.Generator().manual_seed(4)))
    return strategy


class Spy:
    """Shared weights that note what they are asked, with the logits and the weights as they then were."""

    def __init__(self, strategy: Setn) -> None:
        self.weights, self.strategy, self.calls = smooth_weights(), strategy, []

    def _note(self, name, batch, gates):
        logits = self.strategy.policy.values.detach().clone()
        head = self.weights._network.head.weight.detach().clone()
        self.calls.append((name, batch, gates, logits, head))

    def fit(self, batch, gates):
        self._note("fit", batch, gates)
        return self.weights.fit(batch, gates)

    def gradient(self, value, *, of):
        return self.weights.gradient(value, of=of)

    def step_result(self, batch, gates):
        self._note("evaluate", batch, gates)
        return self.weights.step_result(batch, gates)


def test_weights_see_training_images_on_one_path_and_the_logits_validation_images_on_the_template():
    strategy = make()
    spy, batch = Spy(strategy), search_batch(0)
    strategy.step(spy, batch)
    (first, trained_on, path, _, _), (second, evaluated_on, template, _, _) = spy.calls
    assert (first, second) == ("fit", "evaluate")
    assert trained_on is batch.train
    assert evaluated_on is batch.valid
    assert all(gate.weights is None for gate in path.values())
    assert all(gate.index is None for gate in template.values())


def test_the_weight_step_leaves_the_logits_alone_and_the_other_way_round():
    strategy = make()
    spy = Spy(strategy)
    before = strategy.policy.values.detach().clone()
    strategy.step(spy, search_batch(0))
    _, (_, _, _, logits, head) = spy.calls
    assert torch.equal(logits, before)  # after the weight step
    assert torch.equal(head, spy.weights._network.head.weight)  # after the step of the logits
    assert not torch.equal(strategy.policy.values, before)


def test_logits_descend_along_the_gradient_of_the_mixture_at_the_new_weights():
    strategy, weights, batch = make(learning_rate=0.01, weight_decay=0.0), smooth_weights(), search_batch(0)
    twin, twin_weights = make(), smooth_weights()
    path = twin.space.sample(twin.python_random())
    twin_weights.fit(batch.train, path_gates(SPACE, path))
    loss = twin_weights.loss(batch.valid, twin.policy.mixture())
    (wanted,) = torch.autograd.grad(loss, [twin.policy.values])
    metrics = strategy.step(weights, batch)
    assert (strategy.policy.values.grad - wanted).abs().max() < 1e-14
    assert wanted.abs().max() > 1e-3
    moved = strategy.policy.values.detach() - twin.policy.values.detach()
    assert torch.equal(moved.sign(), -wanted.sign())
    assert metrics["valid_loss"] == loss.item()


def test_paths_are_drawn_uniformly_whatever_the_logits_say():
    strategy = make()
    with torch.no_grad():
        strategy.policy.values.mul_(10)

    class Weights:
        def fit(self, batch, gates):
            paths.append(tuple(gate.index for gate in gates.values()))
            return outcome

        def gradient(self, value, *, of):
            return torch.zeros_like(of)

        def step_result(self, batch, gates):
            return outcome

    paths: list[tuple[int, ...]] = []
    batch = search_batch(0)
    outcome = smooth_weights().step_result(batch.train, strategy.policy.mixture())
    outcome = type(outcome)(outcome.loss.detach(), outcome.score)
    for _ in range(600):
        strategy.step(Weights(), batch)
    counts = torch.bincount(torch.tensor(paths).flatten(), minlength=4)
    assert counts.min() > 390  # 450 of 1,800 each are expected


def test_candidates_are_sampled_by_the_learned_probabilities_and_the_best_is_chosen():
    strategy = make(candidates=3000, candidates_each_epoch=5)
    seen: list = []
    rank = {architecture: float(number) for number, architecture in enumerate(SPACE.enumerate())}

    def evaluate(architecture):
        seen.append(architecture)
        return rank[architecture]

    best = strategy.best(evaluate)
    assert len(seen) == len(set(seen))  # nothing is scored twice
    assert rank[best] == max(rank[architecture] for architecture in seen)
    drawn = Counter(strategy._sample() for _ in range(3000))
    probabilities = strategy.probabilities()
    for architecture in SPACE.enumerate():
        parts = [probabilities[d.name][d.index(architecture[d.name])] for d in SPACE.decisions]
        wanted = parts[0] * parts[1] * parts[2]
        assert abs(drawn[architecture] / 3000 - wanted) < 5 * (wanted / 3000) ** 0.5 + 1e-3
    seen.clear()
    strategy.best(evaluate, final=False)
    assert len(seen) <= 5


def test_none_wins_only_if_allowed():
    dropping, absent = make(keep_none=False), make(none="absent")
    for strategy in (dropping, absent):
        assert all("none" not in strategy._sample().values() for _ in range(50))
    keeping = make()
    assert any("none" in keeping._sample().values() for _ in range(50))


def test_while_warming_up_only_the_weights_move():
    strategy, weights = make(warmup=0.5), smooth_weights()
    before = strategy.policy.values.detach().clone()
    strategy.step(weights, search_batch(0, epoch=0, epochs=4))
    assert torch.equal(strategy.policy.values, before)
    strategy.step(weights, search_batch(0, epoch=2, epochs=4))
    assert not torch.equal(strategy.policy.values, before)


def test_the_paper_settings_are_accepted():
    make(**Setn.presets["paper"]["strategy"])
