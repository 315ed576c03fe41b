"""Warnings stand on top of every report and page, above the verdict that they qualify."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from archloom.api import write_report

STORED = Path(__file__).parents[1] / "data_files" / "first_edition"


@pytest.mark.parametrize(
    ("name", "warning"), [("search_gdas", "the cell is an identity"), ("retrain", "has learned nothing")]
)
def test_the_first_section_of_a_report_has_its_warnings(name: str, warning: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(STORED / name, folder)
    if name == "search_gdas":
        path = folder / "architecture.json"
        result = json.loads(path.read_text())
        result["verdict"] = f"Warning: the cell is an identity: no operation learns. {result['verdict']}"
        path.write_text(json.dumps(result))
    page = write_report(folder).read_text()
    first = re.search(r"<section.*?</section>", page, re.DOTALL)
    assert first is not None and 'id="warnings"' in first[0] and warning in first[0]
    assert page.count(warning) == 1, "said once, on top"
