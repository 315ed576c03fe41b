"""Advice in plain words, from what was found on a machine and measured on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from archloom.execution.installation import KERNELS_VARIABLE, Installation
from archloom.execution.survey import Survey
from archloom.latency.speed_check import Speed

BUSY = 0.25  # share of the cores that others may take before times mean little
WORTH_SAYING = 1.1  # a smaller ratio of two times may be noise
LITTLE_MEMORY_GB = 2.0
PASSIVE = "passive"


@dataclass(frozen=True)
class Checkup:
    """Everything a doctor knows; without `speed` nothing was measured."""

    survey: Survey
    installation: Installation
    speed: Speed | None = None

    def advice(self) -> list[str]:
        """What to change, most important first; empty where all is well."""
        return [
            *_about_load(self.survey),
            *_about_devices(self),
            *_about_kernels(self),
            *_about_threads(self),
            *_about_precision(self.speed),
            *_about_memory(self.survey),
            *_about_data(self.installation),
        ]


def _about_load(survey: Survey) -> Iterator[str]:
    if survey.load is None or survey.load <= BUSY * survey.cores:
        return
    yield (
        f"the machine is busy (load {survey.load:.1f} on {_cores(survey)}): "
        "times, and advice that rests on them, are not to be trusted"
    )
    if survey.cores > 1 and survey.environment.get("OMP_WAIT_POLICY", "").lower() != PASSIVE:
        yield (
            "threads that wait for each other burn time on a busy machine: "
            f"set OMP_WAIT_POLICY={PASSIVE} in the environment, or machine.torch_threads = 1"
        )


def _about_devices(checkup: Checkup) -> Iterator[str]:
    survey, speed = checkup.survey, checkup.speed
    if survey.idle_gpu:
        yield "there is a GPU, but this torch cannot use it: install a build of torch for it, and check its driver"
    if speed is None:
        return
    on_processor = _best(speed, "cpu")
    for device in survey.devices:
        there = _best(speed, device.name)
        if on_processor and there and there > on_processor * WORTH_SAYING:
            yield (
                f"{device.name} takes {there / on_processor:.1f}x the time of the processor for a small step: "
                "small searches are better off with machine.device = 'cpu'"
            )


def _best(speed: Speed, device: str) -> float | None:
    return min((step.seconds for step in speed.steps if step.device == device), default=None)


def _about_kernels(checkup: Checkup) -> Iterator[str]:
    compiled = checkup.installation.kernels
    if compiled.state == "not built":
        yield "no compiled kernels: install a C++ compiler and reinstall archloom"
    elif compiled.state != "in use" and compiled.setting:
        yield f"compiled kernels are there, but not used: unset {KERNELS_VARIABLE}, which says '{compiled.setting}'"
    elif compiled.state != "in use":
        yield "the compiled kernels do not run on this processor: reinstall archloom on this machine"
    elif checkup.speed is not None:
        yield from _about_slow_kernels(checkup.speed, checkup.survey.threads)


def _about_slow_kernels(speed: Speed, threads: int) -> Iterator[str]:
    compiled = speed.step("cpu", threads, "auto")
    for choice in ("torch", "plain"):
        other = speed.step("cpu", threads, choice)
        if compiled and other and compiled > other * WORTH_SAYING:
            yield (
                f"compiled kernels take {compiled / other:.1f}x the time of machine.kernels = '{choice}' "
                "for a small step: set that"
            )
            return


def _about_threads(checkup: Checkup) -> Iterator[str]:
    survey, speed = checkup.survey, checkup.speed
    if survey.threads > survey.cores:
        yield (
            f"torch takes {_threads(survey.threads)}, but may use only {_cores(survey)}: "
            f"set machine.torch_threads = {survey.cores}"
        )
    if speed is None:
        return
    times = {step.threads: step.seconds for step in speed.steps if (step.device, step.kernels) == ("cpu", "auto")}
    best = min(times, key=lambda count: times[count], default=None)
    if best is None or survey.threads not in times or best > survey.cores:
        return
    gain = times[survey.threads] / times[best]
    if gain < WORTH_SAYING:
        return
    if best < survey.threads <= survey.cores:
        yield (
            f"{_threads(survey.threads)} are slower than {best} here at this size ({gain:.1f}x the time of a small "
            f"step): set machine.torch_threads = {best} for small searches"
        )
    elif best > survey.threads:
        limit = survey.environment.get("OMP_NUM_THREADS")
        why = f" (OMP_NUM_THREADS={limit})" if limit else ""
        yield (
            f"torch takes {_threads(survey.threads)}{why}, but {best} are {gain:.1f}x faster: "
            f"set machine.torch_threads = {best}"
        )


def _about_precision(speed: Speed | None) -> Iterator[str]:
    if speed is None:
        return
    ratio, failure = speed.low_precision.ratio, speed.low_precision.failure
    if failure:
        yield f"bf16 {failure} here: leave it off"
    elif ratio is not None and ratio < 1:
        yield f"bf16 is {ratio:.1f}x of fp32 here: leave it off"


def _about_memory(survey: Survey) -> Iterator[str]:
    if survey.memory_free_gb is not None and survey.memory_free_gb < LITTLE_MEMORY_GB:
        yield f"only {survey.memory_free_gb:.1f} GB of memory are free: take small batches, or close other programs"


def _about_data(installation: Installation) -> Iterator[str]:
    if installation.data_folder is not None and not installation.data_folder_exists:
        yield f"ARCHLOOM_DATA names the folder {installation.data_folder}, which is not there"


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count != 1 else ''}"


def _cores(survey: Survey) -> str:
    return f"{survey.cores} core{'s' if survey.cores != 1 else ''}"
