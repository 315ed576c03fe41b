"""A whole pipeline from one TOML file: searches, which of them to train from scratch, trainings, and what to export.

What is resolved is complete: `pipeline.toml` of a pipeline's folder needs no other file.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_doc import Doc

from archloom.core.errors import SettingError, require, suggestion
from archloom.core.files import write_atomically
from archloom.core.recipes import find_pipeline, find_recipe
from archloom.core.seeds import parse_seeds, seeds_text
from archloom.core.settings import check, merge, read_toml, settings_of, write_toml
from archloom.execution.machine import pick_device
from archloom.execution.run_folder import RunFolder
from archloom.execution.survey import usable_cores
from archloom.retrainings.jobs import RetrainJob
from archloom.retrainings.sizes import AUTO, parse_budget
from archloom.retrainings.spec import SECTIONS as RETRAIN_SECTIONS
from archloom.searches.build import build_search
from archloom.searches.jobs import FEWEST_THREADS, SearchJob
from archloom.searches.loop import SearchLoop
from archloom.searches.spec import SECTIONS, SearchSpec
from archloom.spaces import SPACES
from archloom.strategies.base import BlackBox

FILE_NAME = "pipeline.toml"
MOST_RUNS = 1000  # of a kind
FORMATS = ("onnx", "torch", "standalone")
SEARCH_SHARE, RETRAIN_SHARE = 0.4, 0.5  # of a budget; what is left is for reading, judging and exporting
SPENT = 0.8  # of the time of a search on steps that were timed; the rest is for judging and a machine that slows down
FEWEST_EPOCHS = 3
TIMED_STEPS, STEPS_BEFORE = 6, 3  # the first steps of a process are slow


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """What stands at the top of a pipeline's file."""

    title: Annotated[str, Doc("of the table and the page")] = "Search and retrain"
    protocol: Annotated[Literal["best_of_searches", "repeats"], Doc("retrain the best, or what each search found")] = (
        "best_of_searches"
    )
    searches: Annotated[int, Doc("how many")] = 4
    seeds: Annotated[str | list[int] | None, Doc('theirs: "0-3" or a list; left out: 0 to searches - 1')] = None
    retrainings: Annotated[int, Doc("of each architecture that is retrained, with seeds from 0 on")] = 3
    pick: Annotated[Literal["validation"], Doc("what tells the best search; test images and tables never do")] = (
        "validation"
    )
    pick_epochs: Annotated[
        int, Doc("of a short training of each by which the best is told; 0: by its search's validation images")
    ] = 0
    export: Annotated[list[str], Doc("of the best model: onnx, torch, standalone")] = field(default_factory=list)
    budget: Annotated[
        str | None, Doc("time for all of it, as 15m; fits epochs of the search and what the recipe auto trains")
    ] = None
    search: Annotated[Mapping[str, Any], Doc("sections of a search, over those of `recipe`")] = field(
        default_factory=dict
    )
    retrain: Annotated[Mapping[str, Any], Doc("sections of a retraining, over those of `recipe`")] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        unknown = [name for name in self.export if name not in FORMATS]
        require(
            {
                f"searches must lie in 1..{MOST_RUNS}, got {self.searches}": 1 <= self.searches <= MOST_RUNS,
                f"retrainings must lie in 1..{MOST_RUNS}, got {self.retrainings}": 1 <= self.retrainings <= MOST_RUNS,
                f"pick_epochs must be 0 or more, got {self.pick_epochs}": self.pick_epochs >= 0,
                **{f"export: unknown format '{name}'{suggestion(name, FORMATS)}": False for name in unknown},
            }
        )
        if self.budget is not None:
            parse_budget(self.budget)


@dataclass(frozen=True)
class PipelineSpec:
    """A resolved pipeline: what `pipeline.toml` of its folder holds."""

    settings: PipelineSettings
    experiment: SearchSpec  # of the first search
    seeds: tuple[int, ...]  # of the searches
    recipe: str  # of the retrainings
    retrain: Mapping[str, Any]  # sections that overrule it

    @classmethod
    def resolve(
        cls, given: Mapping[str, Any], *, beside: Path | None = None, assigned: Mapping[str, Any] | None = None
    ) -> PipelineSpec:
        """Check a pipeline as a whole; a SettingError lists everything that is wrong with it.

        `beside` is the folder that paths of recipes start from; `assigned` overrules what the file says.
        """
        assigned = assigned or {}
        fewer = {"seeds"} if "searches" in assigned and "seeds" not in assigned else set()
        known = {name: value for name, value in given.items() if name not in fewer}
        return _Resolver(merge(known, assigned), beside or Path()).pipeline()

    def searches(self, folder: Path) -> list[SearchJob]:
        """The searches; each is a run of its own."""
        return [
            SearchJob("search", seed, replace(self.experiment, seed=seed), folder / "searches" / f"seed-{seed}")
            for seed in self.seeds
        ]

    def short_trainings(self, folder: Path) -> list[RetrainJob]:
        """A short training of what each search found, to tell the best of them; none unless asked for."""
        if not self.picks or not self.settings.pick_epochs:
            return []
        short = {"training": {"epochs": self.settings.pick_epochs, "keep": "last"}}
        return [
            RetrainJob(
                seed,
                0,
                folder / "searches" / f"seed-{seed}",
                folder / "picking" / f"search-{seed}",
                self.recipe,
                self._sections(len(self.seeds), short),
                short=True,
            )
            for seed in self.seeds
        ]

    def retrainings(self, folder: Path, searches: Sequence[int]) -> list[RetrainJob]:
        """The trainings of what these searches found."""
        count = len(searches) * self.settings.retrainings
        budget = self._retrain_budget(count)
        return [
            RetrainJob(
                search,
                seed,
                folder / "searches" / f"seed-{search}",
                folder / "retrainings" / f"search-{search}-seed-{seed}",
                self.recipe,
                self._sections(count),
                budget,
            )
            for search in searches
            for seed in range(self.settings.retrainings)
        ]

    @property
    def picks(self) -> bool:
        """Whether one search has to be chosen among several."""
        return self.settings.protocol == "best_of_searches" and len(self.seeds) > 1

    def _sections(self, count: int, over: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a retraining is told; several side by side get a thread each."""
        threads = FEWEST_THREADS if count > 1 else {}
        name = self.experiment.space.name
        plugin = {} if name in SPACES else {"space": {"name": name, **self.experiment.space.settings}}
        return merge(threads, plugin, self.retrain, over or {})

    def _retrain_budget(self, count: int) -> str | None:
        if self.settings.budget is None or self.recipe != AUTO:
            return None
        seconds = RETRAIN_SHARE * parse_budget(self.settings.budget) / math.ceil(count / self.retrain_jobs(count))
        return f"{max(1, round(seconds))}s"

    @property
    def search_jobs(self) -> int:
        """How many searches this machine can do side by side."""
        return _jobs(len(self.seeds), settings_of(self.experiment.machine))

    def retrain_jobs(self, count: int) -> int:
        """How many of so many retrainings this machine can do side by side."""
        return _jobs(count, self._sections(count).get("machine", {}))

    def to_settings(self) -> dict[str, Any]:
        """What a TOML file has to say to get this pipeline again, without recipes or anything else beside it."""
        top = {name: value for name, value in vars(self.settings).items() if name not in ("search", "retrain")}
        sections = {name: value for name, value in self.experiment.to_settings().items() if name in SECTIONS}
        top |= {"searches": len(self.seeds), "seeds": seeds_text(self.seeds)}
        return {**top, "search": sections, "retrain": {"recipe": self.recipe, **self.retrain}}

    def write(self, folder: Path) -> None:
        """Make the folder that of this pipeline, unless it is something else already."""
        if not (folder / FILE_NAME).is_file():
            RunFolder(folder).refuse_if_taken()
        write_atomically(folder / FILE_NAME, write_toml(self.to_settings()).encode())


def _jobs(count: int, machine: Mapping[str, Any]) -> int:
    """As many of so many runs as their threads leave cores for; one on a GPU, which they would share."""
    if pick_device(machine.get("device", "auto")).type != "cpu":
        return 1
    return min(count, max(1, usable_cores() // (machine.get("torch_threads") or usable_cores())))


def open_pipeline(
    given: str | Path | Mapping[str, Any],
    root: Path,
    *,
    out: Path | None = None,
    assigned: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> tuple[PipelineSpec, Path]:
    """The pipeline meant (a mapping, a TOML file, the name of a shipped one, or its own folder), and its folder.

    Unless `out` names another one that is below `root`, and the same every time: beginning again goes on. A budget
    becomes epochs when a pipeline begins; one that goes on keeps them.
    """
    if isinstance(given, Mapping):
        path, settings = Path("pipeline.toml"), dict(given)
    elif (Path(given) / FILE_NAME).is_file():
        path, settings, out = Path(given) / FILE_NAME, read_toml(Path(given) / FILE_NAME), out or Path(given)
    else:
        path = find_pipeline(str(given))
        settings = read_toml(path)
    pipeline = PipelineSpec.resolve(settings, beside=path.parent, assigned=assigned)
    folder = out or root / f"run-{path.stem}"
    return _with_epochs(pipeline, folder, tell), folder


def _with_epochs(pipeline: PipelineSpec, folder: Path, tell: Callable[[str], None]) -> PipelineSpec:
    """The pipeline with as many epochs of search as its budget allows, and not more than its recipe says."""
    if pipeline.settings.budget is None or isinstance(_strategy(pipeline.experiment), BlackBox):
        return pipeline
    if (folder / FILE_NAME).is_file():
        begun = read_toml(folder / FILE_NAME)
        if begun.get("budget") == pipeline.settings.budget:
            return _of_epochs(pipeline, int(begun["search"]["search"]["epochs"]))
    most = pipeline.experiment.search.epochs
    rounds = math.ceil(len(pipeline.seeds) / pipeline.search_jobs)
    seconds = SEARCH_SHARE * parse_budget(pipeline.settings.budget) / rounds
    epochs = epochs_that_fit(build_search(pipeline.experiment), seconds, most=most)
    tell(f"search: {epochs} of {most} epochs fit into {seconds / 60:.1f} min of {pipeline.settings.budget}")
    return _of_epochs(pipeline, epochs)


def _of_epochs(pipeline: PipelineSpec, epochs: int) -> PipelineSpec:
    given = merge(pipeline.experiment.to_settings(), {"search": {"epochs": epochs}})
    return replace(pipeline, experiment=SearchSpec.resolve(given))


def epochs_that_fit(
    search: SearchLoop[Any], seconds: float, *, most: int, clock: Callable[[], float] = time.perf_counter
) -> int:
    """How many epochs a search can do in this time, told from its first steps; at least a few."""
    for _ in range(STEPS_BEFORE):
        search.advance()
    start = clock()
    for _ in range(TIMED_STEPS):
        search.advance()
    of_an_epoch = search.units_per_record * (clock() - start) / TIMED_STEPS
    return max(FEWEST_EPOCHS, min(most, int(SPENT * seconds / of_an_epoch) if of_an_epoch > 0 else most))


def _strategy(experiment: SearchSpec) -> Any:
    return experiment.build_strategy(experiment.build_space())


def sample_of(experiment: SearchSpec) -> str:
    """Some architecture of the space that is searched, as JSON: to check what comes after a search before it."""
    space = experiment.build_space()
    content = {
        "space": experiment.space.to_settings(),
        "architecture": dict(space.sample(random.Random(0))),
    }
    return json.dumps(content, default=str)


class _Resolver:
    """Collects every problem of a pipeline before giving up."""

    def __init__(self, given: Mapping[str, Any], beside: Path) -> None:
        self._beside = beside
        values, self._problems = check("", PipelineSettings, given)
        made = None if self._problems else self._attempt("", lambda: PipelineSettings(**values))
        self._settings: PipelineSettings = made or PipelineSettings()

    def pipeline(self) -> PipelineSpec:
        self._raise_if_any()  # what stands at the top is needed for the rest
        seeds = self._attempt("", self._seeds)
        self._raise_if_any()
        experiment = self._attempt("search: ", lambda: self._experiment(seeds))
        recipe, sections = self._attempt("retrain: ", self._retrain) or ("", {})
        self._raise_if_any()
        return PipelineSpec(self._settings, experiment, seeds, recipe, sections)

    def _raise_if_any(self) -> None:
        if self._problems:
            raise SettingError(self._problems)

    def _attempt(self, where: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except SettingError as error:
            self._problems += [f"{where}{problem}" for problem in error.problems]
        return None

    def _seeds(self) -> tuple[int, ...]:
        given = self._settings.seeds
        return tuple(range(self._settings.searches)) if given is None else parse_seeds(given)

    def _experiment(self, seeds: Sequence[int]) -> SearchSpec:
        own = {name: value for name, value in self._settings.search.items() if name != "recipe"}
        if "seed" in own:
            raise SettingError("a pipeline has seeds, not a seed")
        recipe = {name: value for name, value in self._search_recipe().items() if name != "seed"}
        threads = FEWEST_THREADS if len(seeds) > 1 else {}
        experiment = SearchSpec.resolve({**merge(threads, recipe, own), "seed": seeds[0]})
        folder = experiment.data.directory
        require({f"no data folder {folder}; check --data-dir": folder is None or folder.exists()})
        return experiment

    def _search_recipe(self) -> dict[str, Any]:
        given = self._settings.search.get("recipe")
        if given is None:
            return {}
        if not isinstance(given, str):
            raise SettingError(f"recipe must be the name of a recipe or the path of a .toml file, got {given!r}")
        return read_toml(self._beside / given if given.endswith(".toml") else find_recipe(given))

    def _retrain(self) -> tuple[str, dict[str, Any]]:
        recipe = self._settings.retrain.get("recipe", AUTO)
        if not isinstance(recipe, str):
            raise SettingError(f"recipe must be the name of a recipe or the path of a .toml file, got {recipe!r}")
        sections = {name: value for name, value in self._settings.retrain.items() if name != "recipe"}
        unknown = [name for name in sections if name not in RETRAIN_SECTIONS]
        if unknown:
            raise SettingError([f"unknown section '{n}'{suggestion(n, RETRAIN_SECTIONS)}" for n in unknown])
        path = str((self._beside / recipe).absolute()) if recipe.endswith(".toml") else recipe
        return path, sections
