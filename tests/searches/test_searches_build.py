from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from archloom.core.errors import ArchloomError, DataError, SettingError
from archloom.data.arrays import from_tensors
from archloom.data.augment import Augment
from archloom.execution.executors import ProcessExecutor, SerialExecutor
from archloom.searches.black_box import BlackBoxLoop
from archloom.searches.build import build_search
from archloom.searches.one_shot import OneShotLoop
from archloom.searches.short_training import StandaloneScore
from archloom.searches.spec import SearchSpec
from archloom.spaces import Nb201


@pytest.fixture
def data():
    images = torch.randint(256, (40, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return from_tensors(images, torch.arange(40) % 4)


def build(images, /, **sections):
    settings = {
        "space": {"name": "nb201_mini"},
        "data": {"name": "given"},
        "network": {"channels": 2},
        "machine": {"device": "cpu", "torch_threads": 1},
        "search": {"batch_size": 8, "epochs": 1, "trials": 2, "score_epochs": 1, "evaluation_images": 10},
    }
    return build_search(SearchSpec.resolve({**settings, **sections}), data=images)


def test_a_one_shot_strategy_gets_shared_weights_and_two_parts_of_the_data(data):
    search = build(data)
    assert isinstance(search, OneShotLoop)
    assert search.total == 2  # 20 images in batches of 8
    assert search.weights._network.head[-1].out_features == 4


def test_the_first_weights_depend_on_the_seed_alone(data):
    def first(**sections):
        torch.manual_seed(torch.seed() % 1000)  # whatever the global generator is at
        return build(data, **sections).weights._network.stem[0].weight

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
    assert isinstance(search, BlackBoxLoop)
    outcome = search.run()
    assert 0 <= search.history[0].score <= 100
    assert "Best score of" in outcome.verdict


def test_asking_for_a_table_that_is_not_there_is_one_line(data):
    settings = {"batch_size": 8, "score": "table"}
    with pytest.raises(ArchloomError, match=r"no benchmark table knows space 'darts' on tensors; set search\.score"):
        build(data, space={"name": "darts"}, strategy={"name": "random_search"}, search=settings)


def test_data_given_in_python_must_be_given_again():
    with pytest.raises(DataError, match=r"given its data in Python: pass `data=` to archloom.resume"):
        build_search(SearchSpec.resolve({"data": {"name": "given"}}))


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
    experiment = SearchSpec.resolve(
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
            "search": {"epochs": 1, "random_baseline_samples": 1, "evaluation_images": 32},
            "machine": {"torch_threads": 1, "device": "cpu"},
        }
    )
    outcome = build_search(experiment).run()
    assert outcome.table_entry.dataset == "cifar10"
    assert outcome.table_entry.count == 15625
    assert "In the cifar10 table it has" in outcome.verdict


def test_a_device_that_is_not_here_is_told_before_a_search(data):
    with pytest.raises(SettingError, match=r"machine\.device must be auto, cpu, cuda, cuda:N or mps, got 'tpu9'"):
        build(data, machine={"device": "tpu9"})


def test_table_of_another_data_set_is_looked_up_but_does_not_score_trials(data, shared_data):
    own = {"name": "given", "directory": str(shared_data)}
    search = build(data, space={"name": "nb201", "cells_per_stage": 1}, strategy={"name": "random_search"}, data=own)
    outcome = search.run()
    assert isinstance(search._score, StandaloneScore)
    assert (outcome.table_entry.dataset, outcome.table_entry.instead_of) == ("cifar10", "given")
    assert "In the cifar10 table (instead of given) it has" in outcome.verdict


def test_data_called_like_a_published_set_are_not_taken_for_it(data):
    impostor = replace(data, name="digits")
    assert build(impostor).look_up(Nb201(nodes=3).parse("|none~0|+|none~0|none~1|")) is None


@pytest.mark.parametrize(("wanted", "used"), [(499, 498), (600, 600), (10_000, 1000)])
def test_evaluation_uses_the_images_asked_for_in_equal_batches(wanted, used):
    images = torch.zeros(4000, 1, 8, 8, dtype=torch.uint8)
    search = build(from_tensors(images, torch.arange(4000) % 2), search={"evaluation_images": wanted})
    for loader in (search._evaluate._images, search._compare._images):
        assert loader.steps * loader.batch_size == used
        assert loader.batch_size <= 250


def test_cutout_is_the_datas_own_unless_asked_for_and_only_in_training(data):
    own = replace(data, augment=Augment(cutout=4))
    search = build(own)
    assert (search._train.augment.cutout, search._valid.augment.cutout) == (4, 4)
    search = build(data, search={"batch_size": 8, "cutout": 2})
    assert (search._train.augment.cutout, search._valid.augment.cutout) == (2, 0)


@pytest.mark.parametrize(
    ("setting", "least"),
    [("steps", "at least 0"), ("sweeps", "at least 1"), ("shrink", "at least 1"), ("size", "0 or")],
)
def test_settings_of_the_finalist_race_are_checked(data, setting, least):
    with pytest.raises(SettingError, match=rf"search\.finalist_{setting} must be {least}.* got -1"):
        build(data, search={f"finalist_{setting}": -1})


def test_finalists_are_networks_of_full_depth_and_the_width_asked_for_with_one_random_start(data):
    def race(**search):
        settings = {"space": {"cells_per_stage": 1}, "network": {"channels": 2}, "strategy": {"name": "gibbs"}}
        return build(data, **settings, search={"finalist_learning_rate": 0.07, **search})._race

    def begin(**search):
        return race(**search)._training._begin

    cell = Nb201().parse("|nor_conv_1x1~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
    weights = begin()(cell)
    assert len(weights._network.blocks) == 15 + 2  # three stages of five cells, and not of one as in the supernet
    assert weights.learning_rate == 0.07
    weights.set_progress(1.0)
    assert weights.learning_rate == 0.0  # a short training is judged at its end
    again = begin()(cell)
    pairs = zip(weights._network.parameters(), again._network.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)
    wide = begin(finalist_channels=6)(cell)
    assert next(wide._network.parameters()).shape[0] == 6
    assert next(weights._network.parameters()).shape[0] == 2
    assert race(finalist_steps=0) is None
    with pytest.raises(
        SettingError, match=r"search.finalist_shrink must be at most the side of the images, \d+, got 99"
    ):
        race(finalist_shrink=99)
    asked = race(finalist_steps=3, finalist_sweeps=4, finalist_shrink=2, finalist_size=0.4)
    assert (asked._steps, asked._sweeps, asked._training._shrink, asked._size) == (3, 4, 2, 0.4)


def test_finalists_trained_in_parallel_lead_to_the_same_result(data):
    def race(**machine):
        settings = {"space": {"cells_per_stage": 5}, "network": {"channels": 2}, "strategy": {"name": "gibbs"}}
        return build(data, **settings, machine={"torch_threads": 1, **machine}, search={"finalist_steps": 1})._race

    assert isinstance(race()._executor, SerialExecutor)
    assert isinstance(race(worker_processes=0)._executor, SerialExecutor)  # as many as threads
    assert race(worker_processes=0, torch_threads=2)._executor.workers == 2
    parallel = race(worker_processes=2)
    assert isinstance(parallel._executor, ProcessExecutor)
    cell = Nb201().parse("|nor_conv_1x1~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
    named = [cell, cell.with_option("0->3", "skip_connect"), cell.with_option("0->1", "skip_connect")]
    assert parallel.run(named) == race().run(named)
