"""Which kernels run."""

from __future__ import annotations

from typing import Any

import pytest

from archloom import fast as kernels
from archloom.core.errors import SettingError


@pytest.fixture(autouse=True)
def restored() -> Any:
    yield
    kernels.set_kernels("auto")


def test_plain_means_none_and_torch_means_nothing_compiled() -> None:
    with kernels.use_kernels("plain"):
        assert kernels.current_kernels() is None
    with kernels.use_kernels("torch"):
        assert kernels.current_kernels().name == "torch"


def test_auto_takes_what_is_compiled_and_torch_where_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = kernels.Kernels()
    monkeypatch.setattr("archloom.fast._load_native", lambda: compiled)
    assert kernels.current_kernels() is compiled
    monkeypatch.setattr("archloom.fast._load_native", lambda: None)
    assert kernels.current_kernels().name == "torch"


def test_a_choice_holds_until_the_next_and_a_scope_goes_first() -> None:
    kernels.set_kernels("plain")
    assert kernels.current_kernels() is None
    with kernels.use_kernels("torch"):
        assert kernels.current_kernels() is not None
        with kernels.use_kernels("plain"):
            assert kernels.current_kernels() is None
        assert kernels.current_kernels() is not None
    assert kernels.current_kernels() is None


@pytest.mark.parametrize("choose", [kernels.set_kernels, lambda name: kernels.use_kernels(name).__enter__()])
def test_an_unknown_choice_is_refused_in_one_line(choose: Any) -> None:
    with pytest.raises(SettingError, match=r"machine\.kernels must be one of auto, torch, plain, compile, got 'fast'"):
        choose("fast")


def test_under_mixed_precision_modules_decide_what_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.is_autocast_enabled", lambda device: device == "cuda")
    assert kernels.current_kernels() is None
