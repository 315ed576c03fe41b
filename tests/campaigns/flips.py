"""Flip bits of checkpoints and cut them short: a damaged file is refused, and a run falls back to the one before.

python tests/campaigns/flips.py --tries 1000
"""

from __future__ import annotations

import random
import shutil
import tempfile
from functools import cache
from pathlib import Path

from campaign import run_campaign
from workloads import final_state, refuse_differences, search

import archloom
from archloom.core.errors import CheckpointError
from archloom.execution.checkpoint import decode
from archloom.execution.run_folder import RunFolder

ROOT = Path(tempfile.mkdtemp(prefix="archloom-flips-"))


@cache
def finished() -> Path:
    """Return the folder of a complete search."""
    search("gdas")(ROOT / "run")
    return ROOT / "run"


@cache
def checkpoint() -> bytes:
    """Return the newest checkpoint of a search."""
    return RunFolder(finished()).checkpoints.paths()[0].read_bytes()


def damage(data: bytes, rng: random.Random) -> bytes:
    """Return the data with one bit flipped, or, one time in ten, cut short."""
    if rng.random() < 0.1:
        return data[: rng.randrange(len(data))]
    changed = bytearray(data)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def flip(rng: random.Random) -> str:
    """Decode a damaged checkpoint."""
    data = damage(checkpoint(), rng)
    try:
        decode(data, name="damaged")
    except CheckpointError:
        return "refused"
    raise AssertionError("a damaged checkpoint was accepted")


def fall_back(rng: random.Random) -> str:
    """Resume a run whose newest checkpoint is damaged."""
    folder = ROOT / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(finished(), folder)
    newest = RunFolder(folder).checkpoints.paths()[0]
    newest.write_bytes(damage(newest.read_bytes(), rng))
    (folder / "architecture.json").unlink()
    warnings: list[str] = []
    archloom.resume(folder, warn=warnings.append)
    assert any("falling back" in line for line in warnings), "nothing was said"
    refuse_differences(final_state(finished()), final_state(folder))
    return "fell back"


KINDS = {"flip": flip, "fall back": fall_back}

if __name__ == "__main__":
    try:
        run_campaign("flips", __doc__ or "", KINDS, tries=1000)
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)
