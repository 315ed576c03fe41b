"""Model files: read back exactly, refused when damaged, and never more than they seem to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file
from torch import nn

from archloom.core.errors import CheckpointError, SettingError
from archloom.execution.checkpoint import digest
from archloom.retrainings.model_file import BEST, FORMAT, ModelCard, ModelDetails, load_model, save_model

ARCHITECTURE = {"0->1": "nor_conv_3x3"}
CARD = ModelCard(
    space={"name": "nb201", "nodes": 2, "cells_per_stage": 1},
    architecture=ARCHITECTURE,
    network={"channels": 2},
    classes=("cat", "dog"),
    image_shape=(1, 8, 8),
    mean=(0.5,),
    std=(0.25,),
    details=ModelDetails(test_score=90.5),
)


def saved(path: Path, card: ModelCard = CARD) -> nn.Module:
    network = card.build()
    for name, value in network.state_dict().items():
        value.copy_(torch.rand(value.shape) + 0.5 if value.is_floating_point() else torch.tensor(7))
        assert name
    save_model(path, card, network.state_dict())
    return network


def test_a_model_comes_back_as_it_was(tmp_path: Path) -> None:
    network = saved(tmp_path / "m.safetensors")
    card, again = load_model(tmp_path / "m.safetensors")
    assert card == CARD
    assert not again.training
    assert again.state_dict().keys() == network.state_dict().keys()
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in network.state_dict().items())
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(network(images), again(images))
    assert card.text == "|nor_conv_3x3~0|"


def test_weights_arranged_otherwise_in_memory_are_the_same(tmp_path: Path) -> None:
    network = CARD.build().to(memory_format=torch.channels_last)
    save_model(tmp_path / "m.safetensors", CARD, network.state_dict())
    _, again = load_model(tmp_path / "m.safetensors")
    assert torch.equal(again.stem[0].weight, network.stem[0].weight)


def test_what_only_training_needs_is_left_out(tmp_path: Path) -> None:
    trained = replace(CARD, network={"channels": 2, "auxiliary": True, "drop_path": 0.2, "dropout": 0.1})
    network = saved(tmp_path / "m.safetensors", trained)
    card, again = load_model(tmp_path / "m.safetensors")
    assert card.network == {"channels": 2}
    assert any(name.startswith("auxiliary.") for name in network.state_dict())
    assert not any(name.startswith("auxiliary.") for name in again.state_dict())
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(network.eval()(images), again(images))
    assert card.build().state_dict().keys() == again.state_dict().keys()


@pytest.mark.parametrize("position", [20, 200, -1])
def test_a_changed_byte_is_noticed(tmp_path: Path, position: int) -> None:
    path = tmp_path / "m.safetensors"
    saved(path)
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"m\.safetensors"):
        load_model(path)


def test_a_file_cut_short_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    saved(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="is damaged"):
        load_model(path)
    save_file({"a": torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match="is no model of archloom"):
        load_model(path)
    path.write_text("hello")
    with pytest.raises(CheckpointError, match="is damaged"):
        load_model(path)


def test_weights_of_another_network_are_refused_whatever_memory_it_would_take(tmp_path: Path) -> None:
    network = saved(tmp_path / "m.safetensors")
    huge = replace(CARD, network={"channels": 65_536})  # a terabyte of weights
    save_model(tmp_path / "m.safetensors", huge, network.state_dict())
    with pytest.raises(CheckpointError, match=r"does not fit .* size mismatch"):
        load_model(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        {"network": {"chanels": 2}},
        {"architecture": {"0->1": "nothing_known"}},
        {"space": {"name": "nb201", "nodes": 3}},
    ],
)
def test_a_card_that_makes_no_network_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    network = CARD.build()
    save_model(tmp_path / "m.safetensors", replace(CARD, **change), network.state_dict())
    with pytest.raises(CheckpointError, match="does not fit the network it names"):
        load_model(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"classes": ()}, "classes must be names"),
        ({"classes": (1, 2)}, "classes must be names"),
        ({"image_shape": (1, 8)}, "image_shape must be three sizes"),
        ({"image_shape": (1, 8, 10**6)}, "image_shape must be three sizes"),
        ({"mean": (0.5, 0.5)}, "mean must be 1 finite numbers"),
        ({"mean": (float("nan"),)}, "mean must be 1 finite numbers"),
        ({"std": (0.0,)}, "those of std above 0"),
    ],
)
def test_a_card_says_what_is_wrong_with_it(change: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingError, match=told):
        replace(CARD, **change)


def test_a_file_chooses_no_module_to_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_space_of_models.py").write_text(
        "from dataclasses import dataclass\nfrom archloom.spaces import Nb201\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Own(Nb201):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = replace(CARD, space={"name": "own_space_of_models:Own", "nodes": 2, "cells_per_stage": 1})
    save_model(tmp_path / "m.safetensors", own, CARD.build().state_dict())
    with pytest.raises(SettingError, match=r"own_space_of_models:Own.*--plugins"):
        load_model(tmp_path / "m.safetensors")
    assert load_model(tmp_path / "m.safetensors", plugins=True)[0].text == "|nor_conv_3x3~0|"


def test_a_packaged_space_may_go_by_its_import_path(tmp_path: Path) -> None:
    named = replace(CARD, space={**CARD.space, "name": "archloom.spaces.nb201:Nb201"})
    saved(tmp_path / "m.safetensors", named)
    assert load_model(tmp_path / "m.safetensors")[0] == named


@pytest.mark.parametrize("written", [{"epoch": 3}, {"best_epoch": 3}])
def test_details_of_both_editions_are_read(written: dict[str, int]) -> None:
    found = ModelDetails.from_json({**written, "test_score": 91.5, "data": "digits", "unknown": 1})
    assert found == ModelDetails(test_score=91.5, epoch=3, data="digits")


def test_a_model_of_the_first_edition_opens() -> None:
    stored = Path(__file__).resolve().parents[1] / "data_files" / "first_edition" / "retrain"
    card, network = load_model(stored / BEST)
    assert card.details.recipe == "nb201_12" and card.details.epoch == 1
    assert network(torch.zeros(1, *card.image_shape)).shape == (1, len(card.classes))


@pytest.mark.parametrize("text", ["3", '"words"', "[]", "null", "1e999"])
def test_a_card_that_is_no_object_is_one_line(tmp_path: Path, text: str) -> None:
    tensors = {"x": torch.zeros(1)}
    path = tmp_path / "model.safetensors"
    path.write_bytes(save(tensors, metadata={"format": FORMAT, "card": text, "sha256": digest(text, tensors)}))
    with pytest.raises(CheckpointError, match="its card cannot be read: it must be an object"):
        load_model(path)
