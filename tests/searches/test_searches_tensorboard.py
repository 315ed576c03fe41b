import sys

import pytest

from archloom.core.errors import SettingError
from archloom.core.events import Deriving, Recorded
from archloom.searches.tensorboard import tensorboard_listener
from search_runs import make_entry, make_epoch, make_trial

RECORD = make_epoch(3, metrics={"train_loss": 1.5}, derived_score=0.5, table_entry=make_entry(93.0))


def test_the_figures_of_a_record_become_scalars(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    listen = tensorboard_listener(tmp_path)
    listen(Deriving("nothing to write"))
    listen(Recorded(RECORD))
    listen(Recorded(make_trial(4, 71.0)))
    events = event_accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["scalars"]) == {"train_loss", "derived_accuracy", "table_test_accuracy", "score"}
    assert [(e.step, e.value) for e in events.Scalars("train_loss")] == [(3, 1.5)]
    assert [(e.step, e.value) for e in events.Scalars("score")] == [(4, 71.0)]


def test_without_the_extra_the_message_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SettingError, match=r"pip install 'archloom\[tensorboard\]'"):
        tensorboard_listener(tmp_path)
