"""Arrays in npz files: read by name and without pickles, written whole or not at all.

Tables come from downloads, so that whatever is wrong with a file must end in one clear line, never in running code.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archloom.core.errors import BenchmarkError, one_line
from archloom.core.files import write_atomically

MOST_BYTES = 64 * 2**20  # per array; the largest that a table needs has 6 MB

_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    TypeError,
    MemoryError,
    NotImplementedError,  # a way of compression that zipfile does not know
    RuntimeError,  # an encrypted archive
)


def array_names(path: Path) -> tuple[str, ...]:
    """Return the names of the arrays in an npz file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return tuple(name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy"))
    except _DAMAGE as error:
        raise BenchmarkError(f"{path} is damaged or no npz file: {one_line(error)}") from error


def read_array(path: Path, name: str) -> NDArray[Any]:
    """Return one array of an npz file; arrays of Python objects are refused."""
    if name not in array_names(path):
        raise BenchmarkError(f"{path} is not a table of this kind: it has no array '{name}'")
    try:
        with zipfile.ZipFile(path) as archive:
            size = archive.getinfo(f"{name}.npy").file_size
            if size > MOST_BYTES:
                raise ValueError(f"an array has at most {MOST_BYTES:,} bytes, got {size:,}")
            with archive.open(f"{name}.npy") as member:
                return np.lib.format.read_array(member, allow_pickle=False)
    except _DAMAGE as error:
        raise BenchmarkError(f"{path} is damaged: array '{name}' cannot be read: {one_line(error)}") from error


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an npz file whole or not at all."""
    image = io.BytesIO()
    with zipfile.ZipFile(image, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    write_atomically(path, image.getvalue())
