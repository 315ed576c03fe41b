"""What a retraining returns: the outcome of its loop, and the result that its run folder holds.

result.json has one writer and one reader: `RetrainResult.to_json` and `read_retrain_result`. Files carry `version` 3.
Those of version 2, and those without one of the first edition, have the same names; only records of epochs differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import archloom  # exporting is a layer above retrainings: the package exports it
from archloom.core.errors import ArchloomError, CheckpointError, one_line
from archloom.core.json_object import JsonObject, from_json_object, to_json_object
from archloom.core.result_file import read_result_file
from archloom.core.settings import Settings
from archloom.core.trust import UntrustedError
from archloom.execution.run_facts import RunFacts
from archloom.execution.run_folder import RunFolder
from archloom.objectives.cost import Cost
from archloom.reports.cells import draw_cells
from archloom.reports.frames import make_frame
from archloom.reports.markup import escape
from archloom.reports.tables import duration, list_lines
from archloom.retrainings.evaluation import Evaluation
from archloom.retrainings.model_file import BEST
from archloom.retrainings.records import AnyEvaluation, RetrainOutcome, RetrainRecord
from archloom.retrainings.report_curves import draw_curves, plot_curves
from archloom.retrainings.text_evaluation import TextEvaluation
from archloom.spaces import SPACES, CellGraph
from archloom.tasks import CLASSIFICATION

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERSION = 3
KIND = "retrain"


@dataclass(frozen=True, kw_only=True, repr=False)
class RetrainResult(RetrainOutcome):
    """A trained model, how good it is, and where its files are.

    Attributes:
        test: The evaluation on test images; None where there are none.
        valid: The evaluation on validation images; None where all images were trained on.
        best_epoch: The epoch of the model, from 0.
        text: The architecture in its usual text form.
        classes: The names of the classes.
        changed: What differs from the search that found the architecture, a sentence each.
        cost: Parameters and multiply-adds of the model.
        history: One record per epoch.
        folder: The run folder.

    Examples:
        >>> import archloom, tempfile
        >>> text = "|nor_conv_3x3~0|+|none~0|skip_connect~1|"
        >>> settings = {"space": {"name": "nb201_mini"}, "training": {"epochs": 1}, "network": {"channels": 4}}
        >>> settings["data"] = {"split": "random"}
        >>> folder = tempfile.mkdtemp() + "/run"
        >>> result = archloom.retrain(text, recipe="nb201_12", data="digits", out=folder, settings=settings)
        >>> result.model.name, len(result.history), result.test.images
        ('best.safetensors', 1, 355)
    """

    space: Settings  # its name and settings
    architecture: Mapping[str, str]
    text: str
    recipe: str
    data: str
    seed: int
    classes: tuple[str, ...]
    changed: tuple[str, ...]
    network: Settings
    image_shape: tuple[int, ...]  # C, H, W
    cost: Cost
    run: RunFacts
    history: tuple[RetrainRecord, ...]
    folder: Path

    # --- files

    @classmethod
    def from_json(cls, value: JsonObject, *, history: Sequence[RetrainRecord], folder: Path) -> Self:
        """Return the result that result.json holds; evaluations that were not made are null there, not missing.

        Raises:
            KeyError: If something is missing.
            TypeError, ValueError: If a value is of another type.
        """
        test, valid = (value[name] and _read_evaluation(value[name]) for name in ("test", "valid"))
        return from_json_object(cls, value, test=test, valid=valid, history=tuple(history), folder=folder)

    def to_json(self) -> JsonObject:
        """Return what result.json holds: all but the history, which is in metrics.jsonl."""
        own = {name: value for name, value in vars(self).items() if name not in ("history", "folder")}
        parts = {name: value and value.to_json() for name, value in (("test", self.test), ("valid", self.valid))}
        return {"version": VERSION, "kind": KIND, **to_json_object({**own, **parts})}

    # --- what users look at

    @property
    def model(self) -> Path:
        """Return the file of the trained model."""
        return self.folder / BEST

    @property
    def report(self) -> Path:
        """Return the report page of the run."""
        return RunFolder(self.folder).report_path

    @property
    def evaluation(self) -> AnyEvaluation | None:
        """Return the evaluation on test examples, else on validation examples."""
        return self.test or self.valid

    @property
    def title(self) -> str:
        """Return space, data, recipe and seed in words."""
        return f"{self.space['name']} trained on {self.data}, recipe {self.recipe}, seed {self.seed}"

    @property
    def score_text(self) -> str:
        """Return `91.20 % of 10,000 test images`."""
        if self.evaluation is None:
            return "not evaluated: all images were trained on"
        part = "test" if self.test is not None else "validation"
        if isinstance(self.evaluation, TextEvaluation):
            return f"perplexity {self.evaluation.perplexity:,.2f} on {self.evaluation.words:,} {part} words"
        return f"{self.evaluation.top1:.2f} % of {self.evaluation.images:,} {part} images"

    @property
    def caution(self) -> str:
        """Return warnings if the model was hardly trained or is no better than guessing, else ''."""
        learned = ""
        if isinstance(self.evaluation, TextEvaluation):
            learned = self.evaluation.caution
        elif self.evaluation is not None:
            counts = [sum(row) for row in self.evaluation.confusion]
            learned = CLASSIFICATION.chance_sentence(self.evaluation.top1 / 100, counts)
        return " ".join(filter(None, (self.training_caution, learned)))

    @property
    def time_text(self) -> str:
        """Return `3 min 1 s for 40 epochs on cpu`."""
        unit = "epoch" if self.run.records == 1 else "epochs"
        return f"{duration(self.run.seconds)} for {self.run.records:,} {unit} on {self.run.device}"

    def __repr__(self) -> str:
        cost = f"{self.cost.parameters:,} parameters, {self.cost.multiply_adds:,} multiply-adds"
        name = "result" if isinstance(self.evaluation, TextEvaluation) else "accuracy"
        facts = {"caution": self.caution, name: self.score_text, "cost": cost, "time": self.time_text}
        known = {name: text for name, text in facts.items() if text}
        return list_lines({"architecture": f"{self.text} ({self.title})", **known, "model": str(self.model)})

    def _repr_html_(self) -> str:
        """Return the result for a notebook: the cells, how good it is and the learning curves."""
        graphs = list_graphs(self.space, self.architecture)
        drawing = draw_cells(graphs) if graphs else ""
        return (
            f"<div><h4>{escape(self.title)}</h4><p>{escape(self.score_text)}</p>{drawing}"
            f"<pre>{escape(self.text)}</pre>{draw_curves(self.history)}"
            f"<p>{escape(f'{self.time_text}; {self.model}')}</p></div>"
        )

    def to_frame(self) -> Any:
        """Return the history as a pandas DataFrame: a row per epoch, a column per figure.

        Raises:
            ArchloomError: If pandas is not installed.
        """
        return make_frame([record.to_row() for record in self.history])

    def export(self, formats: Sequence[str] | None = None, *, out: str | Path | None = None) -> tuple[Path, ...]:
        """Write the model as ONNX, a torch.export program and plain PyTorch source; each file is checked.

        Args:
            formats: `onnx`, `torch`, `standalone`. Default: all that can be written here.
            out: The folder to write to. Default: `export` in the run folder.

        Returns:
            The files.
        """
        written = archloom.export_model(self.model, formats=formats, out=out)
        return tuple(path for form in written for path in form.paths)

    def plot(self) -> Figure:
        """Return a matplotlib figure: losses and scores over epochs."""
        return plot_curves(self.history)


def _read_evaluation(value: JsonObject) -> AnyEvaluation:
    return TextEvaluation.from_json(value) if "words" in value else Evaluation.from_json(value)


def list_graphs(space: Settings, architecture: Mapping[str, str]) -> tuple[CellGraph, ...]:
    """Return the cells of an architecture; none where the plug-in that defines them is gone."""
    try:
        settings = {name: value for name, value in space.items() if name != "name"}
        built = SPACES.find(str(space.get("name"))).load()(**settings)
        return tuple(built.graphs(built.check(architecture)))
    except UntrustedError:
        raise
    except (ArchloomError, TypeError):
        return ()


def read_retrain_result(run: RunFolder) -> RetrainResult | None:
    """Return the result of a retraining from its folder, or None if it has not finished.

    Raises:
        CheckpointError: If a file is damaged, or written by a later version.
    """
    if not run.architecture_path.is_file():
        return None
    history = read_records(run)
    return read_result_file(
        run.architecture_path,
        lambda value: RetrainResult.from_json(value, history=history, folder=run.path),
        version=VERSION,
    )


def read_records(run: RunFolder) -> tuple[RetrainRecord, ...]:
    """Return the records of a retraining from its folder."""
    try:
        return tuple(map(RetrainRecord.from_json, run.read_metrics()))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{run.metrics_path} is damaged ({type(error).__name__}: {one_line(error)})") from error
