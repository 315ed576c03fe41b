"""Archloom: one-shot neural architecture search with shared weights.

The names exported here are the stable public API: the verbs (`search`, `retrain`, `compare`, `run`), their results,
and everything that a plug-in needs. Everything else may move between versions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archloom.api import resume, write_report
    from archloom.benchmarks.base import Benchmark, TableEntry
    from archloom.comparisons.results import ComparisonResult
    from archloom.comparisons.run import compare
    from archloom.core.errors import (
        ArchloomError,
        BenchmarkError,
        CheckpointError,
        DataError,
        DivergedError,
        ParseError,
        SettingError,
        StorageError,
        require,
    )
    from archloom.core.events import (
        Advanced,
        Deriving,
        Event,
        Listener,
        Noted,
        Planning,
        Recorded,
        Started,
    )
    from archloom.data.arrays import from_tensors
    from archloom.data.augment import Augment
    from archloom.data.loader import Batch, Loader
    from archloom.data.source import ImageData
    from archloom.data.text import TextData, TextLoader
    from archloom.execution.loop import Interrupted
    from archloom.export import export_model
    from archloom.families import (
        Depth,
        Family,
        OperationKind,
        Size,
        Source,
        build_network,
        family_of,
    )
    from archloom.objectives import CostTable
    from archloom.operations import DARTS_OPERATIONS, NB201_OPERATIONS, Place, ReluConvNorm
    from archloom.pipelines.results import PipelineResult
    from archloom.pipelines.run import run
    from archloom.retrainings.result import RetrainResult
    from archloom.retrainings.run import retrain
    from archloom.searches.posterior import posterior
    from archloom.searches.ranking import rank
    from archloom.searches.result import SearchResult
    from archloom.searches.run import search
    from archloom.spaces import (
        NONE,
        Architecture,
        CellGraph,
        Decision,
        Nb201,
        Scores,
        SearchSpace,
    )
    from archloom.strategies.base import (
        BlackBox,
        Evaluate,
        Metrics,
        OneShot,
        Plan,
        SearchBatch,
        Trial,
        Validation,
        metrics,
    )
    from archloom.strategies.differentiable import Differentiable
    from archloom.supernet import (
        Curvature,
        Dag,
        EveryOption,
        Gate,
        Gates,
        Only,
        Resolve,
        SharedWeights,
        StepResult,
        WeightSettings,
        inherit,
        path_gates,
    )
    from archloom.tasks import ACCURACY, PERPLEXITY, ImageShape, Metric, Task, TextShape

__version__ = "0.1.0"
__all__ = [
    "ACCURACY",
    "DARTS_OPERATIONS",
    "NB201_OPERATIONS",
    "NONE",
    "PERPLEXITY",
    "Advanced",
    "Architecture",
    "ArchloomError",
    "Augment",
    "Batch",
    "Benchmark",
    "BenchmarkError",
    "BlackBox",
    "CellGraph",
    "CheckpointError",
    "ComparisonResult",
    "CostTable",
    "Curvature",
    "Dag",
    "DataError",
    "Decision",
    "Depth",
    "Deriving",
    "Differentiable",
    "DivergedError",
    "Evaluate",
    "Event",
    "EveryOption",
    "Family",
    "Gate",
    "Gates",
    "ImageData",
    "ImageShape",
    "Interrupted",
    "Listener",
    "Loader",
    "Metric",
    "Metrics",
    "Nb201",
    "Noted",
    "OneShot",
    "Only",
    "OperationKind",
    "ParseError",
    "PipelineResult",
    "Place",
    "Plan",
    "Planning",
    "Recorded",
    "ReluConvNorm",
    "Resolve",
    "RetrainResult",
    "Scores",
    "SearchBatch",
    "SearchResult",
    "SearchSpace",
    "SettingError",
    "SharedWeights",
    "Size",
    "Source",
    "Started",
    "StepResult",
    "StorageError",
    "TableEntry",
    "Task",
    "TextData",
    "TextLoader",
    "TextShape",
    "Trial",
    "Validation",
    "WeightSettings",
    "__version__",
    "build_network",
    "compare",
    "export_model",
    "family_of",
    "from_tensors",
    "inherit",
    "metrics",
    "path_gates",
    "posterior",
    "rank",
    "require",
    "resume",
    "retrain",
    "run",
    "search",
    "write_report",
]
_EXPORTS = {  # by module, imported when first used: `archloom --version` needs no torch
    "api": ("resume", "write_report"),
    "benchmarks.base": ("Benchmark", "TableEntry"),
    "comparisons.results": ("ComparisonResult",),
    "comparisons.run": ("compare",),
    "core.errors": (
        "ArchloomError",
        "BenchmarkError",
        "CheckpointError",
        "DataError",
        "DivergedError",
        "ParseError",
        "SettingError",
        "StorageError",
        "require",
    ),
    "core.events": ("Advanced", "Deriving", "Event", "Listener", "Noted", "Planning", "Recorded", "Started"),
    "data.arrays": ("from_tensors",),
    "data.augment": ("Augment",),
    "data.loader": ("Batch", "Loader"),
    "data.source": ("ImageData",),
    "data.text": ("TextData", "TextLoader"),
    "execution.loop": ("Interrupted",),
    "export": ("export_model",),
    "families": ("Depth", "Family", "OperationKind", "Size", "Source", "build_network", "family_of"),
    "objectives": ("CostTable",),
    "operations": ("DARTS_OPERATIONS", "NB201_OPERATIONS", "Place", "ReluConvNorm"),
    "pipelines.results": ("PipelineResult",),
    "pipelines.run": ("run",),
    "retrainings.result": ("RetrainResult",),
    "retrainings.run": ("retrain",),
    "searches.posterior": ("posterior",),
    "searches.ranking": ("rank",),
    "searches.result": ("SearchResult",),
    "searches.run": ("search",),
    "spaces": ("NONE", "Architecture", "CellGraph", "Decision", "Nb201", "Scores", "SearchSpace"),
    "strategies.base": (
        "BlackBox",
        "Evaluate",
        "Metrics",
        "OneShot",
        "Plan",
        "SearchBatch",
        "Trial",
        "Validation",
        "metrics",
    ),
    "strategies.differentiable": ("Differentiable",),
    "supernet": (
        "Curvature",
        "Dag",
        "EveryOption",
        "Gate",
        "Gates",
        "Only",
        "Resolve",
        "SharedWeights",
        "StepResult",
        "WeightSettings",
        "inherit",
        "path_gates",
    ),
    "tasks": ("ACCURACY", "PERPLEXITY", "ImageShape", "Metric", "Task", "TextShape"),
}
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import the module of an export when it is first used."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"archloom.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'archloom' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
