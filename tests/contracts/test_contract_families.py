"""The contract of every family, on every space."""

from __future__ import annotations

import pytest
from small_searches import SMALL_SPACES

from archloom.spaces import SPACES
from archloom.testing import FamilyContract

LARGE = ("proxylessnas", "proxylessnas_enlarged", "mobilenet_v3_like", "mobilenet_v3_widths")  # for 224 pixels
SETTINGS = {**SMALL_SPACES, "nats_size": {}}  # multiples of its smallest widths are rounded


@pytest.mark.parametrize("name", [name for name in SPACES if name not in LARGE])
class TestFamily(FamilyContract):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.space, self.settings = name, SETTINGS.get(name, {})
