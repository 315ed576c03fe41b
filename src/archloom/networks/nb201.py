"""The network of NAS-Bench-201: a stem, three stages of equal cells with residual blocks between, a linear head."""

from __future__ import annotations

from torch import Tensor, nn

from archloom.errors import require
from archloom.operations import NB201_OPERATIONS, Place, ReluConvNorm, make_operation
from archloom.spaces import Nb201
from archloom.supernets import Dag, Gates, Resolve

STAGES = 3


class Nb201Network(nn.Module):
    """Cells at `channels`, twice and four times that; called with (images, gates)."""

    def __init__(
        self,
        space: Nb201,
        resolve: Resolve,
        classes: int,
        colours: int,
        /,
        *,
        channels: int = 16,  # width of the first stage
    ) -> None:
        super().__init__()
        require({f"network.channels must be at least 1, got {channels}": channels >= 1})
        self.stem = nn.Sequential(nn.Conv2d(colours, channels, 3, padding=1, bias=False), resolve.normalize(channels))
        self.blocks = nn.ModuleList()
        for stage in range(STAGES):
            width = channels * 2**stage
            if stage > 0:
                self.blocks.append(ResidualReduction(width // 2, width, resolve))
            self.blocks.extend(Nb201Cell(space, width, resolve) for _ in range(space.cells_per_stage))
        self.head = nn.Sequential(
            resolve.normalize(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)
        )

    def forward(self, images: Tensor, gates: Gates | None = None) -> Tensor:
        x = self.stem(images)
        for block in self.blocks:
            x = block(x, gates)
        logits: Tensor = self.head(x)
        return logits


class Nb201Cell(nn.Module):
    """One searched cell; all its edges keep resolution and width."""

    def __init__(self, space: Nb201, channels: int, resolve: Resolve) -> None:
        super().__init__()
        place = Place(channels, channels, 1, resolve.normalize)
        decisions = {edge: space.decision(f"{edge[0]}->{edge[1]}") for edge in space.edges}
        self.dag = Dag(
            {
                edge: resolve.operation(decision, lambda option: make_operation(NB201_OPERATIONS, option, place))
                for edge, decision in decisions.items()
            },
            strides=dict.fromkeys(space.edges, 1),
            outputs=[max(target for _, target in space.edges)],
        )

    def forward(self, x: Tensor, gates: Gates | None) -> Tensor:
        (last,) = self.dag([x], gates)
        result: Tensor = last
        return result


class ResidualReduction(nn.Module):
    """A residual block that halves the resolution and widens the channels."""

    def __init__(self, channels_in: int, channels_out: int, resolve: Resolve) -> None:
        super().__init__()
        first = Place(channels_in, channels_out, 2, resolve.normalize)
        second = Place(channels_out, channels_out, 1, resolve.normalize)
        self.main = nn.Sequential(ReluConvNorm(first, kernel=3), ReluConvNorm(second, kernel=3))
        self.shortcut = nn.Sequential(
            nn.AvgPool2d(2, ceil_mode=True), nn.Conv2d(channels_in, channels_out, 1, bias=False)
        )

    def forward(self, x: Tensor, gates: Gates | None) -> Tensor:
        result: Tensor = self.main(x) + self.shortcut(x)
        return result
