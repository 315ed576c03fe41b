"""The final network is planned before the search, by the time of its retraining."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from archloom.core.durations import parse_duration
from archloom.core.settings import Settings, merge
from archloom.data import load
from archloom.data.source import ImageData
from archloom.pipelines import spec as spec_module
from archloom.pipelines.final_plan import FinalPlan, plan_final
from archloom.pipelines.spec import PipelineSpec
from archloom.retrainings import auto
from archloom.retrainings.build import cost_of_model
from archloom.retrainings.run import resolve_request
from archloom.retrainings.spec import RetrainSpec
from archloom.searches.final_network import FinalNetwork
from archloom.searches.plan import Planned
from archloom.searches.spec import SearchSpec
from archloom.spaces import Architecture

SECONDS_PER_MULTIPLY_ADD = 2e-9
LARGEST = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|"


@pytest.fixture(autouse=True)
def steady_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose time is in proportion to multiply-adds."""

    def seconds_per_image(retrain: RetrainSpec, data: ImageData, *, most: float) -> float:
        return SECONDS_PER_MULTIPLY_ADD * cost_of_model(retrain, data).multiply_adds

    monkeypatch.setattr(auto, "seconds_per_image", seconds_per_image)


@pytest.fixture(scope="module")
def digits() -> ImageData:
    data = load("digits", directory=Path("data"))
    assert isinstance(data, ImageData)
    return data


def pipeline(search: Settings | None = None) -> PipelineSpec:
    sections = {"space": {"name": "nb201"}, "data": {"name": "digits"}, "strategy": {"name": "gdas"}}
    return PipelineSpec.resolve({"search": merge(sections, search or {}), "retrain": {"recipe": "auto"}})


def plan(digits: ImageData, time: str, search: Settings | None = None) -> FinalPlan | None:
    asked = pipeline(search)
    return plan_final(asked.search, digits, asked.request, time)


def resolve(found: FinalPlan) -> SearchSpec:
    return SearchSpec.resolve(merge(pipeline().search.given, found.settings))


def cost(found: FinalPlan, digits: ImageData, architecture: Architecture) -> int:
    return FinalNetwork.of(resolve(found), digits.facts).count(architecture).multiply_adds


def test_little_time_limits_the_cost_of_what_is_searched(digits: ImageData) -> None:
    found = plan(digits, "3m")
    assert found is not None and "ResNet block can be trained with" in found.reason
    space = resolve(found).build_space()
    limit = found.settings["limit"]
    assert limit["metric"] == "multiply_adds"
    assert cost(found, digits, space.references()["ResNet block"]) <= limit["value"]
    assert cost(found, digits, space.parse(LARGEST)) > limit["value"]


def test_the_limit_is_the_cost_that_still_gets_the_wanted_epochs(digits: ImageData) -> None:
    found = plan(digits, "3m")
    assert found is not None
    images = 0.9 * len(digits.train) * (1 + 0.1 / 0.9 / 3)  # to train on, and a third of the time for validation
    epochs = 0.85 * 180 / (images * SECONDS_PER_MULTIPLY_ADD * found.settings["limit"]["value"])
    assert epochs == pytest.approx(120, rel=0.01)


def test_the_retraining_keeps_to_the_size(digits: ImageData) -> None:
    """Whatever it measures: of a network that is a little slower than planned, it must not choose half the width."""
    found = plan(digits, "20m")
    assert found is not None
    final, asked = found.settings["final"], pipeline()
    assert found.retrain["space"]["cells_per_stage"] == final["depth"]
    assert found.retrain["network"]["channels"] == final["channels"]
    overrides = merge({"data": {"name": "digits"}}, found.retrain)
    request = resolve_request(LARGEST, recipe="auto", overrides=overrides)
    for time in ("20s", "3h"):
        chosen = auto.plan_auto(request.given, request.spec, request.overrides, digits, time)
        assert chosen.spec.network.settings["channels"] == final["channels"]
        assert chosen.spec.build_space() == replace(asked.search.build_space(), cells_per_stage=final["depth"])
        assert chosen.size.reason.startswith("its size was given")


def test_a_pipeline_writes_the_planned_size_and_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[SearchSpec] = []

    def complete(search: SearchSpec, data: ImageData, note: object) -> Planned:
        planned.append(search)
        return Planned(search, None)

    monkeypatch.setattr(spec_module, "complete_search", complete)
    given = {"budget": "20m", "retrain": {"recipe": "auto"}, "search": pipeline().settings.search}
    begun, folder = PipelineSpec.open(given, tmp_path)
    size, final = begun.retrain, planned[0].final
    assert (size["space"]["cells_per_stage"], size["network"]["channels"]) == (final.depth, final.channels)
    assert begun.retrainings(folder, [0])[0].settings["network"] == size["network"]
    begun.write(folder)
    resumed, _ = PipelineSpec.open(given, tmp_path)
    assert (resumed.retrain, len(planned)) == (size, 1)


@pytest.mark.parametrize(
    ("few", "own", "search", "retrain"),
    [(2_500, {}, 240, "840s"), (1_000, {}, 480, "600s"), (2_500, {"search_share": 0.3}, 360, "720s")],
)
def test_few_images_leave_more_time_for_training(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    few: int,
    own: Settings,
    search: int,
    retrain: str,
) -> None:
    """Of 20 minutes, searches of few images get a fifth, others two; a tenth is for evaluation and exports."""
    planned: list[SearchSpec] = []

    def complete(search: SearchSpec, data: ImageData, note: object) -> Planned:
        planned.append(search)
        return Planned(search, None)

    monkeypatch.setattr(spec_module, "complete_search", complete)
    monkeypatch.setattr(spec_module, "FEW_IMAGES", few)  # there are 1,437
    monkeypatch.setattr(spec_module, "plan_final", lambda *_: None)
    given = {"budget": "20m", "retrain": {"recipe": "auto"}, "search": pipeline().settings.search, "searches": 1, **own}
    begun, folder = PipelineSpec.open({**given, "retrainings": 1}, tmp_path)
    assert parse_duration(planned[0].search.budget or "") == search
    assert begun.retrainings(folder, [0])[0].budget == retrain
    begun.write(folder)
    resumed, _ = PipelineSpec.open({**given, "retrainings": 1}, tmp_path)
    assert resumed.retrainings(folder, [0])[0].budget == retrain


@pytest.mark.parametrize(("channels", "depth", "drop_path"), [(8, 1, 0.0), (16, 5, 0.1)])
def test_a_given_size_is_regularized_as_its_equal(
    digits: ImageData, channels: int, depth: int, drop_path: float
) -> None:
    size = {"space": {"cells_per_stage": depth}, "network": {"channels": channels}}
    overrides = merge({"data": {"name": "digits"}}, size)
    request = resolve_request(LARGEST, recipe="auto", overrides=overrides)
    chosen = auto.plan_auto(request.given, request.spec, request.overrides, digits, "3m")
    assert chosen.spec.network.settings["drop_path"] == drop_path


def test_more_time_gives_a_larger_final_network(digits: ImageData) -> None:
    sizes = [(one or FinalPlan({}, {}, "")).settings["final"] for one in (plan(digits, "20s"), plan(digits, "20m"))]
    small, large = sizes
    assert (small["depth"], small["channels"]) < (large["depth"], large["channels"])


def test_enough_time_limits_nothing(digits: ImageData) -> None:
    found = plan(digits, "100h")
    assert found is not None and "limit" not in found.settings
    assert found.reason.endswith("and so can any other architecture")


@pytest.mark.parametrize(
    "own",
    [
        {"limit": {"metric": "multiply_adds", "value": 60e6}},
        {"final": {"channels": 16}},
        {"target": {"metric": "multiply_adds", "value": 60e6}},
    ],
)
def test_what_the_user_says_of_costs_is_not_planned(digits: ImageData, own: Settings) -> None:
    assert plan(digits, "3m", own) is None


def test_a_space_without_references_is_not_planned(digits: ImageData) -> None:
    assert plan(digits, "3m", {"space": {"nodes": 2}}) is None
