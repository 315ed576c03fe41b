"""The contract of a strategy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch

from archloom.core.settings import Settings, flat_schema, merge, schema
from archloom.execution.checkpoint import decode
from archloom.searches.loop import SearchLoop
from archloom.searches.spec import SearchSpec
from archloom.strategies import STRATEGIES
from archloom.strategies.base import BlackBox
from archloom.testing.held_out import check_held_out
from archloom.testing.searches import finish, make_search, save_interrupted, tiny_data_for
from archloom.testing.states import find_differences

Make = Callable[..., SearchLoop[Any]]


class StrategyContract:
    """What every strategy must do, as tests. Subclass it in a test file and name your strategy.

    Attributes:
        strategy: the name of the strategy, as `module:Class`.
        settings: settings of the strategy that keep a tiny search tiny.
        space: the space of the searches.
        sections: settings of other sections.

    Examples:
        >>> from archloom.testing import StrategyContract
        >>> class TestRandomSampling(StrategyContract):
        ...     strategy = "rsps"
        ...     settings = {"candidates": 2, "candidates_each_epoch": 1}
        >>> TestRandomSampling().test_result_is_an_architecture_of_the_space()
    """

    strategy: str
    settings: Settings = {}  # noqa: RUF012 - a subclass or an instance may set its own
    space: str = "nb201_mini"
    sections: Mapping[str, Settings] = {"network": {"channels": 2}}
    target: ClassVar[Settings] = {"metric": "parameters", "value": 5000.0}

    def make_search(self, **sections: Any) -> SearchLoop[Any]:
        """Return a tiny search by the strategy; `sections` and `seed` are those of `archloom.testing.make_search`."""
        own = merge({"strategy": self.settings}, self.sections)
        return make_search(self.strategy, self.space, **{**own, **sections})

    def test_result_is_an_architecture_of_the_space(self) -> None:
        """The result of a search is valid, has a text form and a verdict."""
        check_result(self.make_search())

    def test_same_seed_gives_the_same_bits_and_another_seed_others(self) -> None:
        """A search depends on its seed and on nothing else."""
        check_seeds(self.make_search)

    def test_a_resumed_search_ends_in_the_state_of_an_uninterrupted_one(self) -> None:
        """A checkpoint holds everything."""
        check_resume(self.make_search, stops=(1, 3, 4))

    def test_a_resumed_search_with_a_target_ends_in_the_state_of_an_uninterrupted_one(self) -> None:
        """The same with a target for the cost, which one-shot strategies descend on."""
        if not issubclass(STRATEGIES.find_named_by_code(self.strategy).load(), BlackBox):
            check_resume(lambda: self.make_search(target=self.target), stops=(3,))

    def test_the_state_holds_every_attribute_that_a_step_changes(self) -> None:
        """`stateful` names all attributes that change."""
        check_state(self.make_search())

    def test_global_generators_stay_untouched(self) -> None:
        """A strategy samples from its own generator."""
        check_global_generators(self.make_search())

    def test_nothing_learns_from_examples_that_are_held_out(self) -> None:
        """Neither weights nor architecture parameters depend on what the race and the comparison evaluate on."""
        check_held_out(self.make_search, tiny_data_for(self.space))

    def test_every_setting_has_help(self) -> None:
        """`archloom list strategies NAME` can print a line for each setting."""
        check_help(STRATEGIES.find_named_by_code(self.strategy).load())

    def test_presets_resolve(self) -> None:
        """The settings of a preset exist and are in force."""
        check_presets(self.strategy)


def check_result(search: SearchLoop[Any]) -> None:
    """Assert that the outcome of a search is an architecture of its space."""
    outcome = search.run()
    read = search.space.parse(outcome.text)
    assert search.space.check(outcome.architecture) == read, f"the result must be {outcome.text!r}, got {read}"
    assert outcome.verdict, "the outcome must have a verdict"
    count = 1 + (search.total - 1) // search.units_per_record
    assert len(search.history) == count, f"the history must have {count} records, got {len(search.history)}"


def check_seeds(make: Make) -> None:
    """Assert that the same seed gives the same final state, and another seed another one."""
    first, second, other = finish(make()), finish(make()), finish(make(seed=1))
    changed = find_differences(first, second)
    assert not changed, f"two searches with one seed must end alike; they differ in {changed}"
    assert find_differences(first, other), "another seed must lead to another final state"


def check_resume(make: Callable[[], SearchLoop[Any]], *, stops: tuple[int, ...]) -> None:
    """Assert that a search stopped after any of these units and resumed ends like an uninterrupted one."""
    wanted = finish(make())
    for stop_after in stops:
        resumed = make()
        resumed.load_state_dict(decode(save_interrupted(make(), stop_after), name="saved"))
        assert resumed.position == stop_after, f"the search must resume at {stop_after}, got {resumed.position}"
        changed = find_differences(wanted, finish(resumed))
        assert not changed, f"a search resumed after {stop_after} units must end as without; it differs in {changed}"


def check_state(search: SearchLoop[Any]) -> None:
    """Assert that steps change no attribute of the strategy outside its state."""
    strategy = search.strategy  # type: ignore[attr-defined]  # both loops have one
    attributes = vars(strategy).items()
    kept = {*strategy.stateful, "generator"}
    if hasattr(search, "weights"):  # their optimizer may come from the strategy, but is saved with the weights
        kept |= {key for key, value in attributes if value is search.weights._optimizer}
    outside = {key: value for key, value in attributes if key not in kept}
    before = copy.deepcopy(outside)
    for _ in range(3):
        search.advance()
    added = set(vars(strategy)) - {*outside, *kept}
    assert not added, f"a step must not add attributes, got {sorted(added)}; set them in __init__"
    changed = find_differences(before, {key: getattr(strategy, key) for key in outside}, "strategy")
    assert not changed, f"`stateful` must name what a step changes; it lacks {changed}"


def check_global_generators(search: SearchLoop[Any]) -> None:
    """Assert that a search leaves the global random generator of torch alone."""
    before = torch.get_rng_state()
    search.run()
    assert torch.equal(before, torch.get_rng_state()), "use self.generator: the search used torch's global generator"


def check_help(target: Any) -> None:
    """Assert that every setting of a class or a function has help."""
    settings = {**schema(target), **flat_schema(target, "settings")}
    without = [name for name, setting in settings.items() if not setting.help]
    assert not without, f"every setting needs a Doc in its type; without one: {without}"


def check_presets(strategy: str) -> None:
    """Assert that the presets of a strategy resolve to the settings that they name."""
    for name, preset in STRATEGIES.find_named_by_code(strategy).load().presets.items():
        settings = SearchSpec.resolve({"strategy": {"name": strategy, "preset": name}}).to_settings()
        for section, values in preset.items():
            kept = merge(settings[section], values) == settings[section]
            assert kept, f"preset '{name}' must set {section} to {dict(values)}, got {settings[section]}"
