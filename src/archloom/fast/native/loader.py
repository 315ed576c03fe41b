"""Find and open the compiled library that this machine can run.

A library that is missing, damaged or of another build counts as none: the torch kernels run instead, only slower.
Nothing here fails except for a misspelt name.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch

from archloom.core.errors import require
from archloom.fast.native.kernels import INTERFACE, SIGNATURES, NativeKernels

FOLDER = Path(__file__).parent
VARIABLE = "ARCHLOOM_KERNELS"
LEVELS = ("avx512", "avx2", "plain")  # best first; a machine that runs one runs all after it
OFF = "off"


def load(level: str | None = None) -> NativeKernels | None:
    """Return the kernels of a level, by default the best available; None if there are none.

    ARCHLOOM_KERNELS sets the level, or `off`, where the caller gives none.
    """
    asked = level or os.environ.get(VARIABLE) or None
    names = (*LEVELS, OFF)
    if asked is None:
        return next(filter(None, map(_open, _supported_levels())), None)
    require({f"{VARIABLE} must be one of {', '.join(names)}, got '{asked}'": asked in names})
    return _open(asked) if asked in _supported_levels() else None


def available_levels() -> list[str]:
    """Return the levels that are built and run here, best first."""
    return [level for level in _supported_levels() if _open(level) is not None]


def _supported_levels() -> tuple[str, ...]:
    """Return the levels that this processor supports, as torch reports them."""
    capability = torch.backends.cpu.get_cpu_capability().lower()
    return LEVELS[LEVELS.index(capability) :] if capability in LEVELS else ("plain",)


@cache
def _open(level: str) -> NativeKernels | None:
    for path in _candidates(level):
        try:
            library = ctypes.CDLL(str(path))
            if library.archloom_interface() != INTERFACE:
                continue
            functions = {name: _find_function(library, name, arguments) for name, arguments in SIGNATURES.items()}
            _share_threads(library)
        except (OSError, AttributeError):  # cannot be loaded, or is something else
            continue
        return NativeKernels(level, functions)
    return None


def _find_function(library: ctypes.CDLL, name: str, arguments: Sequence[type]) -> Callable[..., int]:
    function = library[f"archloom_{name}"]
    function.argtypes, function.restype = arguments, ctypes.c_int
    return function


def _candidates(level: str) -> list[Path]:
    paths = [FOLDER / f"_{level}{suffix}" for suffix in EXTENSION_SUFFIXES]
    built = [path for path in paths if path.is_file()]
    return sorted(built, key=lambda path: ".abi3" not in path.name)  # another may be left from an older build


def _share_threads(library: ctypes.CDLL) -> None:
    """Give the library torch's own threads. Their runtime has many names; torch's library leads to the one in use."""
    use = library.archloom_use_threads
    try:
        runtime = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        start, number = runtime.GOMP_parallel, runtime.omp_get_thread_num
    except (OSError, AttributeError):
        return  # one thread, then
    use(ctypes.cast(start, ctypes.c_void_p), ctypes.cast(number, ctypes.c_void_p))
