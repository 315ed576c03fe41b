"""The section `search`: how long and how closely to search. Checking it needs no torch."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from annotated_doc import Doc

from archloom.core.durations import parse_duration
from archloom.core.errors import excerpt, require
from archloom.core.files import expand
from archloom.core.trust import ADVICE, UntrustedError, is_trusted, trust_texts

TRACKERS = ("tensorboard", "wandb", "mlflow")  # each a setting of `search`, an extra and its package


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How long and how closely to search."""

    budget: Annotated[
        str | None,
        Doc(
            "time for all of it, as 15m; sizes, epochs and the race follow; left out: by the data, or none with epochs"
        ),
    ] = None
    budget_clock: Annotated[
        Literal["wall", "cpu"], Doc("what a budget counts: time, or processor time of one process")
    ] = "wall"
    epochs: Annotated[int, Doc("of a one-shot search")] = 50
    batch_size: Annotated[int, Doc("training images of a step; of text, columns that are read in parallel")] = 64
    valid_batch_size: Annotated[int, Doc("validation images of a step; 0: as batch_size")] = 0
    cutout: Annotated[
        int | None, Doc("side of the square blanked out in training images; left out: as the data set has it")
    ] = None
    evaluation_images: Annotated[
        int, Doc("validation images, or words, that evaluate a path under the shared weights")
    ] = 1000
    random_baseline_samples: Annotated[int, Doc("random architectures that the result is compared with")] = 30
    trials: Annotated[int, Doc("of a black-box search")] = 100
    trials_at_once: Annotated[
        int, Doc("trials that are asked for together and scored in parallel, before the strategy learns of any")
    ] = 1
    score: Annotated[
        Literal["auto", "table", "training", "short", "shared"],
        Doc("source of a trial's score; auto: a table if one has it; short: trained as in the finalist race"),
    ] = "auto"
    table: Annotated[
        str | None,
        Doc("benchmark table: a name, package.module:Class or a .csv; left out: one that covers the space and data"),
    ] = None
    score_epochs: Annotated[
        int | None, Doc("of `training`, or the table's column; left out: 5, or the table's full training")
    ] = None
    shared_run: Annotated[Path | None, Doc("the one-shot run whose weights `shared` scores with")] = None
    study: Annotated[
        str | None, Doc("file or database URL of trials that several processes share; left out: trials of its own")
    ] = None
    study_name: Annotated[str, Doc("name of the study in that database")] = "archloom"
    channels_last: Annotated[bool, Doc("use the memory layout that is faster nearly everywhere")] = True
    tensorboard: Annotated[bool, Doc("also write TensorBoard events into the run folder")] = False
    wandb: Annotated[bool, Doc("also write an offline Weights & Biases run into the run folder")] = False
    mlflow: Annotated[bool, Doc("also write a local MLflow run into the run folder")] = False

    def __post_init__(self) -> None:
        least = {"epochs": 0, "batch_size": 2, "evaluation_images": 2, "trials": 1, "trials_at_once": 1}
        least |= {"valid_batch_size": 0, "cutout": 0, "random_baseline_samples": 0}
        values = {name: getattr(self, name) or 0 for name in least}
        epochs, shared = self.score_epochs, self.score == "shared"
        require(
            {f"search.{n} must be at least {least[n]}, got {values[n]}": values[n] >= least[n] for n in least}
            | {
                f"search.score_epochs must be at least 1, got {epochs}": epochs is None or epochs >= 1,
                "search.score 'shared' needs search.shared_run, a one-shot run": not shared or bool(self.shared_run),
                f"search.shared_run is for search.score 'shared', got '{self.score}'": shared or not self.shared_run,
                f"search.trials_at_once must be 1 with search.study, got {self.trials_at_once}": (
                    self.study is None or self.trials_at_once == 1
                ),
                f"search.study must be a file or a database URL, got {self.study!r}": self.study != "",
            }
        )
        if self.budget is not None:
            parse_duration(self.budget)

    def check_extras(self) -> None:
        """Raise a SettingError if a package is missing that a setting needs."""
        missing = {name: getattr(self, name) and importlib.util.find_spec(name) is None for name in TRACKERS}
        require({f"search.{n} needs an extra: pip install 'archloom[{n}]'": not missing[n] for n in TRACKERS})
        lacks = self.study is not None and importlib.util.find_spec("optuna") is None
        require({"search.study needs an extra: pip install 'archloom[optuna]'": not lacks})

    def with_absolute_paths(self) -> SearchSettings:
        """Return the same settings for any working directory: a run may be resumed from another one."""
        shared_run = self.shared_run and expand(self.shared_run).absolute()
        table = absolute(self.table) if self.table is not None and self.table.endswith(".csv") else self.table
        return replace(self, shared_run=shared_run, table=table, study=self.study and _absolute_study(self.study))

    def refuse_untrusted_study(self) -> None:
        """Raise an UntrustedError if only a file says where trials are to be written."""
        if self.study is not None and not is_trusted(self.study):
            raise UntrustedError(
                f"search.study '{excerpt(self.study)}' is a database to write to that only a file names; {ADVICE}"
            )


def _absolute_study(study: str) -> str:
    """Return the place of a study for any working directory; it is trusted as much as what was given."""
    place = study if "://" in study else absolute(study)
    if is_trusted(study):
        trust_texts(place)
    return place


def absolute(path: str) -> str:
    """Return a path for any working directory."""
    return str(expand(path).absolute())
