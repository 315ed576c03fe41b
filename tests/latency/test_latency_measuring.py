"""What a network costs, counted by hand where that can be; time comes from a clock that is given."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from archloom.core.errors import SettingError
from archloom.export.deployed import Deployed
from archloom.latency.measuring import Size, build_untrained, is_model, load_trained, measure
from archloom.retrainings.model_file import load_model

Make = Callable[..., Deployed]
NB201 = "|skip_connect~0|+|none~0|skip_connect~1|+|none~0|none~1|skip_connect~2|"
# stem; two reductions of 3x3, 3x3 and 1x1 convolutions; the head's normalisation and linear layer
PARAMETERS = (27 * 2 + 4) + (18 * 4 + 8 + 36 * 4 + 8 + 2 * 4) + (36 * 8 + 16 + 72 * 8 + 16 + 4 * 8) + 16 + (8 * 5 + 5)


def ticking() -> Callable[[], float]:
    ticks = itertools.count()
    return lambda: next(ticks) / 1000


def test_an_architecture_is_counted_at_the_size_asked_for() -> None:
    model = build_untrained(NB201, space=None, size=Size(channels=2, cells=1, classes=5, side=8))
    found = measure(model, is_trained=False, threads=1, batch=4, repeats=30, onnx=False, clock=ticking())
    assert found.parameters == PARAMETERS
    assert found.image_shape == (3, 8, 8) and found.classes == 5 and found.batch == 4 and found.threads == 1
    assert found.text == NB201 and not found.trained
    convolutions = 64 * 27 * 2 + 16 * (18 * 4 + 36 * 4 + 2 * 4) + 4 * (36 * 8 + 72 * 8 + 4 * 8)
    assert found.multiply_adds == convolutions + 8 * 5 + 5
    floats = PARAMETERS + 2 * (2 + 4 + 4 + 8 + 8 + 8)  # running statistics are saved too
    assert 4 * floats < found.bytes_on_disk < 4 * floats + 6000
    assert found.latency["torch"].median == pytest.approx(1)
    assert found.latency["torch"].repeats == 30


def test_a_depth_is_the_one_that_the_space_counts() -> None:
    one = build_untrained(NB201, space=None, size=Size(cells=1, channels=2))
    two = build_untrained(NB201, space=None, size=Size(cells=2, channels=2))
    assert len(two.network.blocks) == len(one.network.blocks) + 3  # type: ignore[arg-type]
    genotype = (
        "Genotype(normal=[('skip_connect', 0), ('skip_connect', 1)], normal_concat=range(2, 3), "
        "reduce=[('skip_connect', 0), ('skip_connect', 1)], reduce_concat=range(2, 3))"
    )
    with pytest.raises(Exception, match="must be a list of 8 pairs"):
        build_untrained(genotype, space="darts", size=Size(cells=4))


def test_a_trained_model_is_measured_as_it_is(model_file: Path) -> None:
    _, network = load_model(model_file)
    for given in (str(model_file), str(model_file.parent)):
        assert is_model(given)
        found = measure(load_trained(given), is_trained=True, threads=1, repeats=30, onnx=False, clock=ticking())
        assert found.parameters == sum(parameter.numel() for parameter in network.parameters())
        assert found.trained and found.classes == 3


def test_a_text_is_no_model(tmp_path: Path) -> None:
    assert not is_model(NB201)
    assert not is_model(str(tmp_path))
    assert not is_model("Genotype(" + "x" * 5000)


def test_fresh_weights_are_always_the_same() -> None:
    torch.manual_seed(1)
    models = [build_untrained(NB201, space=None, size=Size(channels=2, cells=1)) for _ in range(2)]
    images = models[0].example(2)
    assert torch.equal(models[0](images), models[1](images))


def test_figures_that_make_no_sense_are_refused(make: Make) -> None:
    with pytest.raises(SettingError, match="--channels must be at least 1, got 0"):
        Size(channels=0)
    with pytest.raises(SettingError, match="--size must be at least 1, got -1"):
        Size(side=-1)
    model = make("nb201_mini")
    for settings, told in (
        ({"batch": 0}, "--batch must be at least 1, got 0"),
        ({"threads": 0}, "--threads must be at least 1, got 0"),
        ({"repeats": 29}, "--repeats must be at least 30, got 29"),
    ):
        with pytest.raises(SettingError, match=told):
            measure(model, is_trained=False, onnx=False, **settings)  # type: ignore[arg-type]


def test_onnx_runtime_takes_its_turn(in_onnx: tuple[Deployed, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    model, content = in_onnx
    monkeypatch.setattr("archloom.export.onnx.onnx_bytes", lambda model: content)
    found = measure(model, is_trained=False, threads=1, repeats=30, clock=ticking())
    assert list(found.latency) == ["torch", "onnxruntime"]
    assert found.latency["onnxruntime"].repeats == 30


def test_what_is_not_installed_is_left_out_and_said(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from archloom import export

    monkeypatch.setitem(export.FORMATS, "onnx", export.Format(export.export_onnx, ("no_such_package",)))
    told: list[str] = []
    found = measure(make("nb201_mini"), is_trained=False, threads=1, repeats=30, clock=ticking(), tell=told.append)
    assert list(found.latency) == ["torch"]
    assert told[0] == "ONNX Runtime is left out: pip install 'archloom[onnx]'"
