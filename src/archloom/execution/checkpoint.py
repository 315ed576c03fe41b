"""Checkpoints: a nested state as one safetensors file that is either read back exactly or refused.

A run takes hours and may be stopped at any instruction, on a disk that may be full. So a file appears whole or not at
all, has a digest of its contents, and has a predecessor to fall back to. Nothing is pickled: reading a checkpoint runs
no code.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from archloom.core import files
from archloom.core.errors import CheckpointError, SettingError, StorageError
from archloom.core.files import reading, refuse_special, remove_leftovers, write_atomically, writing

State: TypeAlias = Any
"""Dicts (keys str or int), lists and tuples of Tensor, int, float, bool, str and None, nested at will."""

FORMAT = "archloom-checkpoint-1"
LARGEST_HEADER = 100_000_000  # what safetensors agrees to read, though it would write more
_LENGTH_BYTES = 8  # a safetensors file starts with the length of its header

# --- a state as bytes


def encode(state: State) -> bytes:
    """Return the bytes of one safetensors file: the tensors, and as metadata the tree around them and a digest."""
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_to_tree(state, "state", tensors), allow_nan=False, separators=(",", ":"))
    metadata = {"format": FORMAT, "tree": tree, "sha256": digest(tree, tensors)}
    try:
        image = save(tensors, metadata=metadata)
    except (KeyError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"a checkpoint cannot hold this state: safetensors refuses {error}") from error
    if _header_length(image) > LARGEST_HEADER:
        raise CheckpointError(
            f"a checkpoint holds at most {LARGEST_HEADER} bytes beside its tensors, got {_header_length(image)}"
        )
    return image


def digest_state(state: State) -> bytes:
    """Return a digest of a state; the bytes of `encode` differ from call to call, since safetensors sorts nothing."""
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_to_tree(state, "state", tensors), separators=(",", ":"))
    return digest(tree, tensors).encode()


def decode(data: bytes, *, name: str) -> State:
    """Return the state that `encode` received. `name` is what errors call the data."""
    tensors, metadata = parse(data, name)
    if metadata.get("format") != FORMAT:
        raise CheckpointError(
            f"checkpoint {name} has the format {metadata.get('format')!r}; this version of archloom reads {FORMAT!r}"
        )
    tree = str(metadata.get("tree"))
    if metadata.get("sha256") != digest(tree, tensors):
        raise _damaged(name, "its contents do not match its digest")
    try:
        return _from_tree(json.loads(tree), tensors)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(name, f"its tree cannot be read: {error}") from error


def parse(data: bytes, name: str, *, kind: str = "checkpoint") -> tuple[dict[str, Tensor], Mapping[str, str]]:
    """Return the tensors and the metadata of a safetensors file; the library returns only the tensors."""
    try:
        tensors = load(data)
        header = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + _header_length(data)])
    except SafetensorError as error:
        raise _damaged(name, str(error).removeprefix("Error while deserializing: "), kind) from error
    except (AssertionError, KeyError, TypeError, ValueError, RuntimeError) as error:  # a kind or shape torch lacks
        raise _damaged(name, f"a tensor cannot be restored: {str(error).partition(chr(10))[0]}", kind) from error
    return tensors, header.get("__metadata__") or {}


def _damaged(name: str, reason: str, kind: str = "checkpoint") -> CheckpointError:
    return CheckpointError(f"{kind} {name} is damaged ({reason})")


def _header_length(image: bytes) -> int:
    return int.from_bytes(image[:_LENGTH_BYTES], "little")


def digest(tree: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the digest of a text and named tensors: names, types, shapes and contents."""
    made = hashlib.sha256(tree.encode("utf-8", "surrogatepass"))
    for name, tensor in sorted(tensors.items()):
        made.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        if tensor.numel():  # numpy gives no buffer for nothing
            made.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return made.hexdigest()


def _to_tree(value: State, place: str, tensors: dict[str, Tensor]) -> Any:
    """Return the value as JSON that tells tuples, dicts and special floats apart; put its tensors into `tensors`."""
    match value:
        case Tensor():
            name = f"{len(tensors)}:{place.encode('ascii', 'backslashreplace').decode()}"
            tensors[name] = _dense_copy(value, place)
            return {"tensor": name}
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(float(value))}
        case list():
            return [_to_tree(item, f"{place}.{index}", tensors) for index, item in enumerate(value)]
        case tuple():
            return {"tuple": [_to_tree(item, f"{place}.{index}", tensors) for index, item in enumerate(value)]}
        case Mapping():  # pairs, since the keys of a JSON object are always text
            return {"dict": [[_key(key, place), _to_tree(v, f"{place}.{key}", tensors)] for key, v in value.items()]}
    raise CheckpointError(f"a checkpoint cannot hold a {type(value).__name__} (at {place}); turn it into plain values")


def _key(key: object, place: str) -> object:
    if type(key) not in (str, int):
        raise CheckpointError(f"keys in a checkpoint must be text or whole numbers, got {key!r} (at {place})")
    return key


def _dense_copy(tensor: Tensor, place: str) -> Tensor:
    """Return a contiguous copy with its own storage: safetensors accepts neither strides nor sharing."""
    if tensor.layout != torch.strided or tensor.is_meta:
        raise CheckpointError(f"a checkpoint cannot hold a sparse or empty-shell tensor (at {place}); make it dense")
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    return plain.clone(memory_format=torch.contiguous_format)


def _from_tree(tree: Any, tensors: Mapping[str, Tensor]) -> State:
    match tree:
        case None | bool() | int() | float() | str():
            return tree
        case list():
            return [_from_tree(item, tensors) for item in tree]
        case {"tensor": name}:
            return tensors[name]
        case {"float": text}:
            return float(text)
        case {"tuple": items}:
            return tuple(_from_tree(item, tensors) for item in items)
        case {"dict": pairs}:
            return {key: _from_tree(item, tensors) for key, item in pairs}
    raise ValueError(f"unknown part {str(tree)[:60]}")


# --- a folder of checkpoints


class Checkpoints:
    """The last few checkpoints of one run, so that a damaged one costs an interval and not the run."""

    def __init__(self, folder: Path, *, keep: int = 2) -> None:
        if keep < 1:
            raise SettingError(f"keep must be at least 1 checkpoint, got {keep}")
        self.folder = folder
        self.keep = keep

    def save(self, state: State, *, step: int) -> Path:
        """Write the state as it is after `step` steps, then delete all but the last `keep` files."""
        assert step >= 0
        path = self.folder / f"checkpoint-{step:09d}.safetensors"
        image = encode(state)
        remove_leftovers(self.folder)  # first: they may be what fills the disk
        write_atomically(path, image)
        with writing(self.folder):
            self._delete_old(step)
        return path

    def _delete_old(self, step: int) -> None:
        steps = self._by_step()
        kept = [known for known in sorted(steps, reverse=True) if known <= step][: self.keep]
        for known, path in steps.items():
            if known not in kept:  # a later step was damaged or abandoned, since the run is now at this one
                files.before_operation("remove", path)
                files.check_guards(path)
                path.unlink(missing_ok=True)

    def _by_step(self) -> dict[int, Path]:
        if not self.folder.is_dir():
            return {}
        matches = ((re.fullmatch(r"checkpoint-([0-9]+)\.safetensors", p.name), p) for p in self.folder.iterdir())
        return {int(match[1]): path for match, path in matches if match}

    def paths(self) -> list[Path]:
        """Return the files there are, newest first."""
        return [path for _, path in sorted(self._by_step().items(), reverse=True)]

    def load_latest(self, *, warn: Callable[[str], None]) -> State | None:
        """Return the state of the newest sound file, with a warning for each damaged one; None if there is no file."""
        with reading(self.folder):
            paths = self.paths()
        problems = []
        for position, path in enumerate(paths):
            try:
                return _read(path)
            except StorageError as error:
                problems.append(str(error))
                if position + 1 < len(paths):
                    warn(f"{error}; falling back to {paths[position + 1].name}")
        if problems:
            raise CheckpointError(f"no checkpoint in {self.folder} can be used: {'; '.join(problems)}")
        return None


def _read(path: Path) -> State:
    with reading(path):
        refuse_special(path)
        data = path.read_bytes()
    return decode(data, name=path.name)
