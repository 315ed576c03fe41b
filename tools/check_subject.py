"""Check the subject of a commit message as a commit-msg hook: `area: verb what`, at most 72 characters."""

from __future__ import annotations

import re
import sys
from pathlib import Path

LENGTH = 72
FORM = re.compile(r"(?P<area>[a-z0-9][a-z0-9_/., -]*): (?P<verb>[a-z][a-z-]*) \S.*")
MADE_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")
NOT_IMPERATIVE = re.compile(r".+(?:(?<!e)ed|ing|(?<![sui])s)")  # added, adding, adds; but need, pass, focus
IMPERATIVE = {"bring", "embed", "shed", "string", "alias", "bias", "canvas"}  # despite their ending


def subject_of(message: str) -> str:
    """Return the first line that Git keeps; an empty text if there is none."""
    lines = (line.strip() for line in message.splitlines() if not line.startswith("#"))
    return next((line for line in lines if line), "")


def find_problem(subject: str) -> str | None:
    """Return what is wrong with a subject in one line, or None."""
    if subject.startswith(MADE_BY_GIT):
        return None
    if len(subject) > LENGTH:
        return f"commit subject must have at most {LENGTH} characters, got {len(subject)}: {subject!r}"
    match = FORM.fullmatch(subject)
    if match is None:
        return f"commit subject must read 'area: verb what' in lower case, got {subject!r}; use 'docs: mend dead links'"
    if subject.endswith("."):
        return f"commit subject must not end with a full stop, got {subject!r}"
    if match["verb"] not in IMPERATIVE and NOT_IMPERATIVE.fullmatch(match["verb"]):
        return (
            f"commit subject must have an imperative verb after the area, got {match['verb']!r}; use 'add', not 'added'"
        )
    return None


def main() -> int:
    """Check the message in the file that Git names; exit with 1 and the problem on one line."""
    problem = find_problem(subject_of(Path(sys.argv[1]).read_text(encoding="utf-8")))
    if problem:
        print(problem, file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
