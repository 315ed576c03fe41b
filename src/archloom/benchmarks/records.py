"""One architecture's record as NATS-Bench publishes it: a bzip2-compressed pickle (Dong et al., 2021).

A pickle can name any function and have it called. The few names that these records need are replaced by stand-ins
of our own; any other name ends the reading.
"""

from __future__ import annotations

import bz2
import io
import math
import pickle
import struct
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from archloom.benchmarks.nb201 import ACCURACIES, DATASETS, EPOCHS, column_name
from archloom.core.errors import BenchmarkError

MOST_BYTES = 64 * 2**20  # uncompressed; a published record has a third of a megabyte

# (data set, metric) of the table: under which name a record keeps it, and the split that was evaluated. CIFAR-10 is
# validated by networks trained on half of the training set and tested by networks trained on all of it.
_WHERE = {
    ("cifar10", "valid"): ("cifar10-valid", "x-valid"),
    ("cifar10", "test"): ("cifar10", "ori-test"),
    ("cifar100", "valid"): ("cifar100", "x-valid"),
    ("cifar100", "test"): ("cifar100", "x-test"),
    ("imagenet16", "valid"): ("ImageNet16-120", "x-valid"),
    ("imagenet16", "test"): ("ImageNet16-120", "x-test"),
}

_DAMAGE = (
    pickle.UnpicklingError,
    EOFError,
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    OverflowError,
    RecursionError,
    MemoryError,
    struct.error,
)


@dataclass(frozen=True)
class Record:
    """Hold the columns of one architecture."""

    index: int  # in the official order
    text: str  # the NB201 string
    columns: Mapping[str, float]


def read_record(path: Path) -> Record:
    """Return the table's columns for one architecture; accuracies are means over the seeds that the record holds."""
    try:
        content = _unpickle(path)
        trained = content[str(EPOCHS[0])]
        columns = {
            column_name(dataset, metric, epochs): _accuracy(content[str(epochs)], dataset, metric, epochs)
            for dataset in DATASETS
            for metric in ACCURACIES
            for epochs in EPOCHS
        }
        for dataset in DATASETS:
            columns[column_name(dataset, "params")] = float(round(1e6 * _mean(trained, dataset, "params")))
            columns[column_name(dataset, "flops_M")] = round(_mean(trained, dataset, "flop"), 5)
        return Record(int(trained["arch_index"]), str(trained["arch_str"]), columns)
    except _DAMAGE as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise BenchmarkError(f"{path} is damaged or no NATS-Bench record: {reason or type(error).__name__}") from error


def _accuracy(content: Any, dataset: str, metric: str, epochs: int) -> float:
    """Return percent after the last epoch, rounded to four digits."""
    name, split = _WHERE[dataset, metric]
    results = _results(content, name)
    value = round(fmean(result["eval_acc1es"][f"{split}@{epochs - 1}"] for result in results), 4)
    if not 0 <= value <= 100:
        raise ValueError(f"{dataset} {metric} must be a percentage, got {value}")
    return value


def _mean(content: Any, dataset: str, cost: str) -> float:
    value = fmean(result[cost] for result in _results(content, _WHERE[dataset, "test"][0]))
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{dataset} {cost} must be a positive number, got {value}")
    return value


def _results(content: Any, name: str) -> list[Any]:
    """Return one result per seed."""
    results = [result for (dataset, _), result in content["all_results"].items() if dataset == name]
    if not results:
        raise KeyError(name)
    return results


# --- unpickling without calling any function of the file


def _unpickle(path: Path) -> Any:
    with bz2.open(path) as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise ValueError(f"a record has at most {MOST_BYTES:,} bytes uncompressed")
    return _RecordUnpickler(io.BytesIO(raw)).load()


class _NumberType:
    """Replace numpy.dtype: hold the kind of number that follows."""

    _FORMATS: ClassVar[dict[str, str]] = {"f8": "d", "f4": "f", "i8": "q", "i4": "i"}

    def __init__(self, name: str, *_: object) -> None:
        self.name = name
        self.order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if state[1] == ">" else "<"

    def unpack(self, raw: bytes) -> float:
        return float(struct.unpack(self.order + self._FORMATS[self.name], raw)[0])


def _number(kind: _NumberType, raw: bytes) -> float:
    """Replace numpy's constructor of scalars."""
    return kind.unpack(raw)


_PERMITTED = {
    ("collections", "OrderedDict"): OrderedDict,
    ("numpy", "dtype"): _NumberType,
    ("numpy.core.multiarray", "scalar"): _number,
    ("numpy._core.multiarray", "scalar"): _number,  # where numpy 2 keeps it
}


class _RecordUnpickler(pickle.Unpickler):
    """Build plain values and permitted names; refuse every other name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PERMITTED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no record needs; it was not called")
        return _PERMITTED[module, name]
