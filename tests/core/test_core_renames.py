"""Old names of settings still work, with a warning each; where both names occur, the later one wins."""

from __future__ import annotations

import warnings

import pytest

from archloom.core import renames
from archloom.core.renames import RENAMED, RenamedSettingWarning, new_name, rename_settings


def test_an_old_name_is_replaced_with_one_line() -> None:
    with pytest.warns(RenamedSettingWarning) as caught:
        renamed = rename_settings({"seed": 3, "machine": {"threads": 2, "device": "cpu"}})
    assert renamed == {"seed": 3, "machine": {"torch_threads": 2, "device": "cpu"}}
    assert [str(one.message) for one in caught] == [
        "machine.threads is now machine.torch_threads; the old name still works"
    ]


def test_new_names_are_left_alone_and_nothing_is_printed() -> None:
    given = {"seed": 3, "machine": {"torch_threads": 2}, "space": 3, "strategy": {"a.b": 1}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rename_settings(given) == given


def test_of_an_old_and_a_new_name_the_later_one_wins() -> None:
    with pytest.warns(RenamedSettingWarning):
        assert rename_settings({"machine": {"torch_threads": 1, "threads": 2}}) == {"machine": {"torch_threads": 2}}
        assert rename_settings({"machine": {"threads": 2, "torch_threads": 1}}) == {"machine": {"torch_threads": 1}}


def test_a_name_may_move_into_a_table_and_belong_to_one_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renames, "RENAMED", {"strategy[gibbs].rate_a": "strategy.logits.rate"})
    with pytest.warns(RenamedSettingWarning):
        renamed = rename_settings({"strategy": {"name": "gibbs", "logits": {"decay": 1}, "rate_a": 0.1}})
    assert renamed == {"strategy": {"name": "gibbs", "logits": {"decay": 1, "rate": 0.1}}}
    assert rename_settings({"strategy": {"name": "gdas", "rate_a": 1}}) == {"strategy": {"name": "gdas", "rate_a": 1}}
    assert new_name("strategy.rate_a", of="gibbs") == "strategy.logits.rate"


def test_no_new_name_is_an_old_one() -> None:
    assert not set(RENAMED) & set(RENAMED.values())


def test_many_renamed_settings_print_one_line() -> None:
    old = {"name": "gibbs", "n_eff": 5, "burn_in": 0.5, "w_mean": "diagonal", "noise_limit": 2.0}
    with pytest.warns(RenamedSettingWarning) as caught:
        rename_settings({"strategy": old, "machine": {"threads": 1}})
    (line,) = [str(warning.message) for warning in caught]
    assert line.startswith("strategy.n_eff is now strategy.posterior.observations, strategy.burn_in is now ")
    assert line.endswith(" and 2 more have new names; the old names still work")
