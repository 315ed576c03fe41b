import random

import pytest
import torch
from smooth import SPACE

from archloom.core.renames import RENAMED, RenamedSettingWarning
from archloom.core.settings import flat_schema
from archloom.searches.spec import SearchSpec
from archloom.spaces import Nb201
from archloom.strategies import STRATEGIES
from archloom.strategies.base import OneShot
from archloom.strategies.random_search import RandomSearch
from archloom.strategies.regularized_evolution import RegularizedEvolution
from archloom.strategies.tpe import Tpe


class Counting(OneShot):
    """Keeps a plain number, as an average or a counter would be."""

    stateful = ("average", "layer")

    def __init__(self) -> None:
        super().__init__(Nb201(nodes=2), torch.Generator().manual_seed(0))
        self.average = 0.0
        self.layer = torch.nn.Linear(1, 1)

    def step(self, weights, batch):
        return {}

    def best(self, evaluate, *, final=True):
        return self.space.parse("|none~0|")


def test_plain_values_and_modules_are_both_kept():
    first, second = Counting(), Counting()
    first.average = 0.75
    first.python_random()
    second.load_state_dict(first.state_dict())
    assert second.average == 0.75
    assert torch.equal(first.layer.weight, second.layer.weight)
    assert first.python_random().random() == second.python_random().random()


def test_modules_go_to_the_device_and_plain_values_stay():
    strategy = Counting()
    strategy.to(torch.device("meta"))
    assert strategy.layer.weight.device.type == "meta"
    assert strategy.average == 0.0


# --- a target of strategies with logits


@pytest.mark.parametrize(("kind", "old"), [(Tpe, "told"), (RandomSearch, "drawn"), (RegularizedEvolution, "living")])
def test_checkpoints_of_the_first_edition_load(kind, old):
    first, second = (kind(SPACE, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    first.tell(first.ask(0), 1.0)
    (new,) = kind.former_names
    state = first.state_dict()
    state[old] = state.pop(new)
    second.load_state_dict(state)
    assert second.ask(1) == first.ask(1)
    assert str(second.state_dict()) == str(first.state_dict())


@pytest.mark.parametrize("name", ["gibbs", "tunas"])
def test_flat_settings_of_the_first_edition_resolve_to_their_tables(name):
    known = flat_schema(STRATEGIES[name].load(), "strategy")
    rows = {old: new for old, new in RENAMED.items() if old.startswith(f"strategy[{name}].")}
    assert len(rows) >= 11 and len(set(rows.values())) == len(rows)
    assert [new for new in rows.values() if new not in known] == []


def test_an_old_name_sets_the_value_of_its_new_one():
    with pytest.warns(RenamedSettingWarning, match="strategy.n_eff is now strategy.posterior.observations"):
        spec = SearchSpec.resolve({"strategy": {"name": "gibbs", "n_eff": 7}})
    assert spec.strategy.settings["posterior"].observations == 7


def test_strategies_without_probabilities_sample_uniformly_and_are_never_undecided():
    strategy = Counting()
    assert strategy.sample(random.Random(4)) == strategy.space.sample(random.Random(4))
    assert strategy.log_probability(strategy.space.parse("|none~0|")) == 0.0
    assert strategy.undecided() is None
