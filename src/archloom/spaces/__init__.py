"""Search spaces by name. A new one is a row here, or `package.module:Class` in a configuration."""

from __future__ import annotations

from archloom.core.registry import Catalogue, Entry
from archloom.spaces.base import NONE, Architecture, CellGraph, CellNode, Decision, Scores, SearchSpace
from archloom.spaces.darts import OPERATIONS as DARTS_OPERATIONS
from archloom.spaces.darts import Darts
from archloom.spaces.mobile import Mobile
from archloom.spaces.nb201 import Nb201
from archloom.spaces.recurrent import Recurrent
from archloom.spaces.widths import Widths

_DARTS = "archloom.spaces.darts:Darts"
_MOBILE = "archloom.spaces.mobile:Mobile"
_NB201 = "archloom.spaces.nb201:Nb201"
_RECURRENT = "archloom.spaces.recurrent:Recurrent"

_MULTIPLIERS = {"width_multipliers": [0.5, 0.625, 0.75, 1.0, 1.25, 1.5, 2.0]}
_V3 = {
    "separable": 0,
    "layers": [4, 4, 4, 4, 4],
    "strides": [2, 2, 2, 1, 2],
    "squeeze": ["off", "on"],
    "activation": "hard_swish",
    "relu_blocks": 2,
}
_SMALL = {
    "stem": 16,
    "stem_stride": 1,
    "blocks": [16, 32, 64],
    "layers": [3, 3, 3],
    "strides": [2, 2, 2],
    "head": [128],
}

SPACES = Catalogue(
    "space",
    {
        "nb201": Entry(_NB201),
        "nb201_mini": Entry(
            _NB201,
            {"nodes": 3, "cells_per_stage": 1},
            "NB201 with three nodes: 125 cells, trained on strokes and on digits: regret is known with no download.",
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
        "proxylessnas": Entry(
            _MOBILE, {}, "TuNAS' ProxylessNAS space: kernels, expansions and depth of inverted bottlenecks."
        ),
        "proxylessnas_enlarged": Entry(
            _MOBILE,
            {"stem": 16, "blocks": [16, 32, 64, 128, 256, 512], "head": [1024], **_MULTIPLIERS},
            "As proxylessnas, and every width is searched; MobileNetV2 and MnasNet-B1 are in it.",
        ),
        "mobilenet_v3_like": Entry(
            _MOBILE,
            {
                **_V3,
                "stem": 16,
                "stem_kernels": [3, 5],
                "blocks": [16, 32, 64, 128, 256],
                "head": [512, 1024],
                "expansions": [1, 2, 3, 4, 5, 6],
                **_MULTIPLIERS,
            },
            "TuNAS' largest space: six expansions, squeeze-and-excite, the head and activations of MobileNetV3.",
        ),
        "mobilenet_v3_widths": Entry(
            _MOBILE,
            {
                **_V3,
                "stem": 16,
                "blocks": [24, 40, 80, 112, 160],
                "head": [960, 1280],
                "expansions": [1, 2, 2.3, 2.5, 3, 4, 5, 6],
            },
            "As mobilenet_v3_like, with the widths of MobileNetV3-Large, which is in it.",
        ),
        "proxylessnas_32": Entry(_MOBILE, _SMALL, "proxylessnas scaled down for images of 32 pixels."),
        "proxylessnas_enlarged_32": Entry(
            _MOBILE, {**_SMALL, **_MULTIPLIERS}, "proxylessnas_enlarged scaled down for images of 32 pixels."
        ),
        "mobilenet_v3_like_32": Entry(
            _MOBILE,
            {
                **_V3,
                **_SMALL,
                "stem_kernels": [3, 5],
                "head": [128, 256],
                "expansions": [1, 2, 3, 4, 5, 6],
                "relu_blocks": 1,
                **_MULTIPLIERS,
            },
            "mobilenet_v3_like scaled down for images of 32 pixels.",
        ),
        "nats_size": Entry("archloom.spaces.widths:Widths"),
        "recurrent": Entry(_RECURRENT),
        "recurrent_enas": Entry(
            _RECURRENT,
            {"nodes": 11, "output": "loose_ends"},
            "A recurrent cell of eleven nodes, those averaged that no node reads: the published cell of ENAS is in it.",
        ),
    },
    makes="archloom.spaces.base:SearchSpace",
)

__all__ = [
    "NONE",
    "SPACES",
    "Architecture",
    "CellGraph",
    "CellNode",
    "Darts",
    "Decision",
    "Mobile",
    "Nb201",
    "Recurrent",
    "Scores",
    "SearchSpace",
    "Widths",
]
