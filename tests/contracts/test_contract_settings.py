"""Every setting of everything that can be configured says what it means."""

from __future__ import annotations

import pytest

from archloom.cli.listing import CATALOGUES
from archloom.comparisons.spec import ComparisonSettings, Limit
from archloom.core.settings import flat_schema, schema
from archloom.families import family_of
from archloom.pipelines.spec import PipelineSettings
from archloom.retrainings.spec import RetrainData
from archloom.spaces import SPACES

NAMED = [(kind, name) for kind, catalogue in CATALOGUES.items() for name in catalogue]


def without_help(target: object) -> list[str]:
    settings = {**schema(target), **flat_schema(target, "settings")}  # type: ignore[arg-type]
    return [name for name, setting in settings.items() if not setting.help]


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_every_setting_of_what_has_a_name_has_help(kind: str, name: str) -> None:
    assert without_help(CATALOGUES[kind][name].load()) == []


@pytest.mark.parametrize("name", SPACES)
def test_every_setting_of_the_network_of_a_space_has_help(name: str) -> None:
    assert without_help(family_of(SPACES[name].load()).network) == []


@pytest.mark.parametrize("section", [RetrainData, ComparisonSettings, Limit, PipelineSettings])
def test_every_setting_of_a_section_without_a_name_has_help(section: type) -> None:
    assert schema(section)
    assert without_help(section) == []
