"""`archloom space`: look at a whole space, without torch."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from archloom.cli.console import make_table, open_message_console, open_result_console, print_line
from archloom.cli.outputs import check_outputs, write_outputs
from archloom.core.errors import BenchmarkError, SettingError
from archloom.core.lazy_imports import lazy_imports
from archloom.searches.architectures import find_space
from archloom.spaces import SearchSpace

with lazy_imports():  # help needs no torch
    import archloom.benchmarks as benchmarks
    import archloom.benchmarks.analysis as analyses
    import archloom.benchmarks.latency_file as latency_file
    import archloom.reports.space as space_report


app = typer.Typer(no_args_is_help=True)

MOST_WRITTEN_OUT = 10**9  # larger numbers as powers of ten
MOST_NAMES = 6  # of decisions with the same options


@app.callback()
def space() -> None:
    """Look at a whole space."""


@app.command()
def describe(
    name: Annotated[str, typer.Argument(help="The space (archloom list spaces).")],
    *,
    data: Annotated[str | None, typer.Option(help="A data set of the table. Default: the table's first.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="The folder of tables. Default: $ARCHLOOM_DATA.")] = None,
    device: Annotated[
        str | None, typer.Option(help="Pareto front by the latency on this device (pixel3, raspi4, ...).")
    ] = None,
    latency_table: Annotated[
        Path | None, typer.Option(help="Pareto front by your own latencies: CSV of architecture (or row), ms.")
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(help="Write a plot (.svg), the front (.csv) or all figures (.json); may be repeated."),
    ] = None,
) -> None:
    """Describe the decisions of a space and, if a table knows it, how accuracy depends on them.

    Cardinality, decisions and options; with a table: how accuracies lie, which operations make them, whether short
    trainings and other data sets give the same order, costs, and the Pareto front of accuracy against latency (against
    FLOPs where no device is named).

        archloom space describe nb201 --data-dir ~/data --device pixel3 --out front.svg
    """
    check_outputs(out or [], (".svg", ".csv", ".json"))
    if device is not None and latency_table is not None:
        raise SettingError("--device and --latency-table both say what latency is; pass one of them")
    chosen = find_space(name)
    analysis = _analysis(chosen, data, data_dir)
    if analysis is None and (device is not None or latency_table is not None or out):
        raise BenchmarkError(f"{_no_table(name)}: without one there are no accuracies to set against latency")
    cost = None if analysis is None else _cost(analysis, device, latency_table)
    if analysis is not None and cost is None and any(path.suffix != ".json" for path in out or []):
        raise BenchmarkError(
            f"the {analysis.table.name} table knows no costs to set accuracy against; pass --latency-table, or --out "
            "with .json"
        )
    console = open_result_console()
    _print_choices(name, chosen, console)
    if analysis is None:
        print_line(f"\n{_no_table(name)}", console=open_message_console())
        return
    _print_accuracies(analysis, console)
    _print_effects(analysis, console)
    _print_agreements(analysis, console)
    _print_costs(analysis, console)
    if cost is not None:
        _print_front(analysis, *cost, console)
    if out:
        _write(out, name, analysis, cost)


def _analysis(space: SearchSpace, data: str | None, directory: Path | None) -> analyses.Analysis | None:
    """Return the analysis by the first available table that knows the space, if it can be one with the data set."""
    kinds = [entry.load() for entry in benchmarks.BENCHMARKS.values()]
    tables = [table for kind in kinds if kind.knows(space) and (table := kind.find(directory)) is not None]
    if not tables:
        return None
    chosen = next((table for table in tables if data in table.datasets), tables[0])
    return analyses.Analysis(chosen, space, data or chosen.datasets[0])


def _no_table(name: str) -> str:
    return (
        f"no table of known scores for space '{name}' is at hand; if there is one, pass --data-dir with its folder "
        "(archloom benchmark convert makes that of nb201)"
    )


def _cost(
    analysis: analyses.Analysis, device: str | None, latency_table: Path | None
) -> tuple[str, analyses.Numbers] | None:
    """Return the cost to compare with accuracy: the requested latency, else FLOPs if the table has them."""
    if latency_table is not None:
        found = latency_file.read_latencies(latency_table, analysis.table, dataset=analysis.dataset)
        return f"latency by {latency_table.name}, ms", found[analysis.rows]
    if device is not None:
        return f"latency on {device}, ms", analysis.latencies(device)
    return next(((name, column) for name, column in analysis.costs().items() if name.startswith("FLOPs")), None)


# --- printing


def _print_choices(name: str, space: SearchSpace, console: Console) -> None:

    classes = analyses.count_distinct(space)
    distinct = "" if classes is None else f", {classes:,} of them distinct up to isomorphism"
    print_line(f"{name}: {_count(space.cardinality)} architectures{distinct}", console=console)
    console.print(make_table(("decisions", "", "options"), _decisions(space)))


def _count(number: int) -> str:
    return f"{number:,}" if number <= MOST_WRITTEN_OUT else f"about 10^{math.log10(number):.1f}"


def _decisions(space: SearchSpace) -> Iterator[tuple[str, str, str]]:
    """Return one row for all decisions with the same options."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for decision in space.decisions:
        groups.setdefault(decision.options, []).append(decision.name)
    for options, names in groups.items():
        shown = ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
        yield str(len(names)), shown, ", ".join(options)


def _print_accuracies(analysis: analyses.Analysis, console: Console) -> None:

    table, values = analysis.table, analysis.accuracy
    trained = f" after {table.epochs[0]} epochs" if table.epochs else ""
    heading = f"test accuracy on {analysis.dataset}{trained}, % (the {table.name} table, {len(values):,} architectures)"
    print_line(f"\n{heading}", console=console)
    for line in space_report.histogram_lines(analyses.histogram(values)):
        print_line(line, console=console)
    found = analyses.quantiles(values)
    names = {"0": "lowest", "0.5": "median", "1": "best"}
    columns = [names.get(share, f"{100 * float(share):g} %") for share in found]
    console.print(make_table(columns, [[f"{value:.2f}" for value in found.values()]]))
    near = analysis.near_best()
    share = 100 * near / len(values)
    print_line(
        f"within {analyses.NEAR:g} point of the best: {near:,} of {len(values):,} ({share:.2f} %)", console=console
    )


def _print_effects(analysis: analyses.Analysis, console: Console) -> None:
    effects = analysis.effects()
    options = list(dict.fromkeys(option for effect in effects for option in effect.means))
    rows = [
        (
            effect.decision,
            *(f"{effect.means[option]:.2f}" if option in effect.means else "" for option in options),
            f"{100 * effect.explained:.1f} %",
        )
        for effect in effects
    ]
    print_line(
        "\nmean accuracy by choice, and the share of all variance that the decision explains by itself", console=console
    )
    console.print(make_table(("", *options, "explains"), rows))


def _print_agreements(analysis: analyses.Analysis, console: Console) -> None:
    rows = [
        (f"{one} | {other}", "–" if value is None else f"{value:.3f}") for one, other, value in analysis.agreements()
    ]
    print_line("\nwhether two columns give the same order (Spearman's rank correlation)", console=console)
    console.print(make_table(("columns", "correlation"), rows))


def _print_costs(analysis: analyses.Analysis, console: Console) -> None:

    costs = dict(analysis.costs())
    costs |= {f"latency on {device}, ms": analysis.latencies(device) for device in analysis.table.devices}
    if not costs:
        return
    print_line(f"\ncosts on {analysis.dataset}, and their rank correlation with accuracy", console=console)
    rows = []
    for name, values in costs.items():
        low, median, high = (
            _number(value) for value in (values.min(), statistics.median(values.tolist()), values.max())
        )
        related = analyses.spearman(values, analysis.accuracy)
        rows.append((name, low, median, high, "–" if related is None else f"{related:.3f}"))
    console.print(make_table(("cost", "lowest", "median", "highest", "correlation"), rows))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10_000 else f"{value:,.3g}" if value < 1 else f"{value:,.2f}"


def _print_front(analysis: analyses.Analysis, name: str, cost: analyses.Numbers, console: Console) -> None:
    front = analysis.front(cost)
    known = sum(map(math.isfinite, cost))
    print_line(f"\nPareto front of accuracy against {name}: {len(front)} of {known:,} architectures", console=console)
    print_line(f"{name.split(',')[-1].strip():>10}  accuracy", console=console)
    for row in front:  # each whole and at the end of its line, to be copied
        print_line(f"{_number(row['cost']):>10}  {row['accuracy']:6.2f} %  {row['text']}", console=console)


# --- writing


def _write(out: list[Path], name: str, analysis: analyses.Analysis, cost: tuple[str, analyses.Numbers] | None) -> None:

    cost_name, values = cost or ("", analysis.accuracy)
    front = [] if cost is None else analysis.front(values)
    known = [place for place, value in enumerate(values) if math.isfinite(value)]
    title = f"{name}, {analysis.dataset}"
    figures = {"space": name, **analysis.figures(), "front": {"cost": cost_name or None, "architectures": front}}
    write_outputs(
        out,
        {
            ".svg": lambda: space_report.front_plot(
                values[known].tolist(), analysis.accuracy[known].tolist(), front, title=title, cost_name=cost_name
            ),
            ".csv": lambda: space_report.front_csv(front, cost_name),
            ".json": lambda: json.dumps(figures, indent=2),
        },
    )
