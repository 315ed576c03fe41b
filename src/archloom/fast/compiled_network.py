"""Run the body of a network of one architecture as a single function of the compiled executor.

A short training takes hundreds of steps on small images, where most of the time goes into calls of small operations and
into kernels that such images do not fill. Here one call runs all cells forwards, and one backwards. Parameters, running
statistics and everything around the body (loss, optimizer, head) stay what they are.

The modules run instead where this does not apply: another device or precision, hooks, parts that the executor does not
know, no compiled library, or `machine.kernels` other than `auto`; in evaluation mode also for gradients, and for few
images, which leave most of a vector empty. It has no second derivative, and one backward pass per forward pass.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from archloom.fast import current_kernels, should_recompute
from archloom.fast.native import NativeKernels
from archloom.fast.network_plan import FeatureMap, NetworkPlan, NetworkPlanner, UnplannableError
from archloom.supernet.normalization import refuse_second_derivative

_Entries = list[tuple[Mapping[str, Tensor | None], str]]
Describe = Callable[[NetworkPlanner], FeatureMap]


class Features(NamedTuple):
    """What the body of a network gives: a mean for each image and channel, and a map that it shows on the way."""

    means: Tensor
    shown: Tensor | None


HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
MOST_PLANS = 6  # batch sizes of a training: its own, its last, and those of evaluations


class CompiledNetwork:
    """Run a network by plans of the sizes that it has met.

    Args:
        network: its modules own all parameters.
        describe: writes down the body of the network, and returns the map whose mean is the result.
        rectified: whether the map is rectified before.
    """

    def __init__(self, network: nn.Module, describe: Describe, *, rectified: bool = False) -> None:
        self._network, self._describe, self._rectified = network, describe, rectified
        self._forget()

    def _forget(self) -> None:
        self._plans: dict[tuple[Any, ...], _Prepared | None] = {}
        self._hooks: list[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:  # a copy makes its own plans
        return {name: self.__dict__[name] for name in ("_network", "_describe", "_rectified")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def fits(self, images: Tensor) -> bool:
        """Return whether images would run in one call, and not through the modules."""
        return self._find_plan(images) is not None

    def run(self, images: Tensor) -> Features | None:
        """Return what the body gives, None where the modules must run."""
        found = self._find_plan(images)
        if found is None:
            return None
        kernels, prepared, parameters = found
        run = _Run(prepared, kernels, images)
        means = run.forward() if not torch.is_grad_enabled() else _Function.apply(run, *parameters)  # type: ignore[no-untyped-call]
        return Features(*means)

    def _find_plan(self, images: Tensor) -> tuple[NativeKernels, _Prepared, list[Tensor]] | None:
        """Return the library, the plan and the parameters that it reads; None where the modules must run."""
        kernels = current_kernels()
        if not isinstance(kernels, NativeKernels) or not _is_readable(images) or self._is_watched():
            return None
        keeps = torch.is_grad_enabled()
        if not self._network.training and (keeps or 2 * len(images) < kernels.lanes):
            return None
        prepared = self._prepare(kernels, images.shape, keeps=keeps)
        parameters = None if prepared is None else prepared.read_parameters()
        return None if prepared is None or parameters is None else (kernels, prepared, parameters)

    def _is_watched(self) -> bool:
        """Return whether hooks or modes must see the modules run."""
        if self._hooks is None:
            self._hooks = [getattr(module, name) for module in self._network.modules() for name in HOOKS]
        return (
            any(self._hooks)
            or should_recompute()
            or torch.compiler.is_compiling()
            or torch.is_autocast_enabled("cpu")
            or torch._C._get_tracing_state() is not None
            or torch._C._len_torch_dispatch_stack() > 0
            or torch._C._len_torch_function_stack() > 0
            or nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]
        )

    def _prepare(self, kernels: NativeKernels, shape: torch.Size, *, keeps: bool) -> _Prepared | None:
        key = (kernels.name, keeps, self._network.training, *shape)
        if key not in self._plans:
            while len(self._plans) >= MOST_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = self._make_plan(kernels, shape, keeps=keeps)
        return self._plans[key]

    def _make_plan(self, kernels: NativeKernels, shape: torch.Size, *, keeps: bool) -> _Prepared | None:
        for segments in list_segments(shape[0], kernels.lanes):
            try:
                planner = NetworkPlanner(shape, kernels.lanes, segments, evaluates=not self._network.training)
                last = self._describe(planner)
                return _Prepared(planner.finish(last, keeps=keeps, rectified=self._rectified))
            except UnplannableError:
                continue
        return None


def list_segments(images: int, lanes: int) -> list[int]:
    """Return into how many parts images may be cut, first what leaves the fewest lanes empty."""
    spent = {segments: -(-images * segments // lanes) / segments for segments in (1, 2, 4)}
    return [segments for segments in sorted(spent, key=lambda one: (spent[one], one)) if spent[segments] <= spent[1]]


class _Prepared:
    """A plan with the modules that it reads, and workspaces that no run uses at present."""

    def __init__(self, plan: NetworkPlan) -> None:
        self.plan = plan
        weights: _Entries = [(convolution._parameters, "weight") for convolution in plan.convolutions]
        self._parameters, self._pointers = [*weights], [*weights]
        for norm in plan.norms:
            scales: _Entries = [(norm._parameters, name) for name in ("weight", "bias")]
            self._parameters += scales if norm.affine else []
            self._pointers += [*scales, *((norm._buffers, name) for name in STATISTICS)]  # None where there is none
        found = [entries[name] for entries, name in self._parameters]
        self.layouts = [(value.shape, value.stride()) for value in found if value is not None]
        self._strides = [stride for _, stride in self.layouts[: len(weights)]]
        self._workspaces: list[Tensor] = []

    def read_parameters(self) -> list[Tensor] | None:
        """Return weights, scales and shifts as they are now, None where the library cannot read them."""
        if any(norm.training == self.plan.evaluates for norm in self.plan.norms):
            return None
        parameters: list[Any] = [entries[name] for entries, name in self._parameters]
        readable = all(map(_is_plain, parameters)) and self._strides == [
            weight.stride() for weight in parameters[: len(self._strides)]
        ]
        return parameters if readable else None

    def read_pointers(self, factors: Tensor) -> array[int]:
        """Return the addresses of parameters, running statistics and factors, in the order of the plan."""
        values = [entries[name] for entries, name in self._pointers]
        return array("q", [0 if value is None else value.data_ptr() for value in [*values, *factors.unbind()]])

    def draw_factors(self, images: int) -> Tensor:
        """Return a row of numbers for every drop path, drawn as modules draw them."""
        factors = torch.ones(len(self.plan.factors), images)
        for row, module in zip(factors, self.plan.factors, strict=True):
            found = module.draw_factors(images)
            if found is not None:
                row.copy_(found)
        return factors

    def take_workspace(self, kernels: NativeKernels) -> Tensor:
        return self._workspaces.pop() if self._workspaces else kernels.make_workspace(self.plan.workspace)

    def give_back(self, workspace: Tensor) -> None:
        self._workspaces.append(workspace)


class _Run:
    """One forward pass, and what its backward pass needs."""

    def __init__(self, prepared: _Prepared, kernels: NativeKernels, images: Tensor) -> None:
        self._prepared, self._kernels, self._images = prepared, kernels, images
        self._factors = prepared.draw_factors(len(images))  # the pointers lead there
        self._pointers = prepared.read_pointers(self._factors)
        self._workspace: Tensor | None = prepared.take_workspace(kernels)

    def forward(self) -> tuple[Tensor, Tensor | None]:
        """Return the result; without a backward pass to come, the workspace is free again."""
        plan, images = self._prepared.plan, self._images
        out = torch.empty(len(images), plan.channels)
        shown = None
        if plan.shown is not None:
            shown = torch.empty(len(images), *plan.shown, memory_format=torch.channels_last)
        assert self._workspace is not None
        self._kernels.run_network(plan.address, self._workspace, self._pointers, images, out, shown)
        if not torch.is_grad_enabled():
            self.release()
        return out, shown

    def backward(self, by_means: Tensor | None, by_shown: Tensor | None) -> list[Tensor | None]:
        """Return the gradients of all parameters, None where the result does not depend on one."""
        plan = self._prepared.plan
        if self._workspace is None:
            raise RuntimeError(
                "a compiled network has one backward pass; use archloom.fast.use_kernels('plain') for more of them"
            )
        found = torch.empty(plan.gradient_size)
        by_means = torch.zeros(len(self._images), plan.channels) if by_means is None else by_means.contiguous()
        by_shown = None if by_shown is None else by_shown.contiguous(memory_format=torch.channels_last)
        self._kernels.run_network_backward(
            plan.address, self._workspace, self._pointers, len(self._images), by_means, by_shown, found
        )
        self.release()
        return [
            found.as_strided(shape, strides, place) if live else None
            for (shape, strides), place, live in zip(self._prepared.layouts, plan.places, plan.live, strict=True)
        ]

    def release(self) -> None:
        if self._workspace is not None:
            self._prepared.give_back(self._workspace)
        self._workspace = None


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: _Run, *parameters: Tensor) -> tuple[Tensor, Tensor | None]:
        ctx.run = run
        ctx.save_for_backward(*parameters)
        ctx.set_materialize_grads(False)
        with torch.enable_grad():  # the run asks whether a backward pass will come
            return run.forward()

    @staticmethod
    def backward(ctx: Any, by_means: Tensor | None, by_shown: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        if by_means is None and by_shown is None:
            return (None,) * (1 + len(ctx.saved_tensors))
        _ = ctx.saved_tensors  # raises where one has changed since
        return None, *ctx.run.backward(by_means, by_shown)


def _is_readable(images: Tensor) -> bool:
    return _is_plain(images) and images.dim() == 4 and images.numel() > 0 and not images.requires_grad


def _is_plain(values: Tensor | None) -> bool:
    return type(values) in _PLAIN and values.dtype is torch.float32 and values.is_cpu  # type: ignore[union-attr]


_PLAIN = (Tensor, nn.Parameter)
