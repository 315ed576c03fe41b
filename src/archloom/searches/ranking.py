"""Rank quality of runs: their shared weights against the table that covers their space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from archloom.benchmarks import Benchmark
from archloom.core.errors import BenchmarkError, SettingError, require
from archloom.core.json_object import JsonObject, to_json_object
from archloom.core.settings import Settings, merge
from archloom.core.trust import trusting
from archloom.data import DataSet
from archloom.execution.run_folder import RunFolder
from archloom.searches.build import build_search
from archloom.searches.paths import refuse_without_shared_weights, trained_paths
from archloom.searches.rank_correlation import RankQuality, ScoredPath, measure_rank_quality, sample_rows, score_rows
from archloom.searches.spec import SearchSpec

METRICS = ("test", "valid")

Progress = Callable[[str, int, int], None]
"""Receives the run, how many architectures are evaluated, and of how many."""


@dataclass(frozen=True, kw_only=True)
class RankResult(RankQuality):
    """The rank quality of one run, and how it was measured."""

    run: str
    title: str
    dataset: str  # of the table
    instead_of: str | None  # the data set of the run, where the table has another
    metric: str
    images: int
    recalibrate: int
    seed: int
    asked: int  # architectures to evaluate
    architectures: tuple[ScoredPath, ...]

    @property
    def evaluated(self) -> int:
        """Return the number of evaluated architectures."""
        return len(self.architectures)

    def to_json(self) -> JsonObject:
        """Return the ranking as JSON values."""
        return {**to_json_object(self), "evaluated": self.evaluated}


def rank(
    directories: str | Path | Sequence[str | Path],
    *,
    samples: int = 100,
    seed: int = 0,
    images: int = 1000,
    recalibrate: int = 0,
    metric: str = "test",
    data: DataSet | None = None,
    settings: Settings | None = None,
    progress: Progress = lambda run, done, total: None,
    stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda message: None,
    plugins: bool = False,
) -> list[RankResult]:
    """Measure how well the shared weights of runs rank architectures, by a table of what each reaches alone.

    Args:
        directories: A run folder, or several.
        samples: Architectures to evaluate, sampled uniformly; the same for all runs of a space.
        seed: Of the sample.
        images: Validation images that each is evaluated on.
        recalibrate: Training batches for running statistics of each path; 0 uses batch statistics, as the search does.
        metric: The column of the table, `test` or `valid`.
        data: The data of runs that got their data in Python.
        settings: Settings that may differ here: device, data folder.
        progress: Called after every architecture.
        stop: If it returns true, the architectures evaluated so far are the result, and further runs are left out.
        warn: Called with warnings.
        plugins: Whether to import plug-ins that only a run folder names; see SECURITY.md.

    Returns:
        A `RankResult` for each run.

    Raises:
        BenchmarkError: If no table covers a run.
        SettingError: If a run has no shared weights, or an option is out of range.

    Examples:
        >>> import archloom
        >>> [ranking.evaluated for ranking in archloom.rank("runs/first", samples=4, images=20)]
        [4]
    """
    require(
        {
            f"samples must be at least 2, got {samples}": samples >= 2,
            f"metric must be {' or '.join(METRICS)}, got '{metric}'": metric in METRICS,
        }
    )
    paths = [directories] if isinstance(directories, str | Path) else directories
    with trusting(settings, plugins=plugins):
        runs = [_RankableRun(Path(path), settings or {}) for path in paths]  # problems of all before any is evaluated
        if not runs:
            raise SettingError("name at least one run")
        results: list[RankResult] = []
        for run in runs:
            if not results or not stop():
                options = _PathOptions(images=images, recalibrate=recalibrate, data=data, settings=settings, warn=warn)
                results.append(
                    run.measure(options, samples=samples, seed=seed, metric=metric, progress=progress, stop=stop)
                )
    return results


class _PathOptions(TypedDict):
    """How the paths of a run are evaluated: what `trained_paths` takes."""

    images: int
    recalibrate: int
    data: DataSet | None
    settings: Settings | None
    warn: Callable[[str], None]


class _RankableRun:
    """A run with shared weights in a checkpoint, and with a table of its space."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self._path, directory = path, RunFolder.open(path)
        self._experiment = SearchSpec.resolve(merge(directory.config, settings))
        refuse_without_shared_weights(directory, self._experiment)
        self._table, self._dataset = self._find_table()

    def _find_table(self) -> tuple[Benchmark, str]:
        spec, folder = self._experiment, self._experiment.data.directory
        found = spec.find_table(spec.build_space())
        if found is None:
            raise BenchmarkError(
                f"no benchmark table covers {self._path} (space {spec.space.name}, data {spec.data_set.name}, folder "
                f"{folder or 'not set'}); if there is one, pass --data-dir with the folder that holds it"
            )
        return found

    def measure(
        self,
        options: _PathOptions,
        *,
        samples: int,
        seed: int,
        metric: str,
        progress: Progress,
        stop: Callable[[], bool],
    ) -> RankResult:
        column = self._table.column(self._dataset, metric=metric)
        paths = trained_paths(self._path, build_search, **options)
        rows = sample_rows(self._table, paths.space, self._dataset, count=samples, seed=seed)
        scored: list[ScoredPath] = []
        progress(str(self._path), 0, len(rows))
        for one in score_rows(paths, paths.space, self._table, column, rows):
            scored.append(one)
            progress(str(self._path), len(scored), len(rows))
            if stop():
                break
        data = self._experiment.data_set.name
        return RankResult(
            **vars(measure_rank_quality(scored, column, seed=seed)),
            run=str(self._path),
            title=self._experiment.title,
            dataset=self._dataset,
            instead_of=None if data == self._dataset else data,
            metric=metric,
            images=options["images"],
            recalibrate=options["recalibrate"],
            seed=seed,
            asked=len(rows),
            architectures=tuple(scored),
        )
