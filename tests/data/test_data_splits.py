from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from archloom.core.errors import DataError, SettingError
from archloom.data.splits import Split, hold_out, limit_split, nb201_split, random_split


@given(count=st.integers(4, 200), fraction=st.floats(0.3, 0.7), seed=st.integers(0, 2**31))
def test_random_split_uses_every_image_once(count: int, fraction: float, seed: int) -> None:
    split = random_split(count, train_fraction=fraction, seed=seed)
    assert sorted([*split.train.tolist(), *split.valid.tolist()]) == list(range(count))
    assert len(split.train) == round(count * fraction)


def test_random_split_depends_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = random_split(100, seed=5)
    torch.manual_seed(2)
    assert torch.equal(first.train, random_split(100, seed=5).train)
    assert not torch.equal(first.train, random_split(100, seed=6).train)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
def test_random_split_refuses_fractions_outside_0_and_1(fraction: float) -> None:
    with pytest.raises(SettingError, match=r"train_fraction must lie in \(0, 1\)"):
        random_split(10, train_fraction=fraction, seed=0)


def test_random_split_refuses_an_empty_part() -> None:
    with pytest.raises(SettingError, match=r"0\.01 of 10 images leaves a part of the split empty"):
        random_split(10, train_fraction=0.01, seed=0)


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_nb201_split_reads_the_published_form(tmp_path: Path) -> None:
    split = nb201_split(write(tmp_path / "s.txt", {"train": ["int", ["0", "5"]], "valid": ["int", ["1", "2", "3"]]}))
    assert split.train.tolist() == [0, 5]
    assert split.valid.tolist() == [1, 2, 3]
    assert split.train.dtype == torch.int64


def test_nb201_split_of_the_benchmark_halves_cifar10(shared_data: Path) -> None:
    split = nb201_split(shared_data / "nb201" / "cifar-split.txt")
    assert len(split.train) == len(split.valid) == 25_000
    assert sorted([*split.train.tolist(), *split.valid.tolist()]) == list(range(50_000))


@pytest.mark.parametrize(
    "content",
    [
        {"train": ["int", ["0"]]},
        {"train": ["float", ["0"]], "valid": ["int", ["1"]]},
        {"train": ["int", ["x"]], "valid": ["int", ["1"]]},
        {"train": ["int", ["-1"]], "valid": ["int", ["1"]]},
        {"train": ["int", []], "valid": ["int", ["1"]]},
        {"train": ["int", [str(2**70)]], "valid": ["int", ["1"]]},
        {"train": 3, "valid": ["int", ["1"]]},
        [1, 2],
    ],
)
def test_nb201_split_refuses_other_forms(tmp_path: Path, content: object) -> None:
    with pytest.raises(DataError, match=r"must hold \"(train|valid)\": \[\"int\""):
        nb201_split(write(tmp_path / "s.txt", content))


def test_nb201_split_refuses_an_image_in_both_parts(tmp_path: Path) -> None:
    path = write(tmp_path / "s.txt", {"train": ["int", ["0", "1"]], "valid": ["int", ["1"]]})
    with pytest.raises(DataError, match="must list every image once"):
        nb201_split(path)


def test_nb201_split_names_a_file_that_is_missing_or_not_json(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read the split '.*absent\.txt': No such file"):
        nb201_split(tmp_path / "absent.txt")
    (tmp_path / "s.txt").write_text("{")
    with pytest.raises(DataError, match="must be JSON"):
        nb201_split(tmp_path / "s.txt")


def test_limited_keeps_the_first_of_each_part() -> None:
    split = Split(torch.tensor([4, 2, 0]), torch.tensor([1, 3]))
    short = limit_split(split, train=2, valid=None)
    assert short.train.tolist() == [4, 2]
    assert short.valid.tolist() == [1, 3]
    assert limit_split(split, train=3, valid=1).valid.tolist() == [1]


@pytest.mark.parametrize("count", [0, -1, 3])
def test_limited_refuses_more_than_there_are_and_none(count: int) -> None:
    split = Split(torch.tensor([4, 2, 0]), torch.tensor([1, 3]))
    with pytest.raises(SettingError, match=rf"number of validation images must lie in 1\.\.2, got {count}"):
        limit_split(split, train=None, valid=count)


def test_held_out_is_the_end_of_every_class() -> None:
    labels = torch.tensor([0, 1, 0, 1, 0, 0, 1, 2])
    kept, held = hold_out(labels, fraction=0.5)
    assert held.tolist() == [4, 5, 6]
    assert kept.tolist() == [0, 1, 2, 3, 7]


def test_held_out_nothing_for_fraction_0() -> None:
    kept, held = hold_out(torch.tensor([0, 1]), fraction=0.0)
    assert kept.tolist() == [0, 1] and len(held) == 0


@pytest.mark.parametrize("fraction", [-0.1, 1.0])
def test_held_out_refuses_other_fractions(fraction: float) -> None:
    with pytest.raises(SettingError, match=r"data\.test_fraction must lie in \[0, 1\)"):
        hold_out(torch.tensor([0, 1]), fraction=fraction)
