"""Tables of figures as pandas data frames, where pandas is installed: Archloom itself does not need it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from archloom.core.errors import ArchloomError


def make_frame(rows: Sequence[Mapping[str, object]]) -> Any:
    """Return a pandas DataFrame with a row per mapping.

    Raises:
        ArchloomError: If pandas is not installed.
    """
    try:
        import pandas  # type: ignore[import-untyped]  # late: optional
    except ImportError as error:
        raise ArchloomError("to_frame() needs pandas, which is not installed; use: pip install pandas") from error
    return pandas.DataFrame(list(rows))
