"""All formats at once: those that are installed, those that are asked for, and clear words for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from archloom import export
from archloom.core.errors import SettingError
from archloom.export import Format, export_model
from archloom.export.deployed import Deployed


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formats that only note what they are given."""

    def write(name: str) -> Format:
        def noted(model: Deployed, folder: Path) -> tuple[list[Path], float]:
            return [folder / f"{name}-{model.card.text}"], 0.25

        return Format(noted, ("no_such_package",) if name == "onnx" else ())

    monkeypatch.setattr(export, "FORMATS", {name: write(name) for name in ("onnx", "torch", "standalone")})


def test_what_is_not_installed_is_left_out_and_said(model_file: Path) -> None:
    told: list[str] = []
    found = export_model(model_file.parent, tell=told.append)
    folder = model_file.parent / "export"
    assert [entry.format for entry in found] == ["torch", "standalone"]
    assert found[0].paths == (folder / "torch-|nor_conv_3x3~0|",)
    assert found[0].difference == 0.25
    assert told[0] == "onnx is left out: it needs no_such_package (pip install 'archloom[onnx]')"


def test_what_is_asked_for_must_be_there(model_file: Path) -> None:
    with pytest.raises(SettingError, match="format onnx needs no_such_package: pip install"):
        export_model(model_file, formats=["onnx"])
    with pytest.raises(SettingError, match="unknown format 'standalon'; did you mean 'standalone'"):
        export_model(model_file, formats=["standalon"])


def test_a_folder_may_be_chosen_and_a_format_is_written_once(model_file: Path, tmp_path: Path) -> None:
    (found,) = export_model(model_file, formats=["torch", "torch"], out=tmp_path / "there")
    assert found.paths[0].parent == tmp_path / "there"
