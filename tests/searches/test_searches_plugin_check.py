"""Mistakes of plug-ins are found before training, one clear line each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import archloom
from archloom.core.errors import SettingError
from archloom.testing.plugin_report import check_plugin

SPACE = """
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_doc import Doc

from archloom import CellGraph, Decision, SearchSpace

@dataclass(frozen=True, kw_only=True)
class Chain(SearchSpace):
    \"\"\"Two layers.\"\"\"

    layers: Annotated[int, Doc("how many")] = 2
    network: ClassVar[str] = "{module}_network:Network"

    def full_decisions(self):
        return tuple(Decision(f"layer{{n}}", ("conv_1x1", "conv_3x3", "conv_5x5")) for n in range(self.layers))

    def format(self, architecture):
        return " ".join(architecture.values())

    def parse(self, text):
        return self.check(dict(zip([d.name for d in self.decisions], text.split(), strict=True)))

    def graphs(self, architecture):
        edges = tuple((n, n + 1, option) for n, option in enumerate(architecture.values()))
        return (CellGraph("chain", ("input",), self.layers + 1, edges, (self.layers,)),)
"""
NETWORK = """
from typing import Annotated

from annotated_doc import Doc
from torch import nn

KERNELS = {"conv_1x1": 1, "conv_3x3": 3, "conv_5x5": 5}

class Network(nn.Module):
    def __init__(self, space, resolve, classes, colours, /, *, channels: Annotated[int, Doc("width")] = 4):
        super().__init__()
        self.stem = nn.Conv2d(colours, channels, 3, padding=1)
        def make(option):
            kernel = KERNELS[option]
            return nn.Sequential(
                nn.Conv2d(channels, channels, kernel, padding=kernel // 2, bias=False),
                resolve.normalize(channels),
                nn.ReLU(inplace=True),
            )
        self.layers = nn.ModuleList(resolve.operation(decision, make) for decision in space.decisions)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))

    def forward(self, images, gates=None):
        x = self.stem(images)
        for layer in self.layers:
            x = layer(x, gates)
        return self.head(x)
"""
SETTINGS: dict[str, Any] = {
    "data": {"train_images": 32, "valid_images": 32},
    "search": {"batch_size": 16, "evaluation_images": 16, "random_baseline_samples": 2},
    "race": {"contestants": 0},
}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Write a space and its network with some lines replaced; return the name of the space."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    count = 0

    def put(*changes: tuple[str, str], space: str = SPACE, network: str = NETWORK) -> str:
        nonlocal count
        count += 1
        module = f"chain_{abs(hash(request.node.name))}_{count}"
        space, network = textwrap.dedent(space).format(module=module), network
        for old, new in changes:
            assert old in space + network, old
            space, network = space.replace(old, new), network.replace(old, new)
        Path(f"{module}.py").write_text(space)
        Path(f"{module}_network.py").write_text(network)
        return f"{module}:Chain"

    yield put


def search(space: str) -> archloom.SearchResult:
    return archloom.search(space, "rsps", "digits", epochs=1, settings=SETTINGS)


def test_a_sound_plugin_is_searched_with_activations_in_place(write: Any) -> None:
    assert search(write()).text


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("    def format(", "    def formatted(", r"must implement format\(\)$"),
        ("    def graphs(", "    def drawn(", r"must implement graphs\(\)$"),
        ("_network:Network", "_network:Missing", r"Chain\.network must name a class .*has no attribute 'Missing'"),
        ("_network:Network", "_nowhere:Network", r"Chain\.network must name a class .*no module named"),
        ("gates=None", "", r"Network\.forward must take \(self, images, gates=None\), got \(self, images\)"),
        (
            "text.split(), strict",
            "reversed(text.split()), strict",
            r"parse\(\) must return what format\(\) wrote; of '",
        ),
        ("text.split(), strict=True", "text, strict=True", r"parse\('conv_.*'\) failed: ValueError"),
        ("nn.Linear(channels, ", "nn.Linear(2 * channels, ", r"its network on images \[4, 1, 8, 8\], for .* failed"),
        (
            "nn.Linear(channels, classes)",
            "nn.Linear(channels, 7)",
            r"forward must return logits \[4, 10\] of images \[4, 1, 8, 8\], got \[4, 7\]",
        ),
        ("return tuple(Decision", "return tuple(str", r"full_decisions\(\) (must return a tuple of Decision|failed)"),
    ],
)
def test_a_mistake_is_one_line_before_training(write: Any, old: str, new: str, line: str) -> None:
    with pytest.raises(SettingError, match=line) as error:
        search(write((old, new)))
    assert len(error.value.problems) == 1
    assert not Path("runs").exists()


def test_missing_methods_of_a_strategy_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    Path(tmp_path / "half_strategy.py").write_text("import archloom\nclass Half(archloom.OneShot):\n    pass\n")
    with pytest.raises(SettingError, match=r"strategy 'half_strategy:Half' must implement best\(\), step\(\)"):
        archloom.search("nb201_mini", "half_strategy:Half", "digits", epochs=1)


def test_the_report_of_a_sound_space_keeps_every_rule(write: Any) -> None:
    report = check_plugin(write())
    assert report.kind == "space" and len(report.findings) > 15
    assert [finding.problem for finding in report.broken] == []


def test_the_report_names_the_broken_rule(write: Any) -> None:
    report = check_plugin(write(("edges = tuple((n, n + 1, option)", 'edges = tuple((n, n + 1, "conv_1x1")')))
    assert any("graphs() must have the options" in finding.problem for finding in report.broken)
    with pytest.raises(SettingError, match=r"must implement parse\(\)"):
        check_plugin(write(("    def parse(", "    def parsed(")))


def test_other_kinds_of_plugins_are_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_plugin("archloom.benchmarks.digits:DigitsTable").broken == []
    report = check_plugin("archloom.data.digits:digits")
    assert (report.kind, report.broken) == ("data set", [])
    with pytest.raises(SettingError, match="'json:JSONDecoder' is no plug-in: expected a SearchSpace"):
        check_plugin("json:JSONDecoder")
