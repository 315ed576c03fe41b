"""Every setting of everything that can be configured has help."""

from __future__ import annotations

import pytest

from archloom.cli.listing import CATALOGUES
from archloom.comparisons.spec import ComparisonSettings, ResultLimit
from archloom.core.settings import schema
from archloom.pipelines.spec import PipelineSettings
from archloom.retrainings.spec import RetrainData
from archloom.testing.strategies import check_help

NAMED = [  # those of strategies, spaces and families are part of their contracts
    (kind, name) for kind, catalogue in CATALOGUES.items() if kind not in ("spaces", "strategies") for name in catalogue
]


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_every_setting_of_what_has_a_name_has_help(kind: str, name: str) -> None:
    check_help(CATALOGUES[kind][name].load())


@pytest.mark.parametrize("section", [RetrainData, ComparisonSettings, ResultLimit, PipelineSettings])
def test_every_setting_of_a_section_without_a_name_has_help(section: type) -> None:
    assert schema(section)
    check_help(section)
