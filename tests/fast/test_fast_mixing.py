"""Which way of mixing is taken does not show in what comes out."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

from archloom import fast as kernels
from archloom.fast import Slot, Term, mix_by_row, mix_by_term, mixing

SHAPE, KINDS = (2, 6, 5, 8), [True, False, True]


def results(few: int, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """A mixture and all its gradients, by the way for images of up to `few` pixels."""
    monkeypatch.setattr(mixing, "FEW", few)
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(3, *SHAPE, generator=draw, dtype=torch.float64)
    weights = torch.rand(3, generator=draw, dtype=torch.float64)
    gradient = torch.randn(SHAPE, generator=draw, dtype=torch.float64)
    terms = [Term(image, kind) for image, kind in zip(images, KINDS, strict=True)]
    slots = [Slot() for _ in terms]
    with kernels.use_kernels("torch"):
        run = kernels.current_kernels()
        assert run is not None
        total = run.mix(terms, weights)
        by_weights = run.mix_backward(gradient, terms, weights, slots)
    assert by_weights is not None
    return [total, by_weights, *(slot.buffer(total) for slot in slots)]


def test_the_ways_for_few_and_for_many_pixels_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = SHAPE[0] * SHAPE[1] * SHAPE[2]
    for few, many in zip(results(pixels, monkeypatch), results(pixels - 1, monkeypatch), strict=True):
        torch.testing.assert_close(few, many)


@pytest.mark.parametrize(("pixels", "way"), [(mixing.FEW, mix_by_term), (mixing.FEW + 1, mix_by_row)])
def test_few_pixels_go_image_by_image_and_many_in_rows(pixels: int, way: ModuleType) -> None:
    image = torch.zeros(1, 1, pixels, 2)
    assert mixing.choose_mix(image) is way.mix
    assert mixing.choose_mix_backward(image) is way.mix_backward
