"""A decision carried out: every kind of gate against the sum written by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from archloom.spaces import NONE, Decision
from archloom.supernet import CLOSED, Choice, Dag, Fixed, Gate

DECISION = Decision("edge", ("twice", NONE, "conv", "square"))
TWICE, NOTHING, CONV, SQUARE = range(4)
WEIGHTS = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)


class Square(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x * x


def candidates() -> dict[str, nn.Module]:
    generator = torch.Generator().manual_seed(1)
    convolution = nn.Conv2d(2, 2, 3, padding=1)
    with torch.no_grad():
        for parameter in convolution.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    # not in the order of the options: names decide, not positions
    modules = {"square": Square(), "twice": nn.Conv2d(2, 2, 1, bias=False), "conv": convolution}
    with torch.no_grad():
        modules["twice"].weight.copy_(2 * torch.eye(2)[:, :, None, None])
    return {name: module.double() for name, module in modules.items()}


@pytest.fixture
def choice() -> Choice:
    return Choice(DECISION, candidates())


@pytest.fixture
def x() -> Tensor:
    return torch.randn(5, 2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def run(choice: Choice, x: Tensor, gate: Gate) -> Tensor:
    result = choice(x, {"other": CLOSED, "edge": gate})
    assert result is not None
    return result


def terms(choice: Choice, x: Tensor) -> list[Tensor]:
    """What each option gives, in the order of the options."""
    modules = choice.candidates
    return [2 * x, torch.zeros_like(x), modules["conv"](x), 1.5 * x**2]


# --- mixtures


def test_a_mixture_is_the_weighted_sum_of_the_candidates(choice: Choice, x: Tensor) -> None:
    twice, _, conv, square = terms(choice, x)
    torch.testing.assert_close(run(choice, x, Gate(weights=WEIGHTS)), 0.1 * twice + 0.3 * conv + 0.4 * square)


def test_a_mixture_may_be_weighted_for_each_image(choice: Choice, x: Tensor) -> None:
    weights = torch.rand(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    result = run(choice, x, Gate(weights=weights))
    for image in range(5):
        alone = run(choice, x[image : image + 1], Gate(weights=weights[image]))
        torch.testing.assert_close(result[image : image + 1], alone)


@pytest.mark.parametrize("option", [TWICE, CONV, SQUARE])
def test_a_mixture_of_one_option_is_the_single_path(choice: Choice, x: Tensor, option: int) -> None:
    one_hot = torch.eye(4, dtype=torch.float64)[option]
    torch.testing.assert_close(run(choice, x, Gate(weights=one_hot)), run(choice, x, Gate(index=option)))


def test_the_weights_of_a_mixture_get_their_gradient_except_that_of_none(choice: Choice, x: Tensor) -> None:
    weights = WEIGHTS.clone().requires_grad_()
    run(choice, x, Gate(weights=weights)).sum().backward()
    assert weights.grad is not None
    expected = torch.stack([term.sum() for term in terms(choice, x)])
    torch.testing.assert_close(weights.grad, expected.detach())
    assert weights.grad[NOTHING] == 0


def test_a_mixture_needs_a_weight_for_every_option(choice: Choice, x: Tensor) -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        run(choice, x, Gate(weights=WEIGHTS[:3]))


# --- single paths


@pytest.mark.parametrize("option", [TWICE, CONV, SQUARE])
def test_an_index_runs_one_option_alone(choice: Choice, x: Tensor, option: int) -> None:
    torch.testing.assert_close(run(choice, x, Gate(index=option)), terms(choice, x)[option])


@pytest.mark.parametrize("option", [TWICE, CONV, SQUARE])
def test_an_index_with_weights_scales_by_the_weight_of_that_option(choice: Choice, x: Tensor, option: int) -> None:
    result = run(choice, x, Gate(index=option, weights=WEIGHTS))
    torch.testing.assert_close(result, float(WEIGHTS[option]) * terms(choice, x)[option])


def test_one_option_for_all_may_be_weighted_for_each_image(choice: Choice, x: Tensor) -> None:
    weights = torch.arange(20, dtype=torch.float64).view(5, 4)
    result = run(choice, x, Gate(index=CONV, weights=weights))
    expected = torch.stack([(4 * i + CONV) * term for i, term in enumerate(terms(choice, x)[CONV])])
    torch.testing.assert_close(result, expected)


def test_gradient_reaches_only_the_option_that_runs(choice: Choice, x: Tensor) -> None:
    weights = WEIGHTS.clone().requires_grad_()
    run(choice, x, Gate(index=CONV, weights=weights)).square().sum().backward()
    with_gradient = {name for name, parameter in choice.candidates.named_parameters() if parameter.grad is not None}
    assert with_gradient == {"conv.weight", "conv.bias"}
    assert weights.grad is not None
    assert weights.grad.nonzero().flatten().tolist() == [CONV]


# --- one option per image


def test_every_image_runs_the_option_it_chose(choice: Choice, x: Tensor) -> None:
    index = torch.tensor([CONV, SQUARE, NOTHING, CONV, TWICE])
    result = run(choice, x, Gate(index=index))
    for image, option in enumerate(index.tolist()):
        torch.testing.assert_close(result[image], terms(choice, x)[option][image])


def test_images_that_chose_alike_go_through_the_option_as_one_group(x: Tensor) -> None:
    """Seen by a normalisation, which mixes the images of a batch."""
    normalized = Choice(DECISION, {**candidates(), "twice": nn.BatchNorm2d(2, affine=False).double()})
    index = torch.tensor([TWICE, SQUARE, TWICE, TWICE, NOTHING])
    result = run(normalized, x, Gate(index=index))
    group = [0, 2, 3]
    torch.testing.assert_close(result[group], normalized.candidates["twice"](x[group]))
    torch.testing.assert_close(result[1], 1.5 * x[1] ** 2)


def test_every_image_has_the_weight_of_the_option_it_chose(choice: Choice, x: Tensor) -> None:
    index = torch.tensor([CONV, SQUARE, NOTHING, CONV, TWICE])
    weights = torch.rand(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    result = run(choice, x, Gate(index=index, weights=weights))
    for image, option in enumerate(index.tolist()):
        expected = weights[image, option].item() * terms(choice, x)[option][image]
        torch.testing.assert_close(result[image], expected)
    result.sum().backward()
    assert weights.grad is not None
    assert weights.grad.nonzero().tolist() == [[0, CONV], [1, SQUARE], [3, CONV], [4, TWICE]]


def test_images_that_choose_for_themselves_may_share_their_weights(choice: Choice, x: Tensor) -> None:
    index = torch.tensor([CONV, SQUARE, NOTHING, CONV, TWICE])
    result = run(choice, x, Gate(index=index, weights=WEIGHTS))
    torch.testing.assert_close(result, run(choice, x, Gate(index=index, weights=WEIGHTS.expand(5, 4))))
    torch.testing.assert_close(result[1], 0.4 * 1.5 * x[1] ** 2)


# --- nothing


def test_closed_gates_and_none_connect_nothing(choice: Choice, x: Tensor) -> None:
    for gate in (CLOSED, Gate(index=NOTHING), Gate(index=NOTHING, weights=WEIGHTS)):
        assert choice(x, {"edge": gate}) is None
    assert choice(x, {"edge": Gate(index=torch.full((5,), NOTHING))}) is None
    assert Choice(Decision("edge", (NONE,)), {})(x, {"edge": Gate(weights=torch.ones(1))}) is None


def test_an_offset_is_added_to_the_result_or_stands_for_it(choice: Choice, x: Tensor) -> None:
    offset = torch.tensor(7.0, dtype=torch.float64)
    torch.testing.assert_close(run(choice, x, Gate(index=TWICE, offset=offset)), 2 * x + 7)
    torch.testing.assert_close(
        run(choice, x, Gate(weights=WEIGHTS, offset=offset)), run(choice, x, Gate(weights=WEIGHTS)) + 7
    )
    assert run(choice, x, Gate(index=NOTHING, offset=offset)) is offset
    assert run(choice, x, Gate(offset=offset)) is offset


# --- decisions already taken


def test_a_fixed_decision_runs_its_option_and_needs_no_gates(x: Tensor) -> None:
    module = Fixed(DECISION, "square", {"square": candidates()["square"]})
    torch.testing.assert_close(module(x), 1.5 * x**2)
    torch.testing.assert_close(module(x, {"edge": Gate(index=TWICE)}), 1.5 * x**2)


def test_a_fixed_none_connects_nothing(x: Tensor) -> None:
    assert Fixed(DECISION, NONE, {})(x) is None


def test_fixed_and_choice_name_their_weights_alike() -> None:
    chosen = candidates()["conv"]
    fixed = Fixed(DECISION, "conv", {"conv": chosen})
    assert set(fixed.state_dict()) < set(Choice(DECISION, candidates()).state_dict())
    assert set(fixed.state_dict()) == {"candidates.conv.weight", "candidates.conv.bias"}


# --- graphs


class Times(nn.Module):
    """An edge that multiplies; 0 stands for an edge that connects nothing."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor, gates: object) -> Tensor | None:
        return self.factor * x if self.factor else None


def graph(factors: dict[tuple[int, int], float]) -> Dag:
    return Dag({edge: Times(factor) for edge, factor in factors.items()}, dict.fromkeys(factors, 1))


def test_a_state_is_the_sum_over_its_incoming_edges(x: Tensor) -> None:
    states = graph({(0, 1): 2, (0, 2): 3, (1, 2): 5, (0, 3): 7, (1, 3): 0, (2, 3): 11})([x], None)
    for state, factor in zip(states, [1, 2, 13, 7 + 11 * 13], strict=True):
        torch.testing.assert_close(state, factor * x)


def test_states_are_numbered_by_target_in_whatever_order_edges_are_given(x: Tensor) -> None:
    states = graph({(2, 3): 5, (0, 3): 3, (1, 2): 2})([x, 10 * x], None)
    for state, factor in zip(states, [1, 10, 20, 103], strict=True):
        torch.testing.assert_close(state, factor * x)


def test_a_state_that_nothing_reaches_is_zero(x: Tensor) -> None:
    states = graph({(0, 1): 0, (0, 2): 4, (1, 2): 3})([x], None)
    assert torch.equal(states[1], torch.zeros_like(x))
    torch.testing.assert_close(states[2], 4 * x)


@pytest.mark.parametrize(("size", "halved"), [(12, 6), (9, 5)])
def test_a_zero_state_has_the_size_its_stride_leaves(size: int, halved: int) -> None:
    x = torch.randn(2, 3, size, size)
    dag = Dag({(0, 2): Times(0), (1, 2): Times(0), (2, 3): Times(0)}, {(0, 2): 2, (1, 2): 2, (2, 3): 1})
    _, _, reduced, kept = dag([x, x], None)
    for state in (reduced, kept):
        assert torch.equal(state, torch.zeros(2, 3, halved, halved))


def test_an_offset_where_nothing_runs_fills_the_state_and_carries_gradient(x: Tensor) -> None:
    offset = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    dag = Dag({(0, 1): Choice(DECISION, candidates())}, {(0, 1): 2})
    state = dag([x], {"edge": Gate(index=NOTHING, offset=offset)})[1]
    assert torch.equal(state, torch.full((5, 2, 2, 2), 0.5, dtype=torch.float64))
    state.sum().backward()
    assert offset.grad == 5 * 2 * 2 * 2


def test_an_offset_of_one_edge_is_added_to_what_another_edge_gives(x: Tensor) -> None:
    offset = torch.tensor(0.5, dtype=torch.float64)
    dag = Dag({(0, 2): Choice(DECISION, candidates()), (1, 2): Times(3)}, {(0, 2): 1, (1, 2): 1})
    state = dag([x, x], {"edge": Gate(offset=offset)})[2]
    torch.testing.assert_close(state, 3 * x + 0.5)
