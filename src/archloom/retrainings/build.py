"""Build the training of a resolved retraining: split, loaders, network; and the card of its model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from archloom.core.errors import DataError, SettingError
from archloom.core.events import Listener
from archloom.core.seeds import derive_seed
from archloom.data import DataSet
from archloom.data.augment import Augment
from archloom.data.loader import Loader
from archloom.data.source import ImageData, Source
from archloom.data.text import TextData
from archloom.families import build_network, family_of, select_deployed_settings
from archloom.objectives.cost import Cost, cost_of
from archloom.retrainings.loop import RetrainLoop
from archloom.retrainings.model_file import ModelCard, ModelDetails
from archloom.retrainings.spec import RetrainData, RetrainSpec
from archloom.retrainings.text_build import build_text_retraining
from archloom.searches.budget import CLOCKS, Budget, time_steps
from archloom.searches.loaders import EVALUATION_BATCH
from archloom.searches.short_training import seeded
from archloom.supernet import Only
from archloom.supernet.ranks import ALONE, Ranks

UNBALANCED = 20  # times as many images of one class as of another
TIMED_STEPS = 3


def check_trainable(data: DataSet) -> list[str]:
    """Raise a DataError if a class cannot be both trained and evaluated; return warnings otherwise."""
    if not isinstance(data, ImageData):
        return []
    counts = torch.bincount(data.train.labels, minlength=len(data.classes))
    if data.test is not None:
        counts = counts + torch.bincount(data.test.labels, minlength=len(data.classes))
    lonely = [name for name, count in zip(data.classes, counts.tolist(), strict=True) if count < 2]
    if lonely:
        raise DataError(
            f"class '{lonely[0]}' of data set '{data.name}' has only one image; a class needs at least 2, one to train "
            "on and one to evaluate on: add images, or take the class out"
        )
    largest, smallest = int(counts.argmax()), int(counts.argmin())
    if counts[largest] < UNBALANCED * counts[smallest]:
        return []
    return [
        f"classes are unbalanced: {int(counts[largest]):,} images of '{data.classes[largest]}', "
        f"{int(counts[smallest]):,} of '{data.classes[smallest]}'; the model will favour the large ones, "
        "so look at the accuracy of each class"
    ]


def shown_shape(data: ImageData) -> tuple[int, int, int]:
    """Return C, H, W of the images as a network sees them."""
    return (data.channels, *data.augment.size(*data.resolution))


def split_of(retrain: RetrainSpec, data: ImageData) -> tuple[Tensor, Tensor | None]:
    """Return the images to train on, and those to validate on if there are any."""
    assert isinstance(retrain.data, RetrainData), "the spec is for images"
    divided = retrain.data.parts(len(data.train))
    return divided.train, divided.valid if len(divided.valid) else None


def build_retraining(
    retrain: RetrainSpec,
    data: DataSet,
    *,
    listeners: Sequence[Listener] = (),
    budget: Budget | None = None,
    ranks: Ranks = ALONE,
) -> RetrainLoop:
    """Return the loop of a retraining, ready to run or to load a checkpoint."""
    family_of(retrain.build_space()).task.check(data)
    if isinstance(data, TextData):
        if ranks.count > 1:
            raise SettingError(f"a text is trained in one process, got {ranks.count} ranks; use --devices 1")
        return build_text_retraining(retrain, data, listeners=listeners, budget=budget)
    assert isinstance(data, ImageData)
    return _build_for_images(retrain, data, listeners=listeners, budget=budget, ranks=ranks)


def _build_for_images(
    retrain: RetrainSpec, data: ImageData, *, listeners: Sequence[Listener], budget: Budget | None, ranks: Ranks
) -> RetrainLoop:
    device, training = retrain.machine.prepare(), retrain.training
    train, valid = split_of(retrain, data)

    def loader(source: Source, indices: Tensor, *, augment: Augment, batch_size: int, **options: Any) -> Loader:
        return Loader(
            source,
            indices,
            batch_size=batch_size,
            mean=data.mean,
            std=data.std,
            augment=augment,
            seed=derive_seed(retrain.seed, "train"),
            device=device,
            channels_last=training.channels_last,
            workers=retrain.machine.loader_threads,
            **options,
        )

    def evaluation_loader(source: Source, indices: Tensor) -> Loader:
        augment = data.augment.for_evaluation()
        return loader(source, indices, augment=augment, batch_size=EVALUATION_BATCH, shuffle=False, drop_last=False)

    augment = data.augment if training.cutout is None else replace(data.augment, cutout=training.cutout)
    # one image has no statistics to normalise by
    alone = 0 < len(train) % training.batch_size < (2 * ranks.count if ranks.count > 1 else 2)
    return RetrainLoop(
        _network(retrain, data, device),
        train=loader(data.train, train, augment=augment, batch_size=training.batch_size, drop_last=alone),
        valid=None if valid is None else evaluation_loader(data.train, valid),
        test=None if data.test is None else evaluation_loader(data.test, torch.arange(len(data.test))),
        classes=len(data.classes),
        optimizer=retrain.optimizer,
        training=training,
        seed_of=lambda step: derive_seed(retrain.seed, f"step {step}"),
        listeners=listeners,
        budget=budget,
        ranks=ranks,
    )


def _network(retrain: RetrainSpec, data: ImageData, device: torch.device) -> nn.Module:
    with seeded(derive_seed(retrain.seed, "weights")):
        made = build_network(
            retrain.build_space(),
            Only(retrain.architecture),
            classes=len(data.classes),
            colours=data.channels,
            **retrain.network.settings,
        )
    layout = torch.channels_last if retrain.training.channels_last else torch.contiguous_format
    placed: nn.Module = made.to(device=device, memory_format=layout)  # type: ignore[call-overload]
    return placed


def cost_of_model(retrain: RetrainSpec, data: DataSet, **network: Any) -> Cost:
    """Return the cost of the finished model; `network` replaces its settings."""
    settings, space = select_deployed_settings({**retrain.network.settings, **network}), retrain.build_space()
    with torch.device("meta"):
        shape = family_of(space).task.shape_of(data)
        model = build_network(space, Only(retrain.architecture), shape, **settings)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # costs no multiply-adds, but most of the time that counting them takes
            module.forward = lambda images: images  # type: ignore[assignment, method-assign]
    return cost_of(model, shown_shape(data) if isinstance(data, ImageData) else ())


def card_of(retrain: RetrainSpec, data: DataSet, details: ModelDetails = ModelDetails()) -> ModelCard:
    """Return the card of the model that a retraining makes."""
    card = {
        "space": retrain.space.to_settings(),
        "architecture": dict(retrain.architecture),
        "network": select_deployed_settings(retrain.network.settings),
        "details": details,
    }
    if isinstance(data, TextData):
        return ModelCard(**card, words=data.words, tokens=data.tokens)  # type: ignore[arg-type]
    assert isinstance(data, ImageData)
    return ModelCard(
        **card,  # type: ignore[arg-type]
        classes=data.classes,
        image_shape=shown_shape(data),
        mean=data.mean,
        std=data.std,
        side=max(data.resolution),
    )


def seconds_per_image(
    retrain: RetrainSpec, data: ImageData, *, clock: Callable[[], float] | None = None, most: float = math.inf
) -> float:
    """Return the training time of one image, measured by a few real steps in about twice `most` seconds."""
    training = build_retraining(retrain, data)
    clock = clock or CLOCKS[retrain.training.budget_clock]
    return time_steps(training.advance, clock, before=1, count=TIMED_STEPS, most=most) / training.batch_size
