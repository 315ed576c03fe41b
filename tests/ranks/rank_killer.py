"""Break searches and retrainings on several ranks by SIGKILL and resume them; one process forks all ranks.

Torch is imported once, so every strategy can be tried. Each group of ranks has its own store and folder.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from rank_worker import CASES, IMAGES, PLAIN, RETRAINING
from torch import distributed

from archloom.core.errors import ArchloomError, RunLostError
from archloom.core.settings import merge
from archloom.execution.loop import FollowerEnded, Loop
from archloom.execution.run import RunOptions, begin_run
from archloom.execution.run_folder import RunFolder
from archloom.retrainings.folder import RetrainFolder
from archloom.retrainings.loop import RetrainLoop
from archloom.retrainings.run import RetrainRun, resume_retraining
from archloom.retrainings.spec import RetrainSpec
from archloom.searches.one_shot import OneShotLoop
from archloom.searches.run import resume_search, run_search
from archloom.searches.spec import SearchSpec
from archloom.supernet.ranks import ALONE, Ranks
from archloom.testing import make_tiny_data
from archloom.testing.searches import _TINY

VICTIMS = {2: 1, 3: 0}  # by number of ranks: one that follows, and the one that writes
FINISHED, LOST, REFUSED = 0, 1, 2
PATIENCE = timedelta(minutes=2)
COMPLETE = ("gdas", RETRAINING)  # resumed once more at the end
STRATEGIES = [name for name in CASES if " " not in name]


def search_spec(name: str) -> SearchSpec:
    """Return a tiny search by a strategy; unlike those of `rank_worker`, it has batch normalisation."""
    strategy = {"name": name, **CASES[name]}
    sections = {
        "network": {"channels": 2},
        "monitor": {"action": "off"},
        "strategy": strategy,
        "race": {"contestants": 0},
    }
    return SearchSpec.resolve(merge(_TINY, sections, IMAGES, PLAIN, {"space": {"name": "nb201_mini"}, "seed": 0}))


def begin(name: str, folder: Path, ranks: Ranks) -> None:
    """Begin a run."""
    options = RunOptions(report=False, ranks=ranks)
    if name != RETRAINING:
        run_search(search_spec(name), data=make_tiny_data(), out=folder, options=options)
        return
    settings = {
        "seed": 0,
        "space": {"name": "nb201", "nodes": 3, "cells_per_stage": 1},
        "architecture": {"0->1": "nor_conv_3x3", "0->2": "skip_connect", "1->2": "nor_conv_1x1"},
        "network": {"channels": 2},
        "data": {"name": "given", "split": "random", "train_images": 40, "valid_images": 5},
        "training": {"epochs": 3, "batch_size": 8, "ema": 0.9},
        "machine": PLAIN["machine"],
    }
    spec, place = RetrainSpec.resolve(settings), RetrainFolder(folder)
    begin_run(place, lambda: RetrainRun(place, spec, make_tiny_data(), ranks=ranks), options)


def resume(name: str, folder: Path, ranks: Ranks) -> None:
    """Resume a run."""
    options = RunOptions(report=False, ranks=ranks)
    if name == RETRAINING:
        resume_retraining(RetrainFolder(folder), data=make_tiny_data(), options=options)
    else:
        resume_search(RunFolder(folder), data=make_tiny_data(), options=options)


def die_in_second_epoch() -> None:
    """Let this process end by SIGKILL in the middle of its second epoch, after a checkpoint."""
    for kind in (OneShotLoop, RetrainLoop):
        kind.advance = _kill_before(kind.advance)  # type: ignore[method-assign]


def _kill_before(advance: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def advance_or_die(self: Loop[Any, Any]) -> Any:
        if self.position == self.units_per_record + 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return advance(self)

    return advance_or_die


def run_group(work: Callable[[Ranks], None], count: int, store: Path, victim: int | None = None) -> list[int]:
    """Fork so many ranks that do the work; return how each ended."""
    sys.stdout.flush()
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            code = 70  # an error that is not ours
            try:
                if rank == victim:
                    die_in_second_epoch()
                code = _run_rank(work, rank, count, store)
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _run_rank(work: Callable[[Ranks], None], rank: int, count: int, store: Path) -> int:
    if count > 1:
        distributed.init_process_group("gloo", f"file://{store}", PATIENCE, count, rank)
    try:
        work(ALONE if count == 1 else Ranks(rank, count))
    except FollowerEnded:
        return FINISHED
    except RunLostError:
        return LOST
    except ArchloomError as error:
        print(error, file=sys.stderr)
        return REFUSED
    return FINISHED


def break_and_resume(name: str, count: int, folder: Path) -> dict[str, list[int]]:
    """Run once whole and once broken; return the exit codes of every group."""
    folder.mkdir(parents=True)
    whole, broken = folder / "whole", folder / "broken"
    return {
        "whole": run_group(lambda ranks: begin(name, whole, ranks), count, folder / "store-whole"),
        "broken": run_group(lambda ranks: begin(name, broken, ranks), count, folder / "store-broken", VICTIMS[count]),
        "fewer": run_group(lambda ranks: resume(name, broken, ranks), count - 1, folder / "store-fewer"),
        "resumed": run_group(lambda ranks: resume(name, broken, ranks), count, folder / "store-resumed"),
    }


def resume_complete(name: str, count: int, folder: Path) -> list[int]:
    """Resume a run that is complete; return the exit codes."""
    return run_group(lambda ranks: resume(name, folder / "whole", ranks), count, folder / "store-complete")


def import_all(out: Path) -> None:
    """Import what runs import late, as a fork of this process shows: its own forks need not do it again."""
    list_path = out / "modules.json"

    def run_and_list(ranks: Ranks) -> None:
        for name in ("gibbs", RETRAINING):
            begin(name, out / f"first-{name}", ranks)
        list_path.write_text(json.dumps(sorted(sys.modules)))

    assert run_group(run_and_list, 1, out / "store-first") == [FINISHED]
    for name in json.loads(list_path.read_text()):
        with contextlib.suppress(Exception):  # some are made, not imported
            importlib.import_module(name)


def main(out: Path) -> None:
    """Break every kind of run with every number of ranks; write the exit codes."""
    import_all(out)
    found = {
        f"{name} {count}": break_and_resume(name, count, out / f"{name}-{count}")
        for name in [*STRATEGIES, RETRAINING]
        for count in VICTIMS
    }
    for name in COMPLETE:
        found[f"complete {name}"] = {"complete": resume_complete(name, 2, out / f"{name}-2")}
    (out / "codes.json").write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
