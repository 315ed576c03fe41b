"""Plain source: the same function in every space, without archloom, as a person would write it."""

from __future__ import annotations

import ast
import importlib.util
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from archloom.core.errors import CheckpointError, SettingError
from archloom.export import standalone
from archloom.export.deployed import Deployed
from archloom.export.prediction import read_picture
from archloom.export.standalone import export_standalone, quote_text, write_standalone
from archloom.families import Family
from archloom.families.nb201 import Nb201Family

Make = Callable[..., Deployed]

GENOTYPE = (
    "Genotype(normal=[('skip_connect', 0), ('none', 1), ('none', 0), ('none', 1), ('sep_conv_3x3', 3), "
    "('max_pool_3x3', 2), ('avg_pool_3x3', 0), ('dil_conv_5x5', 4)], normal_concat=range(2, 6), "
    "reduce=[('none', 0), ('none', 1), ('skip_connect', 1), ('skip_connect', 2), ('max_pool_3x3', 0), "
    "('dil_conv_3x3', 2), ('sep_conv_5x5', 1), ('avg_pool_3x3', 0)], reduce_concat=range(2, 6))"
)
IMAGENET = {"channels": 4, "stem": "imagenet"}
CASES: dict[str, dict[str, Any]] = {
    **{f"nb201-{seed}": {"space": "nb201", "cells_per_stage": 2, "seed": seed} for seed in range(4)},
    "nb201-none": {"space": "nb201", "architecture": "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"},
    "nb201-zeros": {
        "space": "nb201",
        "cells_per_stage": 1,
        "architecture": "|none~0|+|none~0|nor_conv_3x3~1|+|avg_pool_3x3~0|none~1|nor_conv_1x1~2|",
    },
    "nb201-dead": {
        "space": "nb201",
        "cells_per_stage": 1,
        "architecture": "|nor_conv_3x3~0|+|nor_conv_3x3~0|none~1|+|skip_connect~0|none~1|nor_conv_1x1~2|",
    },
    "nb201-wide": {"space": "nb201", "nodes": 7, "cells_per_stage": 1, "operations": ["avg_pool_3x3"]},
    "nb201_mini": {"space": "nb201_mini", "shape": (1, 8, 8)},
    "five-colours": {"space": "nb201_mini", "shape": (5, 8, 6)},
    **{f"darts-{seed}": {"space": "darts", "cells": 4, "seed": seed} for seed in range(3)},
    "darts-none": {"space": "darts", "cells": 4, "architecture": GENOTYPE, "shape": (3, 17, 16)},
    "darts-shallow": {"space": "darts", "cells": 2},
    "darts-imagenet": {"space": "darts", "network": IMAGENET, "shape": (3, 64, 48), "cells": 3},
    "darts-bare-pools": {
        "space": "darts",
        "cells": 3,
        "network": {"channels": 4, "normalized_pools": False},
        "architecture": GENOTYPE,
        "shape": (3, 17, 17),
    },
    "darts-nodes": {"space": "darts", "nodes": 14, "cells": 2, "seed": 1},
    "darts_gdas": {"space": "darts_gdas", "nodes": 2},
    "darts_frc": {"space": "darts_frc", "cells_per_block": 1, "network": {"channels": 6}},
    **{f"mobile-{seed}": {"space": "proxylessnas_32", "network": {}, "seed": seed} for seed in range(2)},
    "mobile-widths": {"space": "proxylessnas_enlarged_32", "network": {"width_multiplier": 0.5}, "seed": 3},
    **{f"mobile-v3-{seed}": {"space": "mobilenet_v3_like_32", "network": {}, "seed": seed} for seed in range(3)},
    "mobile-v3-large": {
        "space": "mobilenet_v3_widths",
        "network": {"width_multiplier": 0.25},
        "architecture": "mobilenet_v3_large",
        "shape": (3, 32, 32),
    },
    **{f"widths-{seed}": {"space": "nats_size", "network": {}, "seed": seed} for seed in range(2)},
    "widths-pools": {
        "space": "nats_size",
        "network": {"width_multiplier": 2.0},
        "cell": "|avg_pool_3x3~0|+|skip_connect~0|nor_conv_1x1~1|+|skip_connect~0|avg_pool_3x3~1|skip_connect~2|",
        "architecture": "8:24:24:16:8",
        "shape": (1, 9, 7),
    },
    "s1": {"space": "s1", "cells": 3, "seed": 2},
    "s2": {"space": "s2", "cells": 6, "nodes": 2, "seed": 3},
}

# refuses to import archloom, and compares every model with what it is expected to say
ELSEWHERE = """
import importlib.util, sys
from pathlib import Path

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "archloom":
            raise ImportError("archloom is not installed here")

sys.meta_path.insert(0, Refuse())
from safetensors.torch import load_file

for folder in sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_dir()):
    spec = importlib.util.spec_from_file_location("model", folder / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    known = load_file(folder / "known.safetensors")
    found = module.load()(known["images"])
    assert found.shape == known["logits"].shape
    print(folder.name, float((found - known["logits"]).abs().max() / known["logits"].abs().max()))
assert "archloom" not in sys.modules
"""


@pytest.fixture(scope="module")
def written(make: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each case: the files, and what the model says of some images."""
    root = tmp_path_factory.mktemp("standalone")
    for name, settings in CASES.items():
        model = make(**settings)
        export_standalone(model, root / name)
        images = model.example(5, seed=9)
        save_file({"images": images, "logits": model(images)}, root / name / "known.safetensors")
    return root


def test_models_compute_the_same_where_there_is_no_archloom(written: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(written)], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    differences = dict(line.split() for line in ended.stdout.splitlines())
    assert differences.keys() == CASES.keys()
    assert {name: value for name, value in differences.items() if not float(value) <= 1e-6} == {}


def test_the_source_is_as_formatters_and_linters_want_it(written: Path) -> None:
    config = Path(__file__).resolve().parents[2] / "pyproject.toml"
    for arguments in (["check", "--isolated"], ["format", "--check", "--isolated"], ["check", f"--config={config}"]):
        ended = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, str(written)], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout


def test_only_what_is_used_is_written(written: Path) -> None:
    source = (written / "nb201-dead" / "model.py").read_text()
    weights = load_file(written / "nb201-dead" / "model.safetensors")
    assert "conv1x1_2_3" in source and "conv3x3_0_2" in source
    assert "_0_1" not in source and "AvgPool" not in source  # node 1 leads nowhere
    assert not any("_0_1" in name for name in weights)
    assert "SeparableConv" not in (written / "s2" / "model.py").read_text().partition("class SeparableConv")[0]
    shallow = (written / "darts-shallow" / "model.py").read_text()
    assert "halve" not in shallow and "FactorizedReduce" not in shallow


def test_names_can_be_read(written: Path) -> None:
    weights = load_file(written / "darts-none" / "model.safetensors")
    assert "cells.0.sep_conv_3x3_3_4.first.depthwise.weight" in weights
    assert "cells.1.skip_connect_1_3.even.weight" in weights
    assert "stem_conv.weight" in weights and "classifier.bias" in weights
    assert not any("candidates" in name or "->" in name for name in weights)


def test_equal_cells_are_written_once(written: Path) -> None:
    source = (written / "darts-0" / "model.py").read_text()
    assert source.count("class NormalCell(Cell)") == source.count("class ReductionCell(Cell)") == 1
    assert "CELLS = [\n    NormalCell,\n    *[ReductionCell] * 2,\n    NormalCell,\n]" in source
    assert "    *[NormalCell] * 2,\n    ReductionCell,\n" in (written / "darts_gdas" / "model.py").read_text()
    own = (written / "s2" / "model.py").read_text()
    bodies = [body.partition("\n")[2] for body in own.partition("\nCELLS = ")[0].split("\n\n\nclass ")]
    assert len(bodies) == len(set(bodies)) > 3
    assert "Cell5,\n" in own or "    *[Cell" in own


def test_the_file_says_what_it_is(written: Path) -> None:
    told = ast.get_docstring(ast.parse((written / "nb201-zeros" / "model.py").read_text())) or ""
    assert CASES["nb201-zeros"]["architecture"] in told
    assert "Accuracy on test images: 91.24 %." in told
    assert "[batch, 3, 8, 8] with values in 0..1" in told


def test_pictures_are_read_as_predict_reads_them(make: Make, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 255, (40, 30, 3), dtype=np.uint8)).save(tmp_path / "colours.png")
    Image.fromarray(rng.integers(0, 65535, (30, 40), dtype=np.uint16)).save(tmp_path / "deep.png")
    photo = Image.fromarray(rng.integers(0, 255, (300, 200, 3), dtype=np.uint8))
    exif = photo.getexif()
    exif[0x0112] = 6  # lies on its side
    photo.save(tmp_path / "photo.jpg", exif=exif)
    for number, (shape, side) in enumerate([((3, 16, 16), 0), ((1, 16, 16), 0), ((3, 16, 12), 0), ((3, 16, 16), 20)]):
        folder = tmp_path / f"model{number}"
        export_standalone(make("nb201_mini", shape=shape, side=side), folder)
        module = _module(folder / "model.py", f"standalone_{number}")
        for name in ("colours.png", "deep.png", "photo.jpg"):
            found = module.preprocess(Image.open(tmp_path / name))
            assert torch.equal(found[0], read_picture(tmp_path / name, shape, square=side or 16)), (shape, name)


def test_the_file_labels_pictures_by_itself(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    export_standalone(make("nb201_mini"), tmp_path)
    Image.new("L", (9, 9), 200).save(tmp_path / "grey.png")
    monkeypatch.setattr(sys, "argv", ["model.py", str(tmp_path / "grey.png")])
    runpy.run_path(str(tmp_path / "model.py"), run_name="__main__")
    name, _, answer = capsys.readouterr().out.strip().rpartition(": ")
    assert name == str(tmp_path / "grey.png")
    assert answer.split()[0] in ("cat", "dog", "fish") and answer.endswith("%)")


HOSTILE = (
    '"""',
    '"); raise SystemExit("taken over")  #',
    "'); raise SystemExit('taken over')  #",
    "ends in a backslash \\",
    "two\nlines\r\n\u2028and\x00more",
    "{{ 7 * 7 }}{% raw %}",
    "snow ☃ 雪",
    'it\'s "both"',
)


def test_no_name_of_a_class_becomes_code(make: Make, tmp_path: Path) -> None:
    export_standalone(make("nb201_mini", classes=HOSTILE), tmp_path)
    assert _module(tmp_path / "model.py", "standalone_hostile").CLASSES == HOSTILE
    for arguments in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--isolated", str(tmp_path)]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("text", [*HOSTILE, "", "a", "\ud800"])
def test_a_literal_means_the_text(text: str) -> None:
    assert ast.literal_eval(quote_text(text)) == text


def test_a_wrong_source_is_refused_and_leaves_nothing(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make("nb201", nodes=2, cells_per_stage=1, architecture="|nor_conv_3x3~0|")
    right = write_standalone(model)
    wrong = right.source.replace("(images - self.mean) / self.std", "images")
    assert wrong != right.source
    monkeypatch.setattr(standalone, "write_standalone", lambda model: standalone.Standalone(wrong, right.weights))
    with pytest.raises(CheckpointError, match="standalone model differs"):
        export_standalone(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_family_without_a_source_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nb201Family, "source", Family.source)
    with pytest.raises(SettingError, match="needs a family that writes its source; 'nb201' \\(Nb201\\) does not"):
        write_standalone(make("nb201_mini"))


def _module(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
