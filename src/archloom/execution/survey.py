"""Facts about this machine right now: processor, devices, threads, load, memory."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from archloom.core.errors import require

VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
EXTENSIONS = ("avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "sve", "bf16")
"""Instruction sets that inner loops care about, as Linux names them."""

BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")  # those that multiply numbers of 16 bits

PROCESSOR_FILE = Path("/proc/cpuinfo")
MEMORY_FILE = Path("/proc/meminfo")
QUOTA_FILE = Path("/sys/fs/cgroup/cpu.max")
NVIDIA_TOOL = "nvidia-smi"


@dataclass(frozen=True)
class Device:
    """Something that torch can compute on, beside the processor."""

    name: str  # as machine.device takes it
    description: str
    memory_gb: float | None = None


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A machine at one moment. Facts that the system does not provide are None or empty."""

    system: str
    processor: str
    cores: int  # that this process may use
    threads: int  # that torch takes by default
    capability: str  # the instruction set that torch's own loops use
    extensions: tuple[str, ...]
    devices: tuple[Device, ...]
    idle_gpu: bool  # there is a GPU by all signs, and this torch cannot use it
    load: float | None  # processes that wanted to run, on average over the last minute
    memory_free_gb: float | None
    memory_total_gb: float | None
    environment: Mapping[str, str]


def survey() -> Survey:
    """Return the facts about this machine."""
    processor = {name.lower(): value for name, value in _fields(PROCESSOR_FILE).items()}
    memory = _fields(MEMORY_FILE)
    devices = _devices()
    return Survey(
        system=f"{platform.system()} {platform.release()} {platform.machine()}".strip(),
        processor=processor.get("model name") or platform.processor() or platform.machine(),
        cores=usable_cores(),
        threads=torch.get_num_threads(),
        capability=torch.backends.cpu.get_cpu_capability(),
        extensions=_extensions(processor),
        devices=devices,
        idle_gpu=not devices and shutil.which(NVIDIA_TOOL) is not None,
        load=load_average(),
        memory_free_gb=_gigabytes(memory.get("MemAvailable")),
        memory_total_gb=_gigabytes(memory.get("MemTotal")),
        environment={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )


def has_bfloat16() -> bool:
    """Return whether the processor says that it has instructions for bfloat16."""
    processor = {name.lower(): value for name, value in _fields(PROCESSOR_FILE).items()}
    return any(name in BFLOAT16 for name in _extensions(processor))


def require_bfloat16(section: str, *, on_cpu: bool) -> None:
    """Raise a SettingError if a section asks for bfloat16 on a processor without instructions for it."""
    rule = (
        f"{section}.mixed_precision must be false on this processor, which has no instructions for bfloat16 "
        f"({', '.join(BFLOAT16)}); use false or a GPU"
    )
    require({rule: not on_cpu or has_bfloat16()})


def usable_cores() -> int:
    """Return the cores that this process may use: fewer than the machine has if it is pinned or in a container."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        allowed = os.cpu_count() or 1
    quota = _quota()
    return allowed if quota is None else max(1, min(allowed, round(quota)))


def load_average() -> float | None:
    """Return the load of the last minute; None if the system does not provide it."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def _quota() -> float | None:
    """Return the cores' worth of time of a container, which torch ignores; None if unlimited."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        granted, period = QUOTA_FILE.read_text(encoding="ascii").split()
        return int(granted) / int(period)  # 'max' is no number: unlimited
    return None


def _devices() -> tuple[Device, ...]:
    found = []
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(number)
            found.append(Device(f"cuda:{number}", properties.name, properties.total_memory / 2**30))
    if torch.backends.mps.is_available():
        found.append(Device("mps", "Apple GPU"))
    return tuple(found)


def _extensions(processor: Mapping[str, str]) -> tuple[str, ...]:
    flags = set((processor.get("flags") or processor.get("features") or "").split())
    return tuple(name for name in EXTENSIONS if name in flags)


def _fields(path: Path) -> dict[str, str]:
    """Return the `name: value` lines of a Linux file; of a repeated name the first."""
    fields: dict[str, str] = {}
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            name, colon, value = line.partition(":")
            if colon:
                fields.setdefault(name.strip(), value.strip())
    return fields


def _gigabytes(text: str | None) -> float | None:
    """Return `24682416 kB` as gigabytes."""
    return None if text is None else int(text.split()[0]) / 2**20
