"""Listeners for Weights & Biases and MLflow, with the real packages and no network; skipped without the packages."""

import socket
import sys

import pytest

from archloom.core.errors import SettingError
from archloom.core.events import Deriving, Recorded
from archloom.searches.mlflow_runs import mlflow_listener
from archloom.searches.weights_and_biases import wandb_listener
from search_runs import make_entry, make_epoch, make_trial

RECORD = make_epoch(
    3, metrics={"train_loss": 1.5, "gone": float("nan")}, derived_score=0.5, table_entry=make_entry(93.0)
)
SETTINGS = {"seed": 7, "search": {"epochs": 4}, "space": {"name": "nb201"}}
FIGURES = {"train_loss": 1.5, "derived_accuracy": 0.5, "table_test_accuracy": 93.0}


@pytest.fixture
def offline(monkeypatch):
    """Refuse every connection but those inside the machine."""
    connect = socket.socket.connect

    def refuse(self, address):
        inside = self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1", "localhost")
        assert inside, f"a connection to {address}"
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_mlflow_gets_settings_and_figures(tmp_path, offline):
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    from mlflow import MlflowClient

    listen = mlflow_listener(tmp_path / "run/mlflow", SETTINGS)
    for event in (Deriving("nothing to write"), Recorded(RECORD), Recorded(make_trial(4, 71.0))):
        listen(event)
    client = MlflowClient(tracking_uri=(tmp_path / "run/mlflow").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("archloom").experiment_id])
    assert run.info.run_name == "run"
    assert run.data.params == {"seed": "7", "search.epochs": "4", "space.name": "nb201"}
    assert run.data.metrics == {**FIGURES, "score": 71.0}
    assert [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "train_loss")] == [(3, 1.5)]


def test_weights_and_biases_gets_settings_and_figures(tmp_path, offline):
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    (tmp_path / "run").mkdir()
    listen = wandb_listener(tmp_path / "run/wandb", SETTINGS)
    for event in (Deriving("nothing to write"), Recorded(RECORD), Recorded(make_trial(4, 71.0))):
        listen(event)
    wandb.teardown()
    (path,) = (tmp_path / "run/wandb").glob("offline-run-*/*.wandb")
    rows, config = read_offline(path)
    assert rows == [{**FIGURES, "_step": 3}, {"score": 71.0, "_step": 4}]
    assert config == {"seed": "7", "search.epochs": "4", "space.name": '"nb201"'}


def read_offline(path):
    from wandb.proto import wandb_internal_pb2

    rows, config = [], {}
    for data in split_log(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            items = {"".join(item.nested_key) or item.key: float(item.value_json) for item in record.history.item}
            rows.append({name: value for name, value in items.items() if name not in ("_runtime", "_timestamp")})
        elif record.HasField("run"):
            config |= {item.key: item.value_json for item in record.run.config.update if item.key != "_wandb"}
    return rows, config


def split_log(data, block=32768):
    """Yield the records of a log in LevelDB's format: after 7 bytes, pieces of checksum, length, type and content."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        if block - place % block < 7:  # the rest of a block is padding
            place += block - place % block
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a full record, or the last piece of one
            yield whole
            whole = b""


@pytest.mark.parametrize(("name", "listener"), [("mlflow", mlflow_listener), ("wandb", wandb_listener)])
def test_without_the_extra_the_message_says_how_to_get_it(tmp_path, monkeypatch, name, listener):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SettingError, match=rf"search.{name} needs an extra: pip install 'archloom\[{name}\]'"):
        listener(tmp_path / "run" / name, SETTINGS)
