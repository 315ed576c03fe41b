from __future__ import annotations

from pathlib import Path

import pytest

from archloom.core.errors import SettingError
from archloom.core.run_kinds import find_kind, require_kind


@pytest.mark.parametrize(
    ("file", "content", "kind"),
    [
        ("config.toml", "seed = 0", "search"),
        ("config.toml", 'kind = "retrain"', "retraining"),
        ("config.toml", "= damaged", "search"),
        ("comparison.toml", "", "comparison"),
        ("pipeline.toml", "", "pipeline"),
        ("other.toml", "", None),
    ],
)
def test_the_file_in_a_folder_says_its_kind(tmp_path: Path, file: str, content: str, kind: str | None) -> None:
    (tmp_path / file).write_text(content)
    assert find_kind(tmp_path) == kind


def test_a_folder_without_a_run_names_those_nearby(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pipeline.toml").write_text("")
    with pytest.raises(SettingError, match=r"no run at .*; did you mean 'mine'\?"):
        require_kind(tmp_path / "mien")
