"""Architectures that papers print, by name: ready to be built, measured and trained.

Each is a text that its space parses. DARTS (Liu et al., 2019) of first and of second order; GDAS (Dong & Yang, 2019);
P-DARTS (Chen et al., 2019); PC-DARTS (Xu et al., 2020) and DrNAS (Chen et al., 2021), found on CIFAR-10 and on
ImageNet. Of NAS-Bench-201 (Dong & Yang, 2020) three cells of its table: the best one on the test images of CIFAR-10,
the residual block, and the one of skip connections alone that DARTS ends in. Mobile networks are listed with their
space. Recurrent cells are those of DARTS, GDAS and ENAS (Pham et al., 2018).

Built as in their papers they have the sizes printed there, but for two: `darts_v1` has 3.17 million weights, where 3.3
is printed, and `snas` 2.66 million, where 2.8 is. The latter is the cell that public code passes around; which row of
the paper (Xie et al., 2019) it is could not be checked.
"""

from __future__ import annotations

from collections.abc import Mapping

from archloom.spaces.mobile import REFERENCES


def _genotype(normal: str, reduce: str) -> str:
    """Return the text form of two cells, each given as operations with the state that they read: `sep_conv_3x3 0`."""
    return (
        f"Genotype(normal=[{_pairs(normal)}], normal_concat=range(2, 6), "
        f"reduce=[{_pairs(reduce)}], reduce_concat=range(2, 6))"
    )


def _pairs(cell: str) -> str:
    words = cell.split()
    return ", ".join(f"('{name}', {source})" for name, source in zip(words[::2], words[1::2], strict=True))


def _recurrent(cell: str, concat: str = "range(1, 9)") -> str:
    """Return the text form of a recurrent cell, given as activations with the state that each node reads."""
    return f"Genotype(recurrent=[{_pairs(cell)}], concat={concat})"


PUBLISHED: Mapping[str, tuple[str, str]] = {  # name: the space's name, and the text form
    "darts_v1": (
        "darts",
        _genotype(
            "sep_conv_3x3 1 sep_conv_3x3 0 skip_connect 0 sep_conv_3x3 1 "
            "skip_connect 0 sep_conv_3x3 1 sep_conv_3x3 0 skip_connect 2",
            "max_pool_3x3 0 max_pool_3x3 1 skip_connect 2 max_pool_3x3 0 "
            "max_pool_3x3 0 skip_connect 2 skip_connect 2 avg_pool_3x3 0",
        ),
    ),
    "darts_v2": (
        "darts",
        _genotype(
            "sep_conv_3x3 0 sep_conv_3x3 1 sep_conv_3x3 0 sep_conv_3x3 1 "
            "sep_conv_3x3 1 skip_connect 0 skip_connect 0 dil_conv_3x3 2",
            "max_pool_3x3 0 max_pool_3x3 1 skip_connect 2 max_pool_3x3 1 "
            "max_pool_3x3 0 skip_connect 2 skip_connect 2 max_pool_3x3 1",
        ),
    ),
    "snas": (
        "darts",
        _genotype(
            "sep_conv_3x3 0 sep_conv_3x3 1 skip_connect 0 dil_conv_3x3 1 "
            "skip_connect 1 skip_connect 0 skip_connect 0 sep_conv_3x3 1",
            "max_pool_3x3 0 max_pool_3x3 1 max_pool_3x3 1 skip_connect 2 "
            "skip_connect 2 max_pool_3x3 1 max_pool_3x3 0 dil_conv_5x5 2",
        ),
    ),
    "gdas": (
        "darts",
        _genotype(
            "skip_connect 0 skip_connect 1 skip_connect 0 sep_conv_5x5 2 "
            "sep_conv_3x3 3 skip_connect 0 sep_conv_5x5 4 sep_conv_3x3 3",
            "sep_conv_5x5 0 sep_conv_3x3 1 sep_conv_5x5 2 sep_conv_5x5 1 "
            "dil_conv_5x5 2 sep_conv_3x3 1 sep_conv_5x5 0 sep_conv_5x5 1",
        ),
    ),
    "p_darts": (
        "darts",
        _genotype(
            "skip_connect 0 dil_conv_3x3 1 skip_connect 0 sep_conv_3x3 1 "
            "sep_conv_3x3 1 sep_conv_3x3 3 sep_conv_3x3 0 dil_conv_5x5 4",
            "avg_pool_3x3 0 sep_conv_5x5 1 sep_conv_3x3 0 dil_conv_5x5 2 "
            "max_pool_3x3 0 dil_conv_3x3 1 dil_conv_3x3 1 dil_conv_5x5 3",
        ),
    ),
    "pc_darts": (
        "darts",
        _genotype(
            "sep_conv_3x3 1 skip_connect 0 sep_conv_3x3 0 dil_conv_3x3 1 "
            "sep_conv_5x5 0 sep_conv_3x3 1 avg_pool_3x3 0 dil_conv_3x3 1",
            "sep_conv_5x5 1 max_pool_3x3 0 sep_conv_5x5 1 sep_conv_5x5 2 "
            "sep_conv_3x3 0 sep_conv_3x3 3 sep_conv_3x3 1 sep_conv_3x3 2",
        ),
    ),
    "pc_darts_imagenet": (
        "darts",
        _genotype(
            "skip_connect 1 sep_conv_3x3 0 sep_conv_3x3 0 skip_connect 1 "
            "sep_conv_3x3 1 sep_conv_3x3 3 sep_conv_3x3 1 dil_conv_5x5 4",
            "sep_conv_3x3 0 skip_connect 1 dil_conv_5x5 2 max_pool_3x3 1 "
            "sep_conv_3x3 2 sep_conv_3x3 1 sep_conv_5x5 0 sep_conv_3x3 3",
        ),
    ),
    "drnas": (
        "darts",
        _genotype(
            "sep_conv_3x3 0 sep_conv_5x5 1 sep_conv_3x3 1 sep_conv_3x3 2 "
            "skip_connect 0 sep_conv_3x3 1 sep_conv_3x3 2 dil_conv_5x5 3",
            "max_pool_3x3 0 sep_conv_5x5 1 dil_conv_5x5 2 sep_conv_5x5 1 "
            "sep_conv_5x5 1 dil_conv_5x5 3 skip_connect 4 sep_conv_5x5 1",
        ),
    ),
    "drnas_imagenet": (
        "darts",
        _genotype(
            "sep_conv_3x3 1 sep_conv_3x3 0 sep_conv_3x3 0 sep_conv_3x3 1 "
            "sep_conv_3x3 0 dil_conv_3x3 3 skip_connect 0 sep_conv_3x3 1",
            "max_pool_3x3 0 sep_conv_3x3 1 sep_conv_3x3 0 skip_connect 2 "
            "sep_conv_3x3 0 sep_conv_3x3 2 sep_conv_3x3 3 sep_conv_3x3 1",
        ),
    ),
    "nb201_best": (
        "nb201",
        "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_1x1~2|",
    ),
    "nb201_residual": (
        "nb201",
        "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|skip_connect~2|",
    ),
    "nb201_skips": (
        "nb201",
        "|skip_connect~0|+|skip_connect~0|skip_connect~1|+|skip_connect~0|skip_connect~1|skip_connect~2|",
    ),
    "darts_v1_rnn": ("recurrent", _recurrent("relu 0 relu 1 tanh 2 relu 3 relu 4 identity 1 relu 5 relu 1")),
    "darts_v2_rnn": ("recurrent", _recurrent("sigmoid 0 relu 1 relu 1 identity 1 tanh 2 sigmoid 5 tanh 3 relu 5")),
    "gdas_rnn": ("recurrent", _recurrent("relu 0 relu 0 identity 1 relu 1 tanh 0 relu 2 identity 4 identity 2")),
    "enas_rnn": (
        "recurrent_enas",
        _recurrent(
            "tanh 0 tanh 1 relu 1 tanh 3 tanh 3 relu 3 relu 4 relu 7 relu 8 relu 8 relu 8", "[2, 5, 6, 9, 10, 11]"
        ),
    ),
    **REFERENCES,
}

DARTS_REFERENCES: Mapping[str, str] = {  # cells found on CIFAR-10 that a search is compared with: title, name
    "DARTS V2": "darts_v2",
    "GDAS": "gdas",
    "P-DARTS": "p_darts",
    "PC-DARTS": "pc_darts",
}

RECURRENT_REFERENCES: Mapping[str, str] = {  # cells found on Penn Treebank: title, name
    "DARTS V1 cell": "darts_v1_rnn",
    "DARTS V2 cell": "darts_v2_rnn",
    "GDAS cell": "gdas_rnn",
    "ENAS cell": "enas_rnn",
}
