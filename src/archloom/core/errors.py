"""What can go wrong because of what a user gave us; the command line prints each as one line and exits with 2."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

LONGEST_LIST = 20  # names in a message
LONGEST_LINE = 200  # characters quoted from another error
_LONG_QUOTE = re.compile(rf"('[^'\n]{{{LONGEST_LINE}}})[^'\n]+'")
_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")  # categories that move the cursor, turn the text around, or break lines


class ArchloomError(ValueError):
    """Anything a user can mend: the message names the thing, the rule, the value and, where possible, the fix.

    Examples:
        >>> import archloom
        >>> try:
        ...     archloom.search("nb201_mni")
        ... except archloom.ArchloomError as error:
        ...     print(error)
        unknown space 'nb201_mni'; did you mean 'nb201_mini'?
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(_LONG_QUOTE.sub(r"\1...'", message))


class SettingError(ArchloomError):
    """One or more settings break a rule. All of them are collected before raising.

    Args:
        problems: one line for each rule that is broken.

    Examples:
        >>> import archloom
        >>> error = archloom.SettingError(["space.nodes must be at least 2, got 1", "seed must be 0 or more, got -1"])
        >>> len(error.problems)
        2
    """

    def __init__(self, problems: str | Sequence[str]) -> None:
        given = (problems,) if isinstance(problems, str) else tuple(problems)
        self.problems = tuple(_LONG_QUOTE.sub(r"\1...'", problem) for problem in given)
        super().__init__("\n".join(self.problems))


class ParseError(ArchloomError):
    """A text form of an architecture cannot be read.

    Examples:
        >>> import archloom
        >>> try:
        ...     archloom.Nb201().parse("conv conv")
        ... except archloom.ParseError as error:
        ...     print(error)
        an NB201 string of this space has 3 groups joined by '+', got 'conv conv'
    """


class DataError(ArchloomError):
    """A data set is missing, damaged or unfit for a search.

    Examples:
        >>> import archloom, torch
        >>> try:
        ...     archloom.from_tensors(torch.rand(2, 3, 8, 8), torch.tensor([0, 0]))
        ... except archloom.DataError as error:
        ...     print("at least 2 classes" in str(error))
        True
    """


class BenchmarkError(ArchloomError):
    """A benchmark table is missing, damaged, or does not know what was asked.

    Examples:
        >>> import archloom
        >>> print(archloom.BenchmarkError("no table covers this space"))
        no table covers this space
    """


class StorageError(ArchloomError):
    """The system does not let a file be read or written.

    Examples:
        >>> import archloom
        >>> print(archloom.StorageError("runs/a cannot be written"))
        runs/a cannot be written
    """


class CheckpointError(StorageError):
    """A checkpoint is missing or damaged, or belongs to something else.

    Examples:
        >>> import archloom
        >>> print(archloom.CheckpointError("runs/a has no checkpoint"))
        runs/a has no checkpoint
    """


class RunLostError(ArchloomError):
    """A run cannot continue in this process, and what it saved is intact; the command line exits with 1."""


class DivergedError(ArchloomError):
    """A loss, a step or a draw is no longer a number; the message says what led there.

    Examples:
        >>> import archloom
        >>> print(archloom.DivergedError("the loss is not a number"))
        the loss is not a number
    """


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
    return excerpt(" ".join(str(error).split()) or type(error).__name__)


def excerpt(text: str) -> str:
    """Return a text as a message quotes it: its beginning if it is long."""
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}..."


def escape_controls(text: str) -> str:
    """Return text that is safe to print: control characters and bidirectional overrides as escapes; lines stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        repr(character)[1:-1] if unicodedata.category(character) in _CONTROLS and character not in "\n\t" else character
        for character in text
    )


def require(rules: Mapping[str, bool]) -> None:
    """Raise every rule that does not hold, all at once. A rule is the line to print: the thing, the rule, the value.

    Args:
        rules: whether each rule holds, by the line to print if it does not.

    Raises:
        SettingError: lists every rule that does not hold.

    Examples:
        >>> import archloom
        >>> rate = -1.0
        >>> try:
        ...     archloom.require({f"strategy.rate must be above 0, got {rate}": rate > 0})
        ... except archloom.SettingError as error:
        ...     print(error)
        strategy.rate must be above 0, got -1.0
    """
    broken = [line for line, holds in rules.items() if not holds]
    if broken:
        raise SettingError(broken)
