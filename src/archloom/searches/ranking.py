"""Rank quality of runs: their shared weights against the table that knows their space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from archloom.benchmarks import Benchmark, find_benchmark
from archloom.core.errors import BenchmarkError, SettingError, require
from archloom.core.settings import merge
from archloom.data.source import ImageData
from archloom.execution.run_folder import RunFolder
from archloom.searches.paths import refuse_without_shared_weights, trained_paths
from archloom.searches.rank_correlation import Judged, judged_rows, rank_quality, sampled_rows
from archloom.searches.spec import SearchSpec

METRICS = ("test", "valid")

Progress = Callable[[str, int, int], None]
"""Told the run, how many architectures are judged, and of how many."""


def rank(
    directories: str | Path | Sequence[str | Path],
    *,
    samples: int = 100,
    seed: int = 0,
    images: int = 1000,
    recalibrate: int = 0,
    metric: str = "test",
    data: ImageData | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Progress = lambda run, done, total: None,
    stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda message: None,
) -> list[dict[str, Any]]:
    """How well the shared weights of runs order architectures, by the table that knows what each reaches alone.

    `samples` architectures are drawn uniformly, the same for all runs of a space. Each is judged on `images` validation
    images as the search judges paths or, with `recalibrate`, by running statistics from so many training batches.
    Where `stop` says so, what was judged until then is what is told, and further runs are left out.
    """
    require(
        {
            f"samples must be at least 2, got {samples}": samples >= 2,
            f"metric must be {' or '.join(METRICS)}, got '{metric}'": metric in METRICS,
        }
    )
    paths = [directories] if isinstance(directories, str | Path) else directories
    runs = [
        _Ranked(Path(path), settings or {}) for path in paths
    ]  # what is wrong with the last is told before the first
    if not runs:
        raise SettingError("name at least one run")
    results: list[dict[str, Any]] = []
    for run in runs:
        if not results or not stop():
            judge = {"images": images, "recalibrate": recalibrate, "data": data, "settings": settings, "warn": warn}
            results.append(run.result(judge, samples=samples, seed=seed, metric=metric, progress=progress, stop=stop))
    return results


class _Ranked:
    """A run that has all it takes: shared weights in a checkpoint, and a table of its space."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._path, directory = path, RunFolder.open(path)
        self._experiment = SearchSpec.resolve(merge(directory.config, settings))
        refuse_without_shared_weights(directory, self._experiment)
        self._table, self._dataset = self._found()

    def _found(self) -> tuple[Benchmark, str]:
        spec, folder = self._experiment, self._experiment.data.directory
        found = find_benchmark(spec.build_space(), spec.data_set.name, folder)
        if found is None:
            raise BenchmarkError(
                f"no table of known scores covers {self._path} (space {spec.space.name}, data {spec.data_set.name}, folder "
                f"{folder or 'not set'}); if there is one, pass --data-dir with the folder that holds it"
            )
        return found

    def result(
        self,
        judge: dict[str, Any],
        *,
        samples: int,
        seed: int,
        metric: str,
        progress: Progress,
        stop: Callable[[], bool],
    ) -> dict[str, Any]:
        column = self._table.column(self._dataset, metric=metric)
        paths = trained_paths(self._path, **judge)
        rows = sampled_rows(self._table, paths.space, self._dataset, count=samples, seed=seed)
        judged: list[Judged] = []
        progress(str(self._path), 0, len(rows))
        for one in judged_rows(paths, paths.space, self._table, column, rows):
            judged.append(one)
            progress(str(self._path), len(judged), len(rows))
            if stop():
                break
        data = self._experiment.data_set.name
        return {
            "run": str(self._path),
            "title": self._experiment.title,
            "dataset": self._dataset,
            "instead_of": None if data == self._dataset else data,
            "metric": metric,
            "images": judge["images"],
            "recalibrate": judge["recalibrate"],
            "seed": seed,
            "asked": len(rows),
            "judged": len(judged),
            **asdict(rank_quality(judged, column, seed=seed)),
            "architectures": [asdict(one) for one in judged],
        }
