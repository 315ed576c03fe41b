"""Records as JSON, in the names of this edition and of the first."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from archloom.core.errors import CheckpointError
from archloom.searches.history import flatten_record
from archloom.searches.records import (
    EpochRecord,
    FinalistRecord,
    Health,
    StrictSteps,
    TargetResult,
    TrialRecord,
    read_record,
)
from archloom.spaces import Architecture
from search_runs import make_entry, make_epoch, make_trial

EPOCH = make_epoch(
    3,
    probabilities={"edge": [0.25, 0.75]},
    table_entry=make_entry(),
    health=Health(skip=0.5, none=0.0, pool=0.0, eigenvalue=0.125, alarm="too many skips"),
)
TRIAL = make_trial(2, pruned=True, reward=80.0, cost=1.5, met=False)
TARGET = TargetResult(
    value=10.0, unit="ms", source="model", cost=9.0, miss=-0.1, met=False, reward="absolute", beta=-0.1,
    binding_beta=-0.3, sentence="target missed", strict=StrictSteps(40, 40, -0.8, met=False),
)  # fmt: skip
ACCURACIES = {"derived_score": "derived_accuracy"}  # names of version 2
FIRST_EDITION = {"table_entry": "standing", "probabilities": "scores", "reward": "worth", **ACCURACIES}


def through_json(value: dict[str, Any], renamed: dict[str, str] | None = None) -> dict[str, Any]:
    names = renamed or {}
    return json.loads(json.dumps({names.get(name, name): item for name, item in value.items()}))


@pytest.mark.parametrize("renamed", [{}, ACCURACIES, FIRST_EDITION])
@pytest.mark.parametrize("record", [EPOCH, TRIAL, make_epoch(), make_trial()])
def test_records_survive_a_file(record: EpochRecord | TrialRecord, renamed: dict[str, str]) -> None:
    assert read_record(through_json(record.to_json(), renamed)) == record


@pytest.mark.parametrize("renamed", [{}, {"strict": "pursued"}])
def test_parts_of_a_result_survive_a_file(renamed: dict[str, str]) -> None:
    value = {**vars(TARGET), "strict": vars(TARGET.strict)}
    assert TargetResult.from_json(through_json(value, renamed)) == TARGET
    finalist = FinalistRecord("a", Architecture({"edge": "a"}), 420, None, 0.5, 1000)
    value = {**vars(finalist), "architecture": dict(finalist.architecture)}
    assert FinalistRecord.from_json(through_json(value)) == finalist
    assert FinalistRecord.from_json(through_json(value, {"valid_score": "valid_accuracy"})) == finalist


def test_optional_keys_may_be_missing_in_old_files() -> None:
    old = {"trial": 4, "score": 3.0, "best": 3.0, "seconds": 1.0, "architecture": {"edge": "a"}, "text": "a"}
    record = TrialRecord.from_json(old)
    assert (record.trainings, record.pruned, record.table_entry, record.met) == (5.0, False, None, None)


def test_null_becomes_nan() -> None:
    value = {**EPOCH.to_json(), "metrics": {"loss": None}, "derived_score": None}
    record = EpochRecord.from_json(value)
    assert math.isnan(record.metrics["loss"])
    assert math.isnan(record.derived_score)


@pytest.mark.parametrize("damage", [{"architecture": None}, {"metrics": 3}, {"epoch": "x"}, {"table_entry": 3}])
def test_a_damaged_record_is_one_line(damage: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"^a search record is damaged \(.*\)$"):
        read_record({**EPOCH.to_json(), **damage})


def test_a_row_of_a_table_has_metrics_health_and_table_entry_as_columns() -> None:
    row = flatten_record(EPOCH)
    assert (row["epoch"], row["train_loss"], row["eigenvalue"], row["table_test"]) == (3, 1.0, 0.125, 93.1)
    assert not {"architecture", "probabilities", "metrics", "health", "table_entry"} & set(row)
    assert row["derived_accuracy"] == EPOCH.derived_score and "derived_score" not in row
    assert flatten_record(make_trial(1, 70.0))["score"] == 70.0


def test_a_row_of_a_search_on_text_has_perplexities() -> None:
    row = flatten_record(make_epoch(derived_score=0.0125, metric="perplexity"))
    assert row["derived_perplexity"] == 80.0
    assert not {"derived_score", "derived_accuracy", "metric"} & set(row)
    row = flatten_record(make_trial(1, 1.25, metric="perplexity"))
    assert row["perplexity"] == row["best_perplexity"] == 80.0 and not {"score", "best"} & set(row)


def test_status_and_warning_come_from_the_health() -> None:
    assert EPOCH.status == "skips 50 %, eigenvalue 0.12"
    assert EPOCH.warning == "warning: epoch 4: too many skips"
    assert (make_epoch().status, make_epoch().warning, TRIAL.status, TRIAL.warning) == ("", "", "", "")
