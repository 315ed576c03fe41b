"""What is installed: versions, optional extras, compiled inner loops, the data folder."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from archloom import fast as kernels
from archloom.core.files import data_folder
from archloom.fast.native import load

PACKAGE = "archloom"
KERNELS_VARIABLE, OFF = "ARCHLOOM_KERNELS", "off"
State = Literal["in use", "not built", "switched off", "not for this processor"]
_EXTRA = re.compile(r"""^(?P<package>[\w.-]+).*;.*\bextra\s*==\s*["'](?P<extra>[\w.-]+)["']""")


@dataclass(frozen=True)
class CompiledKernels:
    """The compiled inner loops that a search uses here, or why it uses none."""

    state: State
    name: str = ""  # of those in use
    setting: str = ""  # what the environment says

    @property
    def line(self) -> str:
        """Return the kernels in use, or why there are none."""
        if self.state == "in use":
            return self.name
        return f"none: {self.state}" + (f" ({KERNELS_VARIABLE}={self.setting})" if self.setting else "")


@dataclass(frozen=True)
class Installation:
    """What is installed on this machine."""

    versions: Mapping[str, str]
    kernels: CompiledKernels
    extras: Mapping[str, tuple[str, ...]]  # what is missing of each
    data_folder: str | None
    data_folder_exists: bool


def installation(version: str) -> Installation:
    """Return what is installed; only the top of the package knows the version of archloom itself."""
    folder = data_folder(None)
    return Installation(
        versions={PACKAGE: version, **_versions()},
        kernels=compiled_kernels(),
        extras=missing_of_extras(_requirements()),
        data_folder=None if folder is None else str(folder),
        data_folder_exists=folder is not None and folder.is_dir(),
    )


def _versions() -> dict[str, str]:
    libraries = {name: importlib.metadata.version(name) for name in ("torch", "numpy")}
    return {"python": platform.python_version(), **libraries}


def _requirements() -> Iterable[str]:
    try:
        return importlib.metadata.requires(PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError:  # run from a source folder
        return ()


def missing_of_extras(requirements: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return every extra of the requirements, with its packages that are not installed."""
    extras: dict[str, tuple[str, ...]] = {}
    for requirement in requirements:
        found = _EXTRA.match(requirement)
        if found:
            missing = () if _is_installed(found["package"]) else (found["package"],)
            extras[found["extra"]] = extras.get(found["extra"], ()) + missing
    return extras


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def compiled_kernels() -> CompiledKernels:
    """Return what `kernels.use_kernels("auto")` would take, or why it falls back to torch."""
    setting = os.environ.get(KERNELS_VARIABLE, "")
    name = _loaded_name()
    if name:
        return CompiledKernels("in use", name, setting)
    if not built_libraries(Path(kernels.__file__).parent):
        return CompiledKernels("not built")
    state: State = "switched off" if setting == OFF else "not for this processor"
    return CompiledKernels(state, setting=setting)


def _loaded_name() -> str:
    loaded = load()
    return loaded.name if loaded else ""


def built_libraries(folder: Path) -> list[Path]:
    """Return the compiled files in the folder of a package."""
    endings = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    return sorted(path for path in folder.rglob("*") if path.name.endswith(endings))
