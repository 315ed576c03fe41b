from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from archloom.searches.report import render
from archloom.searches.report_findings import finding_sections

EDGES = {"edge_weights": {"normal/0->2": 0.25, "normal/1->2": 0.75, "normal/0->3": 1.0}}
STAGES = {
    "stages": [
        {"stage": 1, "network": "5 cells, 8 options", "dropped": {"a": ["none", "pool"], "b": ["none"]}},
        {"stage": 2, "network": "11 cells, 5 options", "dropped": {}},
    ],
    "cells_by_skip_limit": {"8": "Genotype(many)", "0": "Genotype(none)"},
}
PRIORS = {
    "evidence": {"0->1": {"skip": 2.0, "conv": 0.0}, "0->2": {"skip": 0.1}},
    "surviving_operations": 1,
    "operations": 3,
}


def headings(findings: dict[str, Any]) -> list[str]:
    return [section.heading for section in finding_sections(findings)]


def test_each_finding_has_its_section() -> None:
    assert headings(EDGES) == ["Edge weights"]
    assert headings(STAGES) == ["Stages", "Cells by the limit of skips"]
    assert headings(PRIORS) == ["Precision of the priors"]
    assert headings({}) == []


def test_stages_count_what_was_dropped() -> None:
    stages, cells = finding_sections(STAGES)
    assert stages.table.rows == (
        ("1", "5 cells, 8 options", "none (2), pool (1)"),
        ("2", "11 cells, 5 options", "nothing"),
    )
    assert cells.table.rows == (("8", "Genotype(many)"), ("0", "Genotype(none)"))


def test_priors_count_what_survives() -> None:
    (section,) = finding_sections(PRIORS)
    assert "1 of 3 operations survive" in section.words and "<svg" in section.picture


@pytest.mark.parametrize(
    "strange",
    [
        {"edge_weights": [1, 2]},
        {"edge_weights": {"a": "b"}},
        {"stages": "three"},
        {"stages": [4]},
        {"evidence": {"a": 3}},
        {"cells_by_skip_limit": []},
    ],
)
def test_findings_of_another_form_are_left_out(strange: dict[str, Any]) -> None:
    assert headings(strange) == []


def test_names_from_a_file_do_no_harm(make_run: Any) -> None:
    run = make_run("nb201", epochs=2, table=True)
    script = "<script>alert(1)</script>"
    findings = {**STAGES, "edge_weights": {script: 0.5}, "stages": [{"stage": script, "dropped": {"a": [script]}}]}
    page = render(replace(run, result=replace(run.result, findings=findings)))
    assert "Edge weights" in page and "Stages" in page
    assert "<script>" not in page
