"""Run the contract tests of one plug-in without a test runner, and say for each rule whether it holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from archloom.benchmarks import BENCHMARKS, Benchmark
from archloom.core.errors import ArchloomError, SettingError, one_line
from archloom.core.registry import Catalogue
from archloom.data import DATA, load
from archloom.data.source import ImageData
from archloom.data.text import TextData
from archloom.searches.plugin_check import check_space
from archloom.spaces import SPACES, SearchSpace
from archloom.strategies import STRATEGIES
from archloom.testing.families import FamilyContract
from archloom.testing.spaces import SpaceContract, build_space
from archloom.testing.strategies import StrategyContract

KINDS: dict[str, Catalogue] = {"space": SPACES, "strategy": STRATEGIES, "data set": DATA, "table": BENCHMARKS}


@dataclass(frozen=True)
class Finding:
    """One rule, and what breaks it; `problem` is empty where it holds."""

    rule: str
    problem: str = ""


@dataclass(frozen=True)
class PluginReport:
    """What a plug-in is, and every rule that was checked."""

    kind: str
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> list[Finding]:
        """Return the rules that do not hold."""
        return [finding for finding in self.findings if finding.problem]


def check_plugin(name: str) -> PluginReport:
    """Return which rules a plug-in keeps.

    Args:
        name: the plug-in as `module:Class`, or `module:function` for a data set.

    Raises:
        SettingError: If it cannot be imported, or is no plug-in of any kind.
    """
    kind = _find_kind(name)
    checks: dict[str, Callable[[str], Iterator[Finding]]] = {
        "space": _check_space,
        "strategy": _check_strategy,
        "data set": _check_data,
        "table": _check_table,
    }
    return PluginReport(kind, tuple(checks[kind](name)))


def _find_kind(name: str) -> str:
    if ":" not in name:
        raise SettingError(f"a plug-in must be named module:Class (or module:function for a data set), got '{name}'")
    problems: list[str] = []
    for kind, catalogue in KINDS.items():
        try:
            catalogue.find_named_by_code(name)
        except SettingError as error:
            problems += error.problems
        else:
            return kind
    named = [line for line in problems if "must implement" in line or "cannot be imported" in line or "module" in line]
    listed = "a SearchSpace, a strategy (OneShot or BlackBox), a function that returns ImageData, or a Benchmark"
    raise SettingError(named[0] if named else f"'{name}' is no plug-in: expected {listed}")


def _check_space(name: str) -> Iterator[Finding]:
    space: SearchSpace = build_space(name)
    first = _try("Its mistakes are found before training.", lambda: check_space(name, space))
    yield first
    if not first.problem:  # else every other rule fails for the same reason
        for contract in (SpaceContract, FamilyContract):
            yield from _run_contract(contract, space=name)


def _check_strategy(name: str) -> Iterator[Finding]:
    yield from _run_contract(StrategyContract, strategy=name)


def _check_data(name: str) -> Iterator[Finding]:
    yield _try("It loads, and a search can use the images.", lambda: load(name, directory=None))
    yield _try("It gives the same images again.", lambda: _compare_data(name))


def _compare_data(name: str) -> None:
    first, second = _read_examples(name), _read_examples(name)
    assert torch.equal(first, second), "two calls must give the same images and labels; seed what is random"


def _read_examples(name: str) -> Tensor:
    """Return what tells two readings of a data set apart: labels and mean of its images, or its words."""
    data = load(name, directory=None)
    if isinstance(data, ImageData):
        return torch.cat([data.train.labels.double(), torch.tensor(data.mean, dtype=torch.float64)])
    assert isinstance(data, TextData)
    return data.train


def _check_table(name: str) -> Iterator[Finding]:
    kind: type[Benchmark] = BENCHMARKS.find_named_by_code(name).load()
    yield _try("It is found.", lambda: _find_table(kind))
    yield _try("Every row has an architecture, and every architecture its row.", lambda: _check_rows(_find_table(kind)))


def _find_table(kind: type[Benchmark]) -> Benchmark:
    table = kind.find(None)
    assert table is not None, "find() must return the table; it returned None without a data folder"
    return table


def _check_rows(table: Benchmark) -> None:
    count = len(table.column(table.datasets[0]))
    for row in {0, count // 2, count - 1}:
        found = table.row(table.architecture(row))
        assert found == row, f"row(architecture({row})) must be {row}, got {found}"


def _run_contract(contract: type[Any], **names: str) -> Iterator[Finding]:
    instance = contract()
    vars(instance).update(names)
    for name, test in inspect.getmembers(instance, inspect.ismethod):
        if name.startswith("test_"):
            yield _try((inspect.getdoc(test) or name).splitlines()[0], test)


def _try(rule: str, test: Callable[[], object]) -> Finding:
    try:
        test()
    except (AssertionError, ArchloomError) as error:
        return Finding(rule, one_line(error))
    except Exception as error:  # foreign code may fail in any way
        return Finding(rule, f"{type(error).__name__}: {one_line(error)}")
    return Finding(rule)
