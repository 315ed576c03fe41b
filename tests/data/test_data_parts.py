from __future__ import annotations

from pathlib import Path

import pytest
import torch

from archloom.core.errors import DataError, SettingError
from archloom.core.settings import schema
from archloom.retrainings.spec import RetrainData
from archloom.searches.spec import DataSettings


def test_a_random_split_divides_all_images_and_depends_on_its_own_seed_only() -> None:
    first, again, other = (DataSettings(split_seed=seed).parts(10) for seed in (3, 3, 4))
    assert len(first.train) == len(first.valid) == 5
    assert sorted([*first.train.tolist(), *first.valid.tolist()]) == list(range(10))
    assert torch.equal(first.train, again.train) and not torch.equal(first.train, other.train)
    assert len(RetrainData().parts(10).train) == 9


def test_with_no_split_all_images_train_in_their_order() -> None:
    parts = RetrainData(split="none", valid_images=3).parts(4)
    assert (parts.train.tolist(), parts.valid.tolist()) == ([0, 1, 2, 3], [])
    assert RetrainData(split="none", train_images=2).parts(4).train.tolist() == [0, 1]


def test_the_benchmarks_split_is_looked_for_in_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "nb201").mkdir()
    (tmp_path / "nb201" / "cifar-split.txt").write_text('{"train": ["int", ["2", "0"]], "valid": ["int", ["1"]]}')
    parts = DataSettings(split="nb201", directory=tmp_path).parts(3)
    assert (parts.train.tolist(), parts.valid.tolist()) == ([2, 0], [1])
    with pytest.raises(DataError, match=r"needs cifar-split\.txt in the data folder; pass --data-dir"):
        DataSettings(split="nb201").parts(3)


def test_what_breaks_a_rule_is_told_all_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        RetrainData(train_fraction=1.0, train_images=1)
    assert caught.value.problems == (
        "data.train_fraction must lie in (0, 1), got 1.0",
        "data.train_images must be at least 2, got 1",
    )


@pytest.mark.parametrize("kind", [DataSettings, RetrainData])
def test_every_setting_has_a_default_and_a_help_text(kind: type) -> None:
    assert all(setting.help and not setting.required for setting in schema(kind).values())
