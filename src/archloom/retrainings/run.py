"""Run a retraining in its folder: from an architecture to a trained model, begun or resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from archloom.core.durations import (
    parse_duration,
)
from archloom.core.errors import (
    DataError,
    SettingError,
)
from archloom.core.events import Listener
from archloom.core.json_object import to_json_object
from archloom.core.progress_display import show_api_progress
from archloom.core.recipes import RUNS, find_retraining
from archloom.core.settings import Settings, flatten, merge, read_toml
from archloom.core.state import StateDict
from archloom.core.trust import trusting
from archloom.data import DataSet
from archloom.data.places import GIVEN
from archloom.data.source import ImageData
from archloom.data.user_data import as_data_set
from archloom.execution.run import FolderRun, RunOptions, begin_run, resume_run
from archloom.execution.run_facts import RunFacts
from archloom.execution.run_folder import RunFolder
from archloom.execution.run_settings import MAY_DIFFER
from archloom.reports.cells import draw_cells
from archloom.retrainings.auto import complete
from archloom.retrainings.build import build_retraining, card_of, check_trainable, cost_of_model
from archloom.retrainings.folder import RetrainFolder
from archloom.retrainings.loop import RetrainLoop
from archloom.retrainings.memory import refuse_large_retraining
from archloom.retrainings.model_file import BEST, LAST, ModelDetails, save_model
from archloom.retrainings.records import RetrainOutcome
from archloom.retrainings.report import write_retrain_report
from archloom.retrainings.result import RetrainResult, read_retrain_result
from archloom.retrainings.sizes import AUTO
from archloom.retrainings.spec import KIND, RetrainSpec, compose
from archloom.retrainings.transfer import Origin, find_origin
from archloom.searches.architectures import find_architecture
from archloom.searches.budget import PLAN_END, Budget
from archloom.searches.run import DEFAULT_OPTIONS
from archloom.supernet.ranks import ALONE, Ranks

Note = Callable[[str], None]


@dataclass(frozen=True)
class RetrainRequest:
    """What a user asks to be trained, resolved as far as is possible without the images."""

    spec: RetrainSpec
    given: Settings
    overrides: Settings  # the part that the user gave
    origin: Origin
    budget: str | None = None
    pruned: str = ""  # a line on dead edges that were removed


def retrain(
    architecture: Any,
    *,
    data: Any = None,
    recipe: str = AUTO,
    budget: str | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    settings: Settings | None = None,
    listeners: Sequence[Listener] = (),
    stop: Callable[[], bool] = lambda: False,
    note: Note = lambda line: None,
    plugins: bool = False,
    progress: bool | None = None,
) -> RetrainResult:
    """Train an architecture from scratch; everything is also written to a run folder.

    Args:
        architecture: A `SearchResult`, the run folder of a search, a JSON file, a text form, or a published name.
        data: The name of a data set, or your own as in `archloom.search`. Default: the data of the search.
        recipe: A shipped recipe (`archloom list recipes`) or a TOML file; `auto` fits size and epochs to `budget`.
        budget: Time for the recipe `auto`, as "30m".
        seed: Everything random follows from it.
        out: The run folder. Default: the next free one in `runs/`. The same retraining in it is resumed.
        settings: Any other settings by section: {"training": {"epochs": 5}, "space": {"name": "s1"}}.
        listeners: Called with every event: `Started`, `Advanced`, `Recorded`, ...
        stop: Asked after every step; once true, the training saves and stops.
        note: Called with lines on what was chosen, and with warnings.
        plugins: Whether to import plug-ins that only a file or a folder names; see SECURITY.md.
        progress: Whether to show progress. Default: in a terminal or a notebook.

    Returns:
        The trained model, and how good it is on images that it was not trained on.

    Raises:
        SettingError: If a setting is wrong; the message lists everything that is.
        Interrupted: If `stop` was true; `archloom.resume` continues the run.

    Examples:
        >>> import archloom, tempfile
        >>> text = "|nor_conv_3x3~0|+|none~0|skip_connect~1|"
        >>> settings = {"space": {"name": "nb201_mini"}, "training": {"epochs": 1}, "network": {"channels": 4}}
        >>> settings["data"] = {"split": "random"}
        >>> folder = tempfile.mkdtemp() + "/run"
        >>> result = archloom.retrain(text, recipe="nb201_12", data="digits", out=folder, settings=settings)
        >>> result.model.name
        'best.safetensors'
    """
    own = as_data_set(data)
    named = {} if data is None else {"data": {"name": str(data) if own is None else GIVEN}}
    overrides = merge(settings or {}, named, {} if seed is None else {"seed": seed})
    with trusting(overrides, plugins=plugins), show_api_progress(progress, listeners) as listening:
        options = RunOptions(listeners=listening, stop=stop, warn=note)
        request = resolve_request(architecture, recipe=recipe, budget=budget, overrides=overrides)
        return run_retraining(request, data=own, out=out, options=options, note=note)


def resolve_request(
    architecture: Any, *, recipe: str = AUTO, budget: str | None = None, overrides: Settings
) -> RetrainRequest:
    """Find the architecture and resolve all settings; a SettingError lists everything that is wrong with them."""
    source = str(getattr(architecture, "folder", architecture))
    if budget is not None:
        parse_duration(budget)
        if recipe != AUTO:
            raise SettingError(
                f"a budget is for the recipe 'auto', which fits itself to it; '{recipe}' has its own epochs"
            )
    space = overrides.get("space", {})
    found = find_architecture(source, space_name=space.get("name") if isinstance(space, Mapping) else None)
    origin, alive = find_origin(source, found), found.space.prune(found.architecture)
    given = compose(
        found.space_name,
        found.space,
        alive,
        recipe=(recipe, read_toml(find_retraining(recipe))),
        inherited=origin.data,
        overrides=overrides,
    )
    pruned = "" if alive == found.architecture else f"dead edges removed: {found.space.format(alive)}"
    return RetrainRequest(RetrainSpec.resolve(given), given, overrides, origin, budget, pruned)


def run_retraining(
    request: RetrainRequest,
    *,
    data: DataSet | None = None,
    out: str | Path | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
    note: Note = lambda line: None,
) -> RetrainResult:
    """Begin a retraining, or resume it if the folder holds it."""
    folder = RetrainFolder(RunFolder.next_free(RUNS, request.spec.stem) if out is None else Path(out))
    if request.spec.recipe == AUTO and options.ranks.count > 1:
        raise SettingError(
            f"a retraining on {options.ranks.count} devices needs a recipe with epochs of its own (archloom list "
            "recipes): 'auto' is planned for one device"
        )
    ranks = options.ranks
    if ranks.any(ranks.is_first and folder.config_path.is_file()):  # rank 0 decides: it may be quick to make the folder
        _refuse_other(folder, request)
        here = {name: request.overrides[name] for name in ("machine",) if name in request.overrides}
        return resume_retraining(folder, data=data, settings=here, options=options)

    def build() -> RetrainRun:
        seconds = None if request.budget is None else parse_duration(request.budget)
        clock = request.spec.training.budget_clock
        budget = None if seconds is None else Budget.begin_with_process(seconds, clock, age=options.spent)
        images = data or request.spec.load_data()
        if request.pruned:
            note(request.pruned)
        for warning in check_trainable(images):
            note(f"warning: {warning}")
        return RetrainRun(
            folder,
            complete(
                request.spec, request.given, request.overrides, request.origin, images, budget=request.budget, note=note
            ),
            images,
            budget,
            options.ranks,
        )

    return begin_run(folder, build, options)


def resume_retraining(
    folder: RetrainFolder,
    *,
    data: Any = None,
    settings: Settings | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> RetrainResult:
    """Resume a retraining that was interrupted; return the result of a complete one."""
    spec = RetrainSpec.resolve(merge(folder.config, settings or {}))
    own = as_data_set(data)

    def build() -> RetrainRun:
        return RetrainRun(folder, spec, own or spec.load_data(), ranks=options.ranks)

    def write_report() -> None:
        try:
            build().write_report(_read_finished(folder))
        except DataError:  # without the images the page lacks only the pictures of mistakes
            write_drawing(folder, spec)
            write_retrain_report(folder.path)

    return resume_run(folder, build, lambda: _read_finished(folder), options, write_report=write_report)


def _refuse_other(folder: RunFolder, request: RetrainRequest) -> None:
    """Raise a SettingError if the folder holds another run."""
    config = folder.config
    if config.get("kind") != KIND:
        folder.refuse_if_taken()
    other = RetrainSpec.resolve(config)
    other = replace(other, architecture=other.build_space().prune(other.architecture))  # an older run has dead edges
    there, wanted = flatten(other.to_settings()), flatten(request.spec.to_settings())
    architecture = (name for name in wanted if name.startswith("architecture."))
    for name in (*flatten(request.overrides), *architecture, "recipe", "data.name"):
        if not name.startswith(MAY_DIFFER) and there.get(name) != wanted.get(name):
            raise SettingError(
                f"{folder.path} holds another retraining: {name} is {there.get(name)!r} there, {wanted.get(name)!r} "
                "is asked for; choose another --out"
            )


class RetrainRun(FolderRun[RetrainOutcome, RetrainResult]):
    """A retraining in its folder, which also keeps the models."""

    may_differ = (*MAY_DIFFER, "recipe", "changed")  # words about the settings
    loop: RetrainLoop

    def __init__(
        self,
        folder: RunFolder,
        spec: RetrainSpec,
        data: DataSet,
        budget: Budget | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        check_trainable(data)
        self._spec, self._data, self._budget = spec, data, budget
        self._cost = cost_of_model(spec, data)
        if budget is None or not budget.is_past(PLAN_END):  # else timed steps must show alone that it fits
            refuse_large_retraining(spec, data, self._cost)
        super().__init__(folder, build_retraining(spec, data, budget=budget, ranks=ranks))
        self._kept_epoch: int | None = None  # of the best model that is on disk

    @property
    def settings(self) -> Settings:
        """Return the settings that config.toml holds."""
        return self._spec.to_settings()

    def save(self, state: StateDict, step: int) -> None:
        """Write a checkpoint, and the best model so far: it can be used before the end."""
        super().save(state, step)
        best = self.loop.best
        if best is not None and best["epoch"] != self._kept_epoch:
            done, epochs = best["epoch"] + 1, self._spec.training.epochs
            details = ModelDetails(
                valid_score=best["score"],
                epoch=best["epoch"],
                data=self._spec.data_set.name,
                caution=f"Its training has not ended: this is epoch {done} of {epochs}." if done < epochs else "",
            )
            save_model(self.folder.path / BEST, card_of(self._spec, self._data, details), best["weights"])
            self._kept_epoch = best["epoch"]

    def finish(self, outcome: RetrainOutcome, seconds: float) -> RetrainResult:
        """Write the models and the result; return the result."""
        result = self._make_result(outcome, seconds)
        card = card_of(self._spec, self._data, _card_details(result))
        for name, weights in ((LAST, self.loop.last), (BEST, self.loop.chosen)):
            save_model(self.folder.path / name, card, weights)
        self.folder.write_result(result.to_json())
        return result

    def write_report(self, result: RetrainResult | None) -> None:
        """Write the report page, of an unfinished run too."""
        test = self._data.test if isinstance(self._data, ImageData) else None
        write_drawing(self.folder, self._spec)
        images = None if test is None else lambda index: test.fetch(torch.tensor(index))
        with_pictures = self._budget is None or self._budget.has_time_for_pictures()
        write_retrain_report(self.folder.path, images=images, with_pictures=with_pictures)

    def _make_result(self, outcome: RetrainOutcome, seconds: float) -> RetrainResult:
        spec, data, history = self._spec, self._data, self.loop.history
        card = card_of(spec, data)
        facts = RunFacts.collect(
            seconds=sum(record.total_seconds for record in history),
            seconds_since_start=seconds,
            records=len(history),
            device=spec.machine.prepare(),
        )
        return RetrainResult(
            **vars(outcome),
            space=to_json_object(card.space),  # as result.json has it
            architecture=dict(spec.architecture),
            text=spec.build_space().format(spec.architecture),
            recipe=spec.recipe,
            data=data.name if spec.data_set.name == GIVEN else spec.data_set.name,
            seed=spec.seed,
            classes=tuple(data.classes) if isinstance(data, ImageData) else (),
            changed=tuple(spec.changed),
            network=to_json_object(card.network),
            image_shape=tuple(card.image_shape),
            cost=self._cost,
            run=facts,
            history=tuple(history),
            folder=self.folder.path,
        )


def write_drawing(folder: RunFolder, spec: RetrainSpec) -> None:
    """Write the cells of the architecture as a picture."""
    drawing = draw_cells(spec.build_space().graphs(spec.architecture), title=spec.title)
    folder.write_text(folder.cell_path.name, drawing)


def _card_details(result: RetrainResult) -> ModelDetails:
    """Return what the file of a model says about its training."""
    return ModelDetails(
        test_score=None if result.test is None else result.test.top1,
        valid_score=None if result.valid is None else result.valid.top1,
        epoch=result.best_epoch,
        data=result.data,
        recipe=result.recipe,
        seed=result.seed,
        caution=result.caution,
    )


def _read_finished(folder: RunFolder) -> RetrainResult:
    result = read_retrain_result(folder)
    assert result is not None, "called for finished runs only"
    return result
