"""Files that say their kind: parsed if they are of the one asked for, refused in one line if not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archloom.core.errors import ArchloomError, DataError
from archloom.core.tagged_json import read_tagged


def number(content: dict[str, Any]) -> int:
    return int(content["number"])


def test_what_a_file_of_the_kind_says(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"kind": "numbers", "number": "3"}', encoding="utf-8")
    assert read_tagged(path, "numbers", number, otherwise="holds no number") == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "{}",
        "[" * 100_000,
        '{"kind": "letters", "number": 3}',
        '{"kind": "numbers"}',
        '{"kind": "numbers", "number": []}',
    ],
)
def test_any_other_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.json holds no number: ") as caught:
        read_tagged(path, "numbers", number, otherwise="holds no number")
    assert "\n" not in str(caught.value)


def test_one_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ArchloomError, match=r"a\.json"):
        read_tagged(tmp_path / "a.json", "numbers", number, otherwise="holds no number")
