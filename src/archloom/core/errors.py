"""What can go wrong because of what a user gave us; the command line prints each as one line and exits with 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

LONGEST_LIST = 20  # names in a message
LONGEST_LINE = 200  # characters quoted from another error


class ArchloomError(ValueError):
    """Anything a user can mend: the message names the thing, the rule, the value and, where possible, the fix."""


class SettingError(ArchloomError):
    """One or more settings break a rule. All of them are collected before raising."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class ParseError(ArchloomError):
    """A text form of an architecture cannot be read."""


class DataError(ArchloomError):
    """A data set is missing, damaged or unfit for a search."""


class BenchmarkError(ArchloomError):
    """A benchmark table is missing, damaged, or does not know what was asked."""


class StorageError(ArchloomError):
    """The system does not let a file be read or written."""


class CheckpointError(StorageError):
    """A checkpoint is missing or damaged, or belongs to something else."""


class DivergedError(ArchloomError):
    """A loss, a step or a draw is no longer a number; the message says what led there."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return '; did you mean ...?' for the nearest known name, or the list of known names."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    listed = ", ".join(sorted(names)[:LONGEST_LIST]) + (", ..." if len(names) > LONGEST_LIST else "")
    return f"; known: {listed}" if names else ""


def one_line(error: object) -> str:
    """Return the message of an error on one line of bounded length, or its type if it has none."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}..."


def require(rules: Mapping[str, bool]) -> None:
    """Raise every rule that does not hold, all at once. A rule is the line to print: the thing, the rule, the value."""
    broken = [line for line, holds in rules.items() if not holds]
    if broken:
        raise SettingError(broken)
