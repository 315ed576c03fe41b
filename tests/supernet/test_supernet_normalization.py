"""The supernet's own normalisation against torch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from archloom import fast as kernels
from archloom.supernet import EveryOption
from archloom.supernet.normalization import BatchNorm, to_nhwc


def image(**options: object) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 4, 5, 6, generator=generator, dtype=torch.float64).to(**options)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("choice", ["torch", "auto"])
def test_values_and_gradients_are_those_of_torch(layout: torch.memory_format, choice: str) -> None:
    own, torchs = (kind(4, affine=False, track_running_stats=False) for kind in (BatchNorm, nn.BatchNorm2d))
    x, gradient = image(memory_format=layout).requires_grad_(), image().flip(0)
    with kernels.use_kernels(choice):
        found = own(x)
    expected = torchs(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, x, gradient)[0], torch.autograd.grad(expected, x, gradient)[0]
    )


@pytest.mark.parametrize("options", [{"affine": True}, {"track_running_stats": True}])
def test_with_anything_to_learn_or_remember_it_is_torchs(options: dict[str, bool]) -> None:
    own = BatchNorm(4, **{"affine": False, "track_running_stats": False, **options}).double()
    torchs = nn.BatchNorm2d(4, **{"affine": False, "track_running_stats": False, **options}).double()
    assert torch.equal(own(image()), torchs(image()))
    for one, other in zip(own.buffers(), torchs.buffers(), strict=True):
        assert torch.equal(one, other)


def test_a_second_derivative_is_refused_rather_than_left_out() -> None:
    x = image().requires_grad_()
    with kernels.use_kernels("torch"):
        total = BatchNorm(4, affine=False, track_running_stats=False)(x).square().sum()
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(total, x, create_graph=True)


def test_one_value_per_channel_is_refused() -> None:
    norm = BatchNorm(4, affine=False, track_running_stats=False)
    for choice in ("plain", "torch"):
        with kernels.use_kernels(choice), pytest.raises(ValueError, match="more than 1 value per channel"):
            norm(image()[:1, :, :1, :1])


def test_pixels_last_copies_only_what_lies_otherwise() -> None:
    last = image(memory_format=torch.channels_last)
    assert to_nhwc(last).data_ptr() == last.data_ptr()
    assert to_nhwc(image()).stride(3) == 1
    torch.testing.assert_close(to_nhwc(image()), image().permute(0, 2, 3, 1))


def test_an_activation_in_place_gives_the_same_values_and_gradients() -> None:
    normalize = EveryOption().normalize(4)
    image = torch.randn(6, 4, 5, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    found = []
    for inplace in (False, True):
        result = nn.ReLU(inplace=inplace)(normalize(image * 1.0))
        found.append(
            (result.detach().clone(), *torch.autograd.grad((result.square() * torch.arange(5.0)).sum(), image))
        )
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
