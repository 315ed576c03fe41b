"""The compiled segment of a recurrent cell against the one in torch, in double precision."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from archloom.fast.kernels import Kernels
from archloom.fast.native import available_levels, load
from archloom.fast.native.kernels import NativeKernels
from archloom.fast.native.recurrent import NativeSegment
from archloom.fast.recurrent_segment import Cell, Node, SegmentTensors, TorchSegment, run_segment

NAMES = ("tanh", "relu", "sigmoid", "identity")
native = pytest.mark.parametrize(
    "level",
    available_levels() or [pytest.param("none", marks=pytest.mark.skip(reason="no compiled kernels here"))],
)


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def make_cell(kind: str, *, nodes: int = 4, normalized: bool = True, outputs: tuple[int, ...] = ()) -> Cell:
    """Return a mixture of all states, or a path whose second node reads nothing."""
    rng, made, start = random.Random(3), [], 0
    for number in range(1, nodes + 1):
        sources = (
            tuple(range(number)) if kind == "mixture" else tuple(rng.sample(range(number), rng.randint(1, number)))
        )
        if kind != "mixture" and number == 2:
            sources = ()
        names = sorted(rng.choices(NAMES, k=len(sources)), key=NAMES.index)
        blocks = tuple(
            (name, names.index(name), names.index(name) + names.count(name)) for name in dict.fromkeys(names)
        )
        made.append(Node(sources, None if kind == "mixture" else blocks, slice(start, start + len(sources))))
        start += len(sources)
    return Cell(tuple(made), outputs or tuple(range(1, nodes + 1)), normalized, kind == "weighted")


def make_tensors(cell: Cell, *, steps: int = 3, columns: int = 4, hidden: int = 5, mask: bool = True) -> SegmentTensors:
    generator = torch.Generator().manual_seed(0)
    edges = sum(node.count for node in cell.nodes)
    is_mixed = any(node.sources and node.blocks is None for node in cell.nodes)

    def draw(*shape: int) -> Tensor:
        return (torch.rand(shape, generator=generator) - 0.5).mul_(1.6)

    shares = draw(edges, 4) if is_mixed else draw(edges) if cell.is_weighted else None
    dropped = (draw(columns, hidden) > -0.4).float() * 1.3 if mask else None
    return SegmentTensors(
        draw(steps, columns, 2 * hidden),
        draw(columns, hidden),
        draw(hidden, 2 * hidden),
        draw(len(cell.nodes), hidden, 2 * hidden),
        dropped,
        shares,
    )


def differentiate(kernels: Kernels, cell: Cell, tensors: SegmentTensors, dtype: torch.dtype) -> list[Tensor]:
    """Return the outputs and the gradients of all tensors but the mask."""
    own = [None if one is None else one.to(dtype, copy=True) for one in tensors]
    leaves = [one.requires_grad_() for place, one in enumerate(own) if one is not None and place != 4]
    given = SegmentTensors(*own)  # type: ignore[arg-type]
    outputs = run_segment(kernels.segment(cell, given), cell, given)
    weights = torch.linspace(-1, 1, outputs.numel(), dtype=dtype).view_as(outputs).cos()
    return [outputs.detach(), *torch.autograd.grad((outputs * weights).sum(), leaves)]


def compiled(level: str) -> NativeKernels:
    found = load(level)
    assert found is not None
    return found


def check(level: str, cell: Cell, tensors: SegmentTensors) -> None:
    assert isinstance(compiled(level).segment(cell, tensors), NativeSegment)
    fast = differentiate(compiled(level), cell, tensors, torch.float32)
    for one, two in zip(fast, differentiate(Kernels(), cell, tensors, torch.float64), strict=True):
        torch.testing.assert_close(one.double(), two, rtol=2e-3, atol=1e-4 * float(two.abs().max()))


@native
@pytest.mark.parametrize("normalized", [True, False], ids=["normalized", "plain"])
@pytest.mark.parametrize("mask", [True, False], ids=["dropout", "dry"])
@pytest.mark.parametrize("kind", ["mixture", "path", "weighted"])
def test_values_and_gradients_agree(level: str, kind: str, mask: bool, normalized: bool) -> None:
    cell = make_cell(kind, normalized=normalized)
    check(level, cell, make_tensors(cell, mask=mask))


@native
@pytest.mark.parametrize("hidden", [1, 2, 15, 16, 17, 33, 64])
@pytest.mark.parametrize("columns", [2, 9, 21])
def test_any_size(level: str, hidden: int, columns: int) -> None:
    cell = make_cell("mixture", nodes=3, normalized=columns > 2)
    check(level, cell, make_tensors(cell, hidden=hidden, columns=columns))


@native
def test_an_output_of_some_states(level: str) -> None:
    cell = make_cell("path", outputs=(1, 4))
    check(level, cell, make_tensors(cell))


@native
def test_a_wide_batch_is_summed_in_blocks(level: str) -> None:
    cell = make_cell("weighted", nodes=2)
    check(level, cell, make_tensors(cell, columns=300, steps=2))


@native
@pytest.mark.parametrize("kind", ["mixture", "weighted"])
def test_results_do_not_depend_on_the_number_of_threads(
    level: str, kind: str, set_threads: Callable[[int], None]
) -> None:
    cell = make_cell(kind)
    tensors = make_tensors(cell, hidden=96, columns=40)
    set_threads(1)
    alone = differentiate(compiled(level), cell, tensors, torch.float32)
    set_threads(3)
    for one, two in zip(differentiate(compiled(level), cell, tensors, torch.float32), alone, strict=True):
        assert torch.equal(one, two)


@native
def test_saturated_gates_and_what_is_not_a_number(level: str) -> None:
    cell = make_cell("mixture", normalized=False)
    tensors = make_tensors(cell)
    check(level, cell, tensors._replace(given=100 * tensors.given))
    tensors.given[1, 2, 0] = float("nan")
    outputs = compiled(level).segment(cell, tensors).forward()
    assert outputs[1:, 2].isnan().any() and not outputs[:, :2].isnan().any()


@native
def test_other_precisions_are_left_to_torch(level: str) -> None:
    cell = make_cell("path")
    tensors = make_tensors(cell)
    double = SegmentTensors(*(None if one is None else one.double() for one in tensors))  # type: ignore[arg-type]
    assert isinstance(compiled(level).segment(cell, double), TorchSegment)


@native
def test_a_segment_is_differentiated_once(level: str) -> None:
    cell = make_cell("path")
    runner = compiled(level).segment(cell, make_tensors(cell))
    runner.backward(runner.forward(), given=True, state=True, shares=False, weights=False)
    with pytest.raises(RuntimeError, match="differentiated twice"):
        runner.finish()


@native
def test_matrices_are_not_multiplied_where_only_the_gates_learn(level: str) -> None:
    calls: list[str] = []
    functions = {
        name: lambda *given, name=name, function=function: calls.append(name) or function(*given)
        for name, function in compiled(level)._functions.items()
    }
    cell = make_cell("mixture")
    given = make_tensors(cell)
    leaves = given._replace(
        shares=given.shares.clone().requires_grad_(),  # type: ignore[union-attr]
        nodes=given.nodes.clone().requires_grad_(),
    )
    kernels = NativeKernels(level, functions)  # type: ignore[arg-type]
    calls.clear()  # it asked for the width of vectors
    for wanted in ([leaves.shares], [leaves.shares, leaves.nodes]):
        outputs = run_segment(kernels.segment(cell, leaves), cell, leaves)
        torch.autograd.grad(outputs.square().sum(), wanted)  # type: ignore[arg-type]
    steps = ["recurrent", "recurrent_backward"]
    assert [name for name in calls if name != "clear"] == [*steps, *steps, "recurrent_weights"]  # of fresh memory
