from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from archloom.core.errors import SettingError
from archloom.retrainings.best_model import find_best_model
from archloom.retrainings.model_file import BEST, LAST

STORED = Path(__file__).resolve().parents[1] / "data_files" / "first_edition" / "retrain"


def put(folder: Path, valid: float | None) -> Path:
    """Write a finished retraining with this validation accuracy."""
    shutil.copytree(STORED, folder)
    result = json.loads((folder / "result.json").read_text())
    result["valid"] = None if valid is None else {**(result["valid"] or result["test"]), "top1": valid}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_a_retraining_has_its_own_model(tmp_path: Path) -> None:
    (tmp_path / LAST).touch()
    assert find_best_model(tmp_path).path == tmp_path / LAST
    (tmp_path / BEST).touch()
    found = find_best_model(tmp_path)
    assert (found.path, found.reason) == (tmp_path / BEST, "")
    assert find_best_model(tmp_path / LAST).path == tmp_path / LAST
    with pytest.raises(SettingError, match="there is no model"):
        find_best_model(tmp_path / "other.safetensors")


def test_the_best_model_by_validation_is_used_and_said(tmp_path: Path) -> None:
    put(tmp_path / "retrainings" / "a", 60.0)
    best = put(tmp_path / "retrainings" / "b", 72.5)
    put(tmp_path / "retrainings" / "c", None)
    put(tmp_path / "picking" / "d", 99.0)  # short trainings are no models to use
    found = find_best_model(tmp_path)
    assert found.path == best / BEST
    assert found.reason == f"using {best}, the best of 3 models in {tmp_path} (validation accuracy 72.50 %)"


def test_without_validation_images_the_first_model_is_used(tmp_path: Path) -> None:
    first = put(tmp_path / "a", None)
    assert (
        find_best_model(tmp_path).reason
        == f"using {first}, the only model in {tmp_path} (the first: none was validated)"
    )
    put(tmp_path / "b", None)
    assert find_best_model(tmp_path).path == first / BEST


@pytest.mark.parametrize(
    ("file", "content", "advice"),
    [
        ("config.toml", "", "train what the search found: archloom retrain "),
        ("config.toml", 'kind = "retrain"', "it has not finished: archloom resume "),
        ("pipeline.toml", "", "it has not finished: archloom run "),
        ("notes.txt", "", "expected a run of archloom retrain or run, or a model file"),
    ],
)
def test_a_folder_without_a_model_says_how_to_get_one(tmp_path: Path, file: str, content: str, advice: str) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(SettingError) as error:
        find_best_model(tmp_path)
    assert str(error.value).startswith(f"{tmp_path} holds no trained model; {advice}")


def test_a_comparison_names_one_of_its_searches(tmp_path: Path) -> None:
    (tmp_path / "comparison.toml").write_text("")
    (tmp_path / "runs" / "gdas-0").mkdir(parents=True)
    (tmp_path / "runs" / "gdas-0" / "config.toml").write_text("")
    with pytest.raises(SettingError, match=f"archloom retrain {tmp_path / 'runs' / 'gdas-0'}"):
        find_best_model(tmp_path)
