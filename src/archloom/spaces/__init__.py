"""Search spaces by name. A new one is a row here, or `package.module:Class` in a configuration."""

from __future__ import annotations

from archloom.catalogue import Catalogue, Entry
from archloom.spaces.base import NONE, Architecture, CellGraph, Decision, Scores, SearchSpace
from archloom.spaces.darts import OPERATIONS as DARTS_OPERATIONS
from archloom.spaces.darts import Darts
from archloom.spaces.nb201 import Nb201

_DARTS = "archloom.spaces.darts:Darts"
_NB201 = "archloom.spaces.nb201:Nb201"

SPACES = Catalogue(
    "space",
    {
        "nb201": Entry(_NB201),
        "nb201_mini": Entry(
            _NB201,
            {"nodes": 3, "cells_per_stage": 1},
            "NB201 with three nodes: 125 cells, each trained on digits, so that regret is known with no download.",
        ),
        "darts": Entry(_DARTS),
        "darts_gdas": Entry(_DARTS, {"cells_per_block": 2}, "The DARTS cell in the layout of GDAS: N cells per block."),
        "darts_frc": Entry(
            _DARTS,
            {"cells_per_block": 2, "reduction": "fixed"},
            "As darts_gdas, with GDAS' fixed reduction cell (FRC).",
        ),
        "s1": Entry(
            _DARTS,
            {"edges": "fixed", "operations": [name for name in DARTS_OPERATIONS if name != NONE]},
            "Amended-DARTS S1: fixed edges, seven operations, shared cells.",
        ),
        "s2": Entry(
            _DARTS,
            {"edges": "fixed", "operations": ["skip_connect", "sep_conv_3x3"], "sharing": "none", "cells": 20},
            "Amended-DARTS S2: twenty cells with choices of their own, two operations.",
        ),
    },
    makes="archloom.spaces.base:SearchSpace",
)

__all__ = ["NONE", "SPACES", "Architecture", "CellGraph", "Darts", "Decision", "Nb201", "Scores", "SearchSpace"]
