"""The notebook of the documentation runs, shows its results, and keeps no outputs in the repository."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("nbclient", reason="needs nbclient, nbconvert and ipykernel")


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebook_pictures", ROOT / "tools" / "notebook_pictures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_cell_runs_and_results_are_drawn(tool: ModuleType, tmp_path: Path) -> None:
    notebook = tool.execute()
    by_id = {cell.id: cell for cell in notebook.cells}
    for name in ("search", "model"):
        page = "".join(out.data.get("text/html", "") for out in by_id[name].outputs if "data" in out)
        assert "<svg" in page and "<h4>" in page, f"{name} draws nothing"
        progress = [out for out in by_id[name].outputs if out.output_type == "display_data"]
        assert len(progress) == 1 and progress[0].data["text/plain"] == "", "progress has one place, empty at the end"
    assert "derived_accuracy" in by_id["frame"].outputs[0].data["text/html"]
    assert "image/png" in by_id["plot"].outputs[0].data
    assert "model.py" in by_id["export"].outputs[0].data["text/plain"]
    if shutil.which("chromium"):
        for picture in tool.take_pictures(notebook, tmp_path):
            assert picture.stat().st_size > 5_000


def test_the_stored_notebook_has_no_outputs(tool: ModuleType) -> None:
    stored = tool.nbformat.read(tool.NOTEBOOK, as_version=4)
    assert all(not cell.outputs for cell in stored.cells if cell.cell_type == "code")
