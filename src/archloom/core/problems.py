"""Problems of a configuration, collected so that a user can fix all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from archloom.core.errors import ArchloomError, SettingError, one_line

Made = TypeVar("Made")


class Problems:
    """Lines to report. `raise_if_any` raises them together, as one SettingError."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, *lines: str) -> None:
        """Collect lines, each a problem of its own."""
        self._lines += lines

    def attempt(self, make: Callable[[], Made], *, prefix: str = "", what: str = "") -> Made | None:
        """Return what `make` returns, or None if it fails; its error becomes lines, each with the prefix.

        Torch raises errors of its own for sizes beyond reason: they become a line too, where `what` names the part.
        """
        try:
            return make()
        except SettingError as error:
            self.add(*(f"{prefix}{line}" for line in error.problems))
        except ArchloomError as error:
            self.add(f"{prefix}{error}")
        except (RuntimeError, OverflowError, MemoryError, TypeError) as error:
            if not what:
                raise
            self.add(f"{prefix}{what} cannot be built: {one_line(error)}")
        return None

    def raise_if_any(self) -> None:
        """Raise a SettingError of everything collected so far, if there is anything."""
        if self._lines:
            raise SettingError(self._lines)
