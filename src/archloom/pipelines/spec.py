"""A pipeline, resolved: searches, which of them to retrain, retrainings and exports, from one TOML file.

A resolved pipeline is complete: `pipeline.toml` of its folder needs no other file.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_doc import Doc

from archloom.core.durations import format_duration, parse_duration
from archloom.core.errors import SettingError, require, suggestion
from archloom.core.files import write_atomically
from archloom.core.problems import Problems
from archloom.core.recipes import recipe_path
from archloom.core.sections import Sections
from archloom.core.seeds import parse_seeds, seeds_text
from archloom.core.settings import Settings, check, flatten, merge, read_toml, tables_of, write_toml
from archloom.data import DataSet
from archloom.data.source import ImageData
from archloom.execution.machine import Machine, jobs_that_fit
from archloom.execution.run_folder import RunFolder
from archloom.pipelines.final_plan import plan_final
from archloom.pipelines.source import FILE_NAME, RETRAININGS, SEARCHES, find_pipeline_source
from archloom.retrainings.jobs import RetrainJob
from archloom.retrainings.run import RetrainRequest, resolve_request
from archloom.retrainings.sizes import AUTO
from archloom.retrainings.spec import SECTIONS as RETRAIN_SECTIONS
from archloom.searches.build import build_search
from archloom.searches.jobs import FEWEST_THREADS, SearchJob
from archloom.searches.loop import SearchLoop
from archloom.searches.plan import complete_search
from archloom.searches.spec import SECTIONS, SearchSpec, resolve_member
from archloom.spaces import SPACES, Architecture
from archloom.strategies.base import BlackBox

MOST_RUNS = 1000  # of a kind
FORMATS = ("onnx", "torch", "standalone")
SEARCH_SHARE, TOGETHER = (
    0.4,
    0.9,
)  # of a budget: of searches, and with retrainings; the rest is for evaluation and exports
FEW_IMAGES, SHARE_FOR_FEW = (
    2_500,
    0.2,
)  # few images hardly tell architectures apart: their time is better spent on training
SPENT = 0.8  # of the time of a search, by its timed steps; the rest is for evaluation and a machine that slows down
FEWEST_EPOCHS = 3
TIMED_STEPS, STEPS_BEFORE = 6, 3  # the first steps of a process are slow


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """The top level of a pipeline's file."""

    title: Annotated[str, Doc("of the table and the page")] = "Search and retrain"
    protocol: Annotated[Literal["best_of_searches", "repeats"], Doc("retrain the best, or what each search found")] = (
        "best_of_searches"
    )
    searches: Annotated[int, Doc("how many searches")] = 4
    seeds: Annotated[str | list[int] | None, Doc('of the searches: "0-3" or a list; left out: 0 to searches - 1')] = (
        None
    )
    retrainings: Annotated[int, Doc("of each architecture that is retrained, with seeds from 0 on")] = 3
    pick: Annotated[Literal["validation"], Doc("what picks the best search; never test images or tables")] = (
        "validation"
    )
    pick_epochs: Annotated[
        int, Doc("of a short training of each that finds the best; 0: compare validation accuracies of the searches")
    ] = 0
    export: Annotated[list[str], Doc("of the best model: onnx, torch, standalone")] = field(default_factory=list)
    budget: Annotated[
        str | None, Doc("time for all of it, as 15m; fits epochs of the search and what the recipe auto trains")
    ] = None
    search_share: Annotated[
        float | None, Doc("of the budget, for searches; left out: 0.4, and 0.2 where there are fewer than 2,500 images")
    ] = None
    search: Annotated[Settings, Doc("sections of a search, over those of `recipe`")] = field(default_factory=dict)
    retrain: Annotated[Settings, Doc("sections of a retraining, over those of `recipe`")] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = [name for name in self.export if name not in FORMATS]
        require(
            {
                f"searches must lie in 1..{MOST_RUNS}, got {self.searches}": 1 <= self.searches <= MOST_RUNS,
                f"retrainings must lie in 1..{MOST_RUNS}, got {self.retrainings}": 1 <= self.retrainings <= MOST_RUNS,
                f"pick_epochs must be 0 or more, got {self.pick_epochs}": self.pick_epochs >= 0,
                f"search_share must lie in (0, {TOGETHER}), got {self.search_share}": (
                    self.search_share is None or 0 < self.search_share < TOGETHER
                ),
                **{f"export: unknown format '{name}'{suggestion(name, FORMATS)}": False for name in unknown},
            }
        )
        if self.budget is not None:
            parse_duration(self.budget)


@dataclass(frozen=True)
class PipelineSpec:
    """A resolved pipeline: what `pipeline.toml` of its folder has."""

    settings: PipelineSettings
    search: SearchSpec  # of the first seed; other seeds change nothing else
    seeds: tuple[int, ...]  # of the searches
    recipe: str  # of the retrainings
    retrain: Settings  # sections that override the recipe

    @classmethod
    def resolve(cls, given: Settings, *, beside: Path | None = None, overrides: Settings | None = None) -> PipelineSpec:
        """Check a pipeline as a whole.

        Args:
            given: the contents of its TOML file.
            beside: the folder that paths of recipes start from.
            overrides: settings that override those of the file.

        Returns:
            The pipeline with every setting.

        Raises:
            SettingError: lists everything that is wrong.
        """
        beside, overrides = beside or Path(), overrides or {}
        is_resized = "searches" in overrides and "seeds" not in overrides  # then seeds of the file do not count
        tables = merge(
            {name: value for name, value in given.items() if not (is_resized and name == "seeds")}, overrides
        )
        problems = Problems()
        values, lines = check("", PipelineSettings, tables)
        problems.add(*lines)
        problems.raise_if_any()
        settings = PipelineSettings(**values)
        seeds = tuple(range(settings.searches)) if settings.seeds is None else parse_seeds(settings.seeds)
        search = problems.attempt(
            lambda: resolve_member(
                "a pipeline",
                settings.search,
                seed=seeds[0],
                beside=beside,
                defaults=FEWEST_THREADS if len(seeds) > 1 else None,
            ),
            prefix="search: ",
        )
        retrain = problems.attempt(lambda: _resolve_retrain(settings.retrain, beside), prefix="retrain: ")
        problems.raise_if_any()
        assert search is not None and retrain is not None, "problems were raised"
        return cls(settings, search, seeds, *retrain)

    @classmethod
    def open(
        cls,
        given: str | Path | Settings,
        root: Path,
        *,
        out: Path | None = None,
        overrides: Settings | None = None,
        note: Callable[[str], None] = lambda line: None,
    ) -> tuple[PipelineSpec, Path]:
        """Resolve a mapping, a TOML file, a shipped pipeline or a folder of results; return it with its folder.

        A budget becomes epochs when a pipeline begins; a pipeline that is resumed keeps them.
        """
        source, overrides = find_pipeline_source(given, root, out=out, overrides=overrides or {})
        pipeline = cls.resolve(source.settings, beside=source.beside, overrides=overrides)
        return _with_epochs(pipeline, source.folder, note), source.folder

    def searches(self, folder: Path) -> list[SearchJob]:
        """Return the searches, one job for each seed."""
        return [
            SearchJob("search", seed, self.search.with_seed(seed), folder / SEARCHES / f"seed-{seed}")
            for seed in self.seeds
        ]

    def short_trainings(self, folder: Path) -> list[RetrainJob]:
        """Return a short training of each search's result, to pick the best; none where pick_epochs is 0."""
        if not self.picks or not self.settings.pick_epochs:
            return []
        short = {"training": {"epochs": self.settings.pick_epochs, "keep": "last"}}
        return [
            RetrainJob(
                seed,
                0,
                folder / SEARCHES / f"seed-{seed}",
                folder / "picking" / f"search-{seed}",
                self.recipe,
                self._sections(len(self.seeds), short),
                short=True,
            )
            for seed in self.seeds
        ]

    def retrainings(self, folder: Path, searches: Sequence[int]) -> list[RetrainJob]:
        """Return the retrainings of the results of these searches."""
        count = len(searches) * self.settings.retrainings
        budget = self.retrain_time(count)
        return [
            RetrainJob(
                search,
                seed,
                folder / SEARCHES / f"seed-{search}",
                folder / RETRAININGS / f"search-{search}-seed-{seed}",
                self.recipe,
                self._sections(count),
                budget,
            )
            for search in searches
            for seed in range(self.settings.retrainings)
        ]

    def request(self, architecture: Architecture) -> RetrainRequest:
        """Return the retraining of an architecture, resolved as far as is possible without its search."""
        search = self.search
        content = {"space": search.space.to_settings(), "architecture": dict(architecture)}
        data = {"directory": search.data.directory, **search.data_set.settings}
        known = {name: data[name] for name in ("directory", "path") if name in data}
        overrides = merge({"data": {"name": search.data_set.name, **known}}, self.retrain)
        return resolve_request(json.dumps(content, default=str), recipe=self.recipe, overrides=overrides)

    def with_search_share(self, share: float | None) -> PipelineSpec:
        """Return the pipeline with a share of the budget for searches, unless the user wrote one."""
        if share is None or self.settings.search_share is not None:
            return self
        return replace(self, settings=replace(self.settings, search_share=share))

    @property
    def picks(self) -> bool:
        """Return whether one search must be chosen among several."""
        return self.settings.protocol == "best_of_searches" and len(self.seeds) > 1

    @property
    def search_share(self) -> float:
        """Return the share of the budget that searches get."""
        return SEARCH_SHARE if self.settings.search_share is None else self.settings.search_share

    @property
    def search_seconds(self) -> float:
        """Return the time of each search within the budget."""
        assert self.settings.budget is not None, "there is a budget"
        rounds = math.ceil(len(self.seeds) / self.search_jobs)
        return self.search_share * parse_duration(self.settings.budget) / rounds

    @property
    def most_retrainings(self) -> int:
        """Return how many retrainings there will be."""
        return self.settings.retrainings * (1 if self.settings.protocol == "best_of_searches" else len(self.seeds))

    def _sections(self, count: int, over: Settings | None = None) -> Settings:
        """Return the settings of a retraining; several in parallel get a thread each."""
        threads = FEWEST_THREADS if count > 1 else {}
        space = self.search.space
        plugin = {} if space.name in SPACES else {"space": space.to_settings()}
        return merge(threads, plugin, self.retrain, over or {})

    def retrain_time(self, count: int) -> str | None:
        """Return the time that each of so many retrainings has; None where the recipe says how long it trains."""
        if self.settings.budget is None or self.recipe != AUTO:
            return None
        seconds = (TOGETHER - self.search_share) * parse_duration(self.settings.budget)
        seconds /= math.ceil(count / self.retrain_jobs(count))
        return f"{max(1, round(seconds))}s"

    @property
    def search_jobs(self) -> int:
        """Return how many searches this machine can run in parallel."""
        return min(len(self.seeds), jobs_that_fit([self.search.machine]))

    def retrain_jobs(self, count: int) -> int:
        """Return how many of so many retrainings this machine can run in parallel."""
        return min(count, jobs_that_fit([_make_machine(self._sections(count))]))

    def to_settings(self) -> Settings:
        """Return the contents of a TOML file that resolves to this again, without any search recipe."""
        top = {name: value for name, value in tables_of(self.settings).items() if name not in ("search", "retrain")}
        sections = {name: value for name, value in self.search.to_settings().items() if name in SECTIONS}
        top |= {"searches": len(self.seeds), "seeds": seeds_text(self.seeds)}
        return {**top, "search": sections, "retrain": {"recipe": self.recipe, **self.retrain}}

    def refuse_folder(self, folder: Path) -> None:
        """Raise a SettingError if a folder has other contents than a pipeline."""
        if not (folder / FILE_NAME).is_file():
            RunFolder(folder).refuse_if_taken()

    def write(self, folder: Path) -> None:
        """Write the pipeline into its folder; a folder with other contents is refused."""
        self.refuse_folder(folder)
        write_atomically(folder / FILE_NAME, write_toml(self.to_settings()).encode())


def _with_epochs(pipeline: PipelineSpec, folder: Path, note: Callable[[str], None]) -> PipelineSpec:
    """Return the pipeline with a search that fits into its share of the budget.

    A search without stated epochs is planned as a whole; else as many of its epochs are taken as fit.
    """
    if pipeline.settings.budget is None or isinstance(
        pipeline.search.build_strategy(pipeline.search.build_space()), BlackBox
    ):
        return pipeline
    if (folder / FILE_NAME).is_file():
        begun = read_toml(folder / FILE_NAME)
        if begun.get("budget") == pipeline.settings.budget:
            pipeline = pipeline.with_search_share(begun.get("search_share"))
            planned = {name: value for name, value in begun["retrain"].items() if name != "recipe"}
            return _set_search(replace(pipeline, retrain=merge(planned, pipeline.retrain)), begun["search"])
    if "search.epochs" not in flatten(pipeline.search.given):
        return _with_plan(pipeline, note)
    most, seconds = pipeline.search.search.epochs, pipeline.search_seconds
    epochs = epochs_that_fit(build_search(pipeline.search), seconds, most=most)
    note(f"search: {epochs} of {most} epochs fit into {seconds / 60:.1f} min of {pipeline.settings.budget}")
    return _set_search(pipeline, merge(pipeline.search.to_settings(), {"search": {"epochs": epochs}}))


def _with_plan(pipeline: PipelineSpec, note: Callable[[str], None]) -> PipelineSpec:
    data = pipeline.search.load_data()
    few = isinstance(data, ImageData) and len(data.train) < FEW_IMAGES
    shared = pipeline.with_search_share(SHARE_FOR_FEW if few else SEARCH_SHARE)
    budget = {"search": {"budget": format_duration(shared.search_seconds)}}
    wanted = _with_final(_set_search(shared, merge(shared.search.given, budget)), data, note)
    return replace(wanted, search=complete_search(wanted.search, data, note).spec)


def _with_final(pipeline: PipelineSpec, data: DataSet, note: Callable[[str], None]) -> PipelineSpec:
    """Return the pipeline with a search for the network that the time of its retrainings allows."""
    time = pipeline.retrain_time(pipeline.most_retrainings)
    if time is None or not isinstance(data, ImageData) or pipeline.search.space.name not in SPACES:
        return pipeline
    plan = plan_final(pipeline.search, data, pipeline.request, time)
    if plan is None:
        return pipeline
    note(f"final network: {plan.reason}")
    sized = replace(pipeline, retrain=merge(plan.retrain, pipeline.retrain))
    return _set_search(sized, merge(pipeline.search.given, plan.settings))


def _set_search(pipeline: PipelineSpec, given: Settings) -> PipelineSpec:
    return replace(pipeline, search=SearchSpec.resolve({**given, "seed": pipeline.search.seed}))


def epochs_that_fit(
    search: SearchLoop[Any], seconds: float, *, most: int, clock: Callable[[], float] = time.perf_counter
) -> int:
    """Return how many epochs of a search fit into this time, by its first steps; at least a few."""
    for _ in range(STEPS_BEFORE):
        search.advance()
    start = clock()
    for _ in range(TIMED_STEPS):
        search.advance()
    epoch_seconds = search.units_per_record * (clock() - start) / TIMED_STEPS
    return max(FEWEST_EPOCHS, min(most, int(SPENT * seconds / epoch_seconds) if epoch_seconds > 0 else most))


def _resolve_retrain(table: Settings, beside: Path) -> tuple[str, Settings]:
    """Return the recipe of the retrainings, and the sections over it."""
    recipe = table.get("recipe", AUTO)
    path = recipe_path(recipe, beside)
    sections = {name: value for name, value in table.items() if name != "recipe"}
    unknown = [name for name in sections if name not in RETRAIN_SECTIONS]
    if unknown:
        raise SettingError([f"unknown section '{n}'{suggestion(n, RETRAIN_SECTIONS)}" for n in unknown])
    _make_machine(sections)
    return str(path.absolute()) if path.suffix == ".toml" else recipe, sections


def _make_machine(tables: Settings) -> Machine:
    sections = Sections({"machine": tables.get("machine", {})}, sections=("machine",))
    machine = sections.make("machine", Machine)
    sections.problems.raise_if_any()
    assert machine is not None, "problems were raised"
    return machine
