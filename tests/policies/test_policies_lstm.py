"""The controller as a distribution: everything it says is compared with all paths of a small space, one by one."""

import itertools

import pytest
import torch

from archloom.core.errors import SettingError
from archloom.policies.lstm import LstmPolicy
from archloom.spaces import SPACES, Nb201

SPACE = Nb201(nodes=3, operations=("a", "b", "c", "d")).restrict({"0->2": ("a", "d"), "1->2": ("b", "c", "d")})
PATHS = list(SPACE.enumerate())  # 4 * 2 * 3


def make(*, space=SPACE, spread: float = 20.0, **settings) -> LstmPolicy:
    """A policy with opinions: as it starts, all options are about alike."""
    policy = LstmPolicy(space, torch.Generator().manual_seed(0), **settings).double()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(spread)
    return policy


def by_hand(policy: LstmPolicy, path) -> list[torch.Tensor]:
    """The probabilities of each decision along a path, from torch's own LSTM over the whole sequence at once."""
    sizes = [len(decision.options) for decision in SPACE.decisions]
    starts = list(itertools.accumulate(sizes, initial=0))
    chosen = [start + d.index(path[d.name]) for start, d in zip(starts, SPACE.decisions, strict=False)]
    inputs = torch.stack([policy.start, *(policy.embedding[number] for number in chosen[:-1])])
    outputs, _ = policy.lstm(inputs.unsqueeze(1))
    logits = 2.5 * torch.tanh(policy.head(outputs.squeeze(1)) / 5.0)
    return [row[a:b].softmax(dim=0) for row, a, b in zip(logits, starts, starts[1:], strict=False)]


def test_probabilities_of_all_paths_sum_to_one_and_differ():
    logs = make().log_probabilities(PATHS)
    assert logs.shape == (24,)
    assert abs(logs.exp().sum().item() - 1) < 1e-12
    assert logs.max() - logs.min() > 1


def test_a_path_has_the_product_of_its_conditional_probabilities():
    policy = make()
    logs = policy.log_probabilities(PATHS)
    for path, log in zip(PATHS, logs, strict=True):
        rows = by_hand(policy, path)
        options = [decision.index(path[decision.name]) for decision in SPACE.decisions]
        wanted = sum(row[option].log() for row, option in zip(rows, options, strict=True))
        assert abs(log - wanted) < 1e-12


def test_a_decision_depends_on_those_before_it():
    policy = make()
    last = torch.stack([by_hand(policy, path)[-1] for path in PATHS if path["0->2"] == "a"])
    assert (last - last[0]).abs().max() > 0.01


def test_paths_are_sampled_with_their_probabilities():
    policy, count = make(), 40_000
    with torch.no_grad():
        drawn = policy.sample(torch.Generator().manual_seed(1), count)
        wanted = policy.log_probabilities(PATHS).exp()
    numbers = torch.tensor([PATHS.index(path) for path in drawn.paths])
    frequency = torch.bincount(numbers, minlength=24) / count
    assert ((frequency - wanted).abs() < 5 * (wanted / count).sqrt() + 1e-4).all()


def test_figures_of_sampled_paths_are_theirs():
    policy = make()
    drawn = policy.sample(torch.Generator().manual_seed(1), 50)
    assert len(set(drawn.paths)) > 5
    assert (drawn.log_probabilities - policy.log_probabilities(drawn.paths)).abs().max() < 1e-12
    for path, scores, entropy in zip(drawn.paths, drawn.scores, drawn.entropies, strict=True):
        assert SPACE.decode(scores) == path
        wanted = sum(-(row * row.log()).sum() for row in by_hand(policy, path))
        assert abs(entropy - wanted) < 1e-12


def test_entropies_of_paths_average_to_that_of_the_policy():
    policy = make()
    logs = policy.log_probabilities(PATHS)
    mean = sum(
        log.exp() * sum(-(row * row.log()).sum() for row in by_hand(policy, path))
        for path, log in zip(PATHS, logs, strict=True)
    )
    assert abs(mean + (logs.exp() * logs).sum()) < 1e-12


def test_log_probabilities_carry_gradient_to_every_parameter():
    policy = make()
    drawn, given = policy.sample(torch.Generator().manual_seed(1), 8).log_probabilities, policy.log_probabilities(PATHS)
    for logs in (drawn, given):
        gradients = torch.autograd.grad((logs * torch.arange(len(logs))).sum(), list(policy.parameters()))
        assert all(gradient.abs().max() > 0 for gradient in gradients)


def test_scores_follow_the_greedy_path():
    policy = make()
    scores = policy.probabilities()
    greedy = SPACE.decode(scores, keep_none=True)
    for decision, wanted in zip(SPACE.decisions, by_hand(policy, greedy), strict=True):
        assert torch.allclose(torch.tensor(scores[decision.name], dtype=torch.float64), wanted)
        assert greedy[decision.name] == decision.options[int(wanted.argmax())]


@pytest.mark.parametrize(("tanh_constant", "temperature"), [(2.5, 5.0), (1.0, 0.1)])
def test_logits_never_leave_their_bounds(tanh_constant, temperature):
    policy = make(spread=1e4, tanh_constant=tanh_constant, temperature=temperature)
    logits = [torch.tensor(row).log() for row in policy.probabilities().values()]
    assert max(float(row.max() - row.min()) for row in logits) == pytest.approx(2 * tanh_constant, rel=1e-6)


def test_a_new_policy_is_nearly_uniform_and_comes_from_its_generator_alone():
    before = torch.get_rng_state()
    first, again = make(spread=1.0), make(spread=1.0)
    other = LstmPolicy(SPACE, torch.Generator().manual_seed(1)).double()
    assert torch.equal(before, torch.get_rng_state())
    logs = first.log_probabilities(PATHS)
    assert (logs.exp() * 24 - 1).abs().max() < 0.1
    assert torch.equal(logs, again.log_probabilities(PATHS))
    assert not torch.equal(logs, other.log_probabilities(PATHS))


def test_layers_and_units_are_as_asked():
    policy = make(layers=3, units=7)
    assert (policy.lstm.num_layers, policy.lstm.hidden_size) == (3, 7)


@pytest.mark.parametrize("name", SPACES)
def test_what_a_space_decodes_of_a_draw_is_one_of_its_architectures(name):
    space = SPACES[name].load()(**SPACES[name].settings)
    policy = make(space=space)
    with torch.no_grad():
        drawn = policy.sample(torch.Generator().manual_seed(2), 20)
    decoded = [space.decode(scores) for scores in drawn.scores]
    assert all(space.check(architecture) == architecture for architecture in decoded)
    assert len(set(decoded)) > 5
    for architecture, path in zip(decoded, drawn.paths, strict=True):  # an edge that is kept keeps what was drawn
        kept = [key for key, option in architecture.items() if option != "none" and path[key] != "none"]
        assert all(architecture[key] == path[key] for key in kept)


def test_all_broken_rules_are_reported_together():
    with pytest.raises(SettingError) as caught:
        make(layers=0, units=0, temperature=0.0, tanh_constant=-1.0)
    assert len(caught.value.problems) == 4
