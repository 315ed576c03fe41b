import math

import pytest
import torch
from sampler_toys import seeded
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.samplers import Classification, SelfLabelling


class Network(nn.Module):
    """Running statistics, dropout, and a layer that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(4, 12), nn.BatchNorm1d(12), nn.Dropout(0.5)
        self.last, self.idle = nn.Linear(12, 3), nn.Linear(2, 2)
        self.masks: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.norm(self.first(inputs)).exp()
        dropped = self.drop(hidden)
        self.masks.append(dropped.detach() != 0)
        result: Tensor = self.last(dropped)
        return result


@pytest.fixture
def network() -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Network()


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(10, 4, generator=seeded(1)), torch.randint(3, (10,), generator=seeded(2))


def closure_of(network: nn.Module, batch: tuple[Tensor, Tensor]) -> Classification:
    return Classification(network, lambda: network(batch[0]), batch[1])


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def assert_same(one: dict[str, Tensor], two: dict[str, Tensor]) -> None:
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_gradients_are_those_of_a_plain_backward_pass(network, batch):
    torch.manual_seed(5)
    closure = closure_of(network, batch)
    loss = closure()
    found = gradients(network)
    network.zero_grad(set_to_none=True)
    torch.manual_seed(5)
    logits = network(batch[0])
    wanted = F.cross_entropy(logits, batch[1])
    wanted.backward()
    assert_same(found, gradients(network))
    assert torch.equal(loss, wanted.detach()) and not loss.requires_grad
    assert closure.loss is loss and closure.logits is not None
    assert torch.equal(closure.logits, logits.detach()) and not closure.logits.requires_grad


def test_parameters_that_the_loss_does_not_need_get_no_gradient(network, batch):
    network.idle.weight.grad = torch.ones(2, 2)  # of another batch
    closure_of(network, batch)()
    assert network.idle.weight.grad is None and network.idle.bias.grad is None
    assert network.first.weight.grad is not None


def test_frozen_parameters_are_left_alone(network, batch):
    network.first.weight.requires_grad_(False)
    closure_of(network, batch)()
    assert network.first.weight.grad is None and network.first.bias.grad is not None


def test_a_second_call_differs_by_the_parameters_and_by_nothing_else(network, batch):
    closure = closure_of(network, batch)
    first, found = closure(), gradients(network)
    torch.rand(7)  # other code draws numbers in between
    assert torch.equal(closure(), first)
    assert_same(gradients(network), found)
    assert torch.equal(network.masks[0], network.masks[1])
    with torch.no_grad():
        network.last.weight.add_(0.1)
    assert not torch.equal(closure(), first)
    assert torch.equal(network.masks[0], network.masks[2]) and 0.2 < network.masks[0].float().mean() < 0.8
    assert closure.loss is first  # of the first call, for those who report it


def test_other_batches_see_other_masks(network, batch):
    closure_of(network, batch)()
    closure_of(network, batch)()
    assert not torch.equal(network.masks[0], network.masks[1])


@pytest.mark.parametrize("again", ["call", "own labels"])
def test_a_second_call_leaves_statistics_and_generator_alone(network, batch, again):
    closure = closure_of(network, batch)
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    random = torch.get_rng_state()
    closure()
    after = {name: buffer.clone() for name, buffer in network.named_buffers()}
    assert all(not torch.equal(before[name], after[name]) for name in before)  # the first moves them, as it should
    assert not torch.equal(random, torch.get_rng_state())
    torch.rand(7)  # other code draws numbers in between
    random = torch.get_rng_state()
    if again == "call":
        closure()
    else:
        closure.backward_on_sampled_labels(seeded(0))
    assert torch.equal(random, torch.get_rng_state())
    assert_same(dict(network.named_buffers()), after)


def test_sampled_labels_come_from_the_prediction():
    """The gradient by a bias is its probability minus the share of its label: so the labels can be counted."""
    layer = nn.Linear(2, 3).double()
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([0.7, 0.2, 0.1]).log())
    images = 5000
    inputs, given = torch.zeros(images, 2, dtype=torch.float64), torch.full((images,), 2)
    closure = Classification(layer, lambda: layer(inputs), given)
    closure()
    assert isinstance(closure, SelfLabelling)
    assert closure.backward_on_sampled_labels(seeded(3)) == images
    assert layer.bias.grad is not None
    chances = layer.bias.detach().softmax(0)
    shares = chances - layer.bias.grad
    errors = (chances * (1 - chances) / images).sqrt()
    assert ((shares - chances).abs() < 4 * errors).all() and float(shares.sum()) == pytest.approx(1)
    assert ((shares - F.one_hot(torch.tensor(2), 3)).abs() > 20 * errors).any()  # not the labels of the batch
    first = layer.bias.grad.clone()
    closure.backward_on_sampled_labels(seeded(3))
    assert torch.equal(layer.bias.grad, first)
    closure.backward_on_sampled_labels(seeded(4))
    assert not torch.equal(layer.bias.grad, first)


def test_sampled_labels_differ_from_image_to_image(network, batch):
    """Each image by its own chances: with certain ones the labels are the predictions, and the loss has no slope."""
    layer = nn.Linear(3, 3, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(50 * torch.eye(3))
    inputs = torch.eye(3, dtype=torch.float64)
    closure = Classification(layer, lambda: layer(inputs), torch.tensor([1, 2, 0]))
    assert float(closure()) == pytest.approx(50, abs=1e-6)
    assert closure.backward_on_sampled_labels(seeded(0)) == 3
    assert layer.weight.grad is not None and layer.weight.grad.abs().max() < 1e-9


def test_sampled_labels_need_a_first_call(network, batch):
    with pytest.raises(AssertionError, match="call the closure before its replay"):
        closure_of(network, batch).backward_on_sampled_labels(seeded(0))


def test_any_torch_optimizer_takes_it(network, batch):
    optimizer = torch.optim.LBFGS(network.parameters(), lr=0.1, max_iter=5)
    closure = closure_of(network, batch)
    first = float(optimizer.step(closure))
    assert float(closure()) < first and math.isfinite(first)
