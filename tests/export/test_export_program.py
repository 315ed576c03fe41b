"""torch.export: a program that needs torch alone, for any batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from archloom.core.errors import CheckpointError
from archloom.export.deployed import Deployed
from archloom.export.program import export_program

Make = Callable[..., Deployed]


@pytest.fixture(scope="module")
def model(make: Make) -> Deployed:
    return make(nodes=2, cells_per_stage=1, architecture="|nor_conv_3x3~0|")


def test_the_program_answers_any_number_of_images(model: Deployed, tmp_path: Path) -> None:
    (path,), difference = export_program(model, tmp_path / "out")
    assert path == tmp_path / "out" / "model.pt2"
    assert 0 <= difference < 1e-4
    again = torch.export.load(path).module()
    for count in (1, 2, 7):
        images = model.example(count, seed=5)
        assert torch.allclose(again(images), model(images), rtol=1e-4, atol=1e-5)


def test_a_program_that_computes_something_else_is_not_written(
    model: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other:
        def module(self) -> Any:
            return lambda images: -model(images)

    monkeypatch.setattr("archloom.export.program.trace_model", lambda model: None)
    monkeypatch.setattr(torch.export, "save", lambda program, file: file.write(b"program"))
    monkeypatch.setattr(torch.export, "load", lambda file: Other())
    with pytest.raises(CheckpointError, match=r"the torch\.export model differs"):
        export_program(model, tmp_path)
    assert list(tmp_path.iterdir()) == []
