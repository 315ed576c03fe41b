"""A comparison, resolved: several searches x seeds from one TOML file, all checked before any of them runs.

The settings of an entry come, from weakest to strongest, from its recipe, from `[all]`, from the entry, and from the
command line. A resolved comparison is complete: `comparison.toml` of its folder needs no other file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_doc import Doc

from archloom.core.errors import SettingError, require, suggestion
from archloom.core.files import write_atomically
from archloom.core.problems import Problems
from archloom.core.recipes import find_spec
from archloom.core.seeds import parse_seeds, seeds_text
from archloom.core.settings import Settings, check, tables_of, write_toml
from archloom.execution.machine import jobs_that_fit
from archloom.execution.run_folder import RunFolder
from archloom.searches.jobs import FEWEST_THREADS, SearchJob
from archloom.searches.spec import SECTIONS, SearchSpec, resolve_member
from archloom.strategies.base import BlackBox

FILE_NAME = "comparison.toml"


@dataclass(frozen=True, kw_only=True)
class LatencyLimit:
    """A latency on a device that the benchmark table knows."""

    device: Annotated[str, Doc("name of the device, such as pixel3")]
    ms: Annotated[float, Doc("largest latency, in milliseconds")]

    def __post_init__(self) -> None:
        require({f"limit.latency.ms must be above 0, got {self.ms}": self.ms > 0})


@dataclass(frozen=True, kw_only=True)
class ResultLimit:
    """What an architecture may cost to count in a verdict."""

    parameters: Annotated[float | None, Doc("by the table, else of the network that is searched")] = None
    flops: Annotated[float | None, Doc("multiply-adds for one image, likewise")] = None
    latency: Annotated[LatencyLimit | None, Doc('{device = "pixel3", ms = 10}, from the table\'s latencies')] = None

    def __post_init__(self) -> None:
        costs = {"parameters": self.parameters, "flops": self.flops}
        require({f"limit.{name} must be above 0, got {n}": n is None or n > 0 for name, n in costs.items()})

    def __bool__(self) -> bool:
        return any(value is not None for value in vars(self).values())


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings:
    """The top level of a comparison's file."""

    title: Annotated[str, Doc("of the table and the page")] = "Comparison"
    seeds: Annotated[str | list[int], Doc('"0-4", "0-4,9" or a list; an entry may have its own')] = "0-4"
    against: Annotated[
        str | None, Doc("the entry that others are judged against; left out: the one of random_search")
    ] = None
    match: Annotated[
        Literal["trials", "seconds"] | None, Doc("cost; left out: trials if black-box, seconds if one-shot")
    ] = None
    seconds_per_trial: Annotated[float | None, Doc("what one training costs, where scores come from a table")] = None
    limit: Annotated[ResultLimit, Doc("results that cost more are excluded")] = ResultLimit()
    all: Annotated[Settings, Doc("sections that hold for every entry")] = field(default_factory=dict)
    entry: Annotated[Settings, Doc("what is compared, by name")] = field(default_factory=dict)
    published: Annotated[Settings, Doc("figures of others, to be printed beside")] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cost = self.seconds_per_trial
        require({f"seconds_per_trial must be above 0, got {cost}": cost is None or cost > 0})


@dataclass(frozen=True)
class Published:
    """A row of a published table."""

    name: str
    figures: Mapping[str, float]  # by data set
    source: str


@dataclass(frozen=True)
class Contender:
    """One entry: a search, and the seeds it runs with."""

    name: str
    spec: SearchSpec  # of its first seed; other seeds change nothing else
    seeds: tuple[int, ...]
    black_box: bool

    def jobs(self, folder: Path) -> Iterator[SearchJob]:
        """Yield one job for each seed."""
        for seed in self.seeds:
            yield SearchJob(self.name, seed, self.spec.with_seed(seed), folder / "runs" / f"{self.name}-{seed}")


@dataclass(frozen=True)
class ComparisonSpec:
    """A resolved comparison: what `comparison.toml` of its folder has."""

    settings: ComparisonSettings
    contenders: Mapping[str, Contender]
    against: str | None
    published: tuple[Published, ...]

    @classmethod
    def resolve(
        cls,
        given: Settings,
        *,
        beside: Path | None = None,
        seeds: str | None = None,
        overrides: Settings | None = None,
    ) -> ComparisonSpec:
        """Check a comparison as a whole.

        Args:
            given: the contents of its TOML file.
            beside: the folder that paths of recipes start from.
            seeds: replace the seeds of every entry.
            overrides: sections that override those of every entry.

        Returns:
            The comparison with every setting of every entry.

        Raises:
            SettingError: lists everything that is wrong.
        """
        problems = Problems()
        settings = _make_settings(given, problems)
        problems.raise_if_any()  # the rest depends on the top level
        entries = [
            problems.attempt(
                lambda name=str(name), table=table: _resolve_entry(  # type: ignore[misc]
                    settings, name, table, beside=beside or Path(), seeds=seeds, overrides=overrides or {}
                )
            )
            for name, table in settings.entry.items()
        ]
        published = [
            problems.attempt(lambda name=str(name), row=row: _read_published(name, row))  # type: ignore[misc]
            for name, row in settings.published.items()
        ]
        problems.raise_if_any()
        contenders = {entry.name: entry for entry in entries if entry is not None}
        against = _find_against(settings, contenders)
        return cls(settings, contenders, against, tuple(row for row in published if row is not None))

    @classmethod
    def open(
        cls,
        given: str | Path | Settings,
        root: Path,
        *,
        out: Path | None = None,
        seeds: str | None = None,
        overrides: Settings | None = None,
    ) -> tuple[ComparisonSpec, Path]:
        """Resolve a mapping, a TOML file, a shipped comparison or a folder of results; return it with its folder."""
        source = find_spec("compare", given, root, out=out)
        return cls.resolve(source.settings, beside=source.beside, seeds=seeds, overrides=overrides), source.folder

    @property
    def limit(self) -> ResultLimit:
        """Return the largest cost that a result may have to count."""
        return self.settings.limit

    @property
    def jobs_at_once(self) -> int:
        """Return how many of its searches this machine can run in parallel."""
        return jobs_that_fit([contender.spec.machine for contender in self.contenders.values()])

    def jobs(self, folder: Path, *, only: Collection[str] = ()) -> list[SearchJob]:
        """Return every job, or those of some entries."""
        unknown = [name for name in only if name not in self.contenders]
        if unknown:
            raise SettingError([f"no entry '{name}'{suggestion(name, self.contenders)}" for name in unknown])
        chosen = [contender for name, contender in self.contenders.items() if not only or name in only]
        return [job for contender in chosen for job in contender.jobs(folder)]

    def to_settings(self) -> Settings:
        """Return the contents of a TOML file that resolves to this again, without any recipe."""
        omitted = ("all", "entry", *(() if self.limit else ("limit",)))
        settings = {name: value for name, value in tables_of(self.settings).items() if name not in omitted}
        entries = {}
        for name, contender in self.contenders.items():
            written = contender.spec.to_settings() if contender.black_box else contender.spec.written_settings()
            sections = {key: value for key, value in written.items() if key in SECTIONS}
            entries[name] = {"seeds": seeds_text(contender.seeds), **sections}
        return {**{name: value for name, value in settings.items() if value != {}}, "entry": entries}

    def write(self, folder: Path) -> None:
        """Write the comparison into its folder; a folder with other contents is refused."""
        if not (folder / FILE_NAME).is_file():
            RunFolder(folder).refuse_if_taken()
        write_atomically(folder / FILE_NAME, write_toml(self.to_settings()).encode())


def longest_first(comparison: ComparisonSpec, jobs: Sequence[SearchJob]) -> list[SearchJob]:
    """Return the jobs that are left, the longest first: a long job that starts last would run alone.

    Finished jobs of an entry say how long it takes. Before any has finished, one-shot searches come first.
    """
    seconds: dict[str, float] = {}
    left = []
    for job in jobs:
        if job.state != "finished":
            left.append(job)
        elif job.entry not in seconds:
            seconds[job.entry] = ((job.run_folder.read_result() or {}).get("run") or {}).get("seconds", math.inf)
    return sorted(left, key=lambda t: (-seconds.get(t.entry, math.inf), comparison.contenders[t.entry].black_box))


def _make_settings(given: Settings, problems: Problems) -> ComparisonSettings:
    values, lines = check("", ComparisonSettings, given)
    problems.add(*lines)
    if "entry" not in given:
        problems.add("a comparison needs entries: [entry.NAME] with a recipe or sections of its own")
    made = problems.attempt(lambda: ComparisonSettings(**values))
    return made or ComparisonSettings()


def _resolve_entry(
    settings: ComparisonSettings, name: str, table: Any, *, beside: Path, seeds: str | None, overrides: Settings
) -> Contender:
    if not re.fullmatch(r"[A-Za-z0-9_][\w.-]*", name, re.ASCII):  # it becomes the name of a folder
        raise SettingError(f"entry '{name}': a name is made of letters, digits, _, - and .")
    prefix, problems = f"entry {name}: ", Problems()
    if not isinstance(table, Mapping):
        raise SettingError(f"{prefix}must be a table of settings, got {table!r}")
    numbers = problems.attempt(lambda: parse_seeds(seeds or table.get("seeds", settings.seeds)), prefix=prefix)
    spec = problems.attempt(
        lambda: resolve_member(
            "a comparison",
            table,
            seed=(numbers or (0,))[0],
            beside=beside,
            defaults=FEWEST_THREADS,
            shared=settings.all,
            overrides=overrides,
        ),
        prefix=prefix,
    )
    problems.raise_if_any()
    assert numbers is not None and spec is not None, "problems were raised"
    return Contender(name, spec, numbers, isinstance(spec.build_strategy(spec.build_space()), BlackBox))


def _read_published(name: str, row: Any) -> Published:
    figures = {key: value for key, value in row.items() if key != "source"} if isinstance(row, Mapping) else {}
    source = row.get("source", "") if isinstance(row, Mapping) else None
    is_numeric = bool(figures) and all(type(value) in (int, float) for value in figures.values())
    if not is_numeric or not isinstance(source, str):
        raise SettingError(f"published.{name} must be numbers by data set and a source, got {row!r}")
    return Published(name, {key: float(value) for key, value in figures.items()}, source)


def _find_against(settings: ComparisonSettings, contenders: Mapping[str, Contender]) -> str | None:
    """Return the entry that others are compared with: the one named, else the only one of random search."""
    given = settings.against
    if given is not None and given not in contenders:
        raise SettingError(f"against must be one of the entries, got '{given}'{suggestion(given, contenders)}")
    if given is not None:
        return given
    random = [name for name, contender in contenders.items() if contender.spec.strategy.name == "random_search"]
    if len(random) > 1:
        raise SettingError(f"against must say which of {', '.join(random)} the others are compared with")
    return random[0] if random else None
