"""Exported language models carry their state, and predictions score and continue texts."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from typer.testing import CliRunner

from archloom.cli.main import app
from archloom.core.errors import CheckpointError, DataError
from archloom.export import export_model
from archloom.export.text import DeployedText, measure_text_difference
from archloom.export.text_prediction import TextModel, read_lines
from archloom.families import build_network
from archloom.retrainings.model_file import ModelCard, save_model
from archloom.spaces import Recurrent
from archloom.supernet import Only
from archloom.tasks import TextShape

WORDS = ("the", "cat", "dog", "sat", "<eos>", "<unk>")
SPACE = Recurrent(nodes=3, output="loose_ends")
CELL = SPACE.parse("Genotype(recurrent=[('tanh', 0), ('none', 0), ('sigmoid', 1)], concat=[2, 3])")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    network = build_network(SPACE, Only(CELL), TextShape(len(WORDS)), hidden=4)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.uniform_(-1, 1)
    card = ModelCard(
        space={"name": "recurrent", "nodes": 3, "output": "loose_ends"},
        architecture=dict(CELL),
        network={"hidden": 4},
        words=WORDS,
        tokens="words",
    )
    path = tmp_path / "best.safetensors"
    save_model(path, card, network.state_dict())
    return path


@pytest.mark.parametrize("name", ["onnx", "torch", "standalone"])
def test_every_form_computes_the_same_from_word_to_word(name: str, model: Path, tmp_path: Path) -> None:
    if name == "onnx":
        pytest.importorskip("onnxruntime")
    (found,) = export_model(model, formats=[name], out=tmp_path / "export")
    assert found.difference < 1e-5 and all(path.is_file() for path in found.paths)


def test_the_standalone_source_runs_alone(model: Path, tmp_path: Path) -> None:
    export_model(model, formats=["standalone"], out=tmp_path / "export")
    done = subprocess.run(
        [sys.executable, "-I", str(tmp_path / "export" / "model.py"), "the cat"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (
        len(done.stdout.splitlines()) == 5
        and "archloom" not in Path(tmp_path / "export" / "model.py").read_text()[600:]
    )


def test_a_form_that_forgets_its_state_is_refused(model: Path) -> None:
    deployed = DeployedText.load(model)

    def forgetful(words: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return deployed(words, torch.zeros_like(state))

    with pytest.raises(CheckpointError, match="differs from torch"):
        measure_text_difference(deployed, forgetful, what="forgetful")


def test_lines_are_scored_with_the_state_of_the_lines_before(model: Path) -> None:
    deployed, reader = DeployedText.load(model), TextModel.load(model)
    first, second = reader.score(["the cat", "the unicorn sat"])
    state, losses = deployed.zeros(1), []
    numbers = [WORDS.index(word) for word in ("<eos>", "the", "cat", "<eos>", "the", "<unk>", "sat", "<eos>")]
    for word, following in pairwise(numbers):
        logits, state = deployed(torch.tensor([word]), state)
        losses.append(float(F.cross_entropy(logits, torch.tensor([following]))))
    assert (first.words, first.unknown, second.words, second.unknown) == (3, 0, 4, 1)
    assert first.perplexity == pytest.approx(math.exp(sum(losses[:3]) / 3), rel=1e-5)
    assert second.perplexity == pytest.approx(math.exp(sum(losses[3:]) / 4), rel=1e-5)


def test_a_text_is_continued_by_so_many_words_the_same_for_a_seed(model: Path) -> None:
    reader = TextModel.load(model)
    text = reader.continue_text("the cat", 7)
    assert text.startswith("the cat ") and len(text.split()) == 9 and set(text.split()) <= set(WORDS)
    assert reader.continue_text("the cat", 7) == text
    assert len({reader.continue_text("the cat", 7, seed=seed) for seed in range(5)}) > 1


def test_the_command_line_scores_and_continues(model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat\nthe dog sat\n")
    runner = CliRunner()
    scored = runner.invoke(app, ["predict", str(model), str(tmp_path / "text.txt"), "--json"])
    assert scored.exit_code == 0, scored.output
    assert [line["words"] for line in json.loads(scored.stdout)] == [3, 4]
    continued = runner.invoke(app, ["predict", str(model), str(tmp_path / "text.txt"), "--words", "3"])
    assert continued.stdout.startswith("the dog sat ") and len(continued.stdout.split()) == 6
    refused = runner.invoke(app, ["predict", str(model), str(tmp_path / "text.txt"), "--runtime", "onnx"])
    assert "--runtime is for models of images" in str(refused.exception)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\0\1", "it is a binary file"),
        (b"\xff", "must be text in UTF-8, got byte 0xff at 0; convert it"),
    ],
)
def test_bad_texts_get_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_lines(tmp_path / "text.txt")
    with pytest.raises(DataError, match="cannot be read"):
        read_lines(tmp_path / "none.txt")
