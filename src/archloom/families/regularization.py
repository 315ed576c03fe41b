"""Regularization against overfitting: dropout before the last layer, and drop path on edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import torch
from annotated_doc import Doc
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.core.errors import SettingError
from archloom.core.settings import Settings
from archloom.operations import FixedReduction
from archloom.supernet import Choice, Fixed

AUXILIARY = "auxiliary"  # the setting, and the name of the head in every network that has one
DropoutRate = Annotated[float, Doc("share of features dropped before the last layer, in training only")]
DropPathRate = Annotated[
    float, Doc("probability, at the end of training, that an image skips an edge; identities aside; 0 is off")
]
TRAINING_ONLY = (  # settings that only the training of a network needs
    AUXILIARY,
    "drop_path",
    "dropout",
    "dropout_output",
    "dropout_hidden",
    "dropout_input",
    "dropout_embedding",
    "dropout_words",
    "activation_penalty",
    "change_penalty",
)


class DropPath(nn.Dropout):
    """Drop a whole image where dropout would drop numbers, and scale up the others by as much (Larsson et al., 2017).

    The rate is the same throughout unless `set_progress` is called: then it rises from 0, since a network that has
    learned nothing yet needs all its edges (Zoph et al., 2018).
    """

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self.rate = rate

    def set_progress(self, progress: float) -> None:
        """Set the rate for this share of the training, from 0 to 1."""
        self.p = self.rate * progress

    def forward(self, x: Tensor) -> Tensor:
        """Return the images, some of them zeroed while the network trains."""
        if not self.training or self.p == 0:
            return x
        one_per_image = x.new_ones(len(x), *[1] * (x.dim() - 1))
        return x * F.dropout(one_per_image, self.p)

    def draw_factors(self, images: int) -> Tensor | None:
        """Return what `forward` would multiply the images by, None where that is nothing."""
        return None if not self.training or self.p == 0 else F.dropout(torch.ones(images), self.p)


def flatten(dropout: float) -> nn.Module:
    """Return a layer that flattens images to rows and drops features; one layer either way, so weight names stay."""
    return nn.Sequential(nn.Flatten(), nn.Dropout(dropout)) if dropout else nn.Flatten()


def check_rates(drop_path: float, dropout: float) -> dict[str, bool]:
    """Return the rules for both settings, and whether each is met."""
    return {
        f"network.drop_path must lie in [0, 1), got {drop_path}": 0 <= drop_path < 1,
        f"network.dropout must lie in [0, 1), got {dropout}": 0 <= dropout < 1,
    }


def drop_edges(network: nn.Module, rate: float) -> None:
    """Give every edge of a network a drop path, except identities."""
    if rate == 0:
        return
    for module in list(network.modules()):
        if isinstance(module, Choice):
            raise SettingError(
                f"network.drop_path must be 0 in a search, got {rate}: it is for networks of one architecture; "
                "dropout and auxiliary work in a search too"
            )
        if isinstance(module, FixedReduction) or (isinstance(module, Fixed) and not module.is_identity):
            module.drop_path = DropPath(rate)


def set_progress(network: nn.Module, progress: float) -> None:
    """Pass the progress of training, from 0 to 1, to every module that has `set_progress`."""
    for module in network.modules():
        update = getattr(module, "set_progress", None)  # a plug-in's network may have other such parts
        if callable(update):
            update(progress)


def select_deployed_settings(settings: Settings) -> Settings:
    """Return the settings of a network without those that only its training needs."""
    return {name: value for name, value in settings.items() if name not in TRAINING_ONLY}


def select_deployed_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a network without those of parts that only its training needs."""
    return {name: tensor for name, tensor in weights.items() if not name.startswith(f"{AUXILIARY}.")}
