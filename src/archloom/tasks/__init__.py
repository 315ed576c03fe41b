"""Tasks: what a prediction is for."""

from __future__ import annotations

from collections.abc import Mapping

from archloom.core.metrics import ACCURACY, METRICS, PERPLEXITY, Metric
from archloom.tasks.base import ImageShape, NetworkShape, Task, TextShape
from archloom.tasks.classification import ImageClassification
from archloom.tasks.language import LanguageModelling

CLASSIFICATION, LANGUAGE = ImageClassification(), LanguageModelling()
TASKS: Mapping[str, Task] = {task.name: task for task in (CLASSIFICATION, LANGUAGE)}

__all__ = [
    "ACCURACY",
    "CLASSIFICATION",
    "LANGUAGE",
    "METRICS",
    "PERPLEXITY",
    "TASKS",
    "ImageClassification",
    "ImageShape",
    "LanguageModelling",
    "Metric",
    "NetworkShape",
    "Task",
    "TextShape",
]
