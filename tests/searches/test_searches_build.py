from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from archloom.core.errors import ArchloomError, DataError, SettingError
from archloom.data.arrays import from_tensors
from archloom.data.augment import Augment
from archloom.execution.executors import SerialExecutor
from archloom.execution.process_executor import ProcessExecutor
from archloom.searches.black_box import BlackBoxLoop
from archloom.searches.build import SearchBuilder, build_search
from archloom.searches.one_shot import OneShotLoop
from archloom.searches.short_training import StandaloneScore
from archloom.searches.spec import SearchSpec
from archloom.spaces import Nb201
from archloom.strategies.base import OneShot


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
    assert isinstance(search.score, StandaloneScore)
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
    [("steps", "at least 0"), ("contestants", "at least 0"), ("shrink", "at least 1"), ("size", "0 or")],
)
def test_settings_of_the_finalist_race_are_checked(data, setting, least):
    with pytest.raises(SettingError, match=rf"race\.{setting} must be {least}.* got -1"):
        build(data, race={setting: -1})


class RandomStrategy(OneShot):
    def step(self, weights, batch):
        raise NotImplementedError

    def best(self, evaluate, *, final=True):
        raise NotImplementedError


CELL = Nb201().parse("|nor_conv_1x1~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")


def race_of(data, *, cells: int = 1, machine=None, **race):
    settings = {"space": {"cells_per_stage": cells}, "network": {"channels": 2}, "strategy": {"name": "gibbs"}}
    race = {"contestants": 3, "steps": 1, "batch_size": 4, **race}
    return build(data, **settings, machine={"torch_threads": 1, **(machine or {})}, race=race)._race


def test_contestants_are_networks_of_full_depth_or_as_asked_for(data):
    def begin(architecture=CELL, repeat=0, **race):
        return race_of(data, learning_rate=0.07, **race).training._begin(architecture, repeat)

    weights = begin()
    assert len(weights._network.blocks) == 15 + 2  # three stages of five cells, and not of one as in the supernet
    assert weights.learning_rate == 0.07
    weights.set_progress(1.0)
    assert weights.learning_rate == 0.0  # a short training is evaluated at its end
    first, again, other = (list(begin(repeat=number)._network.parameters()) for number in (0, 0, 1))
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert first[0].shape[0] == 2
    assert next(begin(network={"channels": 6})._network.parameters()).shape[0] == 6
    assert len(begin(space={"cells_per_stage": 2})._network.blocks) == 6 + 2


def test_no_steps_or_one_contestant_is_no_race(data):
    assert race_of(data, steps=0) is None
    assert race_of(data, contestants=1) is None
    assert race_of(data, contestants=None) is None
    with pytest.raises(SettingError, match=r"race.shrink must be at most the side of the images, \d+, got 99"):
        race_of(data, shrink=99)


def test_neither_weights_nor_logits_learn_on_images_of_the_race(data):
    search = build(data, strategy={"name": "gibbs"}, race={"contestants": 3, "steps": 1, "batch_size": 4})
    held = set(search._race.training._evaluation.indices.tolist())
    assert held
    assert held.isdisjoint(search._train.indices.tolist())
    assert held.isdisjoint(search._valid.indices.tolist())
    assert held.isdisjoint(search._race.training._train.indices.tolist())
    assert set(search._compare._images.indices.tolist()) <= held
    learned = {*search._train.indices.tolist(), *search._valid.indices.tolist()}
    assert set(search._race.training._train.indices.tolist()) == learned


def test_references_are_the_named_ones_and_the_largest(data):
    references = race_of(data).references
    assert list(references) == ["ResNet block", "largest"]
    assert set(references["largest"].values()) == {"nor_conv_3x3"}


def test_contestants_trained_in_parallel_lead_to_the_same_result(data):
    assert isinstance(race_of(data).executor, SerialExecutor)
    assert isinstance(race_of(data, machine={"worker_processes": 0}).executor, SerialExecutor)  # as many as threads
    assert race_of(data, machine={"worker_processes": 0, "torch_threads": 2}).executor.workers == 2
    parallel = race_of(data, cells=5, machine={"worker_processes": 2})
    assert isinstance(parallel.executor, ProcessExecutor)

    def run(race):
        strategy = RandomStrategy(Nb201(), torch.Generator())
        quiet = {"allowed": lambda one: True, "describe": lambda what: None, "note": lambda record: None}
        decided = race.run(strategy, CELL, stop=lambda: False, **quiet)
        return decided.architecture, decided.race, [replace(record, seconds=0.0) for record in decided.finalists]

    assert run(parallel) == run(race_of(data, cells=5))


def test_typical_contestants_keep_to_the_limit(data):
    settings = {"space": {"name": "nb201"}, "data": {"name": "given"}, "search": {"epochs": 1}}
    free = SearchBuilder(SearchSpec.resolve(settings), data)
    costs = [free._final.cost_table().cost(one.architecture).parameters for one in free.typical_contestants(20)]
    middle = sorted(costs)[10]
    assert len(set(costs)) > 3 and len(costs) == 20
    bound = SearchBuilder(SearchSpec.resolve({**settings, "limit": {"metric": "parameters", "value": middle}}), data)
    allowed = [bound._final.cost_table().cost(one.architecture).parameters for one in bound.typical_contestants(20)]
    assert len(allowed) == 20 and max(allowed) <= middle
