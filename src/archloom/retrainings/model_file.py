"""A trained model in one file: weights as safetensors, and in the header the network and images they are for.

One file stays together, any tool that reads safetensors can read the weights, and reading it runs no code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor, nn

from archloom.core.errors import ArchloomError, CheckpointError, SettingError, one_line, require
from archloom.core.files import reading, write_atomically
from archloom.core.json_object import JsonObject
from archloom.core.score_names import rename_scores
from archloom.core.settings import Settings
from archloom.core.trust import UntrustedError, trusting
from archloom.execution.checkpoint import digest, parse
from archloom.families import build_network, select_deployed_settings, select_deployed_weights
from archloom.spaces import SPACES, Architecture, SearchSpace
from archloom.supernet import Only
from archloom.tasks import ImageShape, TextShape

FORMAT = "archloom-model-1"
CARD_LISTS = ("classes", "image_shape", "mean", "std", "words")
BEST, LAST = "best.safetensors", "last.safetensors"
LARGEST_SIDE = 4096  # pixels: what a file says must not fill the memory


@dataclass(frozen=True, kw_only=True)
class ModelDetails:
    """What is known of the training of a model; nothing of it is needed to run it."""

    test_score: float | None = None  # percent
    valid_score: float | None = None
    epoch: int | None = None  # of the weights, from 0
    data: str = ""
    recipe: str = ""
    seed: int | None = None
    caution: str = ""  # what a user must know before using the model

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the details that a file holds; earlier ones have `best_epoch` for `epoch`, accuracies for scores."""
        value = rename_scores(value)
        named = {**value, "epoch": value.get("epoch", value.get("best_epoch"))}
        return cls(**{one.name: named[one.name] for one in fields(cls) if named.get(one.name) is not None})


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Which network, for which images, and what is known of it."""

    space: Settings  # its `name` and settings
    architecture: Mapping[str, str]
    network: Settings  # the keywords of the network
    classes: tuple[str, ...] = ()  # of images; a language model has `words` instead of these four
    image_shape: tuple[int, ...] = ()  # C, H, W
    mean: tuple[float, ...] = ()  # per channel, of images scaled to 0..1
    std: tuple[float, ...] = ()
    words: tuple[str, ...] = ()  # of a language model, by their numbers
    tokens: str = ""  # of a language model: how its text was split, `words` or `spaces`
    side: int = 0  # pictures are scaled to a square of it, whose middle is taken; 0: the longer side of `image_shape`
    details: ModelDetails = ModelDetails()

    def __post_init__(self) -> None:
        if self.words:
            require(
                {
                    f"words must be different names, got {list(self.words)[:5]}": (
                        _are_all(self.words, str) and len(set(self.words)) == len(self.words)
                    ),
                    "a language model must have no classes and no images": not (self.classes or self.image_shape),
                }
            )
            return
        sides = [side for side in self.image_shape if isinstance(side, int) and 1 <= side <= LARGEST_SIDE]
        longest = max(sides[1:], default=1)
        require(
            {
                f"classes must be names, got {list(self.classes)[:5]}": (
                    bool(self.classes) and _are_all(self.classes, str)
                ),
                f"image_shape must be three sizes in 1..{LARGEST_SIDE}, got {list(self.image_shape)}": (
                    len(sides) == len(self.image_shape) == 3
                ),
                f"side must be 0 or at least that of the images, at most {LARGEST_SIDE}, got {self.side!r}": (
                    type(self.side) is int and (self.side == 0 or longest <= self.side <= LARGEST_SIDE)
                ),
            }
        )
        channels = self.image_shape[0]
        for what, values in (("mean", self.mean), ("std", self.std)):
            good = len(values) == channels and _are_all(values, int, float) and all(map(math.isfinite, values))
            if not good or (what == "std" and min(values) <= 0):
                raise SettingError(f"{what} must be {channels} finite numbers, those of std above 0, got {values}")

    @property
    def square(self) -> int:
        """Return the side of the square that a picture is scaled to."""
        return self.side or max(self.image_shape[1:])

    def search_space(self) -> SearchSpace:
        """Build the space."""
        settings = dict(self.space)
        entry = SPACES.find(str(settings.pop("name")))
        space: SearchSpace = entry.load()(**{**entry.settings, **settings})
        return space

    def checked_architecture(self) -> Architecture:
        """Return the architecture, checked by its space."""
        return self.search_space().check(self.architecture)

    @property
    def text(self) -> str:
        """Return the architecture in its usual text form."""
        return self.search_space().format(self.checked_architecture())

    def deployed(self) -> ModelCard:
        """Return the card without the settings that only training needs."""
        return replace(self, network=select_deployed_settings(self.network))

    def build(self) -> nn.Module:
        """Build the network in evaluation mode; its weights are random."""
        shape = TextShape(len(self.words)) if self.words else ImageShape(len(self.classes), self.image_shape[0])
        return build_network(self.search_space(), Only(self.checked_architecture()), shape, **self.network).eval()


def save_model(path: Path, card: ModelCard, weights: Mapping[str, Tensor]) -> None:
    """Write a model whole or not at all."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    text = json.dumps(asdict(card), allow_nan=False, default=list)
    write_atomically(path, save(tensors, metadata={"format": FORMAT, "card": text, "sha256": digest(text, tensors)}))


def load_model(path: Path, *, plugins: bool = False) -> tuple[ModelCard, nn.Module]:
    """Load a model that `save_model` wrote: its card, and its network on the CPU.

    Parts that only training needs are left out. With `plugins` the file may name a space outside the package, whose
    module is then imported.

    Raises:
        UntrustedError: If the file names a plug-in that the user has not allowed.
        CheckpointError: If the file is damaged.
    """
    with reading(path):
        data = path.read_bytes()
    tensors, metadata = parse(data, str(path), kind="model")
    if metadata.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} is no model of archloom: its format is {metadata.get('format')!r}, not {FORMAT!r}"
        )
    text = str(metadata.get("card"))
    if metadata.get("sha256") != digest(text, tensors):
        raise CheckpointError(f"model {path} is damaged (its contents do not match its digest)")
    card = _read_card(text, path)
    if card.network.get("auxiliary"):
        tensors = select_deployed_weights(tensors)
    card = card.deployed()
    with trusting(plugins=plugins):
        return card, _build_network(card, tensors, path)


def _build_network(card: ModelCard, tensors: Mapping[str, Tensor], path: Path) -> nn.Module:
    try:
        with torch.device("meta"):  # a damaged file may name huge widths: take no more memory than its tensors have
            network = card.build()
        network.load_state_dict(tensors, assign=True)
    except UntrustedError as error:
        raise UntrustedError(f"model {path}: {error}") from error
    except (ArchloomError, RuntimeError, TypeError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"model {path} does not fit the network it names: {one_line(error)}") from error
    if any(tensor.is_meta for tensor in (*network.parameters(), *network.buffers())):  # buffers that are never saved
        network = card.build()
        network.load_state_dict(tensors)
    return network.float()


def _read_card(text: str, path: Path) -> ModelCard:
    try:
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("it must be an object")
        names = ("words",) if values.get("words") else ("classes", "image_shape", "mean", "std")
        listed = {name: tuple(values[name]) for name in names}
        lists = {name: tuple(values[name]) for name in CARD_LISTS if name in values}
        listed = {**lists, **listed}
        named = all(isinstance(values[name], dict) for name in ("space", "architecture", "network", "details"))
        if not named:
            raise ValueError("space, architecture, network and details must be objects")
        return ModelCard(**{**values, **listed, "details": ModelDetails.from_json(values["details"])})
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise CheckpointError(f"model {path} is damaged (its card cannot be read: {one_line(error)})") from error


def _are_all(values: tuple[Any, ...], *kinds: type) -> bool:
    return all(isinstance(value, kinds) and not isinstance(value, bool) for value in values)
