"""The training of a language model: resumed anywhere it ends in the same bits; steps, records and the mean."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import archloom
from archloom.core.errors import DataError, SettingError
from archloom.data.text import TextData, TextLoader
from archloom.execution.checkpoint import decode, encode
from archloom.execution.loop import Interrupted
from archloom.retrainings.build import build_retraining
from archloom.retrainings.folder import RetrainFolder
from archloom.retrainings.model_file import load_model
from archloom.retrainings.result import RetrainResult, read_retrain_result
from archloom.retrainings.run import resolve_request
from archloom.retrainings.spec import RetrainSpec
from archloom.retrainings.text_evaluation import TextEvaluation, evaluate_text
from archloom.retrainings.text_loop import TextRetrainLoop
from archloom.spaces.published import PUBLISHED
from archloom.testing import find_differences, make_tiny_data

TEXT = TextData(
    name="tiny",
    words=tuple("abcdefg"),
    train=torch.randint(7, (180,), generator=torch.Generator().manual_seed(0)),
    valid=torch.randint(7, (60,), generator=torch.Generator().manual_seed(1)),
    test=torch.randint(7, (50,), generator=torch.Generator().manual_seed(2)),
)
CELL = PUBLISHED["gdas_rnn"][1]
SMALL: dict[str, Any] = {
    "space": {"name": "recurrent"},
    "network": {"hidden": 5, "dropout_words": 0.1},
    "data": {"name": "given", "segment": 8, "lengths": "drawn"},
    "training": {"epochs": 4, "batch_size": 4, "averaging": "triggered", "patience": 1},
    "machine": {"device": "cpu", "torch_threads": 1},
}


def spec(**sections: Any) -> RetrainSpec:
    settings = {name: {**SMALL.get(name, {}), **sections.get(name, {})} for name in {*SMALL, *sections}}
    return resolve_request(CELL, recipe="text_small", overrides=settings).spec


def make(**sections: Any) -> TextRetrainLoop:
    loop = build_retraining(spec(**sections), TEXT)
    assert isinstance(loop, TextRetrainLoop)
    return loop


def finish(loop: TextRetrainLoop) -> dict[str, Any]:
    outcome = loop.run()
    return {"outcome": outcome, **loop.state_dict()}


def without_times(state: dict[str, Any]) -> dict[str, Any]:
    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: clean(item) for name, item in value.items() if "second" not in str(name)}
        return [clean(item) for item in value] if isinstance(value, list) else value

    return clean(state)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("averaging", "every"), [("triggered", 1), ("torch", 9)])
def test_resumed_after_any_step_it_ends_in_the_same_bits(averaging: str, every: int) -> None:
    settings = {"training": {"averaging": averaging, "epochs": 6}}
    wanted = without_times(finish(make(**settings)))
    assert wanted["mean"] is not None, "the averaging must have begun, or this shows nothing"
    total, began = make(**settings).total, False
    for stop_after in range(total - 1, 0, -every):
        saved: list[bytes] = []
        first = make(**settings)
        with pytest.raises(Interrupted):
            first.run(
                save=lambda state, step: saved.append(encode(state)),  # noqa: B023
                stop=lambda: first.position == stop_after,  # noqa: B023
            )
        state = decode(saved[-1], name="saved")
        began = began or state["mean"] is not None
        second = make(**settings)
        second.load_state_dict(state)
        changed = find_differences(wanted, without_times(finish(second)))
        assert not changed, f"resumed after {stop_after} of {total} steps: {changed}"
    assert began


def test_a_lost_state_would_be_noticed() -> None:
    wanted = without_times(finish(make()))
    saved: list[bytes] = []
    first = make()
    with pytest.raises(Interrupted):
        first.run(save=lambda state, step: saved.append(encode(state)), stop=lambda: first.position == 3)
    state = dict(decode(saved[-1], name="saved"))
    state["state"] = torch.zeros_like(state["state"])
    second = make()
    second.load_state_dict(state)
    assert find_differences(wanted, without_times(finish(second)))


def test_an_epoch_begins_with_a_state_of_zeros_and_has_its_own_number_of_steps() -> None:
    loop = make()
    steps = [loop._train.steps_of(epoch) for epoch in range(4)]
    assert loop.total == sum(steps) and len(set(steps)) > 1
    places = [loop._train.locate(position) for position in range(loop.total)]
    assert places == [(epoch, step) for epoch, count in enumerate(steps) for step in range(count)]
    assert loop._train.locate(0) == (0, 0)  # and back


def test_a_step_is_the_clipped_gradient_times_the_rate_of_its_length() -> None:
    loop = make(network={"dropout_words": 0.0}, optimizer={"weight_decay": 0.0})
    for _ in range(3):
        epoch, step = loop._train.locate(loop.position)
        batch = loop._train.batch(epoch, step)
        before = [parameter.detach().clone() for parameter in loop.network.parameters()]
        loop.advance()
        norm = math.sqrt(
            sum(float(p.grad.square().sum()) for p in loop.network.parameters() if p.grad is not None)
        )  # clipped in place
        moved = math.sqrt(
            sum(
                float((now.detach() - old).square().sum())
                for now, old in zip(loop.network.parameters(), before, strict=True)
            )
        )
        assert norm <= 0.25 + 1e-5
        assert moved == pytest.approx(20 * norm * len(batch.inputs) / 8, rel=1e-4)


def test_records_are_perplexities_and_the_best_epoch_has_the_lowest() -> None:
    loop = make(training={"averaging": "off"})
    outcome = loop.run()
    losses = [record.valid_loss for record in loop.history]
    assert isinstance(outcome.valid, TextEvaluation) and isinstance(outcome.test, TextEvaluation)
    assert outcome.best_epoch == losses.index(min(losses))  # type: ignore[type-var]
    assert outcome.valid.loss == pytest.approx(min(losses))  # type: ignore[type-var]
    record = loop.history[0]
    assert record.train_score == pytest.approx(100 * math.exp(-record.train_loss))
    assert record.status.startswith("valid perplexity ") and record.valid_top5 is None


def test_the_perplexity_of_a_uniform_model_is_its_vocabulary() -> None:
    loop = make()
    with torch.no_grad():
        for parameter in loop.network.parameters():
            parameter.zero_()
    text = TextLoader(TEXT.valid, columns=3, segment=8, stream="valid", whole=False)
    found = evaluate_text(loop.network.double(), text)
    assert found.perplexity == pytest.approx(7, rel=1e-9) and found.words == 3 * 19


def test_the_same_seed_trains_the_same_model() -> None:
    first, again = make(), make()
    for loop in (first, again):
        loop.advance()
    assert torch.equal(first.network.nodes, again.network.nodes)  # type: ignore[arg-type]


def test_a_run_writes_a_model_a_result_and_a_page_that_speak_of_perplexity(tmp_path: Path) -> None:
    result = archloom.retrain(CELL, recipe="text_small", data=TEXT, out=tmp_path / "run", settings=SMALL)
    assert isinstance(result, RetrainResult) and isinstance(result.test, TextEvaluation)
    assert "perplexity" in repr(result) and "accuracy" not in repr(result)
    assert read_retrain_result(RetrainFolder(tmp_path / "run")) == result
    card, network = load_model(result.model)
    assert card.words == TEXT.words and "dropout_words" not in card.network
    text = TextLoader(TEXT.test, columns=10, segment=8, stream="test", whole=False)  # type: ignore[arg-type]
    assert evaluate_text(network, text).loss == pytest.approx(result.test.loss, rel=1e-5)
    page = result.report.read_text()
    assert "perplexity" in page.lower()
    texts = [path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(texts) > 5 and not any(b"accurac" in text.lower() for text in texts)
    assert result.cost.parameters == 7 * 5 + 7 + (4 + 2 * 8) * 25


def test_images_are_refused() -> None:
    with pytest.raises(DataError, match="this space is for language modelling"):
        build_retraining(spec(), make_tiny_data())


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("training", {"patience": 0}, "training.patience must be at least 1, got 0"),
        ("training", {"averaging": "always"}, "training.averaging must be"),
        ("data", {"segment": 0}, "data.segment must lie in 1..10000, got 0"),
        ("data", {"test_columns": 0}, "data.test_columns must be at least 1, got 0"),
        ("network", {"hidden": 1}, "network.hidden must lie in 2..65536, got 1"),
        ("data", {"split": "random"}, "unknown setting 'data.split'"),
    ],
)
def test_bad_settings_get_one_line(section: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        spec(**{section: values})


@pytest.mark.parametrize(("recipe", "hidden", "parameters"), [("ptb", 850, 22_960_000), ("wikitext2", 700, 33_127_878)])
def test_the_published_recipes_train_networks_of_the_published_size(recipe: str, hidden: int, parameters: int) -> None:
    found = resolve_request("gdas_rnn", recipe=recipe, overrides={}).spec
    assert found.network.settings["hidden"] == hidden and found.data_set.name == recipe
    assert found.optimizer.learning_rate == 20.0 and found.optimizer.clip == 0.25
    words = {"ptb": 10_000, "wikitext2": 33_278}[recipe]
    table = archloom.CostTable(found.build_space(), words=words, hidden=hidden)
    assert table.cost(found.architecture).parameters == parameters
