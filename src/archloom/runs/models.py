"""A trained model in one file: its weights as safetensors, and in the header which network and images they are for.

One file cannot come apart, any tool that knows safetensors can read the weights, and reading it runs no code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor, nn

from archloom.engine.checkpoint import digest, parse
from archloom.errors import ArchloomError, CheckpointError, SettingError, one_line
from archloom.files import reading, write_atomically
from archloom.networks import build_network
from archloom.spaces import SPACES, Architecture, SearchSpace
from archloom.supernets import Only

FORMAT = "archloom-model-1"
BEST, LAST = "best.safetensors", "last.safetensors"


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Which network, for which images, and what is known of it."""

    space: Mapping[str, Any]  # its `name` and settings
    architecture: Mapping[str, str]
    network: Mapping[str, Any]  # the keywords of the network
    classes: tuple[str, ...]
    image_shape: tuple[int, int, int]  # C, H, W
    mean: tuple[float, ...]  # per channel, of images scaled to 0..1
    std: tuple[float, ...]
    details: Mapping[str, Any] = field(default_factory=dict)  # accuracy, epochs, data: told, not needed

    def search_space(self) -> SearchSpace:
        settings = dict(self.space)
        space: SearchSpace = SPACES.find(str(settings.pop("name"))).load()(**settings)
        return space

    def checked_architecture(self) -> Architecture:
        return self.search_space().check(self.architecture)

    @property
    def text(self) -> str:
        """The architecture in its usual text form."""
        return self.search_space().format(self.checked_architecture())

    def build(self) -> nn.Module:
        """The network with weights still to be had, in evaluation mode."""
        return build_network(
            self.search_space(),
            Only(self.checked_architecture()),
            classes=len(self.classes),
            colours=self.image_shape[0],
            **self.network,
        ).eval()


def save_model(path: Path, card: ModelCard, weights: Mapping[str, Tensor]) -> None:
    """Write a model whole or not at all."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    told = json.dumps(asdict(card), allow_nan=False, default=list)
    write_atomically(path, save(tensors, metadata={"format": FORMAT, "card": told, "sha256": digest(told, tensors)}))


def load_model(path: Path) -> tuple[ModelCard, nn.Module]:
    """A model that `save_model` wrote: its card, and its network on the CPU, ready to be asked."""
    with reading(path):
        data = path.read_bytes()
    tensors, metadata = parse(data, str(path), kind="model")
    if metadata.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} is no model of archloom: its format is {metadata.get('format')!r}, not {FORMAT!r}"
        )
    told = str(metadata.get("card"))
    if metadata.get("sha256") != digest(told, tensors):
        raise CheckpointError(f"model {path} is damaged (its contents do not match its digest)")
    card = _card(told, path)
    try:
        network = card.build()
        network.load_state_dict(tensors)
    except (ArchloomError, RuntimeError, TypeError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"model {path} does not fit the network it names: {one_line(error)}") from error
    return card, network


def find_model(given: Path) -> Path:
    """The model file meant: a file itself, or the best model of a run that trained one."""
    if given.is_dir():
        found = next((given / name for name in (BEST, LAST) if (given / name).is_file()), None)
        if found is None:
            raise SettingError(
                f"{given} holds no trained model ({BEST}); `archloom retrain {given}` trains what a search found"
            )
        return found
    if not given.is_file():
        raise SettingError(f"there is no model {given}")
    return given


def _card(told: str, path: Path) -> ModelCard:
    try:
        values = json.loads(told)
        listed = {name: tuple(values[name]) for name in ("classes", "image_shape", "mean", "std")}
        return ModelCard(**{**values, **listed})
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CheckpointError(f"model {path} is damaged (its card cannot be read: {one_line(error)})") from error
