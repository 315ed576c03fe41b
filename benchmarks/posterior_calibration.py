"""Show how well the probabilities of gibbs agree with a benchmark table: credible sets against the best operations.

    python benchmarks/posterior_calibration.py runs/gibbs-0 runs/gibbs-1 --budget 10m
    python benchmarks/posterior_calibration.py runs/gibbs-* --out docs/results/gibbs-calibration.svg

Every run is a finished search with gibbs whose space and data have a table. Its posterior phase is sampled: parallel
chains under frozen weights. What an earlier call left in `posterior.json` is read again, unless `--again` is given.
An edge's truth is the operation that the table's best architecture has there. A row of the table and a point of the
picture say how many of the credible sets of a level hold it. Runs whose chains did not converge state no
probabilities. They are listed with their R-hat and counted apart.

The posterior is that of the shared weights of a small supernet. It may be calibrated for them, which tests show by
simulation, and still disagree with networks that are trained alone: this is what the script measures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from archloom.execution.run_folder import RunFolder
from archloom.policies.chain import credible_set
from archloom.policies.posterior import Posterior
from archloom.reports.figures import colour_of, svg
from archloom.searches.posterior import FILE, sample_posterior
from archloom.searches.posterior_phase import PosteriorPhaseSettings
from archloom.searches.report_posterior import has_mixed
from archloom.searches.spec import SearchSpec
from quality_figure import on_paper

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
LABEL = "Share of credible sets that hold the table's best operation, by the level of the sets"


@dataclass(frozen=True)
class Case:
    """What one edge of one run says, and the operation that is best there by the table."""

    run: str
    decision: str
    probabilities: Mapping[str, float]
    truth: str

    def is_covered(self, level: float) -> bool:
        """Return whether the credible set of a level holds the best operation."""
        return self.truth in credible_set(self.probabilities, level=level)


@dataclass(frozen=True)
class Row:
    """How often the credible sets of one level hold the truth, and how many options they have."""

    level: float
    covered: int
    cases: int
    mean_size: float

    @property
    def coverage(self) -> float:
        """Return the share of the sets that hold the truth."""
        return self.covered / self.cases


# --- runs


def read_posterior(run: Path, settings: PosteriorPhaseSettings, *, budget: str | None, again: bool) -> Posterior:
    """Return the posterior given the weights of a run: sampled now, unless it was sampled before."""
    stored = run / FILE
    if stored.exists() and not again:
        return Posterior.from_json(json.loads(stored.read_text(encoding="utf-8")))
    return sample_posterior(run, phase=settings, budget=budget)


def find_truth(run: Path) -> Mapping[str, str]:
    """Return the architecture that is best by the table of a run's space and data."""
    spec = SearchSpec.resolve(RunFolder.open(run).config)
    found = spec.find_table(spec.build_space())
    if found is None:
        sys.exit(f"{run} must be a search whose space and data have a benchmark table")
    return found[0].best(found[1])[0]


def list_cases(run: str, posterior: Posterior, truth: Mapping[str, str]) -> list[Case]:
    """Return a case per decision; a truth that cannot win there is none."""
    return [
        Case(run, name, decision.best, truth[name])
        for name, decision in posterior.decisions.items()
        if truth[name] not in posterior.excluded
    ]


# --- figures


def measure(cases: Sequence[Case], levels: Sequence[float] = LEVELS) -> list[Row]:
    """Return the coverage at every level."""
    rows = []
    for level in levels:
        sizes = [len(credible_set(case.probabilities, level=level)) for case in cases]
        covered = sum(case.is_covered(level) for case in cases)
        rows.append(Row(level, covered, len(cases), sum(sizes) / len(sizes)))
    return rows


def describe_run(run: str, posterior: Posterior) -> str:
    """Return a line with R-hat, effective draws, and whether the chains converged."""
    mixing = posterior.mixing
    if mixing is None:
        return f"{run}: not converged, too few draws to measure R-hat"
    state = "converged" if has_mixed(posterior) else "not converged"
    return (
        f"{run}: {state}, R-hat {mixing.r_hat:.3f}, {mixing.effective_draws:.0f} effective of "
        f"{mixing.chains * mixing.draws} draws from {mixing.chains} chains"
    )


def print_rows(title: str, rows: Sequence[Row]) -> None:
    """Print the coverage as a table in Markdown."""
    print(f"\n{title}\n\n| level of the sets | hold the best operation | options in a set, mean |\n|---|---|---|")
    for row in rows:
        print(f"| {row.level:.0%} | {row.covered} of {row.cases} ({row.coverage:.0%}) | {row.mean_size:.1f} |")


def draw_rows(groups: Mapping[str, Sequence[Row]], figure: Any) -> None:
    """Draw the coverage of every group against the level, and the diagonal of calibrated sets."""
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], ":", color="grey", linewidth=1)
    for place, (name, rows) in enumerate(groups.items()):
        axes.plot([row.level for row in rows], [row.coverage for row in rows], "os"[place % 2] + "-",
                  color=colour_of(place), markersize=5, label=f"{name}, {rows[0].cases} sets")  # fmt: skip
    axes.set_xlabel("level of the credible sets")
    axes.set_ylabel("share that hold the best operation")
    axes.set_xlim(0.45, 1.01)
    axes.set_ylim(-0.03, 1.03)
    axes.legend(loc="lower right", frameon=False)


def report(found: Mapping[str, tuple[Posterior, Mapping[str, str]]], out: Path | None) -> None:
    """Print R-hat of every run and the coverage of those that converged and of the others; draw both."""
    cases: dict[str, list[Case]] = {"converged": [], "not converged": []}
    for run, (posterior, truth) in found.items():
        print(describe_run(run, posterior))
        cases["converged" if has_mixed(posterior) else "not converged"] += list_cases(run, posterior, truth)
    groups = {name: measure(own) for name, own in cases.items() if own}
    for name, rows in groups.items():
        runs = len({case.run for case in cases[name]})
        print_rows(f"{name.capitalize()}: {runs} {'run' if runs == 1 else 'runs'}", rows)
    if out is not None and groups:
        out.write_text(on_paper(svg(partial(draw_rows, groups), height=3.6, label=LABEL)), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Sample, compare, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished searches with gibbs")
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--draws", type=int, default=200, help="of each chain at most")
    parser.add_argument("--budget", help="time for each run, such as 10m")
    parser.add_argument("--again", action="store_true", help="sample also where posterior.json exists")
    parser.add_argument("--out", type=Path, help="an SVG file")
    given = parser.parse_args(arguments)
    settings = PosteriorPhaseSettings(chains=given.chains, draws=given.draws)
    found = {
        run.name: (read_posterior(run, settings, budget=given.budget, again=given.again), find_truth(run))
        for run in given.runs
    }
    report(found, given.out)


if __name__ == "__main__":
    main()
