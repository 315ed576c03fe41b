"""Run every entry of a comparison with every seed, and judge what they found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from archloom.comparisons import report as comparison_report
from archloom.comparisons.results import Outcome, check_limit, outcome_of
from archloom.comparisons.spec import ComparisonSpec, jobs_that_fit, longest_first, open_comparison
from archloom.core.files import write_atomically
from archloom.execution import workers
from archloom.execution.loop import Interrupted
from archloom.execution.run_folder import RunFolder
from archloom.searches.jobs import refuse_changed, run_task
from archloom.searches.run import RUNS


def compare(
    comparison: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    seeds: str | None = None,
    jobs: int | None = None,
    settings: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    listen: workers.Listener = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run every entry of a comparison with every seed, `jobs` at a time, and judge what they found.

    `comparison` is a TOML file, the name of a shipped one, the same as a mapping, or the folder (`out`) of one that was
    begun. What is finished there is not run again. `seeds` and `settings` overrule what all entries say; `only` names
    the entries to run. Searches run in processes of their own, which import the calling script: it must not compare
    outside of `if __name__ == "__main__":`.
    """
    resolved, folder = open_comparison(
        comparison, RUNS, out=None if out is None else Path(out), seeds=seeds, assigned=settings
    )
    return run_comparison(resolved, folder, jobs=jobs, only=only, listen=listen, stop=stop)


def run_comparison(
    comparison: ComparisonSpec,
    folder: Path,
    *,
    jobs: int | None = None,
    only: Sequence[str] = (),
    listen: workers.Listener = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Begin or go on with a resolved comparison in its folder."""
    check_limit(comparison)
    tasks, chosen = comparison.tasks(folder), comparison.tasks(folder, only=only)
    with RunFolder(folder).lock():
        refuse_changed(tasks)
        comparison.write(folder)

        def hear(event: workers.Working | workers.Ended) -> None:
            if isinstance(event, workers.Ended) and event.details:
                write_atomically(folder / "failures" / f"{event.task.name}.txt", event.details.encode())
            listen(event)

        left = longest_first(comparison, chosen)
        failures = workers.carry_out(left, run_task, jobs=jobs or jobs_that_fit(comparison), listen=hear, stop=stop)
        outcome = outcome_of(comparison, tasks, failures)
        for name, text in comparison_report.files_of(outcome).items():
            write_atomically(folder / name, text.encode())
    if stop() and any(task.state != "finished" for task in chosen):
        raise Interrupted
    return outcome
