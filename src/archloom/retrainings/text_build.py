"""Build the training of a language model: loaders of its three texts, its network, and the epochs that fit a budget."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from archloom.core.durations import parse_duration
from archloom.core.events import Listener
from archloom.core.seeds import derive_seed
from archloom.core.settings import Settings, flatten, merge
from archloom.data.text import TextData, TextLoader
from archloom.families import build_network, family_of
from archloom.retrainings.sizes import TRAINING_SHARE
from archloom.retrainings.spec import RetrainSpec, RetrainText
from archloom.retrainings.text_loop import TextRetrainLoop
from archloom.searches.budget import CLOCKS, Budget
from archloom.searches.short_training import seeded
from archloom.supernet import Only
from archloom.tasks import TextShape

FEWEST_EPOCHS, MOST_EPOCHS = 6, 60  # that `auto` chooses
TIMED_STEPS = 4

Note = Callable[[str], None]


def build_text_retraining(
    retrain: RetrainSpec, data: TextData, *, listeners: Sequence[Listener] = (), budget: Budget | None = None
) -> TextRetrainLoop:
    """Return the loop of a retraining on text, ready to run or to load a checkpoint."""
    device, training, parts = retrain.machine.prepare(), retrain.training, retrain.data
    assert isinstance(parts, RetrainText), "the spec is for text"

    def loader(tokens: torch.Tensor, stream: str, *, columns: int, **options: Any) -> TextLoader:
        most = max(1, min(columns, len(tokens) // 2))  # a short text has fewer columns
        return TextLoader(
            tokens, columns=most, segment=parts.segment, stream=stream, whole=False, device=device, **options
        )

    with seeded(derive_seed(retrain.seed, "weights")):
        network = build_network(
            retrain.build_space(), Only(retrain.architecture), TextShape(len(data.words)), **retrain.network.settings
        )
    lengths = {"lengths": parts.lengths, "seed": derive_seed(retrain.seed, "train")}
    valid = data.valid[: parts.valid_words]
    return TextRetrainLoop(
        network.to(device),
        train=loader(data.train[: parts.train_words], "train", columns=training.batch_size, **lengths),
        valid=loader(valid, "valid", columns=parts.valid_columns),
        test=None if data.test is None else loader(data.test, "test", columns=parts.test_columns),
        classes=len(data.words),
        optimizer=retrain.optimizer,
        training=training,
        seed_of=lambda step: derive_seed(retrain.seed, f"step {step}"),
        listeners=listeners,
        budget=budget,
    )


def choose_text_size(
    given: Settings, retrain: RetrainSpec, overrides: Settings, data: TextData, budget: str, note: Note
) -> Settings:
    """Return the largest size that gets enough epochs within a budget, for the recipe `auto`; overrides stay."""
    seconds = TRAINING_SHARE * parse_duration(budget)
    space, family = retrain.build_space(), family_of(retrain.build_space())
    note("measuring how fast this machine trains")
    chosen, epochs = given, FEWEST_EPOCHS
    for size in family.sizes_of(space):
        tried = merge(given, size.to_settings(), overrides)
        spec = RetrainSpec.resolve(tried)
        fitting = int(seconds / _time_epoch(spec, data))
        if chosen is not given and fitting < FEWEST_EPOCHS:
            break
        chosen, epochs = tried, max(1, min(MOST_EPOCHS, fitting))
        if epochs < MOST_EPOCHS:
            break
    epochs = flatten(overrides).get("training.epochs", epochs)
    size_text = family.describe_size(space, RetrainSpec.resolve(chosen).network.settings)
    note(f"auto: {size_text}, {epochs} epochs of {len(data.train):,} words within {budget}")
    return merge(chosen, {"training": {"epochs": epochs}})


def _time_epoch(retrain: RetrainSpec, data: TextData) -> float:
    """Return the seconds of an epoch, by a few steps."""
    training = build_text_retraining(retrain, data)
    times, clock = [], CLOCKS[retrain.training.budget_clock]
    for _ in range(min(1 + TIMED_STEPS, training.total - 1) or 1):
        start = clock()
        training.advance()
        times.append(clock() - start)
    return max(1e-6, statistics.median(times[1:] or times)) * training.units_per_record
