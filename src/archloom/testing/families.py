"""The contract of a family of networks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from archloom.core.settings import Settings
from archloom.families import Family, OperationKind, family_of
from archloom.spaces import SearchSpace
from archloom.supernet import EveryOption, Only, inherit, path_gates
from archloom.tasks import LANGUAGE, ImageShape, NetworkShape, TextShape
from archloom.testing.spaces import NamedSpace, network_settings, sample
from archloom.testing.strategies import check_help

SIDE, CLASSES, COLOURS = 8, 3, 3


def tiny_shape(space: SearchSpace) -> NetworkShape:
    """Return the shape of a network for tiny data of the space's task."""
    return TextShape(CLASSES) if family_of(space).task is LANGUAGE else ImageShape(CLASSES, COLOURS)


def tiny_inputs(space: SearchSpace, *, seed: int) -> Tensor:
    """Return four tiny images, or two words of two columns."""
    generator = torch.Generator().manual_seed(seed)
    if family_of(space).task is LANGUAGE:
        return torch.randint(CLASSES, (2, 2), generator=generator)
    return torch.rand(4, COLOURS, SIDE, SIDE, generator=generator)


def _logits(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


class FamilyContract(NamedSpace):
    """What every family of networks must do, as tests. Subclass it in a test file and name a space of the family.

    Examples:
        >>> from archloom.testing import FamilyContract
        >>> class TestNetworks(FamilyContract):
        ...     space = "nb201_mini"
        >>> TestNetworks().test_a_standalone_network_computes_what_its_path_computes()
    """

    def build_networks(self) -> tuple[SearchSpace, Family[Any], Settings]:
        """Return the space, its family and the arguments of a network for tiny images, or a tiny text."""
        space = self.build()
        return space, family_of(space), {"shape": tiny_shape(space), **network_settings(space, self.network)}

    def test_networks_return_one_logit_for_each_class(self) -> None:
        """Supernet and standalone network return logits with a gradient."""
        space, family, arguments = self.build_networks()
        inputs = tiny_inputs(space, seed=0)
        architecture = sample(space, 1)[0]
        supernet = family.build(space, EveryOption(), **arguments)
        alone = family.build(space, Only(architecture), **arguments)
        for name, logits in (
            ("supernet", _logits(supernet(inputs, path_gates(space, architecture)))),
            ("standalone network", _logits(alone(inputs))),
        ):
            shape = tuple(logits.shape)
            assert shape == (4, CLASSES), f"logits of the {name} must have shape {(4, CLASSES)}, got {shape}"
            assert logits.requires_grad, f"logits of the {name} must have a gradient"

    def test_a_standalone_network_computes_what_its_path_computes(self) -> None:
        """With the weights of the supernet, the network of an architecture equals its path."""
        space, family, arguments = self.build_networks()
        inputs = tiny_inputs(space, seed=1)
        supernet = family.build(space, EveryOption(), **arguments)
        for architecture in sample(space, 3):
            resolve = Only(architecture, affine=False, running_statistics=False)
            alone = family.build(space, resolve, **arguments)
            inherit(alone, supernet)
            supernet.eval(), alone.eval()  # without dropout; normalisation has no running statistics
            with torch.no_grad():
                path = supernet(inputs, path_gates(space, architecture))
                gap = float((_logits(alone(inputs)) - _logits(path)).abs().max())
            assert gap < 1e-4, f"both must compute the same for {space.format(architecture)}, got a gap of {gap}"

    def test_every_option_has_a_kind(self) -> None:
        """Monitor and drawings know what each option does."""
        space, family, _ = self.build_networks()
        for option in {option for decision in space.decisions for option in decision.options}:
            kind = family.kind_of(option)
            assert isinstance(kind, OperationKind), f"kind_of('{option}') must be an OperationKind, got {kind!r}"

    def test_sizes_build_and_grow(self) -> None:
        """Each size has more parameters than the one before; with a fixed depth, some sizes are alike."""
        space, family, _ = self.build_networks()
        counts = []
        for size in family.sizes_of(space):
            sized = replace(space, **size.space)
            arguments = {**network_settings(space, self.network), **size.network}
            with torch.device("meta"):
                network = family.build(sized, Only(sample(sized, 1)[0]), tiny_shape(space), **arguments)
            counts.append(sum(parameter.numel() for parameter in network.parameters()))
        wanted = sorted(counts if family.has_fixed_depth(space) else set(counts))
        assert counts == wanted, f"parameters must grow from size to size, got {counts}"

    def test_full_depth_keeps_the_decisions(self) -> None:
        """An architecture that a search found can be retrained at full depth."""
        space, family, _ = self.build_networks()
        deep = family.at_full_depth(space)
        assert deep.decisions == space.decisions, "at_full_depth() must keep the decisions of the space"

    def test_source_defines_a_model(self) -> None:
        """The standalone source, where there is one, is Python that defines `Model`."""
        space, family, arguments = self.build_networks()
        architecture = sample(space, 1)[0]
        network = family.build(space, Only(architecture), **arguments)
        settings = network_settings(space, self.network)
        source = family.source(space, architecture, network, settings)
        if source is not None:
            compile(source.code, "<source>", "exec")
            assert "class Model" in source.code, "the source must define the class `Model`"

    def test_every_setting_has_help(self) -> None:
        """`archloom list` can print a line for each setting of the network."""
        check_help(family_of(self.build()).network)
