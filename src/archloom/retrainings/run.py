"""From an architecture to a trained model in one call: what to train, on which images, and how; begun or resumed."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from archloom.core.errors import SettingError
from archloom.core.events import Event, Listener, Recorded
from archloom.core.recipes import find_retraining
from archloom.core.settings import flatten, merge, read_toml
from archloom.data.source import ImageData
from archloom.execution.loop import Interrupted
from archloom.execution.machine import peak_memory_mb
from archloom.execution.run_facts import installed_versions
from archloom.execution.run_folder import RunFolder
from archloom.reports.cells import draw_cells
from archloom.retrainings.auto import complete
from archloom.retrainings.build import (
    build_retraining,
    card_of,
    check_trainable,
    cost_of_model,
)
from archloom.retrainings.folder import RetrainFolder
from archloom.retrainings.loop import RetrainLoop
from archloom.retrainings.model_file import BEST, LAST, save_model
from archloom.retrainings.report import write_retrain_report
from archloom.retrainings.sizes import AUTO, parse_budget
from archloom.retrainings.spec import SECTIONS, RetrainSpec, compose
from archloom.retrainings.transfer import Origin, find_origin
from archloom.searches.architectures import find_architecture
from archloom.searches.run import RUNS, as_image_data
from archloom.searches.spec import GIVEN

Tell = Callable[[str], None]

MAY_DIFFER = ("machine.", "data.directory")  # where a run goes on


@dataclass(frozen=True)
class RetrainResult:
    """A trained model, how good it is, and where all of it is kept."""

    directory: Path
    model: Path  # the file of the model that counts
    test: Mapping[str, Any] | None  # on the test images, where there are any
    details: Mapping[str, Any]  # all of result.json


@dataclass(frozen=True)
class Request:
    """What somebody asked to be trained: resolved as far as that goes without the images."""

    retrain: RetrainSpec
    given: Mapping[str, Any]
    said: Mapping[str, Any]  # the part of it that the user said
    origin: Origin
    budget: str | None = None


def retrain(
    what: Any,
    *,
    data: Any = None,
    recipe: str = AUTO,
    budget: str | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    listeners: Sequence[Listener] = (),
    stop: Callable[[], bool] = lambda: False,
    tell: Tell = lambda line: None,
) -> RetrainResult:
    """Train an architecture from scratch; everything is written to a run directory (`out`, else runs/...).

    `what` is the run of a search (a folder, or what `archloom.search` returned), a JSON file, a text form or a
    published name. `data` is a name, or your own as in `archloom.search`; by default the data it was found on. `recipe`
    is a shipped one (`archloom list recipes`) or a TOML file; `auto` picks a size and a number of epochs for the time
    `budget` ("30m"). `settings` is a nested mapping: {"training": {"epochs": 5}, "space": {"name": "s1"}}. If `out`
    holds the same retraining already, it is gone on with. `tell` gets lines on what was chosen, and warnings.
    """
    own = as_image_data(data)
    named = {} if data is None else {"data": {"name": data if own is None else GIVEN}}
    said = merge(settings or {}, named, {} if seed is None else {"seed": seed})
    return carry_out(
        request(what, recipe=recipe, budget=budget, said=said),
        data=own,
        out=out,
        listeners=listeners,
        stop=stop,
        tell=tell,
    )


def request(what: Any, *, recipe: str = AUTO, budget: str | None = None, said: Mapping[str, Any]) -> Request:
    """Find the architecture and resolve all settings; a SettingError lists everything that is wrong with them."""
    given_as = str(getattr(what, "directory", what))
    if budget is not None:
        parse_budget(budget)
        if recipe != AUTO:
            raise SettingError(
                f"a budget is for the recipe 'auto', which fits itself to it; '{recipe}' has its own epochs"
            )
    space = said.get("space", {})
    found = find_architecture(given_as, space_name=space.get("name") if isinstance(space, Mapping) else None)
    origin = find_origin(given_as, found)
    given = compose(
        found.space_name,
        found.space,
        found.architecture,
        recipe=(recipe, read_toml(find_retraining(recipe))),
        inherited=origin.data,
        overrides=said,
    )
    return Request(RetrainSpec.resolve(given), given, said, origin, budget)


def carry_out(
    asked: Request,
    *,
    data: ImageData | None = None,
    out: str | Path | None = None,
    listeners: Sequence[Listener] = (),
    stop: Callable[[], bool] = lambda: False,
    tell: Tell = lambda line: None,
) -> RetrainResult:
    """Begin what was asked for, or go on with it if the folder holds it."""
    path = RunFolder.next_free(RUNS, asked.retrain.stem) if out is None else Path(out)
    if RetrainFolder(path).config_path.is_file():
        _refuse_other(RetrainFolder(path), asked)
        here = {name: asked.said[name] for name in ("machine",) if name in asked.said}
        return resume_retraining(path, data=data, settings=here, listeners=listeners, stop=stop, warn=tell)
    RetrainFolder(path).refuse_if_taken()
    images = data or asked.retrain.load_data()
    for warning in check_trainable(images):
        tell(f"warning: {warning}")
    completed = complete(
        asked.retrain, asked.given, asked.said, asked.origin, images, budget=asked.budget, note=tell
    )
    prepared = _Prepared(completed, images)  # bad data is found before a directory is made
    run = RetrainFolder.create(path, settings=prepared.retrain.to_settings())
    with run.lock():
        run.write_metrics([])
        return prepared.run(run, listeners, stop)


def resume_retraining(
    directory: str | Path,
    *,
    data: Any = None,
    settings: Mapping[str, Any] | None = None,
    listeners: Sequence[Listener] = (),
    stop: Callable[[], bool] = lambda: False,
    warn: Tell = lambda message: None,
) -> RetrainResult:
    """Go on with a retraining that was interrupted; one that is complete is returned as it is."""
    run = RetrainFolder.open(Path(directory))
    resolved = RetrainSpec.resolve(merge(run.config, settings or {}))
    with run.lock():
        if run.finished:
            return _result(run)
        prepared = _Prepared(resolved, as_image_data(data) or resolved.load_data())
        state = run.checkpoints.load_latest(warn=warn)
        if state is not None:
            prepared.load(state, run)
        run.write_metrics(prepared.training.history)
        return prepared.run(run, listeners, stop)


def _refuse_other(run: RunFolder, asked: Request) -> None:
    """A SettingError where the folder holds something else than what is asked for."""
    config = run.config
    if config.get("kind") != asked.retrain.to_settings()["kind"]:
        run.refuse_if_taken()
    there, wanted = flatten(RetrainSpec.resolve(config).to_settings()), flatten(asked.retrain.to_settings())
    said = [*flatten(asked.said), *(name for name in wanted if name.startswith("architecture.")), "recipe", "data.name"]
    for name in said:
        if not name.startswith(MAY_DIFFER) and there.get(name) != wanted.get(name):
            raise SettingError(
                f"{run.path} holds another retraining: {name} is {there.get(name)!r} there, {wanted.get(name)!r} "
                "is asked for; choose another --out"
            )


# --- a run


class _Prepared:
    """A training that is built, with what is needed to keep and describe its model."""

    def __init__(self, resolved: RetrainSpec, data: ImageData) -> None:
        check_trainable(data)
        self.retrain, self._data = resolved, data
        self.training: RetrainLoop = build_retraining(resolved, data)
        self._cost = cost_of_model(resolved, data)
        self._kept_epoch: int | None = None  # of the best model that is on disk

    def load(self, state: Any, run: RunFolder) -> None:
        with run.restoring():
            self.training.load_state_dict(state)

    def run(self, run: RunFolder, listeners: Sequence[Listener], stop: Callable[[], bool]) -> RetrainResult:
        for listener in listeners:
            self.training.listen(listener)
        try:
            with run.appending_metrics() as append:

                def keep(event: Event) -> None:
                    if isinstance(event, Recorded):
                        append(event.record)

                self.training.listen(keep)
                start = time.perf_counter()
                outcome = self.training.run(save=lambda state, step: self._save(run, state, step), stop=stop)
        except Interrupted:
            self._report(run)
            raise
        described = self._described(outcome, time.perf_counter() - start)
        for name, weights in ((LAST, self.training.last), (BEST, self.training.chosen)):
            save_model(run.path / name, card_of(self.retrain, self._data, _told(described)), weights)
        run.write_result(described)
        self._report(run)
        return _result(run)

    def _save(self, run: RunFolder, state: Any, step: int) -> None:
        """A checkpoint, and the best model so far, so that there is one to use before the end."""
        run.checkpoints.save(state, step=step)
        best = self.training.best
        if best is not None and best["epoch"] != self._kept_epoch:
            details = {"valid_accuracy": best["accuracy"], "epoch": best["epoch"], "data": self.retrain.data_set.name}
            save_model(run.path / BEST, card_of(self.retrain, self._data, details), best["weights"])
            self._kept_epoch = best["epoch"]

    def _report(self, run: RunFolder) -> None:
        space, test = self.retrain.build_space(), self._data.test
        run.write_text(
            run.cell_path.name, draw_cells(space.graphs(self.retrain.architecture), title=self.retrain.title)
        )
        images = None if test is None else lambda index: test.fetch(torch.tensor(index))
        write_retrain_report(run.path, images=images)

    def _described(self, outcome: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Everything about the result that a reader of result.json may want."""
        resolved, data = self.retrain, self._data
        card = card_of(resolved, data, {})
        device = resolved.machine.prepare()
        history = self.training.history
        return {
            "kind": "retrain",
            "space": dict(card.space),
            "architecture": dict(resolved.architecture),
            "text": resolved.build_space().format(resolved.architecture),
            "recipe": resolved.recipe,
            "data": data.name if resolved.data_set.name == GIVEN else resolved.data_set.name,
            "seed": resolved.seed,
            "classes": list(data.classes),
            "changed": list(resolved.changed),
            "network": dict(card.network),
            "image_shape": list(card.image_shape),
            **outcome,
            "cost": asdict(self._cost),
            "run": {
                "seconds": sum(record["seconds"] + record.get("valid_seconds", 0.0) for record in history),
                "seconds_since_start": seconds,
                "peak_memory_mb": peak_memory_mb(device),
                "records": len(history),
                "device": str(device),
                "threads": torch.get_num_threads(),
                "versions": installed_versions(),
                "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            },
        }


def _told(described: Mapping[str, Any]) -> dict[str, Any]:
    """What the file of a model says of itself."""
    accuracies = {f"{part}_accuracy": described[part]["top1"] for part in ("test", "valid") if described[part]}
    return {**accuracies, **{name: described[name] for name in ("data", "recipe", "seed", "best_epoch")}}


def _result(run: RunFolder) -> RetrainResult:
    details = run.read_result()
    assert details is not None, "called for finished runs only"
    return RetrainResult(directory=run.path, model=run.path / BEST, test=details["test"], details=details)


__all__ = ["SECTIONS", "Request", "RetrainResult", "carry_out", "request", "resume_retraining", "retrain"]
