"""The contract of every strategy: a row in STRATEGIES is tested here."""

from __future__ import annotations

from typing import Any

import pytest
from small_searches import TEXTS, make_small_search
from toy import GOOD, ToySpace, toy_images

from archloom.core.errors import SettingError
from archloom.core.settings import merge, schema
from archloom.data.arrays import from_tensors
from archloom.searches.build import build_search
from archloom.searches.spec import SearchSpec
from archloom.spaces import SPACES
from archloom.strategies import STRATEGIES
from archloom.strategies.base import BlackBox, OneShot
from archloom.testing import StrategyContract
from archloom.testing.strategies import check_result

ONE_SHOT = [name for name, entry in STRATEGIES.items() if issubclass(entry.load(), OneShot)]
BLACK_BOX = [name for name, entry in STRATEGIES.items() if issubclass(entry.load(), BlackBox)]
OF_THE_SAME_CLASS = (  # spaces of a class that is run at another size
    "proxylessnas",
    "proxylessnas_enlarged",
    "mobilenet_v3_like",
    "mobilenet_v3_widths",
    "proxylessnas_32",
)
SMALL = {  # settings that keep a tiny search tiny
    "regularized_evolution": {"population": 2, "sample": 2},
    "tpe": {"startup_trials": 2, "candidates": 4},
    "bohb": {"startup_trials": 2, "candidates": 4},
    "rsps": {"candidates": 6, "candidates_each_epoch": 2},
    "setn": {"candidates": 6, "candidates_each_epoch": 2},
    "enas": {"candidates": 6, "candidates_each_epoch": 2, "controller_steps": 2, "samples": 3},
    "gibbs": {"logits": {"images": 8}, "finalists": 2},
    "pc_darts": {"parts": 2},
}
NEEDS_CELLS = ("pc_darts", "bayes_nas")  # strategies that weigh the edges into a node
WITHOUT_CELLS = ("proxylessnas_enlarged_32", "mobilenet_v3_like_32", "nats_size", *TEXTS)  # whose nodes sum edges
SECTIONS = {"p_darts": {"search": {"epochs": 3}}}  # an epoch for each stage
ON_THE_TOY = {"pc_darts": {"parts": 1}, "drnas": {"parts": 1}}  # its network has one channel
PLAIN = [(name, SMALL.get(name, {})) for name in STRATEGIES]
VARIANTS = [
    ("tpe", {"startup_trials": 2, "multivariate": False}),
    ("darts", {"order": "second"}),
    ("darts", {"perturbation": 0.1}),
    ("darts", {"order": "second", "products": "differences"}),
    ("amended_darts", {"inverse": "conjugate_gradient:2", "products": "exact", "independent": True}),
    ("amended_darts", {"inverse": "identity"}),
    ("gibbs", {"order": "second", "logits": {"images": 8}}),
    ("gibbs", {"logits": {"images": 16, "center": False, "schedule": "cosine"}, "none": "absent"}),
    ("gibbs", {"weights": {"update": "mean"}, "logits": {"update": "mean", "images": 8}}),
    (
        "gibbs",
        {
            "weights": {"update": "sample"},
            "logits": {"update": "adam", "images": 8},
            "weight_curvature": {"mean": "direction"},
        },
    ),
    (
        "gibbs",
        {"weights": {"update": "sgd"}, "logits": {"update": "sgd", "learning_rate": 1.0, "images": 8}},
    ),
    ("gibbs", {"logit_curvature": {"learn_every": 2}, "logits": {"images": 8}}),
    (
        "gibbs",
        {
            "order": "second",
            "posterior": {"gamma_shape": 1.0},
            "logits": {"images": 8},
            "logit_curvature": {"reset_every": 2},
            "weight_curvature": {"start": "scalar"},
        },
    ),
    ("gibbs", {"logit_curvature": {"pairs": "different", "learn_every": 1}, "logits": {"images": 8}}),
    ("pc_darts", {"parts": 1, "order": "second", "clip": 0.1, "finalists": 2}),
    ("bayes_nas", {"prune": "entropy", "draws": 2, "warmup": 0.0}),
    ("p_darts", {"drops": [1], "skip_dropout": [0.2, 0.5], "skip_dropout_schedule": "monotone", "finalists": 2}),
    ("drnas", {"parts": 2, "divergence": 0.01, "warmup": 0.5, "finalists": 2}),
    ("gdas", {"sampling": "sample"}),
    ("gdas", {"gradient": "nb201_code"}),
    ("gdas", {"gradient": "all", "none": "absent"}),
    ("gdas", {"none": "absent", "keep_none": False, "finalists": 2}),
    ("setn", {"none": "absent", "keep_none": False, "candidates": 6, "candidates_each_epoch": 2}),
    ("enas", {"controller_steps": 7, "samples": 4, "layers": 1, "units": 8, "keep_none": False, "candidates": 6}),
    ("snas", {"none": "absent", "temperature_end": 0.5, "finalists": 2}),
    (
        "tunas",
        {"order": "policy_first", "policy": {"delay": 0.0}, "weights": {"operation_warmup": 0.0, "width_warmup": 0.0}},
    ),
    ("tunas", {"weights": {"optimizer": "rmsprop"}, "policy": {"valid_batches": 2}, "keep_none": False}),
]
BAD_SETTINGS = {
    "amended_darts": [
        ("eta", -1.0),
        ("inverse", "newton"),
        ("limit", -1.0),
        ("damping", -1.0),
        ("difference_step", 0.0),
    ],
    "darts": [
        ("learning_rate", 0.0),
        ("weight_decay", -1.0),
        ("difference_step", 0.0),
        ("perturbation", 2.0),
        ("warmup", 1.0),
        ("none", "forbidden"),
        ("order", "third"),
    ],
    "pc_darts": [("parts", 0), ("clip", -1.0), ("learning_rate", 0.0), ("warmup", 1.0), ("order", "third")],
    "bayes_nas": [("observations", 0.0), ("warmup", 1.0), ("draws", 0), ("prune", "all")],
    "p_darts": [
        ("drops", [-1, 2]),
        ("skip_dropout", [0.1]),
        ("skip_dropout", [0.1, 1.0, 0.2]),
        ("depths", [3]),
        ("skip_limit", -1),
        ("clip", -1.0),
        ("skip_dropout_schedule", "none"),
    ],
    "drnas": [("divergence", -1.0), ("parts", 0), ("learning_rate", 0.0)],
    "gibbs": [
        ("logits.learning_rate", 2.5),
        ("logits.learning_rate", 0.0),
        ("weights.learning_rate", 0.0),
        ("weights.learning_rate", 2.0),
        ("logits.weight_decay", -1.0),
        ("weights.weight_decay", -1.0),
        ("posterior.observations", 0),
        ("posterior.least_observations", 0),
        ("weights.temperature", -1.0),
        ("logits.temperature", -1.0),
        ("posterior.noise_rule", "two"),
        ("posterior.noise_limit", -1.0),
        ("weights.noise_wait", 1.0),
        ("weights.noise_ramp", -0.1),
        ("logits.images", 0),
        ("logits.weight_steps", 0),
        ("logit_curvature.smallest", 0.0),
        ("logit_curvature.largest", 1e-4),
        ("weight_curvature.smallest", 0.0),
        ("weight_curvature.largest", 1e-4),
        ("logits.step_clip", -1.0),
        ("weights.step_clip", -1.0),
        ("weights.noise_clip", -1.0),
        ("logit_curvature.learn_every", 0),
        ("logit_curvature.reset_every", -1),
        ("weight_curvature.memory", -1),
        ("weight_curvature.start_every", 0),
        ("weight_curvature.start_average", 1.0),
        ("weight_curvature.damping", -1.0),
        ("posterior.gamma_shape", -1.0),
        ("posterior.gamma_rate", 0.0),
        ("posterior.derive_from", "best"),
        ("posterior.burn_in", 1.0),
        ("warmup", 1.0),
        ("weights.update", "adam"),
        ("logits.update", "newton"),
    ],
    "gdas": [
        ("anneal", "never"),
        ("first_beta", 1.0),
        ("temperature_start", 0.0),
        ("temperature_end", 11.0),
        ("learning_rate", -1.0),
        ("warmup", -0.1),
        ("sampling", "both"),
    ],
    "rsps": [("candidates", 0), ("candidates_each_epoch", 0), ("candidates", "ten")],
    "setn": [
        ("candidates", 0),
        ("candidates_each_epoch", 0),
        ("learning_rate", 0.0),
        ("weight_decay", -1.0),
        ("none", 1),
    ],
    "enas": [
        ("controller_steps", 0),
        ("samples", 0),
        ("learning_rate", 0.0),
        ("entropy_weight", -1.0),
        ("baseline_decay", 1.0),
        ("layers", 0),
        ("units", 0),
        ("temperature", 0.0),
        ("tanh_constant", 0.0),
        ("warmup", 1.0),
        ("candidates", 0),
        ("candidates_each_epoch", 0),
    ],
    "snas": [("temperature_start", 0.0), ("temperature_end", 1.5), ("learning_rate", 0.0)],
    "tunas": [
        ("policy.learning_rate", 0.0),
        ("policy.growth", 0.0),
        ("policy.delay", 1.0),
        ("weights.operation_warmup", 0.5),
        ("weights.width_warmup", -0.1),
        ("policy.baseline_momentum", 0.0),
        ("policy.baseline_momentum", 1.0),
        ("order", "both"),
        ("policy.valid_batches", 0),
        ("weights.optimizer", "adam"),
        ("weights.rmsprop_learning_rate", 0.0),
        ("weights.rmsprop_weight_decay", -1.0),
        ("policy.cost_paths", 1),
        ("derive", "nearest"),
    ],
    "random_search": [("window", 0.0), ("most_draws", 0)],
    "regularized_evolution": [("population", 0), ("sample", 0)],
    "reinforce": [("learning_rate", 0.0), ("baseline_momentum", 1.0), ("baseline_momentum", 0.0)],
    "tpe": [("startup_trials", 0), ("candidates", 0), ("multivariate", "yes")],
    "bohb": [("startup_trials", 0), ("candidates", 0), ("least_epochs", 0), ("reduction", 1)],
}

VARIED = "darts_frc"  # the space on which every variant runs: two kinds of cells, edges to choose from, one cell fixed


class ChosenStrategy(StrategyContract):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str, settings: dict[str, Any]) -> None:
        self.strategy, self.settings = name, settings
        self.sections = merge(StrategyContract.sections, SECTIONS.get(name, {}))


@pytest.mark.parametrize(("name", "settings"), PLAIN, ids=str)
class TestStrategy(ChosenStrategy):
    """Every strategy with its defaults."""


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
class TestVariant(ChosenStrategy):
    """Other settings of the same strategies, without what is a matter of the class."""

    test_a_resumed_search_with_a_target_ends_in_the_state_of_an_uninterrupted_one = None
    test_every_setting_has_help = None
    test_presets_resolve = None


ON_TEXT = [  # on a recurrent cell: what a checkpoint holds includes the states of two streams of text
    *((name, SMALL.get(name, {})) for name in STRATEGIES if name not in NEEDS_CELLS),
    ("amended_darts", {"inverse": "conjugate_gradient:2", "products": "exact"}),
    ("p_darts", {"drops": [2], "skip_dropout": [0.2, 0.5], "finalists": 2}),
    ("drnas", {"divergence": 0.01, "warmup": 0.5}),
    ("darts", {"order": "second", "clip_virtual": True}),
    ("darts", {"order": "second", "products": "differences", "clip_virtual": True}),
    ("gdas", {"gradient": "soft", "anneal": "epoch"}),
    ("gdas", {"gradient": "all"}),
]


@pytest.mark.parametrize(("name", "settings"), ON_TEXT, ids=str)
class TestOnText(StrategyContract):
    """Strategies on a recurrent cell."""

    test_a_resumed_search_with_a_target_ends_in_the_state_of_an_uninterrupted_one = None  # all cells cost the same
    test_every_setting_has_help = None
    test_presets_resolve = None

    @pytest.fixture(autouse=True)
    def _choose(self, name: str, settings: dict[str, Any]) -> None:
        self.strategy, self.settings, self.space = name, settings, "recurrent"
        self.sections = merge(
            {"space": {"nodes": 3}, "network": {"hidden": 4}, "search": {"score": "training"}}
            if name in BLACK_BOX
            else {"space": {"nodes": 3}, "network": {"hidden": 4}},
            SECTIONS.get(name, {}),
        )


def test_every_strategy_is_of_one_of_the_two_families():
    assert sorted(ONE_SHOT + BLACK_BOX) == sorted(STRATEGIES)


@pytest.mark.parametrize(
    ("name", "settings", "space"),
    [
        (name, settings, space)
        for name, settings in [*PLAIN, *VARIANTS]
        for space in SPACES
        if space not in ("nb201_mini", *OF_THE_SAME_CLASS)  # that one: in the contract above
        and (settings == SMALL.get(name, {}) or space == VARIED)
        and not (name in NEEDS_CELLS and space in WITHOUT_CELLS)
    ],
    ids=str,
)
def test_runs_on_every_space(name, settings, space):
    batch_size = 8 if space in TEXTS else 24
    search = merge({"search": {"epochs": 1, "batch_size": batch_size, "trials": 2}}, SECTIONS.get(name, {}))
    check_result(make_small_search(name, space, strategy=settings, **search))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (name, {} if settings == SMALL.get(name) else settings)
        for name, settings in [*PLAIN, *VARIANTS]
        if name in ONE_SHOT
    ],
    ids=str,
)
def test_finds_the_right_way_through_a_toy(name, settings):
    """Check on a toy problem: uniform sampling finds it one time in eight, a flipped sign finds the opposite."""
    rate = {"learning_rate": 0.05}
    learning = rate if "learning_rate" in schema(STRATEGIES[name].load()) else {}
    learning = {"policy": rate} if name == "tunas" else learning
    experiment = SearchSpec.resolve(
        {
            "space": {"name": "toy:ToySpace"},
            "strategy": {"name": name, **merge(learning, settings, ON_THE_TOY.get(name, {}))},
            "data": {"name": "given"},
            "weights": {"learning_rate": 0.1},
            "search": {"epochs": 15, "batch_size": 16, "random_baseline_samples": 0},
            "race": {"steps": 0},
            "monitor": {"action": "off"},
            "machine": {"torch_threads": 1, "device": "cpu"},
        }
    )
    search = build_search(experiment, data=from_tensors(*toy_images()))
    outcome = search.run()
    assert set(outcome.architecture.values()) == {GOOD}
    assert outcome.shared_score > 0.9
    scores = search.strategy.probabilities()
    if scores is not None:
        options = ToySpace().operations
        assert all(row[options.index(GOOD)] > 0.6 for row in scores.values())


def nest(key: str, value: Any) -> dict[str, Any]:
    """Return a setting by its dotted name as tables."""
    first, _, rest = key.partition(".")
    return {first: nest(rest, value) if rest else value}


@pytest.mark.parametrize("name", STRATEGIES)
def test_bad_settings_are_refused_by_name_and_value(name):
    rows = BAD_SETTINGS[name]
    keywords = schema(STRATEGIES[name].load())
    assert bool(rows) == bool(keywords), "a strategy with settings needs rows in BAD_SETTINGS"
    for key, value in rows:
        with pytest.raises(SettingError) as caught:
            SearchSpec.resolve({"strategy": {"name": name, **nest(key, value)}})
        problem = caught.value.problems[0]
        assert problem.startswith(f"strategy.{key} must")
        assert problem.endswith(f"got {value!r}")


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_mistyped_setting_gets_a_suggestion(name):
    for key in schema(STRATEGIES[name].load()):
        typo = key[:-1] + ("x" if key[-1] != "x" else "y")
        with pytest.raises(SettingError, match=rf"unknown setting 'strategy.{typo}'; did you mean '"):
            SearchSpec.resolve({"strategy": {"name": name, typo: 1}})


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_says_what_it_is_in_one_line(name):
    assert 20 < len(STRATEGIES[name].describe()) <= 120


@pytest.mark.parametrize("name", NEEDS_CELLS)
@pytest.mark.parametrize("space", WITHOUT_CELLS)
def test_a_strategy_that_needs_cells_refuses_other_spaces_in_one_line(name, space):
    with pytest.raises(SettingError, match="the space must be made of cells") as caught:
        make_small_search(name, space, strategy=SMALL.get(name, {}))
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("drnas", {"parts": 2}, "strategy.parts must be 1 for a recurrent cell, which has no channels, got 2"),
        ("amended_darts", {"independent": True}, "strategy.independent must be false for language modelling"),
        ("gdas", {"sampling": "sample"}, "strategy.sampling must be 'batch' for language modelling"),
        ("gdas", {"gradient": "nb201_code"}, "strategy.gradient must not be 'nb201_code' for language modelling"),
    ],
)
def test_settings_for_images_are_refused_on_text_in_one_line_before_training(name, settings, message):
    with pytest.raises(SettingError, match=message) as caught:
        SearchSpec.resolve({"space": {"name": "recurrent"}, "strategy": {"name": name, **settings}})
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("name", ONE_SHOT)
def test_a_finalist_race_follows_every_one_shot_strategy(name):
    """It takes part with what it derived and with samples, and its probabilities guide what is proposed."""
    sections = merge({"search": {"epochs": 1}}, SECTIONS.get(name, {}))
    race = {"contestants": 8, "random": 1, "samples": 2, "steps": 1, "batch_size": 4}
    settings = {key: value for key, value in SMALL.get(name, {}).items() if key != "finalists"}
    outcome = make_small_search(name, strategy=settings, race=race, **sections).run()
    assert outcome.race is not None and outcome.race.contestants == 8
    assert {"derived", "ResNet block", "random", "proposal"} <= {one.origin for one in outcome.finalists}
    assert outcome.architecture in [one.architecture for one in outcome.finalists]
    assert outcome.derived in [one.architecture for one in outcome.finalists]
    assert outcome.race.certainty is not None
