"""A comparison: several experiments x seeds from one TOML file, all of them checked before any is run.

What an experiment says comes, from weakest to strongest, from its recipe, from `[all]`, from its own entry, and from
the command line. What is resolved is complete: `comparison.toml` of a comparison's folder needs no other file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_doc import Doc

from archloom.core.errors import SettingError, require, suggestion
from archloom.core.files import write_atomically
from archloom.core.recipes import find_comparison, find_recipe
from archloom.core.seeds import parse_seeds, seeds_text
from archloom.core.settings import check, merge, read_toml, settings_of, write_toml
from archloom.execution.machine import pick_device
from archloom.execution.run_folder import RunFolder
from archloom.execution.survey import usable_cores
from archloom.searches.jobs import FEWEST_THREADS, SearchJob
from archloom.searches.spec import SECTIONS, SearchSpec
from archloom.strategies.base import BlackBox

FILE_NAME = "comparison.toml"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What an architecture may cost to count in a verdict."""

    parameters: Annotated[
        float | None, Doc("by the table, or of the network that is searched where no table tells")
    ] = None
    flops: Annotated[float | None, Doc("multiply-adds for one image, likewise")] = None
    latency: Annotated[Mapping[str, Any] | None, Doc('{device = "pixel3", ms = 10}, from the table\'s latencies')] = (
        None
    )

    def __post_init__(self) -> None:
        latency = self.latency or {"device": "", "ms": 1}
        fits = latency.keys() == {"device", "ms"} and isinstance(latency["device"], str)
        number = latency.get("ms")
        require(
            {
                f"limit.{name} must be above 0, got {value}": value is None or value > 0
                for name, value in (("parameters", self.parameters), ("flops", self.flops))
            }
            | {
                f'limit.latency must be {{device = "NAME", ms = NUMBER}}, got {latency}': fits
                and type(number) in (int, float)
                and number > 0  # type: ignore[operator]  # its type was just checked
            }
        )

    def __bool__(self) -> bool:
        return any(value is not None for value in vars(self).values())


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings:
    """What stands at the top of a comparison's file."""

    title: Annotated[str, Doc("of the table and the page")] = "Comparison"
    seeds: Annotated[str | list[int], Doc('"0-4", "0-4,9" or a list; an entry may have its own')] = "0-4"
    against: Annotated[
        str | None, Doc("the entry that others are judged against; left out: the one of random_search")
    ] = None
    match: Annotated[
        Literal["trials", "seconds"] | None, Doc("cost; left out: trials if black-box, seconds if one-shot")
    ] = None
    seconds_per_trial: Annotated[float | None, Doc("what one training costs, where scores come from a table")] = None
    limit: Annotated[Mapping[str, Any], Doc("parameters, flops or latency: what is above does not count")] = field(
        default_factory=dict
    )
    all: Annotated[Mapping[str, Any], Doc("sections that hold for every entry")] = field(default_factory=dict)
    entry: Annotated[Mapping[str, Any], Doc("what is compared, by name")] = field(default_factory=dict)
    published: Annotated[Mapping[str, Any], Doc("figures of others, to be printed beside")] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        cost = self.seconds_per_trial
        require({f"seconds_per_trial must be above 0, got {cost}": cost is None or cost > 0})


@dataclass(frozen=True)
class Published:
    """A row of somebody else's table."""

    name: str
    figures: Mapping[str, float]  # by data set
    source: str


@dataclass(frozen=True)
class Contender:
    """One entry: an experiment, and the seeds it is run with."""

    name: str
    experiment: SearchSpec  # of its first seed; with another one nothing else changes
    seeds: tuple[int, ...]
    black_box: bool

    def jobs(self, folder: Path) -> Iterator[SearchJob]:
        for seed in self.seeds:
            yield SearchJob(
                self.name, seed, replace(self.experiment, seed=seed), folder / "runs" / f"{self.name}-{seed}"
            )


@dataclass(frozen=True)
class ComparisonSpec:
    """A resolved comparison: what `comparison.toml` of its folder holds."""

    settings: ComparisonSettings
    contenders: Mapping[str, Contender]
    against: str | None
    limit: Limit
    published: tuple[Published, ...]

    @classmethod
    def resolve(
        cls,
        given: Mapping[str, Any],
        *,
        beside: Path | None = None,
        seeds: str | None = None,
        assigned: Mapping[str, Any] | None = None,
    ) -> ComparisonSpec:
        """Check a comparison as a whole; a SettingError lists everything that is wrong with it.

        `beside` is the folder that paths of recipes start from; `seeds` and `assigned` overrule what every entry says.
        """
        return _Resolver(given, beside or Path(), seeds, assigned or {}).comparison()

    def jobs(self, folder: Path, *, only: Collection[str] = ()) -> list[SearchJob]:
        """Every run, or those of some entries."""
        unknown = [name for name in only if name not in self.contenders]
        if unknown:
            raise SettingError([f"no entry '{name}'{suggestion(name, self.contenders)}" for name in unknown])
        chosen = [contender for name, contender in self.contenders.items() if not only or name in only]
        return [job for contender in chosen for job in contender.jobs(folder)]

    def to_settings(self) -> dict[str, Any]:
        """What a TOML file has to say to get this comparison again, without recipes or anything else beside it."""
        settings = {name: value for name, value in vars(self.settings).items() if name not in ("all", "entry")}
        entries = {}
        for name, contender in self.contenders.items():
            sections = {key: value for key, value in contender.experiment.to_settings().items() if key in SECTIONS}
            entries[name] = {"seeds": seeds_text(contender.seeds), **sections}
        return {**{name: value for name, value in settings.items() if value != {}}, "entry": entries}

    def write(self, folder: Path) -> None:
        """Make the folder that of this comparison, unless it is something else already."""
        if not (folder / FILE_NAME).is_file():
            RunFolder(folder).refuse_if_taken()
        write_atomically(folder / FILE_NAME, write_toml(self.to_settings()).encode())


def open_comparison(
    given: str | Path | Mapping[str, Any],
    root: Path,
    *,
    out: Path | None = None,
    seeds: str | None = None,
    assigned: Mapping[str, Any] | None = None,
) -> tuple[ComparisonSpec, Path]:
    """The comparison meant (a mapping, a TOML file, the name of a shipped one, or its own folder), and its folder.

    Unless `out` names another one that is below `root`, and the same every time: beginning again goes on.
    """
    if isinstance(given, Mapping):
        path, settings = Path("comparison.toml"), dict(given)
    elif (Path(given) / FILE_NAME).is_file():
        path, settings, out = Path(given) / FILE_NAME, read_toml(Path(given) / FILE_NAME), out or Path(given)
    else:
        path = find_comparison(str(given))
        settings = read_toml(path)
    resolved = ComparisonSpec.resolve(settings, beside=path.parent, seeds=seeds, assigned=assigned)
    return resolved, out or root / f"compare-{path.stem}"


def longest_first(comparison: ComparisonSpec, jobs: Sequence[SearchJob]) -> list[SearchJob]:
    """Tasks that are left, so that none is still at work when all others are done: by what finished ones took.

    Where none has finished, a job may be long; trials are told from a one-shot search, which rarely is the shorter.
    """
    seconds: dict[str, float] = {}
    left = []
    for job in jobs:
        if job.state != "finished":
            left.append(job)
        elif job.entry not in seconds:
            seconds[job.entry] = ((job.run_folder.read_result() or {}).get("run") or {}).get("seconds", math.inf)
    return sorted(left, key=lambda t: (-seconds.get(t.entry, math.inf), comparison.contenders[t.entry].black_box))


def jobs_that_fit(comparison: ComparisonSpec) -> int:
    """How many searches this machine can run side by side: as many as their threads leave cores for."""
    machines = [settings_of(contender.experiment.machine) for contender in comparison.contenders.values()]
    if any(pick_device(machine["device"]).type != "cpu" for machine in machines):
        return 1  # several would share one GPU and its memory
    cores = usable_cores()
    return max(1, cores // max(machine["torch_threads"] or cores for machine in machines))


class _Resolver:
    """Collects every problem of a comparison before giving up."""

    def __init__(self, given: Mapping[str, Any], beside: Path, seeds: str | None, assigned: Mapping[str, Any]) -> None:
        self._beside, self._seeds, self._assigned = beside, seeds, assigned
        values, self._problems = check("", ComparisonSettings, given)
        self._settings = self._attempt("", lambda: ComparisonSettings(**values)) or ComparisonSettings()
        self._limit = self._checked_limit()
        if not self._settings.entry and "entry" not in given:
            self._problems.append("a comparison needs entries: [entry.NAME] with a recipe or sections of its own")

    def comparison(self) -> ComparisonSpec:
        self._raise_if_any()  # what stands at the top is needed for the rest
        contenders = [self._contender(str(name), values) for name, values in self._settings.entry.items()]
        published = tuple(self._published(str(name), row) for name, row in self._settings.published.items())
        self._raise_if_any()
        known = {contender.name: contender for contender in contenders if contender is not None}
        against = self._against(known)
        self._raise_if_any()
        return ComparisonSpec(self._settings, known, against, self._limit, published)

    def _raise_if_any(self) -> None:
        if self._problems:
            raise SettingError(self._problems)

    def _attempt(self, where: str, make: Any) -> Any:
        try:
            return make()
        except SettingError as error:
            self._problems += [f"{where}{problem}" for problem in error.problems]
        return None

    def _checked_limit(self) -> Limit:
        values, problems = check("limit", Limit, self._settings.limit)
        self._problems += problems
        return (None if problems else self._attempt("", lambda: Limit(**values))) or Limit()

    def _contender(self, name: str, values: Any) -> Contender | None:
        where = f"entry {name}: "
        if not re.fullmatch(r"[A-Za-z0-9_][\w.-]*", name, re.ASCII):  # it becomes the name of a folder
            self._problems.append(f"entry '{name}': a name is made of letters, digits, _, - and .")
            return None
        if not isinstance(values, Mapping):
            self._problems.append(f"{where}must be a table of settings, got {values!r}")
            return None
        seeds = self._attempt(where, lambda: self._seeds_of(values))
        experiment = self._attempt(where, lambda: self._experiment(values, (seeds or (0,))[0]))
        if seeds is None or experiment is None:
            return None
        black_box = isinstance(experiment.build_strategy(experiment.build_space()), BlackBox)
        return Contender(name, experiment, seeds, black_box)

    def _seeds_of(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        seeds = self._seeds or values.get("seeds", self._settings.seeds)
        if not isinstance(seeds, str | list | tuple):
            raise SettingError(f'seeds must be numbers from 0 such as "0-4", "0-4,9" or [0, 3], got {seeds!r}')
        return parse_seeds(seeds)

    def _experiment(self, values: Mapping[str, Any], seed: int) -> SearchSpec:
        own = {name: value for name, value in values.items() if name not in ("seeds", "recipe")}
        for layer in (self._settings.all, own, self._assigned):
            if "seed" in layer:
                raise SettingError("a comparison has seeds, not a seed")
        recipe = {name: value for name, value in self._recipe(values).items() if name != "seed"}
        layers = (FEWEST_THREADS, recipe, self._settings.all, own, self._assigned)
        experiment = SearchSpec.resolve({**merge(*layers), "seed": seed})
        folder = experiment.data.directory
        require({f"no data folder {folder}; check --data-dir": folder is None or folder.exists()})
        return experiment

    def _recipe(self, values: Mapping[str, Any]) -> dict[str, Any]:
        given = values.get("recipe")
        if given is None:
            return {}
        if not isinstance(given, str):
            raise SettingError(f"recipe must be the name of a recipe or the path of a .toml file, got {given!r}")
        near = self._beside / given
        return read_toml(near if given.endswith(".toml") else find_recipe(given))

    def _against(self, known: Mapping[str, Contender]) -> str | None:
        given = self._settings.against
        if given is not None and given not in known:
            self._problems.append(f"against must be one of the entries, got '{given}'{suggestion(given, known)}")
        if given is not None:
            return given
        random = [name for name, contender in known.items() if _strategy(contender) == "random_search"]
        if len(random) > 1:
            self._problems.append(f"against must say which of {', '.join(random)} the others are judged against")
        return random[0] if random else None

    def _published(self, name: str, row: Any) -> Published:
        figures = {key: value for key, value in row.items() if key != "source"} if isinstance(row, Mapping) else {}
        source = row.get("source", "") if isinstance(row, Mapping) else None
        fits = bool(figures) and all(type(value) in (int, float) for value in figures.values())
        if not fits or not isinstance(source, str):
            self._problems.append(f"published.{name} must be numbers by data set and a source, got {row!r}")
        return Published(name, {key: float(value) for key, value in figures.items()} if fits else {}, str(source))


def _strategy(contender: Contender) -> str:
    return contender.experiment.strategy.name
