"""The result of a pipeline: what its searches found, how good the trained models are, and its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from archloom.core.counts import count_text
from archloom.core.errors import ArchloomError
from archloom.core.json_object import JsonObject
from archloom.core.metrics import ACCURACY, METRICS, Metric
from archloom.core.result_file import StoredResult
from archloom.export import export_model
from archloom.pipelines.plots import draw_models, plot_models
from archloom.pipelines.spread import VarianceSplit, split_variance
from archloom.reports.frames import make_frame
from archloom.reports.markup import escape
from archloom.reports.notebook import to_html
from archloom.reports.tables import Table, decimal, duration, spread, whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class SearchSummary:
    """What one search found."""

    seed: int
    path: Path
    text: str
    figure: float | None  # on validation examples: an accuracy in percent, or a perplexity
    figure_kind: str  # which of FIGURES in evaluation.py
    seconds: float | None
    parameters: int | None


@dataclass(frozen=True)
class ModelSummary:
    """One model that was trained from scratch."""

    search: int  # the seed of its search
    seed: int
    path: Path
    test: float | None  # an accuracy in percent, or a perplexity
    valid: float | None
    seconds: float | None
    parameters: int | None
    caution: str = ""  # what a user must know before using the model


@dataclass(frozen=True, repr=False)
class PipelineResult(StoredResult):
    """The result of a pipeline.

    Attributes:
        title: Of the pipeline.
        protocol: `best_of_searches` or `repeats`.
        search_count: How many searches the pipeline asks for.
        model_count: How many retrainings it asks for; None if an unfinished first-edition file does not say.
        searches: What every finished search found.
        picked: The seed of the picked search, if the protocol picks one.
        models: Every trained model.
        failures: The reason, by run.
        exported: Files of the best model in other formats.
        folder: The folder of the pipeline, if known.
        metric: The name of the metric of all figures: `accuracy`, or `perplexity`.

    Examples:
        >>> from archloom.pipelines.results import PipelineResult
        >>> print(PipelineResult("Mine", "repeats", 2, 4))
        Mine: 0 of 2 searches, 0 of 4 retrainings finished
    """

    file_name, version = "pipeline.json", 2

    title: str
    protocol: str
    search_count: int
    model_count: int | None
    searches: tuple[SearchSummary, ...] = ()
    picked: int | None = None
    models: tuple[ModelSummary, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    exported: tuple[Path, ...] = ()
    folder: Path | None = None
    metric: str = ACCURACY.name

    @property
    def measure(self) -> Metric:
        """Return how figures are named and ranked."""
        return METRICS.get(self.metric, ACCURACY)

    @property
    def spread(self) -> VarianceSplit | None:
        """Return how test figures vary over searches and over retrainings."""
        known = [model for model in self.models if model.test is not None]
        seeds = dict.fromkeys(model.search for model in known)
        groups = [[model.test for model in known if model.search == seed and model.test is not None] for seed in seeds]
        return split_variance(groups, self.measure) if groups else None

    @property
    def best(self) -> ModelSummary | None:
        """Return the model to use: the best by validation, or the first one if there are no validation examples."""
        validated = [model for model in self.models if model.valid is not None]
        if validated:
            direction = self.measure.direction
            return max(validated, key=lambda model: (direction * (model.valid or 0.0), -model.search, -model.seed))
        return self.models[0] if self.models else None

    @property
    def complete(self) -> bool:
        """Return whether all searches and retrainings have finished."""
        return len(self.searches) == self.search_count and len(self.models) == self.model_count

    # --- files

    @classmethod
    def from_json(cls, value: JsonObject, *, folder: Path | None = None) -> Self:
        """Return the result that `to_json` describes; the first edition does not hold the number of retrainings."""
        models = tuple(ModelSummary(**{**model, "path": Path(model["path"])}) for model in value["trained"])
        return cls(
            title=str(value["title"]),
            protocol=str(value["protocol"]),
            search_count=int(value["searches"]),
            model_count=value.get("retrainings", len(models) if value["complete"] else None),
            searches=tuple(SearchSummary(**{**found, "path": Path(found["path"])}) for found in value["found"]),
            picked=value["picked"],
            models=models,
            failures={str(run): str(reason) for run, reason in value["failures"].items()},
            exported=tuple(map(Path, value["exported"])),
            folder=folder,
            metric=str(value.get("metric", ACCURACY.name)),
        )

    def to_json(self) -> JsonObject:
        """Return what `pipeline.json` holds."""
        best, variance = self.best, self.spread
        return {
            "version": self.version,
            "title": self.title,
            "protocol": self.protocol,
            "metric": self.metric,
            "searches": self.search_count,
            "retrainings": self.model_count,
            "picked": self.picked,
            "complete": self.complete,
            "found": [{**asdict(search), "path": str(search.path)} for search in self.searches],
            "trained": [{**asdict(model), "path": str(model.path)} for model in self.models],
            "spread": None if variance is None else {**asdict(variance), "sentence": variance.sentence},
            "best": None if best is None else str(best.path),
            "exported": list(map(str, self.exported)),
            "failures": dict(self.failures),
        }

    # --- what users look at

    @property
    def sentences(self) -> list[str]:
        """Return a warning if the best model has one, how good the models are and vary, and which one to use."""
        best, variance = self.best, self.spread
        lines = [best.caution] if best is not None and best.caution else []
        tests = [model.test for model in self.models if model.test is not None]
        if tests:
            if self.picked is not None and self.search_count > 1:
                of = f"the best of {self.search_count} searches"
            else:
                of = count_text(len({model.search for model in self.models}), "search", "searches")
            over = count_text(len(tests), "retraining", "retrainings")
            lines.append(f"Test {self.metric} {spread(tests)}{self._unit} over {over} of {of}.")
        if variance is not None and variance.trainings > 1:
            lines.append(variance.sentence)
        if best is not None:
            why = "the first: there are no validation images"
            if best.valid is not None:
                why = f"best by validation, {decimal(best.valid)}{self._unit}"
            lines.append(
                f"Use the model of search {best.search}, retraining {best.seed} ({why}); "
                f"its test {self.metric} is {decimal(best.test)}{self._unit}."
            )
        return lines

    @property
    def _unit(self) -> str:
        """Return what follows a figure."""
        return f" {self.measure.unit}" if self.measure.unit else ""

    def __repr__(self) -> str:
        total = "" if self.model_count is None else f" of {self.model_count}"
        counts = f"{len(self.searches)} of {self.search_count} searches, {len(self.models)}{total} retrainings finished"
        lines = [f"{self.title}: {counts}", *self.sentences]
        lines += [f"failed: {run}: {reason}" for run, reason in self.failures.items()]
        return "\n".join([*lines, *([f"folder: {self.folder}"] if self.folder else [])])

    def _repr_html_(self) -> str:
        """Return the result for a notebook: sentences, a dot per model, models and searches."""
        lines = "".join(f"<p>{escape(line)}</p>" for line in self.sentences)
        tables = f"{to_html(self.tabulate_models())}{to_html(self.tabulate_searches())}"
        return (
            f"<div><h4>{escape(self.title)}</h4>{lines}{draw_models(self.tests_by_search, self.measure)}{tables}</div>"
        )

    def tabulate_searches(self) -> Table:
        """Return a table with a row per search."""
        several = self.search_count > 1
        rows = tuple(
            (
                f"search {found.seed}" + (" (picked)" if several and found.seed == self.picked else ""),
                decimal(found.figure),
                whole(found.parameters),
                duration(found.seconds),
                found.text,
            )
            for found in self.searches
        )
        return Table("", rows, ("search", "validation", "parameters", "time", "architecture"))

    def tabulate_models(self) -> Table:
        """Return a table with a row per trained model."""
        rows = tuple(
            (
                f"search {model.search}, retraining {model.seed}" + (" (best)" if model == self.best else ""),
                decimal(model.test),
                decimal(model.valid),
                whole(model.parameters),
                duration(model.seconds),
            )
            for model in self.models
        )
        unit = self.measure.unit or self.metric
        return Table("", rows, ("model", f"test, {unit}", f"validation, {unit}", "parameters", "time"))

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row per trained model.

        Returns:
            The frame, with the columns search, seed, test, valid, seconds, parameters, text and path.

        Raises:
            ArchloomError: If pandas is not installed.
        """
        texts = {found.seed: found.text for found in self.searches}
        return make_frame(
            [{**asdict(model), "text": texts.get(model.search), "path": str(model.path)} for model in self.models]
        )

    def export(self, formats: Sequence[str] | None = None, *, out: str | Path | None = None) -> tuple[Path, ...]:
        """Write the best model as ONNX, a torch.export program and plain PyTorch source; each file is checked.

        Args:
            formats: `onnx`, `torch`, `standalone`. Default: all that can be written here.
            out: The folder to write to. Default: `export` in the run folder of the model.

        Returns:
            The files.

        Raises:
            ArchloomError: If no model has been trained yet.
        """
        if self.best is None:
            raise ArchloomError("export() needs a trained model, and this pipeline has none yet")
        written = export_model(self.best.path, formats=formats, out=out)
        return tuple(path for form in written for path in form.paths)

    def plot(self) -> Figure:
        """Return a matplotlib figure with a line per search and a dot per retraining.

        Returns:
            The figure, on a white background.

        Raises:
            ArchloomError: If no model was tested.
        """
        if not self.tests_by_search:
            raise ArchloomError(f"plot() needs a model with a test {self.metric}, and this pipeline has none yet")
        return plot_models(self.tests_by_search, self.measure)

    @property
    def tests_by_search(self) -> dict[int, list[float]]:
        """Test figures by the seed of the search."""
        tests: dict[int, list[float]] = {}
        for model in self.models:
            if model.test is not None:
                tests.setdefault(model.search, []).append(model.test)
        return tests
