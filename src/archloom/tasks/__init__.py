"""Tasks: what a prediction is for."""

from __future__ import annotations

from collections.abc import Mapping

from archloom.tasks.base import ImageShape, NetworkShape, Task, TextShape
from archloom.tasks.classification import ImageClassification
from archloom.tasks.language import LanguageModelling
from archloom.tasks.metric import ACCURACY, METRICS, PERPLEXITY, Metric

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
