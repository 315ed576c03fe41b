import sys

import pytest

from archloom.core.errors import SettingError
from archloom.core.events import Deriving, Recorded
from archloom.searches.tensorboard import tensorboard_listener

RECORD = {
    "epoch": 3,
    "metrics": {"train_loss": 1.5},
    "derived_accuracy": None,
    "standing": {"test": 93.0},
}


def test_the_figures_of_a_record_become_scalars(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    listen = tensorboard_listener(tmp_path)
    listen(Deriving("nothing to write"))
    listen(Recorded(RECORD))
    listen(Recorded({"trial": 4, "score": 71.0, "standing": None}))
    events = event_accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["scalars"]) == {"train_loss", "table_test_accuracy", "score"}
    assert [(e.step, e.value) for e in events.Scalars("train_loss")] == [(3, 1.5)]
    assert [(e.step, e.value) for e in events.Scalars("score")] == [(4, 71.0)]


def test_without_the_extra_the_message_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SettingError, match=r"pip install 'archloom\[tensorboard\]'"):
        tensorboard_listener(tmp_path)
