"""Compiled kernels against what `kernels.base` says in double precision; and what happens where there are none."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from archloom.core.errors import SettingError
from archloom.fast.kernels import Geometry, Kernels, Slot, Term
from archloom.fast.native import NativeKernels, available_levels, load, loader

LEVELS = available_levels()
NONE_BUILT = "no compiled kernels here: they are built when the package is installed where there is a C++ compiler"
EXACT = Kernels()

SIZES = [(1, 1, 1), (3, 5, 7), (1, 8, 8), (3, 9, 9)]  # batch, height, width
CHANNELS = [1, 3, 4, 8, 12, 16, 20, 32, 36, 48]
POOLED = [*SIZES, (2, 1, 2), (2, 2, 1), (1, 2, 3)]  # where windows hang over more than one side
LARGE = (8, 33, 32, 16)  # enough work to be shared out

native = pytest.mark.parametrize(
    "level", LEVELS or [pytest.param("none", marks=pytest.mark.skip(reason=NONE_BUILT))], ids=str
)
strides = pytest.mark.parametrize("stride", [1, 2])


Size = tuple[int, ...]


def sizes(values: Sequence[Size]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("size", values, ids=lambda size: "x".join(map(str, size)))


def widths(size: Size) -> Iterator[Size]:
    for channels in CHANNELS:
        yield *size, channels


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


class NoTorch(Kernels):
    """Comes behind the compiled kernels: whatever they leave to torch is a mistake."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("left to torch")

    mix = mix_backward = depthwise = depthwise_backward = rectify_backward = _refuse
    average_pool = average_pool_backward = max_pool = max_pool_backward = _refuse
    products = summed_products = inner_products = _refuse


class Compiled(NativeKernels, NoTorch):
    pass


def compiled(level: str) -> Compiled:
    found = load(level)
    assert found is not None
    return Compiled(level, found._functions)


# --- what goes in, and how what comes out is compared


def image(shape: Sequence[int], *, sliced: bool = False) -> Tensor:
    """Random pixels; `sliced`: as some channels of a wider image."""
    *size, channels = shape
    return torch.randn(*size, channels + 5)[..., 2 : 2 + channels] if sliced else torch.randn(*shape)


def new_slot(shape: Sequence[int], *, sliced: bool = False, filled: bool = False) -> Slot:
    """What must not be read is not a number."""
    place = image(shape, sliced=sliced)
    return Slot(place if filled else place.fill_(torch.nan), filled)


def doubled(value: Any) -> Any:
    """The same in double precision, in memory of its own."""
    if isinstance(value, Tensor):
        return value.double()
    if isinstance(value, Term):
        return Term(value.image.double(), value.normalized, doubled(value.moments))
    if isinstance(value, Slot):
        return Slot(doubled(value.image), value.filled)
    return [doubled(item) for item in value] if isinstance(value, list) else value


def agree(found: Tensor | None, exact: Tensor | None, *, size: float = 0.0, tolerance: float = 5e-6) -> None:
    """Equal up to the rounding of numbers as large as the result, or as the `size` of what it is the rest of."""
    assert found is not None
    assert exact is not None
    assert found.dtype is torch.float32
    assert found.shape == exact.shape
    largest = max(float(exact.abs().max()), size)
    torch.testing.assert_close(found.double(), exact, rtol=0.0, atol=tolerance * largest, check_stride=False)


def slots_agree(found: Slot, exact: Slot, *, size: float = 0.0) -> None:
    assert found.filled
    agree(found.image, exact.image, size=size)


# --- normalise, weigh and add up


def some_terms(shape: Sequence[int], count: int, *, sliced: bool, known: bool) -> list[Term]:
    """Of both kinds, each with a spread and a mean of its own."""
    terms = [
        Term(image(shape, sliced=sliced).mul_(number + 0.5).add_(number), number % 3 != 1) for number in range(count)
    ]
    for term in terms:
        if known and term.normalized:
            exact = term.image.double()
            variance, mean = torch.var_mean(exact, dim=(0, 1, 2), correction=0)
            term.moments = torch.stack([mean, torch.rsqrt(variance + 1e-5)]).float()
    return terms


@native
@sizes(SIZES)
@pytest.mark.parametrize(("count", "sliced", "known"), [(5, False, False), (4, True, True), (1, True, False)])
def test_a_mixture_and_its_moments(level: str, size: Size, count: int, sliced: bool, known: bool) -> None:
    for shape in widths(size):
        terms, weights = some_terms(shape, count, sliced=sliced, known=known), torch.randn(count)
        exact_terms = doubled(terms)

        agree(compiled(level).mix(terms, weights), EXACT.mix(exact_terms, doubled(weights)), size=10.0)

        for term, exact in zip(terms, exact_terms, strict=True):
            if term.normalized:
                agree(term.moments, exact.moments)
            else:
                assert term.moments is None


@native
@sizes(SIZES)
@pytest.mark.parametrize(("sliced", "weights_wanted"), [(False, True), (True, True), (False, False)])
def test_the_backward_pass_of_a_mixture(level: str, size: Size, sliced: bool, weights_wanted: bool) -> None:
    for shape in widths(size):
        terms, weights, gradient = (
            some_terms(shape, 5, sliced=sliced, known=True),
            torch.randn(5),
            image(shape, sliced=sliced),
        )
        slots = [
            new_slot(shape, sliced=sliced),
            new_slot(shape, sliced=not sliced, filled=True),
            None,
            new_slot(shape, sliced=sliced, filled=True),
            Slot(),  # makes its own room
        ]
        exact_slots, exact_terms = doubled(slots), doubled(terms)

        found = compiled(level).mix_backward(gradient, terms, weights, slots, weights_wanted=weights_wanted)
        exact = EXACT.mix_backward(
            doubled(gradient), exact_terms, doubled(weights), exact_slots, weights_wanted=weights_wanted
        )

        if weights_wanted:
            agree(found, exact, size=gradient.numel() ** 0.5)
        else:
            assert found is None
        for number, (slot, exact_slot) in enumerate(zip(slots, exact_slots, strict=True)):
            if slot is not None:
                moments = exact_terms[number].moments
                scale = 1.0 if moments is None else float(moments[1].max())  # a lone pixel's gradients cancel
                slots_agree(slot, exact_slot, size=scale)


@native
def test_the_same_slot_twice(level: str) -> None:
    terms, weights, gradient = (
        some_terms((2, 5, 5, 16), 3, sliced=False, known=True),
        torch.randn(3),
        torch.randn(2, 5, 5, 16),
    )
    slot = new_slot((2, 5, 5, 16))
    exact = doubled(slot)
    compiled(level).mix_backward(gradient, terms, weights, [slot, slot, slot])
    EXACT.mix_backward(doubled(gradient), doubled(terms), doubled(weights), [exact, exact, exact])
    slots_agree(slot, exact)


@native
@pytest.mark.parametrize("mean", [-1e4, 1e3])
def test_a_small_spread_far_from_zero(level: str, mean: float) -> None:
    far = (torch.randn(4, 16, 16, 12) * torch.linspace(0.5, 2.0, 12) + mean).contiguous()
    term, exact = Term(far, True), Term(far.double(), True)
    found = compiled(level).mix([term], torch.ones(1))
    expected = EXACT.mix([exact], torch.ones(1, dtype=torch.float64))
    assert term.moments is not None
    assert exact.moments is not None
    agree(term.moments[0], exact.moments[0], tolerance=1e-7)
    agree(term.moments[1], exact.moments[1], tolerance=1e-5)
    agree(found, expected, tolerance=abs(mean) * 3e-7)  # as far as a mean of 32 bits goes


@native
def test_a_far_pixel_at_the_start_of_a_block(level: str) -> None:
    outlier = torch.randn(1, 64, 64, 4)
    outlier[0, 0, 0] = 1e4
    term, exact = Term(outlier, True), Term(outlier.double(), True)
    compiled(level).mix([term], torch.ones(1))
    EXACT.mix([exact], torch.ones(1, dtype=torch.float64))
    assert term.moments is not None
    assert exact.moments is not None
    agree(term.moments[0], exact.moments[0], size=1.0 / float(exact.moments[1].min()))  # the spread
    agree(term.moments[1], exact.moments[1], tolerance=2e-5)


@native
def test_what_is_not_finite_stays_so(level: str) -> None:
    broken = torch.randn(2, 4, 4, 16)
    broken[0, 1, 1, 3] = torch.nan
    broken[1, 2, 2, 5] = torch.inf
    kernels, weight = compiled(level), torch.randn(16, 1, 3, 3)
    assert kernels.mix([Term(broken, True)], torch.ones(1))[..., [3, 5]].isnan().all()
    assert kernels.mix([Term(broken, True)], torch.ones(1))[..., [2, 4]].isfinite().all()
    assert kernels.mix([Term(broken, False)], torch.ones(1))[1, 2, 2, 5] == torch.inf
    convolved = kernels.depthwise(Term(broken, False), [weight], [Geometry()])[0]
    assert convolved[0, 0:3, 0:3, 3].isnan().all()
    assert not convolved[1, 1:4, 1:4, 5].isfinite().any()
    assert kernels.max_pool(broken, 1)[0, 0:3, 0:3, 3].isnan().all()
    assert kernels.average_pool(broken, 1)[0, 0:3, 0:3, 3].isnan().all()


# --- depthwise convolutions of a rectified image


def some_kernels(channels: int, stride: int) -> tuple[list[Tensor], list[Geometry]]:
    """All that there are, at once."""
    pairs = [(size, dilation) for size in (3, 5, 7) for dilation in (1, 2)]
    return (
        [torch.randn(channels, 1, size, size) / size for size, _ in pairs],
        [Geometry(stride, dilation) for _, dilation in pairs],
    )


def empty_like(values: Sequence[Tensor]) -> list[Tensor]:
    return [torch.full_like(value, torch.nan) for value in values]


def compare_depthwise(
    kernels: Kernels, term: Term, weights: list[Tensor], geometry: list[Geometry], slot: Slot | None, *,
    weights_wanted: bool = True, sliced: bool = False,
) -> None:  # fmt: skip
    """There and back again."""
    exact_term, exact_weights, exact_slot = doubled(term), doubled(weights), doubled(slot)
    found = kernels.depthwise(term, weights, geometry)
    exact = EXACT.depthwise(exact_term, exact_weights, geometry)
    scale = 1.0 if exact_term.moments is None else float(exact_term.moments[1].max())
    agree(found, exact, size=1e-2)
    if term.normalized:
        agree(term.moments, exact_term.moments)

    gradients = image(found.shape, sliced=sliced)
    by_weights = empty_like(weights) if weights_wanted else None
    expected = empty_like(exact_weights) if weights_wanted else None
    kernels.depthwise_backward(gradients, term, weights, geometry, slot, by_weights)
    EXACT.depthwise_backward(doubled(gradients), exact_term, exact_weights, geometry, exact_slot, expected)
    for one, other in zip(by_weights or [], expected or [], strict=True):
        agree(one, other, size=found[0].numel() ** 0.5 / found.shape[-1] ** 0.5)
    if slot is not None:
        slots_agree(slot, exact_slot, size=scale)


@native
@strides
@sizes(SIZES)
@pytest.mark.parametrize("normalized", [False, True])
def test_depthwise(level: str, stride: int, size: Size, normalized: bool) -> None:
    for shape in widths(size):
        weights, geometry = some_kernels(shape[-1], stride)
        term = Term(image(shape, sliced=normalized), normalized)
        slot = new_slot(shape, sliced=not normalized, filled=normalized)
        compare_depthwise(compiled(level), term, weights, geometry, slot)


@native
@strides
@pytest.mark.parametrize("size", [3, 5, 7])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("channels", [4, 16])
def test_one_kernel(level: str, stride: int, size: int, dilation: int, channels: int) -> None:
    shape, weight = (2, 6, 9, channels), torch.randn(channels, 1, size, size)
    term, slot = Term(image(shape), True), new_slot(shape, filled=True)
    compare_depthwise(compiled(level), term, [weight], [Geometry(stride, dilation)], slot, sliced=True)


@native
def test_only_what_is_wanted(level: str) -> None:
    weights, geometry = some_kernels(16, 1)
    term = Term(image((2, 8, 8, 16)), False)
    compare_depthwise(compiled(level), term, weights, geometry, None)
    compare_depthwise(compiled(level), term, weights, geometry, Slot(), weights_wanted=False)


@native
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 20), st.integers(1, 40)),
    stride=st.sampled_from([1, 2]),
    normalized=st.booleans(),
    sliced=st.booleans(),
    filled=st.booleans(),
)
def test_depthwise_of_any_shape(
    level: str, shape: tuple[int, ...], stride: int, normalized: bool, sliced: bool, filled: bool
) -> None:
    torch.manual_seed(sum(shape))
    weights, geometry = some_kernels(shape[-1], stride)
    term, slot = Term(image(shape, sliced=sliced), normalized), new_slot(shape, sliced=sliced, filled=filled)
    compare_depthwise(compiled(level), term, weights, geometry, slot, sliced=sliced)


@native
def test_depthwise_into_memory_that_is_given(level: str) -> None:
    term, weights, geometry = Term(image((2, 8, 8, 16)), False), [torch.randn(16, 1, 3, 3)], [Geometry()]
    place = torch.full((3, 2, 8, 8, 16), torch.nan)
    found = compiled(level).depthwise(term, weights, geometry, out=place[1:2])
    assert found.data_ptr() == place[1].data_ptr()
    assert torch.equal(place[1], compiled(level).depthwise(term, weights, geometry)[0])
    assert place[[0, 2]].isnan().all()


@native
def test_what_does_not_vary_gets_no_gradient(level: str) -> None:
    """It is zero when normalised, where the rectifier has no slope."""
    term, slot, weights = Term(torch.full((2, 5, 5, 16), 3.0), True), Slot(), [torch.randn(16, 1, 3, 3)]
    gradients = compiled(level).depthwise(term, weights, [Geometry()])
    assert not gradients.any()
    compiled(level).depthwise_backward(torch.randn_like(gradients), term, weights, [Geometry()], slot)
    assert slot.image is not None
    assert not slot.image.any()


@native
def test_a_rectifier_has_no_slope_at_zero(level: str) -> None:
    slot = Slot()
    compiled(level).rectify_backward(
        torch.ones(1, 1, 3, 4), torch.tensor([-1.0, 0.0, 2.0, 0.0]).expand(1, 1, 3, 4).clone(), slot
    )
    assert slot.image is not None
    assert slot.image[0, 0, 0].tolist() == [0.0, 0.0, 1.0, 0.0]


# --- pools and the rectifier


@native
@strides
@sizes(POOLED)
@pytest.mark.parametrize("name", ["average_pool", "max_pool"])
@pytest.mark.parametrize("sliced", [False, True])
def test_pools(level: str, name: str, stride: int, size: Size, sliced: bool) -> None:
    for shape in widths(size):
        pixels = image(shape, sliced=sliced)
        pixels.copy_(pixels.mul(2.0).round())  # with equal pixels in many windows: the first of them counts
        found = getattr(compiled(level), name)(pixels, stride)
        agree(found, getattr(EXACT, name)(doubled(pixels), stride), tolerance=1e-6)

        gradient, slot = image(found.shape, sliced=sliced), new_slot(shape, sliced=not sliced, filled=sliced)
        exact_slot = doubled(slot)
        getattr(compiled(level), f"{name}_backward")(gradient, pixels, stride, slot)
        getattr(EXACT, f"{name}_backward")(doubled(gradient), doubled(pixels), stride, exact_slot)
        slots_agree(slot, exact_slot)


@native
@sizes([*SIZES, (5, 15, 17)])
@pytest.mark.parametrize("channels", [(16, 16), (1, 16), (5, 32), (48, 64), (16, 80)], ids=str)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("shared", [False, True])
def test_products_of_pixels(level: str, size: Size, channels: tuple[int, int], count: int, shared: bool) -> None:
    inner, outer = channels
    images, matrices = torch.randn(1 if shared else count, *size, inner), torch.randn(count, inner, outer)
    found = compiled(level).products(images, matrices)
    agree(found, EXACT.products(images.double(), matrices.double()))
    gradients = torch.randn(count, *size, inner)
    others = torch.randn(1 if shared else count, *size, outer)
    expected = EXACT.inner_products(gradients.double(), others.double())
    agree(compiled(level).inner_products(gradients, others), expected)
    room = torch.full_like(expected, torch.nan, dtype=torch.float32)
    assert compiled(level).inner_products(gradients, others, out=room) is room
    agree(room, expected)


@native
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("begun", [False, True])
def test_products_added_up(level: str, count: int, begun: bool) -> None:
    images, matrices = torch.randn(count, 3, 5, 7, 12), torch.randn(count, 12, 48)
    total = torch.randn(3, 5, 7, 48) if begun else None
    exact = EXACT.summed_products(images.double(), matrices.double(), doubled(total))
    found = compiled(level).summed_products(images, matrices, total)
    agree(found, exact)
    if total is not None:
        assert found.data_ptr() == total.data_ptr()


@native
def test_matrices_that_do_not_fill_vectors_are_left_to_torch(level: str) -> None:
    images, matrices = torch.randn(2, 3, 4, 4, 8), torch.randn(2, 8, 12)
    for method, arguments in (("products", (matrices,)), ("summed_products", (matrices, None))):
        with pytest.raises(AssertionError, match="left to torch"):
            getattr(compiled(level), method)(images, *arguments)
        agree(
            getattr(kernels_of(level), method)(images, *arguments), getattr(EXACT, method)(images, *arguments).double()
        )
    with pytest.raises(AssertionError, match="left to torch"):
        compiled(level).inner_products(images, images)
    agree(kernels_of(level).inner_products(images, images), EXACT.inner_products(images, images).double())


@native
@sizes(SIZES)
@pytest.mark.parametrize("sliced", [False, True])
def test_the_backward_pass_of_a_rectifier(level: str, size: Size, sliced: bool) -> None:
    for shape in widths(size):
        pixels, gradient = image(shape, sliced=sliced), image(shape, sliced=not sliced)
        slot = new_slot(shape, sliced=sliced, filled=sliced)
        exact_slot = doubled(slot)
        compiled(level).rectify_backward(gradient, pixels, slot)
        EXACT.rectify_backward(doubled(gradient), doubled(pixels), exact_slot)
        slots_agree(slot, exact_slot)


@native
def test_nothing_beside_a_slice_is_written(level: str) -> None:
    kernels, shape = compiled(level), (2, 8, 8, 12)
    weights, geometry = some_kernels(12, 1)
    pixels, gradient = image(shape), image(shape)
    ways: list[Callable[[Slot], Any]] = [
        lambda slot: kernels.mix_backward(
            gradient, some_terms(shape, 1, sliced=False, known=True), torch.ones(1), [slot]
        ),
        lambda slot: kernels.depthwise_backward(image((6, *shape)), Term(pixels, False), weights, geometry, slot),
        lambda slot: kernels.rectify_backward(gradient, pixels, slot),
        lambda slot: kernels.average_pool_backward(gradient, pixels, 1, slot),
        lambda slot: kernels.max_pool_backward(gradient, pixels, 1, slot),
    ]
    for way in ways:
        wide = torch.full((2, 8, 8, 20), 7.0)
        way(Slot(wide[..., 4:16]))
        assert (wide[..., :4] == 7.0).all()
        assert (wide[..., 16:] == 7.0).all()
        assert not (wide[..., 4:16] == 7.0).any()


# --- threads


def everything(kernels: Kernels, *, stride: int) -> list[Tensor]:
    """What all functions give for a lot of work."""
    torch.manual_seed(3)
    terms, weights, gradient = some_terms(LARGE, 3, sliced=False, known=False), torch.randn(3), image(LARGE)
    results = [kernels.mix(terms, weights)]
    results += [term.moments for term in terms if term.moments is not None]
    slots = [Slot() for _ in range(3 + 5)]
    by_weight = kernels.mix_backward(gradient, terms, weights, slots[:3])
    assert by_weight is not None
    results.append(by_weight)
    own_weights, geometry = some_kernels(LARGE[-1], stride)
    for term, slot in zip([Term(gradient, False), terms[0]], slots[3:5], strict=True):
        convolved = kernels.depthwise(term, own_weights, geometry)
        by_weights = empty_like(own_weights)
        kernels.depthwise_backward(convolved, term, own_weights, geometry, slot, by_weights)
        results += [convolved, *by_weights]
    average, largest = kernels.average_pool(gradient, stride), kernels.max_pool(gradient, stride)
    kernels.average_pool_backward(average, gradient, stride, slots[5])
    kernels.max_pool_backward(largest, gradient, stride, slots[6])
    kernels.rectify_backward(gradient, terms[1].image, slots[7])
    stacked, matrices = torch.stack([term.image for term in terms]), torch.randn(3, LARGE[-1], 32)
    results += [kernels.products(stacked, matrices), kernels.summed_products(stacked, matrices, None)]
    results.append(kernels.inner_products(stacked, stacked))
    return [*results, average, largest, *(slot.image for slot in slots if slot.image is not None)]


@native
@strides
def test_results_do_not_depend_on_the_number_of_threads(
    level: str, stride: int, set_threads: Callable[[int], None]
) -> None:
    set_threads(1)
    alone = everything(compiled(level), stride=stride)
    for count in (2, 3):
        set_threads(count)
        together = everything(compiled(level), stride=stride)
        assert len(alone) == len(together)
        assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


@native
def test_work_is_shared_out_and_done_even_by_fewer_threads(level: str, set_threads: Callable[[int], None]) -> None:
    set_threads(1)
    alone = everything(compiled(level), stride=1)
    asked: list[int] = []

    @ctypes.CFUNCTYPE(None, ctypes.CFUNCTYPE(None, ctypes.c_void_p), ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    def one_instead(work: Callable[[int], None], data: int, count: int, _: int) -> None:
        asked.append(count)
        work(data)

    @ctypes.CFUNCTYPE(ctypes.c_int)
    def number() -> int:
        return 1

    library = ctypes.CDLL(str(loader._candidates(level)[0]))  # the one that is open already
    try:
        library.archloom_use_threads(ctypes.cast(one_instead, ctypes.c_void_p), ctypes.cast(number, ctypes.c_void_p))
        set_threads(3)
        results = everything(compiled(level), stride=1)
    finally:
        loader._share_threads(library)
    assert set(asked) == {3}
    assert len(asked) >= 10  # every function
    assert all(torch.equal(one, other) for one, other in zip(alone, results, strict=True))


@native
def test_little_work_stays_on_one_thread(level: str, set_threads: Callable[[int], None]) -> None:
    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    def never(*_: int) -> None:
        asked.append(1)

    asked: list[int] = []
    library = ctypes.CDLL(str(loader._candidates(level)[0]))
    try:
        library.archloom_use_threads(ctypes.cast(never, ctypes.c_void_p), ctypes.cast(never, ctypes.c_void_p))
        set_threads(2)
        compiled(level).mix([Term(torch.randn(2, 8, 8, 16), True)], torch.ones(1))
    finally:
        loader._share_threads(library)
    assert not asked


# --- what is left to torch


def kernels_of(level: str) -> NativeKernels:
    found = load(level)
    assert found is not None
    return found


def odd_images() -> dict[str, Tensor]:
    return {
        "double": torch.randn(2, 8, 8, 16, dtype=torch.float64),
        "channels first": torch.randn(2, 16, 8, 8).permute(0, 2, 3, 1),
        "rows apart": torch.randn(2, 8, 12, 16)[:, :, :8],
        "images apart": torch.randn(4, 8, 8, 16)[::2],
        "one pixel for all": torch.randn(1, 1, 1, 16).expand(2, 8, 8, 16),
    }


@native
@pytest.mark.parametrize("kind", odd_images())
def test_other_images_are_left_to_torch(level: str, kind: str) -> None:
    odd, kernels = odd_images()[kind], kernels_of(level)
    with pytest.raises(AssertionError, match="left to torch"):
        compiled(level).average_pool(odd, 1)
    weights, coefficients = [torch.randn(16, 1, 3, 3, dtype=odd.dtype)], torch.randn(1, dtype=odd.dtype)
    term, own = Term(odd, True), Term(odd, True)
    assert torch.equal(kernels.mix([term], coefficients), EXACT.mix([own], coefficients))
    assert torch.equal(kernels.depthwise(term, weights, [Geometry()]), EXACT.depthwise(own, weights, [Geometry()]))
    gradient, slots = torch.randn(2, 8, 8, 16, dtype=odd.dtype), [Slot() for _ in range(10)]
    for one, (chosen, like) in enumerate([(kernels, term), (EXACT, own)]):
        chosen.mix_backward(gradient, [like], coefficients, [slots[one]])
        chosen.depthwise_backward(gradient[None], like, weights, [Geometry()], slots[2 + one])
        chosen.rectify_backward(gradient, odd, slots[4 + one])
        chosen.average_pool_backward(gradient, odd, 1, slots[6 + one])
        chosen.max_pool_backward(gradient, odd, 1, slots[8 + one])
    assert torch.equal(kernels.max_pool(odd, 2), EXACT.max_pool(odd, 2))
    for one, other in zip(slots[::2], slots[1::2], strict=True):
        assert one.image is not None
        assert other.image is not None
        assert torch.equal(one.image, other.image)


@native
@pytest.mark.parametrize(("sizes", "geometry"), [((9,), [Geometry()]), ((3,), [Geometry(3)]), ((3,), [Geometry(1, 3)])])
def test_other_kernels_are_left_to_torch(level: str, sizes: Sequence[int], geometry: list[Geometry]) -> None:
    weights = [torch.randn(16, 1, size, size) for size in sizes]
    term, slot, own = Term(torch.randn(2, 8, 8, 16), False), Slot(), Slot()
    found = kernels_of(level).depthwise(term, weights, geometry)
    assert torch.equal(found, EXACT.depthwise(term, weights, geometry))
    kernels_of(level).depthwise_backward(found, term, weights, geometry, slot)
    EXACT.depthwise_backward(found, term, weights, geometry, own)
    assert slot.image is not None
    assert own.image is not None
    assert torch.equal(slot.image, own.image)


@native
def test_an_odd_slot_is_left_to_torch(level: str) -> None:
    gradient, pixels = torch.randn(2, 8, 8, 16), torch.randn(2, 8, 8, 16)
    place = torch.randn(2, 16, 8, 8)
    before = place.clone()
    kernels_of(level).rectify_backward(gradient, pixels, Slot(place.permute(0, 2, 3, 1), filled=True))
    expected = before + torch.where(pixels > 0, gradient, torch.zeros(())).permute(0, 3, 1, 2)
    assert torch.equal(place, expected)


# --- the loader


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder without libraries, in place of the package's own."""
    monkeypatch.setattr(loader, "FOLDER", tmp_path)
    monkeypatch.delenv(loader.VARIABLE, raising=False)
    loader._open.cache_clear()
    yield tmp_path
    loader._open.cache_clear()


def test_without_libraries_there_are_no_kernels(folder: Path) -> None:
    assert available_levels() == []
    assert load() is None
    assert load("plain") is None


def test_damaged_libraries_are_as_good_as_none(folder: Path) -> None:
    for level in loader.LEVELS:
        (folder / f"_{level}{loader.EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF and then nothing of sense")
    assert available_levels() == []
    assert load() is None


def test_other_libraries_are_as_good_as_none(folder: Path) -> None:
    other = importlib.util.find_spec("torch._C")
    assert other is not None
    assert other.origin is not None
    shutil.copy(other.origin, folder / f"_plain{loader.EXTENSION_SUFFIXES[0]}")
    assert load("plain") is None


@native
def test_libraries_of_another_build_are_as_good_as_none(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "INTERFACE", loader.INTERFACE + 1)
    loader._open.cache_clear()
    try:
        assert load(level) is None
    finally:
        loader._open.cache_clear()


@native
def test_the_next_lower_level_stands_in(level: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [Path(loader.__file__).parent / f"_{level}{suffix}" for suffix in loader.EXTENSION_SUFFIXES]
    built = next(path for path in places if path.is_file())
    shutil.copy(built, folder)
    found = load()
    assert found is not None
    assert found.name == f"native ({level})"
    assert available_levels() == [level]


@native
def test_levels_best_first(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(loader.VARIABLE, raising=False)
    best = load()
    assert best is not None
    assert best.name == f"native ({LEVELS[0]})"
    assert sorted(LEVELS, key=loader.LEVELS.index) == LEVELS
    assert load(level) is load(level)


def test_no_level_beyond_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert load("avx2") is None
    assert set(available_levels()) <= {"plain"}
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert load("avx512") is None
    assert set(available_levels()) <= {"avx2", "plain"}


@native
def test_the_variable_names_a_level(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(loader.VARIABLE, level)
    found = load()
    assert found is not None
    assert found.name == f"native ({level})"


def test_the_variable_turns_all_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(loader.VARIABLE, "off")
    assert load() is None


def test_an_unknown_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(loader.VARIABLE, "avx1024")
    with pytest.raises(SettingError, match="ARCHLOOM_KERNELS must be one of avx512, avx2, plain, off, got 'avx1024'"):
        load()
