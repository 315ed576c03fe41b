"""An MLflow run of a search in a local folder (the `mlflow` extra); `mlflow ui` of the full package shows it."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

from archloom.core.errors import SettingError
from archloom.core.events import Event, Listener, Recorded
from archloom.core.settings import Settings, flatten
from archloom.searches.history import list_figures
from archloom.searches.records import EpochRecord, TrialRecord

LONGEST, MOST_AT_ONCE = 500, 100  # characters of a parameter, and parameters of a batch, that MLflow accepts


def mlflow_listener(folder: Path, settings: Settings) -> Listener:
    """Return a listener that writes the settings, and the figures of every record, into a folder."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the import: nothing leaves the machine
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # plain files, which need no database
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param
    except ImportError as error:
        raise SettingError("search.mlflow needs an extra: pip install 'archloom[mlflow]'") from error
    folder.mkdir(parents=True, exist_ok=True)
    client = MlflowClient(tracking_uri=folder.absolute().as_uri())
    known = client.get_experiment_by_name("archloom")
    experiment = client.create_experiment("archloom") if known is None else known.experiment_id
    run = client.create_run(experiment, run_name=folder.parent.name).info.run_id
    params = [Param(name, str(value)[:LONGEST]) for name, value in flatten(settings).items()]
    for first in range(0, len(params), MOST_AT_ONCE):
        client.log_batch(run, params=params[first : first + MOST_AT_ONCE])

    def listen(event: Event) -> None:
        if not isinstance(event, Recorded):
            return
        record = event.record
        assert isinstance(record, EpochRecord | TrialRecord), "a listener of searches"
        moment = int(1000 * time.time())
        figures = {name: value for name, value in list_figures(record).items() if math.isfinite(value)}
        client.log_batch(run, metrics=[Metric(name, value, moment, record.position) for name, value in figures.items()])

    return listen
