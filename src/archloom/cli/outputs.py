"""Write output files in the format of their ending; a wrong ending is reported before any work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from archloom.cli.console import open_result_console, print_line
from archloom.core.errors import SettingError
from archloom.core.files import write_atomically


def check_outputs(paths: Sequence[Path], endings: Sequence[str]) -> None:
    """Raise a SettingError with a line for every path of an unknown ending or in a missing folder."""
    problems = [
        f"--out must end in {' or '.join(endings)}, got '{path}'" for path in paths if path.suffix not in endings
    ]
    problems += [f"--out {path}: there is no folder {path.parent}" for path in paths if not path.parent.is_dir()]
    if problems:
        raise SettingError(problems)


def write_outputs(paths: Sequence[Path], makers: Mapping[str, Callable[[], str]]) -> None:
    """Write each file in the format of its ending, and print its path."""
    for path in paths:
        text = makers[path.suffix]()
        write_atomically(path, (text if text.endswith("\n") else text + "\n").encode())
        print_line(str(path), console=open_result_console())
