"""The command line: parse, call, exit code. An error that a user can fix is one line on stderr and exit code 2.

Commands import lazily what they run, so that `--version`, `--help` and `list` answer without torch.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer

import archloom
from archloom.cli import benchmark, check, latency, space
from archloom.cli.compare import compare
from archloom.cli.console import open_message_console, print_line
from archloom.cli.doctor import doctor
from archloom.cli.draw import draw
from archloom.cli.export import export
from archloom.cli.listing import list_names
from archloom.cli.measure import measure
from archloom.cli.options import FAILED
from archloom.cli.posterior import posterior
from archloom.cli.predict import predict
from archloom.cli.rank import rank
from archloom.cli.report import report
from archloom.cli.resume import resume
from archloom.cli.retrain import retrain
from archloom.cli.run import run as run_recipe
from archloom.cli.search import search
from archloom.cli.serve import (
    serve,
)
from archloom.cli.trust import (
    add_plugins_option,
)
from archloom.cli.usage import UsageError, describe_usage_error
from archloom.core.errors import ArchloomError, RunLostError, one_line
from archloom.core.memory import is_refused_memory
from archloom.core.renames import RenamedSettingWarning

USER_ERROR, INTERRUPTED = 2, 130
MEMORY_REMEDY = "use smaller batches or networks, or a larger machine; what was saved before is intact"

app = typer.Typer(
    name="archloom",
    pretty_exceptions_enable=False,  # an unexpected error keeps its plain traceback
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"archloom {archloom.__version__}")
        raise typer.Exit


EXAMPLES = """[bold]A first search[/bold], on data that the package includes:

    archloom search

[bold]Choose space, strategy, data and settings[/bold]:

    archloom search --space nb201_mini --strategy darts --out runs/try

    archloom search cifar10/gdas --data-dir ~/data --seed 3

    archloom search recipe.toml --set strategy.temperature_start=5

[bold]List strategies[/bold], and the settings of one:

    archloom list strategies

    archloom list strategies gdas

[bold]Resume a search[/bold] after Ctrl-C, or print its result again:

    archloom resume runs/try
"""


@app.callback(epilog=EXAMPLES)
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Search for neural architectures with shared weights, retrain them, and compare strategies."""


app.command()(search)
app.command()(resume)
app.command()(retrain)
app.command("run")(run_recipe)
app.command()(export)
app.command()(predict)
app.command()(measure)
app.command()(report)
app.command()(serve)
app.command()(posterior)
app.command()(compare)
app.command()(rank)
app.command("list")(list_names)
app.add_typer(benchmark.app, name="benchmark")
app.add_typer(space.app, name="space")
app.add_typer(check.app, name="check")
app.add_typer(latency.app, name="latency")
app.command()(draw)
app.command()(doctor)
add_plugins_option(app)
GROUPS = [group.name for group in app.registered_groups]


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the `archloom` script; `arguments` replace those of the process. Without a command, print the help."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or (len(words) == 1 and words[0] in GROUPS):
        words.append("--help")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", RenamedSettingWarning)
            warnings.showwarning = partial(_show_warning, warnings.showwarning)
            sys.exit(app(args=words, prog_name="archloom", standalone_mode=False) or 0)
    except UsageError as error:
        print_line(f"error: {describe_usage_error(error, words)}", console=open_message_console())
        sys.exit(USER_ERROR)
    except ArchloomError as error:
        for line in str(error).splitlines():
            print_line(f"error: {line}", console=open_message_console())
        sys.exit(FAILED if isinstance(error, RunLostError) else USER_ERROR)
    except (KeyboardInterrupt, typer.Abort):  # the latter where a question finds no more input
        sys.exit(INTERRUPTED)
    except (MemoryError, RuntimeError) as error:
        if not is_refused_memory(error):
            raise
        line = f"error: the system gave no more memory ({one_line(error)}); {MEMORY_REMEDY}"
        print_line(line, console=open_message_console())
        sys.exit(USER_ERROR)


def _show_warning(show: Callable[..., None], message: Warning | str, category: type[Warning], *rest: Any) -> None:
    """Print the new name of a setting as one line, and all other warnings as Python does."""
    if issubclass(category, RenamedSettingWarning):
        print_line(f"note: {message}", console=open_message_console())
    else:
        show(message, category, *rest)


if __name__ == "__main__":
    run()
