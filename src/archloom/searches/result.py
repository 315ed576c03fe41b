"""What a search returns: the outcome of its loop, and the result that its run folder holds.

architecture.json has one writer and one reader: `SearchResult.to_json` and `read_result`. Files carry `version` 3. In
those of version 2 scores are called accuracies; those without a version are of the first edition. Both are read, too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import archloom  # retraining is a layer above searches: the package exports it
from archloom.benchmarks.base import TableEntry
from archloom.core.errors import ArchloomError
from archloom.core.json_object import JsonObject, number, to_json_object
from archloom.core.metrics import ACCURACY, Metric
from archloom.core.result_file import read_result_file
from archloom.core.score_names import EARLIER, rename_scores
from archloom.core.settings import settings_of
from archloom.execution.run_facts import RunFacts
from archloom.execution.run_folder import RunFolder
from archloom.families import family_of
from archloom.objectives.cost import Cost
from archloom.policies.posterior import Posterior
from archloom.reports.cells import draw_cells
from archloom.reports.frames import make_frame
from archloom.reports.markup import escape
from archloom.reports.tables import duration, list_lines
from archloom.searches.history import flatten_record
from archloom.searches.race_verdict import RaceResult
from archloom.searches.records import (
    EarlyStop,
    FinalistRecord,
    LimitResult,
    SearchRecord,
    TargetResult,
    TrialRecord,
    read_record,
)
from archloom.searches.report_plots import plot_history, result_curve
from archloom.spaces import Architecture, SearchSpace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERSION = 3
LONGEST_VERDICT = 240  # characters of it in a repr; the whole is in `verdict`
_FIRST_EDITION = {"table_entry": "standing", "random_baseline": "chance", "early_stop": "stopped"}  # names then


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """What a search found: the final architecture and what is known of it."""

    architecture: Architecture
    text: str  # the architecture in its usual text form
    verdict: str
    table_entry: TableEntry | None = None  # in the benchmark table, where one covers the space
    shared_score: float | None = None  # under the shared weights, on images that the search did not use
    random_baseline: Sequence[float] = ()  # the same of architectures sampled uniformly, in rising order
    target: TargetResult | None = None
    derived: Architecture | None = None  # by the search alone; the race may have chosen another
    race: RaceResult | None = None
    limit: LimitResult | None = None
    finalists: Sequence[FinalistRecord] = ()  # of the finalist race, the best one first
    finalists_seconds: float | None = None
    early_stop: EarlyStop | None = None  # where the monitor ended the search
    posterior: Posterior | None = None  # of strategies that draw from one
    findings: JsonObject = field(default_factory=dict)  # what else a strategy reports, as JSON

    @classmethod
    def known_findings(cls, found: JsonObject) -> JsonObject:
        """Return the findings of a strategy in a file as fields: the posterior by its type, anything else as it is."""
        posterior, rest = found.get("posterior"), {name: value for name, value in found.items() if name != "posterior"}
        return {"posterior": posterior and Posterior.from_json(posterior), "findings": rest}


@dataclass(frozen=True, kw_only=True, repr=False)
class SearchResult(SearchOutcome):
    """The result of a search, with how it was found and where its files are.

    Attributes:
        architecture: The option of every decision.
        text: The architecture in its usual text form.
        verdict: Plain sentences: how good it is known to be.
        table_entry: Scores, rank and regret in a benchmark table, where one covers the space.
        cost: Parameters and multiply-adds of the final network, the one that will be trained.
        final_network: Its size and images in words; empty in older files, whose cost is that of the searched network.
        history: One record per epoch (`EpochRecord`) or trial (`TrialRecord`).
        folder: The run folder.
        posterior: Probabilities of options, for strategies that draw from a posterior.

    Examples:
        >>> import archloom, tempfile
        >>> settings = {"search": {"trials": 3}}
        >>> folder = tempfile.mkdtemp() + "/run"
        >>> result = archloom.search("nb201_mini", "random_search", "digits", seed=0, out=folder, settings=settings)
        >>> result.table_entry.count, len(result.history)
        (125, 3)
    """

    space: SearchSpace
    space_name: str
    strategy: str
    data: str
    seed: int
    cost: Cost
    final_network: str = ""
    run: RunFacts
    history: tuple[SearchRecord, ...]
    folder: Path

    # --- files

    @classmethod
    def from_json(cls, value: JsonObject, *, space: SearchSpace, history: Sequence[SearchRecord], folder: Path) -> Self:
        """Return the result that architecture.json holds."""
        value = rename_scores(value)
        named = {new: value.get(new, value.get(old)) for new, old in _FIRST_EDITION.items()}
        entry, stop, target = named["table_entry"], named["early_stop"], value.get("target")
        limit = value.get("limit")
        return cls(
            architecture=space.check(value["architecture"]),
            text=str(value["text"]),
            verdict=str(value["verdict"]),
            table_entry=entry and TableEntry.from_json(entry),
            shared_score=_optional(value.get("shared_score")),
            random_baseline=tuple(map(number, named["random_baseline"] or ())),
            target=target and TargetResult.from_json(target),
            derived=value.get("derived") and space.check(value["derived"]),
            race=value.get("race") and RaceResult.from_json(value["race"]),
            limit=limit and LimitResult.from_json(limit),
            finalists=tuple(map(FinalistRecord.from_json, value.get("finalists") or ())),
            finalists_seconds=_optional(value.get("finalists_seconds")),
            early_stop=stop and EarlyStop.from_json(stop),
            **cls.known_findings({name: item for name, item in value.items() if name not in _NAMES}),
            space=space,
            space_name=str(value["space"]["name"]),
            strategy=str(value["strategy"]),
            data=str(value["data"]),
            seed=int(value["seed"]),
            cost=Cost.from_json(value["cost"]),
            final_network=str(value.get("final_network", "")),
            run=RunFacts.from_json(value["run"]),
            history=tuple(history),
            folder=folder,
        )

    def to_json(self) -> JsonObject:
        """Return what architecture.json holds: all but the history, which is in metrics.jsonl."""
        apart = ("space", "space_name", "history", "folder", "findings")
        own = {name: value for name, value in vars(self).items() if name not in apart}
        return {
            "version": VERSION,
            "space": {"name": self.space_name, **settings_of(self.space)},
            **to_json_object(own),
            **({} if self.metric is ACCURACY else {"metric": self.metric.name}),
            **self.findings,
        }

    # --- what users look at

    @property
    def metric(self) -> Metric:
        """Return how scores of the search are named and printed."""
        return family_of(self.space).task.metric

    @property
    def report(self) -> Path:
        """Return the report page of the run."""
        return RunFolder(self.folder).report_path

    @property
    def title(self) -> str:
        """Return strategy, space, data and seed in words."""
        return f"{self.strategy} on {self.space_name}, {self.data}, seed {self.seed}"

    @property
    def cost_text(self) -> str:
        """Return parameters and multiply-adds in words."""
        place = f" in the final network: {self.final_network}" if self.final_network else ""
        return f"{self.cost.parameters:,} parameters, {self.cost.multiply_adds:,} multiply-adds{place}"

    @property
    def time_text(self) -> str:
        """Return `3.1 s for 40 epochs on cpu`."""
        is_trial = bool(self.history) and isinstance(self.history[0], TrialRecord)
        unit = ("trial" if is_trial else "epoch") + ("" if self.run.records == 1 else "s")
        return f"{duration(self.run.seconds)} for {self.run.records:,} {unit} on {self.run.device}"

    def __repr__(self) -> str:
        verdict = textwrap.shorten(self.verdict, LONGEST_VERDICT, placeholder=" ...")
        facts = {"verdict": verdict, "cost": self.cost_text, "time": self.time_text, "folder": str(self.folder)}
        return list_lines({"architecture": f"{self.text} ({self.title})", **facts})

    def _repr_html_(self) -> str:
        """Return the result for a notebook: the cells, the verdict and the curve of the search."""
        drawing = draw_cells(self.space.graphs(self.architecture))
        facts = escape(f"{self.cost_text}; {self.time_text}; {self.folder}")
        return (
            f"<div><h4>{escape(self.title)}</h4><p>{escape(self.verdict)}</p>{drawing}"
            f"<pre>{escape(self.text)}</pre>{result_curve(self.history)}<p>{facts}</p></div>"
        )

    def to_frame(self) -> Any:
        """Return the history as a pandas DataFrame: a row per record, a column per figure.

        Raises:
            ArchloomError: If pandas is not installed.
        """
        return make_frame([flatten_record(record) for record in self.history])

    def plot(self) -> Figure:
        """Return a matplotlib figure: how good the derived architecture is over epochs, or the scores of the trials."""
        return plot_history(self.history)

    def retrain(self, **options: Any) -> Any:
        """Train the architecture from scratch; `options` are those of `archloom.retrain`.

        Returns:
            The `RetrainResult`.
        """
        return archloom.retrain(str(self.folder), **options)

    def export(self, **options: Any) -> Any:
        """Raise an error that says how to get a model: a search finds an architecture and trains none.

        Raises:
            ArchloomError: Always.
        """
        raise ArchloomError("a search has no trained model to export; use: result.retrain().export()")


_NAMES = {
    "version", "space", "strategy", "data", "seed", "cost", "final_network", "run", "architecture", "text", "verdict",
    "shared_score", "metric", "target", "limit", "derived", "race", "finalists", "finalists_seconds",
    *_FIRST_EDITION, *_FIRST_EDITION.values(), *EARLIER,
}  # fmt: skip


def _optional(value: object) -> float | None:
    return None if value is None else number(value)


def read_result(run: RunFolder, space: SearchSpace) -> SearchResult | None:
    """Return the result of a search from its folder, or None if it has not finished.

    Raises:
        CheckpointError: If a file is damaged, or written by a later version.
    """
    if not run.architecture_path.is_file():
        return None
    history = read_history(run)

    def parse(value: JsonObject) -> SearchResult:
        return SearchResult.from_json(value, space=space, history=history, folder=run.path)

    return read_result_file(run.architecture_path, parse, version=VERSION)


def read_history(run: RunFolder) -> tuple[SearchRecord, ...]:
    """Return the records of a search from its folder."""
    return tuple(map(read_record, run.read_metrics()))
