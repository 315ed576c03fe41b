"""One rank of a test: run by `rank_groups.run_ranks`, it walks all cases and stores what it ends with.

In double precision and without batch normalisation, a step of several ranks is that of one process up to rounding.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn import functional as F

from archloom.core.settings import merge
from archloom.data.loader import Batch, Loader
from archloom.retrainings import build as retraining
from archloom.retrainings.build import build_retraining
from archloom.retrainings.loop import RetrainLoop
from archloom.retrainings.spec import RetrainSpec
from archloom.searches import build
from archloom.searches.spec import SearchSpec
from archloom.supernet import resolve
from archloom.supernet.ranks import ALONE, Ranks
from archloom.testing import make_tiny_data
from archloom.testing.searches import _TINY

IMAGES = {"search": {"batch_size": 8, "evaluation_images": 12, "epochs": 3}}
PLAIN = {"machine": {"torch_threads": 1, "device": "cpu", "kernels": "plain", "loader_threads": 0}}
FEW = {"candidates": 4, "candidates_each_epoch": 2}
CASES: dict[str, dict[str, Any]] = {  # by strategy, and what is special about it
    "darts": {},
    "darts second": {"order": "second"},
    "darts differences": {"order": "second", "products": "differences"},
    "amended_darts": {},
    "amended_darts exact": {"inverse": "conjugate_gradient:2", "products": "exact"},
    "bayes_nas": {},
    "drnas": {"warmup": 0.0},
    "enas": {**FEW, "controller_steps": 2, "samples": 3},
    "gdas": {},
    "gdas image": {"sampling": "sample"},
    "gibbs": {"logits": {"images": 8}},
    "gibbs second": {"order": "second", "logits": {"images": 16}},
    "gibbs mean": {"weights": {"update": "mean"}, "logits": {"update": "mean", "images": 8}},
    "p_darts": {"skip_dropout": [0.0, 0.0, 0.0], "warmup": 0.0},
    "pc_darts": {"parts": 2, "warmup": 0.0},
    "rsps": FEW,
    "setn": FEW,
    "snas": {},
    "tunas": {},
}
RETRAINING = "retraining"


def use_doubles_without_normalisation() -> None:
    """Make every search of this process compute in double precision, without batch normalisation."""
    batch, place = Loader.batch, build._place

    def in_double(self: Loader, epoch: int, step: int) -> Batch:
        found = batch(self, epoch, step)
        return replace(found, inputs=found.inputs.double())

    def place_in_double(network: nn.Module, **options: Any) -> nn.Module:
        return place(network, **options).double()

    Loader.batch = in_double  # type: ignore[method-assign]
    build._place = place_in_double
    build_network = retraining._network

    def build_in_double(*arguments: Any) -> nn.Module:
        return build_network(*arguments).double()

    resolve.BatchNorm = lambda channels, **options: nn.Identity()  # type: ignore[assignment, misc]
    resolve.Only.normalize = lambda self, channels, **options: nn.Identity()  # type: ignore[method-assign, assignment]
    retraining._network = build_in_double
    RetrainLoop._loss = lambda self, logits, batch: F.cross_entropy(logits, batch.labels)  # type: ignore[method-assign]
    torch.set_default_dtype(torch.float64)  # of architecture parameters


def run_case(name: str, ranks: Ranks) -> dict[str, Any]:
    """Return everything that a search holds after its last step, and the architecture of every epoch."""
    strategy = {"name": name.split()[0], **CASES[name]}
    sections = {"network": {"channels": 2}, "monitor": {"action": "off"}, "strategy": strategy}
    spec = SearchSpec.resolve(merge(_TINY, sections, IMAGES, PLAIN, {"space": {"name": "nb201_mini"}, "seed": 0}))
    loop = build.build_search(spec, data=make_tiny_data(), ranks=ranks)
    loop.run_units()
    state = loop.state_dict()
    return {
        "strategy": state["strategy"],
        "network": state["weights"]["network"],
        "optimizer": state["weights"]["optimizer"],
        "metrics": [dict(record.metrics) for record in loop.history],
        "texts": [record.text for record in loop.history],
        "accuracies": [record.derived_score for record in loop.history],
    }


def run_retraining(ranks: Ranks) -> dict[str, Any]:
    """Return everything that a retraining holds after its last step."""
    space = {"name": "nb201", "nodes": 3, "cells_per_stage": 1}
    architecture = {"0->1": "nor_conv_3x3", "0->2": "skip_connect", "1->2": "nor_conv_1x1"}
    spec = RetrainSpec.resolve(
        {
            "seed": 0,
            "space": space,
            "architecture": architecture,
            "network": {"channels": 2},
            "data": {"name": "given", "split": "random", "train_images": 40, "valid_images": 5},
            "training": {"epochs": 3, "batch_size": 8, "ema": 0.9},
            "machine": PLAIN["machine"],
        }
    )
    loop = build_retraining(spec, make_tiny_data(), ranks=ranks)
    loop.run_units()
    state = loop.state_dict()
    return {
        "network": state["network"],
        "optimizer": state["optimizer"],
        "average": state["average"],
        "metrics": [{"train_loss": one.train_loss, "accuracy": one.train_score} for one in loop.history],
        "valid": [one.valid_loss for one in loop.history],
    }


def main(out: Path, cases: list[str]) -> None:
    """Walk all cases as one rank, or alone."""
    count, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    ranks = ALONE
    if count > 1:
        distributed.init_process_group("gloo")
        ranks = Ranks(rank, count)
    use_doubles_without_normalisation()
    found = {}
    for name in cases or [*CASES, RETRAINING]:
        print(f"{count} ranks, rank {rank}: {name}", flush=True)
        found[name] = run_retraining(ranks) if name == RETRAINING else run_case(name, ranks)
    torch.save(found, out / f"{count}-{rank}.pt")
    if count > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:])
