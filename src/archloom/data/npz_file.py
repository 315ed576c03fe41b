"""Read arrays of a .npz file: only those asked for, of plain numbers, and no larger than the memory.

An .npz is a zip of .npy files, and a few megabytes of a zip can hold gigabytes of zeros. So the header of an array is
read first, and its size is compared with the memory before anything is unpacked.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.lib import format as npy

from archloom.core.errors import DataError, one_line
from archloom.core.memory import available_memory

Arrays = Mapping[str, np.ndarray[Any, Any]]

SUFFIX = ".npy"
KINDS = "iuf"  # whole numbers and floats; anything else is no image and no label
TEXT_KINDS = "US"  # text of a fixed width, as numpy stores a list of names
LONGEST_HEADER = 10_000
SHARE = 0.4  # of the memory: splitting the images takes as much again
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_DAMAGED = (
    OSError,
    ValueError,
    EOFError,
    MemoryError,
    OverflowError,
    NotImplementedError,
    RuntimeError,
    KeyError,
    SyntaxError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def read_npz(file: Path, wanted: Collection[str], texts: Collection[str] = ()) -> tuple[Arrays, list[str]]:
    """Return those arrays of a file that are wanted, and the names of all; a DataError is one line on the file.

    Arrays named in `texts` hold text, all others numbers.
    """
    try:
        with file.open("rb") as raw:
            if not zipfile.is_zipfile(raw):
                raise ValueError("it is no zip file; write images and labels with numpy.savez")
            with zipfile.ZipFile(raw) as archive:
                names = [name.removesuffix(SUFFIX) for name in archive.namelist()]
                arrays = {name: _read(archive, name, KINDS) for name in names if name in wanted}
                arrays |= {name: _read(archive, name, TEXT_KINDS) for name in names if name in texts}
    except _DAMAGED as error:
        raise DataError(f"'{file}' is not a readable .npz file of plain arrays: {one_line(error)}") from error
    return arrays, names


def _read(archive: zipfile.ZipFile, name: str, kinds: str) -> np.ndarray[Any, Any]:
    listed = archive.namelist()
    member = archive.getinfo(f"{name}{SUFFIX}" if f"{name}{SUFFIX}" in listed else name)
    if member.flag_bits & 1:
        raise ValueError(f"'{name}' is encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"'{name}' is compressed by an unknown method ({member.compress_type})")
    with archive.open(member) as stream:
        shape, is_fortran, dtype = _read_header(stream, name, kinds)
        size = math.prod(shape) * dtype.itemsize
        _refuse_size(name, size)
        data = bytearray(size)
        if _fill(stream, data) < size:
            raise ValueError(f"'{name}' ends early: its header says {size:,} bytes")
    array = np.frombuffer(data, dtype=dtype)
    return array.reshape(shape[::-1]).transpose() if is_fortran else array.reshape(shape)


def _read_header(stream: IO[bytes], name: str, kinds: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy.read_magic(stream)
    except ValueError as error:
        raise ValueError(f"'{name}' is no array") from error
    if version not in _READERS:
        raise ValueError(f"'{name}' has version {version} of the format, expected 1.0 or 2.0")
    shape, is_fortran, dtype = _READERS[version](stream, max_header_size=LONGEST_HEADER)
    if dtype.kind not in kinds or dtype.hasobject:
        what = "whole numbers or floats" if kinds == KINDS else "text, as numpy.array(['cat', 'dog']) does"
        raise ValueError(f"'{name}' must hold {what}, got {dtype}")
    if any(length < 0 for length in shape):
        raise ValueError(f"'{name}' has the shape {shape}")
    return tuple(shape), is_fortran, dtype


def _refuse_size(name: str, size: int) -> None:
    memory = available_memory()
    if memory is not None and size > SHARE * memory:
        raise ValueError(
            f"'{name}' has {size / 2**20:,.0f} MiB, more than {100 * SHARE:.0f} % of the memory that is free "
            f"({memory / 2**20:,.0f} MiB)"
        )


def _fill(stream: IO[bytes], data: bytearray) -> int:
    """Read into a buffer until it is full or the stream ends; return how much was read."""
    view, done = memoryview(data), 0
    while done < len(view):
        count = cast(io.BufferedIOBase, stream).readinto(view[done : done + 2**20])
        if not count:
            break
        done += count
    return done
