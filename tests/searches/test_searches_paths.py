"""Paths through the weights of a saved run: with batch statistics as in the search, and recalibrated."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import archloom
from archloom.core.errors import CheckpointError, DataError, SettingError
from archloom.data.arrays import from_tensors
from archloom.execution.run_folder import RunFolder
from archloom.searches import paths as module
from archloom.searches.build import build_search
from archloom.searches.one_shot import OneShotLoop
from archloom.searches.paths import trained_paths

TINY = {
    "data": {"train_images": 64, "valid_images": 128},
    "search": {"batch_size": 32, "evaluation_images": 64, "random_baseline_samples": 2, "finalist_steps": 0},
    "network": {"channels": 4},
    "weights": {"learning_rate": 0.1},
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paths") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("archloom.searches.run._write_report", lambda *run, **options: None)  # drawing is slow
        archloom.search("nb201_mini", "gdas", "digits", epochs=2, out=folder, settings=TINY)
    return folder


@pytest.fixture
def run(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "run"))


class Recorder:
    """Builds searches, and keeps them to look at their weights."""

    def __init__(self) -> None:
        self.built: list[OneShotLoop] = []

    def __call__(self, *arguments, **options) -> OneShotLoop:
        self.built.append(build_search(*arguments, **options))
        return self.built[-1]


def test_path_has_the_score_that_the_search_recorded(run):
    last = RunFolder.open(run).read_metrics()[-1]
    paths = trained_paths(run, build_search, images=64)
    assert paths(paths.space.check(last["architecture"])) == pytest.approx(100 * last["derived_score"])


def test_an_unfinished_run_will_do(run):
    (run / "architecture.json").unlink()
    (run / "metrics.jsonl").unlink()
    paths = trained_paths(run, build_search, images=32)
    assert 0 <= paths(next(iter(paths.space.enumerate()))) <= 100


@pytest.mark.parametrize("recalibrate", [0, 3])  # an epoch has two batches
def test_scores_are_independent_and_leave_the_weights_unchanged(run, recalibrate):
    recorder = Recorder()
    paths = trained_paths(run, recorder, images=64, recalibrate=recalibrate)
    network = recorder.built[0].weights._network
    before = {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(5)
    drawn = torch.get_rng_state()
    cells = [paths.space.parse(f"|nor_conv_3x3~0|+|{name}~0|nor_conv_1x1~1|") for name in ("skip_connect", "none")]
    first = [paths(cell) for cell in cells]
    assert [paths(cell) for cell in reversed(cells)] == first[::-1]
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_recalibrated_paths_have_the_shared_weights_and_statistics_of_training_images(run, monkeypatch):
    recorder = Recorder()
    seen = []
    real = module.recalibrate
    monkeypatch.setattr(module, "recalibrate", lambda network, batches: (real(network, batches), seen.append(network)))
    paths = trained_paths(run, recorder, images=64, recalibrate=3)
    cell = paths.space.parse("|nor_conv_3x3~0|+|skip_connect~0|nor_conv_1x1~1|")
    score = paths(cell)
    search, network = recorder.built[0], seen[0]
    shared = search.weights._network.state_dict()
    assert all(torch.equal(value, shared[name]) for name, value in network.named_parameters())
    stem = network.stem
    with torch.no_grad():
        outputs = [stem[0](search.train.batch(*place).images) for place in ((0, 0), (0, 1), (1, 0))]
    means = torch.stack([output.mean(dim=(0, 2, 3)) for output in outputs]).mean(dim=0)
    torch.testing.assert_close(stem[1].running_mean, means)
    with torch.no_grad():
        batches = list(search.evaluation.epoch(0))
        right = sum(int((network(batch.images, {}).argmax(1) == batch.labels).sum()) for batch in batches)
    assert score == pytest.approx(100 * right / 64)


def test_a_black_box_run_has_no_shared_weights(tmp_path):
    archloom.search("nb201_mini", "random_search", "digits", out=tmp_path / "box", settings={"search": {"trials": 2}})
    with pytest.raises(SettingError, match="has no shared weights: its strategy, random_search, trains none"):
        trained_paths(tmp_path / "box", build_search, images=32)


def test_a_run_without_a_checkpoint_is_refused(run):
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(CheckpointError, match="has no checkpoint, and weights are kept there only"):
        trained_paths(run, build_search, images=32)


def test_a_checkpoint_of_another_width_is_refused(run):
    config = run / "config.toml"
    config.write_text(config.read_text().replace("channels = 4", "channels = 5"))
    with pytest.raises(SettingError, match=r"the run began with network\.channels = 4, now it is 5"):
        trained_paths(run, build_search, images=32)


def test_an_older_checkpoint_of_another_width_is_refused_too(run):
    config, checkpoints = run / "config.toml", RunFolder(run).checkpoints
    config.write_text(config.read_text().replace("channels = 4", "channels = 5"))
    state = checkpoints.load_latest(warn=pytest.fail)
    del state["settings"]  # which earlier versions did not write
    checkpoints.save(state, step=state["position"])
    with pytest.raises(CheckpointError, match=r"does not fit its config\.toml"):
        trained_paths(run, build_search, images=32)


def test_data_given_in_python_have_to_be_given_again(tmp_path):
    images = torch.rand(80, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    data = from_tensors(images, torch.arange(80) % 4)
    own = {"search": {"batch_size": 16, "random_baseline_samples": 1}, "network": {"channels": 2}}
    archloom.search("nb201_mini", "rsps", data, epochs=1, out=tmp_path / "own", settings=own)
    with pytest.raises(DataError, match="was given its data in Python"):
        trained_paths(tmp_path / "own", build_search, images=16)
    paths = trained_paths(tmp_path / "own", build_search, images=16, data=data)
    assert 0 <= paths(next(iter(paths.space.enumerate()))) <= 100


@pytest.mark.parametrize(("images", "recalibrate", "line"), [(1, 0, "images must be"), (9, -1, "recalibrate must be")])
def test_senseless_numbers_are_refused(run, images, recalibrate, line):
    with pytest.raises(SettingError, match=line):
        trained_paths(run, build_search, images=images, recalibrate=recalibrate)


@pytest.fixture(autouse=True)
def _without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archloom.searches.run._write_report", lambda *run, **options: None)  # drawing is slow


def test_a_run_in_stages_has_the_paths_of_its_last_stage(tmp_path):
    stages = {**TINY, "strategy": {"drops": [2, 1], "skip_dropout": [0.0, 0.2, 0.2]}}
    result = archloom.search("nb201_mini", "p_darts", "digits", epochs=3, out=tmp_path / "run", settings=stages)
    paths = trained_paths(tmp_path / "run", build_search, images=64)
    assert {len(decision.options) for decision in paths.space.decisions} == {2}
    derived = paths.space.check(result.history[-1].architecture)
    assert paths(derived) == pytest.approx(100 * result.history[-1].derived_score)
    left = paths.space.decision("0->1").options
    dropped = next(one for one in archloom.Nb201().operations if one not in (*left, "none"))
    with pytest.raises(SettingError, match=f"has no option '{dropped}'"):
        paths(derived.with_option("0->1", dropped))


def test_paths_of_partial_channels_are_no_standalone_networks(tmp_path):
    settings = {**TINY, "strategy": {"parts": 2}}
    archloom.search("nb201_mini", "pc_darts", "digits", epochs=1, out=tmp_path / "run", settings=settings)
    paths = trained_paths(tmp_path / "run", build_search, images=64)
    architecture = next(iter(paths.space.enumerate()))
    assert 0 <= paths(architecture) <= 100
    recalibrated = trained_paths(tmp_path / "run", build_search, images=64, recalibrate=1)
    with pytest.raises(CheckpointError, match="partial channels must not be copied from"):
        recalibrated(architecture)
