from __future__ import annotations

import pytest
import torch

from archloom.data.arrays import from_tensors
from archloom.engine.black_box import BlackBoxSearch
from archloom.engine.one_shot import OneShotSearch
from archloom.errors import ArchloomError, DataError
from archloom.runs.build import build_search
from archloom.runs.experiment import Experiment


@pytest.fixture
def data():
    images = torch.randint(256, (40, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return from_tensors(images, torch.arange(40) % 4)


def build(images, /, **sections):
    settings = {
        "space": {"name": "nb201_mini"},
        "data": {"name": "given"},
        "network": {"channels": 2},
        "machine": {"device": "cpu", "threads": 1},
        "search": {"batch_size": 8, "epochs": 1, "trials": 2, "score_epochs": 1, "evaluation_images": 10},
    }
    return build_search(Experiment.resolve({**settings, **sections}), data=images)


def test_a_one_shot_strategy_gets_shared_weights_and_two_parts_of_the_data(data):
    search = build(data)
    assert isinstance(search, OneShotSearch)
    assert search.total == 2  # 20 images in batches of 8
    assert search.weights.network.head[-1].out_features == 4


def test_the_first_weights_depend_on_the_seed_alone(data):
    def first(**sections):
        torch.manual_seed(torch.seed() % 1000)  # whatever the global generator is at
        return build(data, **sections).weights.network.stem[0].weight

    assert torch.equal(first(), first())
    assert not torch.equal(first(), first(seed=1))


def test_the_split_does_not_depend_on_the_seed_of_the_run(data):
    def training_images(**sections) -> set[float]:
        search = build(data, search={"batch_size": 20}, **sections)
        return {float(image.sum()) for image in search._train.batch(0, 0).images}

    assert training_images(seed=0) == training_images(seed=1)
    assert training_images() != training_images(data={"name": "given", "split_seed": 1})


def test_a_black_box_strategy_trains_each_architecture_where_no_table_helps(data):
    search = build(data, strategy={"name": "random_search"})
    assert isinstance(search, BlackBoxSearch)
    outcome = search.run()
    assert 0 <= search.history[0]["score"] <= 100
    assert "architectures tried" in outcome["verdict"]


def test_asking_for_a_table_that_is_not_there_is_one_line(data):
    settings = {"batch_size": 8, "score": "table"}
    with pytest.raises(ArchloomError, match=r"no benchmark table knows space 'darts' on tensors; set search\.score"):
        build(data, space={"name": "darts"}, strategy={"name": "random_search"}, search=settings)


def test_data_given_in_python_must_be_given_again():
    with pytest.raises(DataError, match=r"given its data in Python: pass `data=` to archloom.resume"):
        build_search(Experiment.resolve({"data": {"name": "given"}}))


def test_the_nb201_split_needs_its_file(data, monkeypatch, tmp_path):
    monkeypatch.delenv("ARCHLOOM_DATA", raising=False)
    with pytest.raises(DataError, match=r"data\.split 'nb201' needs cifar-split\.txt in the data folder"):
        build(data, data={"name": "given", "split": "nb201"})
    with pytest.raises(DataError, match=r"cifar-split.txt"):
        build(data, data={"name": "given", "split": "nb201", "directory": str(tmp_path)})


def test_real_cifar10_with_the_split_and_table_of_nb201(cifar10_dir, shared_data, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "cifar-10-batches-py").symlink_to(cifar10_dir / "cifar-10-batches-py")
    (folder / "nb201").symlink_to(shared_data / "nb201")
    experiment = Experiment.resolve(
        {
            "space": {"cells_per_stage": 1},
            "network": {"channels": 2},
            "strategy": {"name": "rsps", "candidates": 2, "candidates_each_epoch": 1},
            "data": {
                "name": "cifar10",
                "directory": str(folder),
                "split": "nb201",
                "train_images": 64,
                "valid_images": 64,
            },
            "search": {"epochs": 1, "chance_samples": 1, "evaluation_images": 32},
            "machine": {"threads": 1, "device": "cpu"},
        }
    )
    outcome = build_search(experiment).run()
    assert outcome["standing"]["dataset"] == "cifar10"
    assert outcome["standing"]["count"] == 15625
    assert "The cifar10 table knows it" in outcome["verdict"]
