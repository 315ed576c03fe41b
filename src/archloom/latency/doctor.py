"""What `archloom doctor` knows of a machine, and the advice that follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from archloom.execution.installation import KERNELS_VARIABLE, Installation
from archloom.execution.survey import Survey
from archloom.latency.machine_speed import Speed

BUSY = 0.25  # share of the cores that other programs may use before times mean little
WORTH_A_LINE = 1.1  # a smaller ratio of two times may be noise
LITTLE_MEMORY_GB = 2.0
WORTH_BFLOAT16 = 1.5  # times the speed of fp32 in a product; casts take some of it away
PASSIVE = "passive"


@dataclass(frozen=True)
class Checkup:
    """What was found on a machine; `speed` is None if nothing was measured."""

    survey: Survey
    installation: Installation
    speed: Speed | None = None

    def advice(self) -> list[str]:
        """Return what to change, most important first; empty if nothing needs a change."""
        return [
            *_advise_on_load(self.survey),
            *_advise_on_devices(self),
            *_advise_on_kernels(self),
            *_advise_on_threads(self),
            *_advise_on_precision(self.speed),
            *_advise_on_memory(self.survey),
            *_advise_on_data(self.installation),
        ]


def _advise_on_load(survey: Survey) -> Iterator[str]:
    if survey.load is None or survey.load <= BUSY * survey.cores:
        return
    yield (
        f"the machine is busy (load {survey.load:.1f} on {_cores(survey)}): "
        "do not trust times and the advice based on them"
    )
    if survey.cores > 1 and survey.environment.get("OMP_WAIT_POLICY", "").lower() != PASSIVE:
        yield (
            "waiting threads waste time on a busy machine: "
            f"set OMP_WAIT_POLICY={PASSIVE} in the environment, or machine.torch_threads = 1"
        )


def _advise_on_devices(checkup: Checkup) -> Iterator[str]:
    survey, speed = checkup.survey, checkup.speed
    if survey.idle_gpu:
        yield "there is a GPU, but this torch cannot use it: install a build of torch for it, and check its driver"
    if speed is None:
        return
    on_processor = _best(speed, "cpu")
    for device in survey.devices:
        there = _best(speed, device.name)
        if on_processor and there and there > on_processor * WORTH_A_LINE:
            yield (
                f"{device.name} takes {there / on_processor:.1f}x the time of the processor for a small step: "
                "use machine.device = 'cpu' for small searches"
            )


def _best(speed: Speed, device: str) -> float | None:
    return min((step.seconds for step in speed.steps if step.device == device), default=None)


def _advise_on_kernels(checkup: Checkup) -> Iterator[str]:
    compiled = checkup.installation.kernels
    if compiled.state == "not built":
        yield "no compiled kernels: install a C++ compiler and reinstall archloom"
    elif compiled.state != "in use" and compiled.setting:
        yield f"compiled kernels are built but not used: unset {KERNELS_VARIABLE}, which is '{compiled.setting}'"
    elif compiled.state != "in use":
        yield "the compiled kernels do not run on this processor: reinstall archloom on this machine"
    elif checkup.speed is not None:
        yield from _advise_on_slow_kernels(checkup.speed, checkup.survey.threads)


def _advise_on_slow_kernels(speed: Speed, threads: int) -> Iterator[str]:
    compiled = speed.step("cpu", threads, "auto")
    for choice in ("torch", "plain"):
        other = speed.step("cpu", threads, choice)
        if compiled and other and compiled > other * WORTH_A_LINE:
            yield (
                f"compiled kernels take {compiled / other:.1f}x the time of machine.kernels = '{choice}' "
                "for a small step: use that setting"
            )
            return


def _advise_on_threads(checkup: Checkup) -> Iterator[str]:
    survey, speed = checkup.survey, checkup.speed
    if survey.threads > survey.cores:
        yield (
            f"torch uses {_threads(survey.threads)}, but may use only {_cores(survey)}: "
            f"set machine.torch_threads = {survey.cores}"
        )
    if speed is None:
        return
    times = {step.threads: step.seconds for step in speed.steps if (step.device, step.kernels) == ("cpu", "auto")}
    best = min(times, key=lambda count: times[count], default=None)
    if best is None or survey.threads not in times or best > survey.cores:
        return
    gain = times[survey.threads] / times[best]
    if gain < WORTH_A_LINE:
        return
    if best < survey.threads <= survey.cores:
        yield (
            f"{_threads(survey.threads)} are slower than {best} on this machine ({gain:.1f}x the time of a small "
            f"step): set machine.torch_threads = {best} for small searches"
        )
    elif best > survey.threads:
        limit = survey.environment.get("OMP_NUM_THREADS")
        why = f" (OMP_NUM_THREADS={limit})" if limit else ""
        yield (
            f"torch uses {_threads(survey.threads)}{why}, but {best} are {gain:.1f}x faster: "
            f"set machine.torch_threads = {best}"
        )


def _advise_on_precision(speed: Speed | None) -> Iterator[str]:
    if speed is None:
        return
    ratio, failure = speed.low_precision.ratio, speed.low_precision.failure
    if failure:
        yield f"bf16 {failure} on this machine: do not use it"
    elif ratio is not None and ratio < 1:
        yield f"bf16 has {ratio:.1f}x the speed of fp32 on this machine: do not use it"
    elif ratio is not None and ratio > WORTH_BFLOAT16:
        yield f"bf16 has {ratio:.1f}x the speed of fp32 on this machine: retrain with training.mixed_precision = true"


def _advise_on_memory(survey: Survey) -> Iterator[str]:
    if survey.memory_free_gb is not None and survey.memory_free_gb < LITTLE_MEMORY_GB:
        yield f"only {survey.memory_free_gb:.1f} GB of memory are free: use small batches, or close other programs"


def _advise_on_data(installation: Installation) -> Iterator[str]:
    if installation.data_folder is not None and not installation.data_folder_exists:
        yield f"ARCHLOOM_DATA names the folder {installation.data_folder}, which does not exist"


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count != 1 else ''}"


def _cores(survey: Survey) -> str:
    return f"{survey.cores} core{'s' if survey.cores != 1 else ''}"
