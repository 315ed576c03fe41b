"""Start and join the processes of one run on several devices; torchrun does both for us.

`--devices N` replaces this process by torchrun, which starts the same command N times. Each of them, and each process
that the user starts with torchrun, finds its rank in the environment.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from datetime import timedelta

import torch
from torch import distributed

from archloom.core.errors import SettingError
from archloom.supernet.ranks import ALONE, Ranks

PATIENCE = timedelta(minutes=30)  # for the slowest rank, which may read its data first
LOOPBACK = "127.0.0.1"


def start_or_join(devices: int, device: str | None) -> Ranks:
    """Return this process among its ranks; with `--devices` above 1, continue as torchrun instead.

    Raises:
        SettingError: If torchrun started another number of processes than `--devices` asks for.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 and devices > 1:
        os.execv(sys.executable, make_command(devices, sys.argv[1:]))
    if devices not in (1, count):
        raise SettingError(f"--devices must be left out under torchrun, or be {count} as there, got {devices}")
    return ALONE if count == 1 else _join(count, device)


def make_command(devices: int, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs archloom on several devices of this machine, connected by loopback."""
    torchrun = [sys.executable, "-m", "archloom.execution.torchrun", "--nnodes=1", f"--nproc-per-node={devices}"]
    place = ["--rdzv-backend=c10d", f"--rdzv-endpoint={LOOPBACK}:0", f"--local-addr={LOOPBACK}"]
    return [*torchrun, *place, "-m", "archloom", *arguments]


def _join(count: int, device: str | None) -> Ranks:
    rank, is_cuda = int(os.environ["RANK"]), _is_cuda(device)
    if is_cuda:
        torch.cuda.set_device(_local_rank())
    if not distributed.is_initialized():
        _prefer_loopback()
        distributed.init_process_group("nccl" if is_cuda else "gloo", timeout=PATIENCE)
        atexit.register(_leave)
    return Ranks(rank, count, f"cuda:{_local_rank()}" if is_cuda else "cpu")


def device_of(ranks: Ranks, device: str | None) -> str | None:
    """Return the device of this rank: one GPU each, or the CPU for all."""
    return device if ranks.count == 1 else ranks.device


def _is_cuda(device: str | None) -> bool:
    wanted = device or "auto"
    if wanted not in ("auto", "cpu", "cuda"):
        raise SettingError(
            f"--device must be auto, cpu or cuda with several ranks, which have one each, got '{wanted}'"
        )
    return wanted != "cpu" and torch.cuda.device_count() > _local_rank()


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def _prefer_loopback() -> None:
    """Let ranks of one machine talk by loopback, unless the user chose another interface."""
    is_here = os.environ.get("MASTER_ADDR") in (LOOPBACK, "localhost")
    if is_here and sys.platform == "linux" and os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()
