"""Checkpoints come back exactly or are refused, whatever happens to the file or the disk."""

from __future__ import annotations

import hashlib
import json
import math
import random
import resource
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import nn

from archloom.core.errors import CheckpointError, SettingError, StorageError
from archloom.execution import checkpoint
from archloom.execution.checkpoint import FORMAT, Checkpoints, decode, encode

SMALL = {"weight": torch.arange(6.0).reshape(2, 3), "epoch": 3, "rng": (1, 2), "history": [0.5, math.nan]}


def same(left: Any, right: Any) -> bool:
    """Equal in type, structure, dtype, shape and every bit."""
    if isinstance(left, torch.Tensor):
        return (
            isinstance(right, torch.Tensor)
            and (left.dtype, left.shape) == (right.dtype, right.shape)
            and left.contiguous().view(-1).view(torch.uint8).equal(right.contiguous().view(-1).view(torch.uint8))
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return [*map(typed, left)] == [*map(typed, right)] and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, float):
        return left.hex() == right.hex()
    return bool(left == right)


def typed(key: object) -> tuple[type, object]:
    return type(key), key


def round_trip(state: Any) -> Any:
    return decode(encode(state), name="x")


def refusal(data: bytes) -> str:
    with pytest.raises(CheckpointError) as caught:
        decode(data, name="x")
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- bytes

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
tensors = st.builds(
    lambda dtype, shape, seed: (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3).to(dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 1000),
)
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), tensors)
states = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=4),
    ),
    max_leaves=12,
)


@given(state=states)
@settings(max_examples=150, deadline=None)
def test_any_state_comes_back_exactly(state: Any) -> None:
    assert same(round_trip(state), state)


@pytest.mark.parametrize("key", ["tensor", "float", "tuple", "dict"])
def test_a_state_that_looks_like_the_tree_is_not_confused_with_it(key: str) -> None:
    assert same(round_trip({key: [["a", 1]]}), {key: [["a", 1]]})


def test_lone_surrogates_in_keys_and_values_survive() -> None:
    assert round_trip({"\ud800": [torch.ones(1), "\udfff"]})["\ud800"][1] == "\udfff"


def test_the_state_of_random_generators_survives() -> None:
    rng, generator = random.Random(5), torch.Generator().manual_seed(5)
    restored = round_trip({"python": rng.getstate(), "torch": generator.get_state()})
    other, other_generator = random.Random(), torch.Generator()
    other.setstate(restored["python"])
    other_generator.set_state(restored["torch"])
    assert other.random() == rng.random()
    assert torch.rand(3, generator=other_generator).equal(torch.rand(3, generator=generator))


def test_an_optimizer_continues_as_if_never_stopped() -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 3)).square().sum().backward()
        optimizer.step()

    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    step(model, optimizer)
    restored = round_trip({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    copy = nn.Linear(3, 2)
    copy_optimizer = torch.optim.Adam(copy.parameters(), lr=0.5)
    copy.load_state_dict(restored["model"])
    copy_optimizer.load_state_dict(restored["optimizer"])
    step(model, optimizer)
    step(copy, copy_optimizer)
    assert copy.weight.equal(model.weight)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12.0)[::2],
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.ones(1).expand(3, 3),
        nn.Parameter(torch.ones(2)),
        torch.tensor([1 + 2j], dtype=torch.complex64).conj(),
        torch.tensor([0.5, -2.0]).to(torch.float8_e4m3fn),
    ],
    ids=["transposed", "strided", "channels_last", "expanded", "parameter", "conjugated", "float8"],
)
def test_values_survive_whatever_the_layout(tensor: torch.Tensor) -> None:
    restored = round_trip(tensor)
    assert restored.is_contiguous()
    assert not restored.requires_grad
    assert restored.dtype == tensor.dtype
    assert restored.to(torch.complex64).equal(tensor.detach().resolve_conj().to(torch.complex64))


def test_tensors_that_share_storage_come_back_apart() -> None:
    base = torch.arange(4.0)
    restored = round_trip({"all": base, "half": base[:2], "again": base})
    restored["all"][0] = 9
    assert restored["half"].equal(base[:2])
    assert restored["again"].equal(base)


def test_restored_tensors_can_be_written_to() -> None:
    restored = round_trip(torch.zeros(2))
    restored += 1
    assert restored.tolist() == [1, 1]


def test_ordered_mappings_become_dicts_in_order() -> None:
    restored = round_trip(OrderedDict(b=1, a=2))
    assert type(restored) is dict
    assert list(restored) == ["b", "a"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"a": [object()]}, "cannot hold a object (at state.a.0)"),
        ({True: 1}, "keys in a checkpoint must be text or whole numbers, got True"),
        ({(1, 2): 1}, "got (1, 2)"),
        ({"a": torch.ones(2).to_sparse()}, "sparse"),
        ({"a": torch.ones(2, device="meta")}, "at state.a"),
        ({"a": torch.ones(2, dtype=torch.complex128)}, "complex128"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_once(state: Any, words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        encode(state)
    assert words in str(caught.value)


def test_a_header_that_could_not_be_read_back_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "LARGEST_HEADER", 1000)
    encode("a" * 100)
    with pytest.raises(CheckpointError, match="at most 1000 bytes"):
        encode("a" * 1000)


@pytest.mark.parametrize("change", [1, 0x80, 0xFF])
def test_no_changed_byte_goes_unnoticed(change: int) -> None:
    image = encode(SMALL)
    detected = 0
    for position in range(len(image)):
        flipped = bytearray(image)
        flipped[position] ^= change
        try:
            state = decode(bytes(flipped), name="x")
        except CheckpointError as error:
            assert "\n" not in str(error)
            detected += 1
        else:
            assert same(state, SMALL)
    assert detected > 0.95 * len(image)


def test_no_truncation_or_addition_goes_unnoticed() -> None:
    image = encode(SMALL)
    for length in range(len(image)):
        refusal(image[:length])
    refusal(image + b"\0")


@given(data=st.binary(max_size=200))
def test_noise_is_refused(data: bytes) -> None:
    refusal(data)


def test_another_format_is_named() -> None:
    assert refusal(save({}, metadata={"format": "archloom-checkpoint-2"})) == (
        "checkpoint x has the format 'archloom-checkpoint-2'; this version of archloom reads 'archloom-checkpoint-1'"
    )


def test_a_safetensors_file_of_another_program_is_refused() -> None:
    assert "format None" in refusal(save({"a": torch.ones(2)}))


def signed(tree: str) -> bytes:
    digest = hashlib.sha256(tree.encode()).hexdigest()
    return save({}, metadata={"format": FORMAT, "tree": tree, "sha256": digest})


@pytest.mark.parametrize(
    "tree",
    [
        "{",
        '{"tensor":"gone"}',
        '{"strange":1}',
        '{"dict":[[1]]}',
        '{"dict":[[{},1]]}',
        '{"tuple":null}',
        '{"float":"x"}',
        "[" * 100_000,
    ],
)
def test_a_tree_that_is_none_is_refused_even_when_its_digest_is_right(tree: str) -> None:
    assert "its tree cannot be read" in refusal(signed(tree))


def test_a_signed_tree_that_is_sound_is_read() -> None:
    assert decode(signed('{"tuple":[1]}'), name="x") == (1,)


def test_a_tensor_kind_that_torch_cannot_make_is_refused() -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]}}).encode()
    assert "damaged" in refusal(len(header).to_bytes(8, "little") + header)


# --- a folder of checkpoints


def test_the_last_two_are_kept_and_the_latest_is_loaded(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for step in (9, 10, 100, 2_000_000_000):
        path = checkpoints.save({"step": step}, step=step)
        assert path == checkpoints.paths()[0]
    assert [path.name for path in checkpoints.paths()] == [
        "checkpoint-2000000000.safetensors",
        "checkpoint-000000100.safetensors",
    ]
    assert checkpoints.load_latest(warn=pytest.fail) == {"step": 2_000_000_000}


def test_keep_says_how_many_stay(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in range(3):
        checkpoints.save({}, step=step)
    assert len(checkpoints.paths()) == 1
    with pytest.raises(SettingError, match="keep must be at least 1 checkpoint, got 0"):
        Checkpoints(tmp_path, keep=0)


def test_saving_clears_leftovers_but_no_file_of_anybody_else(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint-000000001.safetensors.99999999.tmp").touch()
    (tmp_path / "notes.txt").touch()
    Checkpoints(tmp_path).save({}, step=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-000000002.safetensors", "notes.txt"]


def test_a_damaged_checkpoint_costs_one_interval(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"step": 1}, step=1)
    newest = checkpoints.save({"step": 2}, step=2)
    newest.write_bytes(newest.read_bytes()[:-9])
    warnings: list[str] = []
    assert checkpoints.load_latest(warn=warnings.append) == {"step": 1}
    assert len(warnings) == 1
    assert warnings[0].startswith("checkpoint checkpoint-000000002.safetensors is damaged (")
    assert warnings[0].endswith("); falling back to checkpoint-000000001.safetensors")


def test_saving_after_going_back_removes_the_damaged_future(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    (tmp_path / "checkpoint-000000009.safetensors").write_bytes(b"damaged")
    checkpoints.save({"step": 5}, step=5)
    assert checkpoints.load_latest(warn=pytest.fail) == {"step": 5}


def test_all_damaged_is_an_error_that_names_each(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    (tmp_path / "checkpoint-000000001.safetensors").write_bytes(b"")
    (tmp_path / "checkpoint-000000002.safetensors").mkdir()  # cannot be read as a file
    warnings: list[str] = []
    with pytest.raises(CheckpointError) as caught:
        checkpoints.load_latest(warn=warnings.append)
    assert len(warnings) == 1
    message = str(caught.value)
    assert message.startswith(f"no checkpoint in {tmp_path} can be used: cannot read")
    assert "checkpoint-000000001.safetensors is damaged (" in message
    assert "\n" not in message


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path).load_latest(warn=pytest.fail) is None
    assert Checkpoints(tmp_path / "absent").load_latest(warn=pytest.fail) is None


def test_a_write_cut_short_by_the_system_keeps_the_old_checkpoints(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"epoch": 1}, step=1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(StorageError, match="File too large"):
            checkpoints.save({"epoch": 2, "weight": torch.zeros(10_000)}, step=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000000001.safetensors"]
    assert checkpoints.load_latest(warn=pytest.fail) == {"epoch": 1}
