"""The memory that a search needs: one epoch of two small steps, with everything that it evaluates, carried over."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from archloom.core.settings import Settings, merge
from archloom.data.arrays import from_tensors
from archloom.data.facts import DataSet, Facts
from archloom.data.parts import DataParts, TextParts
from archloom.data.places import GIVEN
from archloom.data.source import ImageData
from archloom.data.text import TextData
from archloom.execution.machine import Machine
from archloom.execution.memory import (
    SMALL_BATCHES,
    SMALL_COLUMNS,
    WORKER,
    extrapolate_peak,
    memory_limit,
    refuse_too_large,
    resident_memory,
)
from archloom.objectives.cost import Cost
from archloom.searches.black_box import BlackBoxLoop
from archloom.searches.build import SearchBuilder
from archloom.searches.loaders import EVALUATION_BATCH, JUDGE_COLUMNS
from archloom.searches.one_shot import OneShotLoop
from archloom.searches.race_proposals import LARGEST, Entrant
from archloom.searches.spec import SearchSpec
from archloom.spaces import Architecture

REMEDY = (
    "use a smaller search.batch_size or network.channels, machine.recompute = true or fewer machine.worker_processes"
)
ONE_TRAINING: Settings = {"score": "training", "score_epochs": 1, "shared_run": None, "trials_at_once": 1}
_MEASURED: dict[str, int] = {}
FAR_BELOW = 10  # times the memory of a plan fits by a generous bound: then nothing is measured


def is_far_below(cost: Cost, images: int, limit: int) -> bool:
    """Return whether a network needs so little that there is no need to measure.

    A number that is kept costs several multiply-adds, so four bytes for each of these are more than enough.
    """
    return FAR_BELOW * (4 * cost.multiply_adds * images + 16 * cost.parameters) < limit


def limit_of(machine: Machine) -> int | None:
    """Return the bytes that a run may hold; None where nothing is checked: switched off, on a GPU, or not known."""
    if machine.memory == 0 or machine.prepare().type != "cpu":
        return None
    return memory_limit(machine.memory)


def refuse_large_search(spec: SearchSpec, facts: Facts, cost: Cost | None) -> None:
    """Raise a SettingError if a one-shot search will not fit into the memory; `cost` is that of its supernet."""
    limit = _find_limit(spec, facts, cost)
    if limit is None:
        return
    needed = {"this process": resident_memory()}
    if spec.search.epochs > 0:
        needed["the supernet"] = _measure_once(measure_supernet, spec, facts)
    if spec.race.is_on:
        needed["the race"] = _multiply(_measure_once(measure_race, spec, facts), spec.machine)
    refuse_too_large(needed, limit, remedy=REMEDY)


def refuse_large_trials(spec: SearchSpec, facts: Facts, cost: Cost | None) -> None:
    """Raise a SettingError if trials that train will not fit into the memory; `cost` is that of the supernet."""
    limit = _find_limit(spec, facts, cost)
    if limit is None:
        return
    trial = _measure_once(measure_race if spec.search.score == "short" else measure_trial, spec, facts)
    trials = trial if spec.search.trials_at_once == 1 else _multiply(trial, spec.machine)
    refuse_too_large({"this process": resident_memory(), "trials": trials}, limit, remedy=REMEDY)


def _measure_once(measure: Callable[[SearchSpec, Facts], int], spec: SearchSpec, facts: Facts) -> int:
    """Return what `measure` returns; many runs of one process differ only in their seeds."""
    sections = {name: value for name, value in spec.to_settings().items() if name != "seed"}
    what = repr((measure.__name__, facts, sections))
    if what not in _MEASURED:
        _MEASURED[what] = measure(spec, facts)
    return _MEASURED[what]


def _find_limit(spec: SearchSpec, facts: Facts, cost: Cost | None) -> int | None:
    """Return the bytes that a search may hold; None where there is nothing to measure."""
    limit = limit_of(spec.machine)
    batch = spec.search.batch_size
    examples = max(batch, EVALUATION_BATCH) if isinstance(spec.data, DataParts) else batch * spec.data.segment
    return None if limit is None or (cost is not None and is_far_below(cost, examples, limit)) else limit


def _small_batches(spec: SearchSpec) -> tuple[int, int]:
    return SMALL_BATCHES if isinstance(spec.data, DataParts) else SMALL_COLUMNS


def _multiply(size: int, machine: Machine) -> int:
    """Return the bytes of a training in every worker process."""
    workers = machine.worker_processes or torch.get_num_threads()
    return size if workers == 1 else workers * (WORKER + size)


def measure_supernet(spec: SearchSpec, facts: Facts) -> int:
    """Return the bytes that an epoch needs at most: steps, the evaluation of paths, and the monitor."""
    full, data = spec.search.batch_size, make_examples(spec, facts)
    largest = _find_largest(spec, data)
    return extrapolate_peak(lambda images: run_epoch(spec, data, images, largest), full, small=_small_batches(spec))


def run_epoch(spec: SearchSpec, data: DataSet, images: int, largest: Architecture) -> None:
    """Run an epoch of two steps of so many images, and a step of the largest path: sampled ones may be small."""
    loop = SearchBuilder(_shrink(spec, images / spec.search.batch_size, images), data).search()
    assert isinstance(loop, OneShotLoop)
    for _ in range(2):  # momentum is there from the second step on, which ends the epoch
        loop.advance()
    if loop.has_path(largest):
        loop.weights.fit(loop.train.batch(0, 0), loop.strategy.path_gates(largest))


def _find_largest(spec: SearchSpec, data: DataSet) -> Architecture:
    few = _small_batches(spec)[0]
    return SearchBuilder(_shrink(spec, few / spec.search.batch_size, few), data).find_largest()


def measure_race(spec: SearchSpec, facts: Facts) -> int:
    """Return the bytes that the short training of the largest contestant needs at most."""
    full, data = spec.race.batch_size, make_examples(spec, facts)
    largest = Entrant(_find_largest(spec, data), LARGEST)

    def run(images: int) -> None:
        training = SearchBuilder(_shrink(spec, images / full, images), data).short_training()
        training(largest, 2, 0, lambda: False)

    return extrapolate_peak(run, full, small=_small_batches(spec))


def measure_trial(spec: SearchSpec, facts: Facts) -> int:
    """Return the bytes that the training of the largest architecture needs at most."""
    full, data = spec.search.batch_size, make_examples(spec, facts)
    largest = _find_largest(spec, data)
    return extrapolate_peak(lambda images: run_trial(spec, data, images, largest), full, small=_small_batches(spec))


def run_trial(spec: SearchSpec, data: DataSet, images: int, architecture: Architecture) -> None:
    """Score an architecture by an epoch of two steps of so many images."""
    share = images / spec.search.batch_size
    evaluated = {"data": {"valid_images": max(2, math.ceil(min(1.0, share) * EVALUATION_BATCH))}}
    smaller = merge(
        _shrink(spec, share, images).to_settings(),
        {"search": ONE_TRAINING},
        evaluated if isinstance(spec.data, DataParts) else {},  # a whole validation text has few columns
    )
    loop = SearchBuilder(SearchSpec.resolve(smaller), data).search()
    assert isinstance(loop, BlackBoxLoop)
    for _ in loop.score(architecture):
        pass


def _shrink(spec: SearchSpec, share: float, batch: int) -> SearchSpec:
    """Return the search with everything that depends on a number of images scaled down."""
    evaluated = min(EVALUATION_BATCH, spec.search.evaluation_images)

    def scale(count: int) -> int:
        return max(2, math.ceil(min(1.0, share) * count))  # a batch may be smaller than those that are measured

    smaller: Settings = {
        "data": {"name": GIVEN, **_shrink_data(spec.data, batch, 4 * scale(EVALUATION_BATCH))},
        "search": {
            "batch_size": batch,
            "valid_batch_size": scale(spec.search.valid_batch_size) if spec.search.valid_batch_size else 0,
            "evaluation_images": scale(evaluated)
            if isinstance(spec.data, DataParts)
            else spec.search.evaluation_images,
            "study": None,
        },
        "monitor": {
            "eigenvalue_images": scale(spec.monitor.eigenvalue_images),
            "eigenvalue_steps": min(1, spec.monitor.eigenvalue_steps),
        },
        "race": {
            "batch_size": batch,
            "held_out": scale(EVALUATION_BATCH) if isinstance(spec.data, DataParts) else spec.race.held_out,
        },
    }
    kept = {name: value for name, value in spec.to_settings().items() if name != "data"}
    return SearchSpec.resolve(merge(kept, smaller))


def _shrink_data(data: DataParts | TextParts, batch: int, valid_images: int) -> Settings:
    """Return two batches of training examples, and few to validate on."""
    if isinstance(data, DataParts):
        return {"train_images": 2 * batch, "valid_images": valid_images}
    return {"segment": data.segment, "train_words": batch * (2 * data.segment + 1)}


def make_examples(spec: SearchSpec, facts: Facts) -> DataSet:
    """Return examples of the shape of the real ones, enough for every part."""
    return make_images(facts) if isinstance(spec.data, DataParts) else make_text(facts, spec.data.segment)


def make_text(facts: Facts, segment: int, batch: int = SMALL_COLUMNS[1]) -> TextData:
    """Return a text of so many different words, as long as some batches."""
    length = max(4 * batch, 8 * JUDGE_COLUMNS) * (2 * segment + 1)
    tokens = torch.arange(length) % facts.words
    words = tuple(map(str, range(facts.words)))
    return TextData(name="words", words=words, train=tokens, valid=tokens)


def make_images(facts: Facts, batch: int = SMALL_BATCHES[1]) -> ImageData:
    """Return black images of the shape of the real ones, enough for every part."""
    count = max(24 * batch, 8 * EVALUATION_BATCH, 2 * facts.classes)
    image = torch.zeros(1, *facts.image_shape, dtype=torch.uint8)
    return from_tensors(image.expand(count, -1, -1, -1), torch.arange(count) % facts.classes)
