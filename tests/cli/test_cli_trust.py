"""What is typed is trusted; a plug-in that only a file names is not imported, whatever the command and the file."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import typer

from archloom.cli.main import app
from archloom.cli.trust import list_typed
from archloom.comparisons.spec import ComparisonSettings
from archloom.core.settings import schema, write_toml
from archloom.data import DATA as DATA_SETS
from archloom.pipelines.spec import PipelineSettings
from archloom.retrainings.loop import TrainingSettings
from archloom.retrainings.model_file import ModelCard, save_model
from archloom.retrainings.optimization import OptimizerSettings
from archloom.retrainings.spec import RetrainText
from archloom.searches.spec import PARTS, SECTION_TYPES, SearchSpec
from archloom.spaces import SPACES, Nb201
from archloom.strategies import STRATEGIES

Archloom = Callable[..., Any]
MODULE = "module_that_leaves_a_mark"
CODE = """
from dataclasses import dataclass
from pathlib import Path
from archloom.data.digits import digits
from archloom.benchmarks.digits import DigitsTable
from archloom.data.source import ImageData
from archloom.spaces import Nb201
from archloom.strategies.random_search import RandomSearch

Path("imported").touch()

@dataclass(frozen=True, kw_only=True)
class Space(Nb201):
    nodes: int = 3
    cells_per_stage: int = 1

class Strategy(RandomSearch):
    pass

class Table(DigitsTable):
    pass

def data(directory: Path | None) -> ImageData:
    return digits(directory)
"""
SPACE, STRATEGY, DATA, TABLE = (f"{MODULE}:{name}" for name in ("Space", "Strategy", "data", "Table"))
SECTIONS: Mapping[str, Mapping[str, Any]] = {
    "space": {"space": {"name": SPACE}},
    "strategy": {"strategy": {"name": STRATEGY}},
    "data": {"data": {"name": DATA}},
    "search": {"search": {"table": TABLE, "trials": 2}},
}
MINI = Nb201(nodes=3, cells_per_stage=1)
CHOSEN = {decision.name: "nor_conv_3x3" for decision in MINI.decisions}
RESULT = {"space": {"name": SPACE, "nodes": 3, "cells_per_stage": 1}, "architecture": CHOSEN}


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module in the working directory that leaves a mark when it is imported."""
    path = Path(f"{MODULE}.py")
    path.write_text(CODE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("ARCHLOOM_PLUGINS", "")
    yield path
    sys.modules.pop(MODULE, None)


@pytest.fixture(autouse=True)
def visited(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were asked for: `serve` does not wait for a browser, every page of every run is opened."""
    asked: list[str] = []
    if all(importlib.util.find_spec(name) for name in ("uvicorn", "starlette", "httpx")):
        monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: asked.extend(visit(server.config.app)))
        monkeypatch.setattr("archloom.dashboard.server._prepare", lambda: None)
    return asked


def visit(app: Any) -> Iterator[str]:
    from starlette.testclient import TestClient

    client = TestClient(app, base_url="http://127.0.0.1:8421")
    keys = [run["key"] for run in client.get("/api/runs").json()]
    pages = ["/", *(f"/{kind}/{key}" for key in keys for kind in ("page", "thumbnail", "cell"))]
    for page in pages:
        answer = client.get(page)
        assert answer.status_code in (200, 404), (page, answer.text)
        yield page
        for picture in re.findall(r'data-picture="([^"]+)"', answer.text):
            assert client.get(picture).status_code < 500, picture
            yield picture


def write(path: str, content: Any) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content) if path.endswith(".json") else write_toml(content))
    return file


def write_files() -> dict[str, Path]:
    """Every kind of file and folder, each naming a plug-in."""
    files = {}
    search = SearchSpec.resolve({"space": {"name": "nb201_mini"}, "strategy": {"name": "random_search"}}).to_settings()
    small = {"space": {"name": "nb201_mini"}, "strategy": {"name": "random_search"}, "search": {"trials": 2}}
    for name, section in SECTIONS.items():
        files[f"recipe-{name}"] = write(f"recipe-{name}.toml", {**small, **section})
        own = {**search, name: {**search[name], **section[name]}}
        files[f"run-{name}"] = write(f"run-{name}/config.toml", own).parent
        write(f"run-{name}/architecture.json", RESULT)
        member = {**small, **section}
        files[f"comparison-{name}"] = write(f"comparison-{name}.toml", {"seeds": "0-1", "entry": {"one": member}})
        files[f"compared-{name}"] = write(f"compared-{name}/comparison.toml", {"entry": {"one": member}}).parent
        files[f"pipeline-{name}"] = write(f"pipeline-{name}.toml", {"searches": 1, "search": member})
        files[f"piped-{name}"] = write(f"piped-{name}/pipeline.toml", {"searches": 1, "search": member}).parent
    write("recipes/plain.toml", {**small, **SECTIONS["space"]})
    files["comparison-of-recipes"] = write("recipes/all.toml", {"entry": {"one": {"recipe": "plain.toml"}}})
    files["pipeline-of-recipes"] = write("recipes/whole.toml", {"search": {"recipe": "plain.toml"}})
    files["architecture"] = write("found.json", RESULT)
    files["retraining-recipe"] = write("training.toml", {"data": {"name": DATA}, "training": {"epochs": 1}})
    for name, section in (("space", RESULT["space"]), ("data", {"name": DATA})):
        config = {"kind": "retrain", "seed": 0, "recipe": "x", "architecture": CHOSEN, "space": RESULT["space"]}
        plain = {**config, "space": {**RESULT["space"], "name": "nb201_mini"}, name: section}
        files[f"retraining-{name}"] = write(f"retraining-{name}/config.toml", plain).parent
    card = ModelCard(
        space={"name": "nb201", "nodes": 3, "cells_per_stage": 1},
        architecture=CHOSEN,
        network={"channels": 2},
        classes=("a", "b"),
        image_shape=(1, 8, 8),
        mean=(0.5,),
        std=(0.5,),
    )
    weights = card.build().state_dict()
    hostile = ModelCard(**{**vars(card), "space": {**card.space, "name": SPACE}})
    assert asdict(hostile)["space"]["name"] == SPACE
    for place in ("model.safetensors", "retraining-space/best.safetensors"):
        save_model(Path(place), hostile, weights)
    files["model"] = Path("model.safetensors")
    files["cost-model"] = write("cost.json", COST_MODEL)
    return files


COST_MODEL = {
    "kind": "archloom cost model", "version": 2, "space": SPACE, "space_settings": {}, "classes": 10,
    "image_shape": [1, 8, 8], "batch": 1, "network": {}, "device": "cpu", "threads": 1, "repeats": 30, "seed": 0,
    "versions": {}, "decisions": {d.name: list(d.options) for d in MINI.decisions}, "constant_ms": 1.0,
    "forced": False, "networks": 50, "uncovered_features": 0, "held_out_r2": 1.0, "held_out_error": 0.0,
    "intercept": 1.0, "weights": [[["0->1", "none"], 1.0]], "unit": "ms", "dtype": "float32",
}  # fmt: skip

TEXT = MINI.format(MINI.check(CHOSEN))
COMMANDS: Mapping[str, list[str]] = {  # FILE stands for each file
    "search": ["search", "FILE"],
    "resume": ["resume", "FILE"],
    "retrain": ["retrain", "FILE", "--epochs", "1"],
    "retrain --recipe": ["retrain", TEXT, "--space", "nb201_mini", "--recipe", "FILE"],
    "run": ["run", "FILE"],
    "run --dry-run": ["run", "FILE", "--dry-run"],
    "export": ["export", "FILE", "--format", "torch"],
    "predict": ["predict", "FILE", "picture.png"],
    "measure": ["measure", "FILE", "--no-onnx", "--repeats", "30"],
    "report": ["report", "FILE"],
    "posterior": ["posterior", "FILE"],
    "compare": ["compare", "FILE", "--jobs", "1"],
    "compare --dry-run": ["compare", "FILE", "--dry-run"],
    "rank": ["rank", "FILE", "--samples", "2"],
    "list": ["list", "recipes", "FILE"],
    "benchmark query": ["benchmark", "query", "FILE", "--table", "digits"],
    "benchmark top": ["benchmark", "top", "--table", "digits", "--data-dir", "FILE"],
    "benchmark convert": ["benchmark", "convert", "FILE", "converted.npz"],
    "space describe": ["space", "describe", "nb201_mini", "--latency-table", "FILE"],
    "check gradients": ["check", "gradients", "--strategy", "FILE"],
    "check plugin": ["check", "plugin", "FILE"],
    "latency fit": ["latency", "fit", "--space", "FILE"],
    "latency check": ["latency", "check", "FILE", TEXT],
    "latency check of a file": ["latency", "check", "cost.json", "FILE"],
    "draw": ["draw", "FILE"],
    "serve": ["serve", "FILE", "--port", "0"],
    "search --latency-source": ["search", "--space", "nb201_mini", "--epochs", "1", "--target", "latency=5",
                                "--latency-source", "FILE"],
    "search shared_run": ["search", "--strategy", "random_search", "--set", "search.score=shared",
                          "--set", "search.shared_run=FILE"],
}  # fmt: skip

REFUSED = {  # where the plug-in would have been needed: one line that says what to do, and exit code 2
    *((command, f"run-{name}") for command in ("resume", "report", "posterior", "rank") for name in SECTIONS),
    *(("search", f"recipe-{name}") for name in SECTIONS),
    *(("compare", f"{kind}-{name}") for kind in ("comparison", "compared") for name in SECTIONS),
    *(("compare --dry-run", f"{kind}-{name}") for kind in ("comparison", "compared") for name in SECTIONS),
    *(("run", f"{kind}-{name}") for kind in ("pipeline", "piped") for name in SECTIONS),
    *(("run --dry-run", f"{kind}-{name}") for kind in ("pipeline", "piped") for name in SECTIONS),
    *((command, "architecture") for command in ("draw", "measure", "retrain")),
    *((command, "run-space") for command in ("draw", "measure", "retrain")),
    *((command, kind) for command in ("export", "predict", "measure") for kind in ("model", "retraining-space")),
    *((command, "retraining-space") for command in ("resume", "report")),
    ("compare", "comparison-of-recipes"),
    ("run", "pipeline-of-recipes"),
    ("retrain --recipe", "retraining-recipe"),
    ("resume", "retraining-data"),
    ("latency check", "cost-model"),
}


def list_commands(app: typer.Typer, prefix: str = "") -> Iterator[str]:
    for command in app.registered_commands:
        yield f"{prefix}{command.name or command.callback.__name__}"
    for group in app.registered_groups:
        yield from list_commands(group.typer_instance, f"{group.name} ")


def test_the_walk_has_every_command_that_takes_a_file() -> None:
    walked = {" ".join(name.split()[:2]) if name.split()[0] in ("benchmark", "space", "check", "latency")
              else name.split()[0] for name in COMMANDS}  # fmt: skip
    assert walked == set(list_commands(app)) - {"doctor"}  # it takes no file


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_imports_what_only_a_file_names(archloom: Archloom, command: str) -> None:
    files = write_files()
    before = list(sys.path)
    for kind, path in files.items():
        finished = archloom(*(word.replace("FILE", str(path)) for word in COMMANDS[command]))
        assert not Path("imported").exists(), (command, kind)
        assert sys.path == before and MODULE not in sys.modules
        assert "Traceback" not in finished.err
        if (command, kind) in REFUSED:
            refusals = [line for line in finished.lines if "is a plug-in that only a file names" in line]
            assert len(refusals) == 1 and finished.code == 2, (command, kind, finished.err)
            assert "add --plugins (in Python plugins=True) or set ARCHLOOM_PLUGINS=1" in refusals[0]


def test_the_walk_opens_the_pages_of_the_folders_that_name_plugins(archloom: Archloom, visited: list[str]) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra web")
    pytest.importorskip("httpx", reason="the client of the pages")
    write_files()
    assert archloom("serve", ".", "--port", "0").code == 0
    opened = {page.rpartition("/")[2] for page in visited if page.startswith("/page/")}
    assert opened >= {f"{kind}-{name}" for kind in ("run", "compared", "piped") for name in SECTIONS}
    assert not Path("imported").exists() and MODULE not in sys.modules


TRUSTED = [
    ("resume", "run-space"),
    ("report", "run-strategy"),
    ("search", "recipe-data"),
    ("compare --dry-run", "comparison-space"),
    ("run --dry-run", "pipeline-strategy"),
    ("draw", "architecture"),
    ("export", "model"),
    ("report", "retraining-space"),
    ("latency check", "cost-model"),
]


@pytest.mark.parametrize(("command", "kind"), TRUSTED)
def test_plugins_are_imported_where_the_user_allows_them(archloom: Archloom, command: str, kind: str) -> None:
    path = write_files()[kind]
    archloom(*(word.replace("FILE", str(path)) for word in COMMANDS[command]), "--plugins")
    assert Path("imported").exists()


def test_the_environment_allows_plugins_too(archloom: Archloom, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_files()["architecture"]
    monkeypatch.setenv("ARCHLOOM_PLUGINS", "0")
    assert archloom("draw", path).code == 2 and not Path("imported").exists()
    monkeypatch.setenv("ARCHLOOM_PLUGINS", "1")
    assert archloom("draw", path).code == 0 and Path("imported").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["draw", "found.json", "--space", SPACE],
        ["list", "spaces", SPACE],
        ["search", "--space", SPACE, "--strategy", "random_search", "--trials", "1"],
        ["search", "--set", f"space.name='{SPACE}'", "--strategy", "random_search", "--trials", "1"],
    ],
)
def test_a_plugin_that_is_typed_is_trusted(archloom: Archloom, words: list[str]) -> None:
    write_files()
    assert archloom(*words).code == 0
    assert Path("imported").exists()


def test_trust_ends_with_the_command(archloom: Archloom) -> None:
    files = write_files()
    assert archloom("draw", files["architecture"], "--plugins").code == 0
    del sys.modules[MODULE]
    assert archloom("draw", files["architecture"]).code == 2


def test_the_name_of_a_file_is_not_typed() -> None:
    Path(SPACE).mkdir()
    assert list(list_typed({"folder": SPACE, "set": ["a.b=c:D"], "out": Path("x"), "space": "e:F"})) == [
        "a.b=c:D", "c:D", "e:F", "",
    ]  # fmt: skip


# --- a database


@pytest.mark.parametrize("kind", ["recipe", "comparison", "pipeline"])
def test_a_file_does_not_choose_where_a_database_is_written(archloom: Archloom, kind: str) -> None:
    pytest.importorskip("optuna")
    search = {
        "space": {"name": "nb201_mini"},
        "strategy": {"name": "random_search"},
        "search": {"trials": 1, "study": "chosen.db"},
    }
    write("recipe.toml", search)
    write("comparison.toml", {"seeds": "0", "entry": {"one": search}})
    quick = {"recipe": "nb201_12", "training": {"epochs": 1}, "network": {"channels": 2}, "data": {"split": "random"}}
    write("pipeline.toml", {"searches": 1, "retrainings": 1, "search": search, "retrain": quick})
    commands = {"recipe": ("search",), "comparison": ("compare", "--jobs", "1"), "pipeline": ("run", "--jobs", "1")}
    command = (*commands[kind], f"{kind}.toml")
    finished = archloom(*command, "--out", "refused")
    assert finished.code == 2
    assert "is a database to write to that only a file names; to trust it, add --plugins" in finished.err
    assert not Path("chosen.db").exists() and not Path("refused").exists()
    assert archloom(*command, "--out", "allowed", "--plugins").code == 0
    assert Path("chosen.db").exists()


def test_a_database_that_is_typed_may_be_written(archloom: Archloom) -> None:
    pytest.importorskip("optuna")
    options = ("--space", "nb201_mini", "--strategy", "random_search", "--trials", "1", "--out", "run")
    assert archloom("search", *options, "--set", "search.study=typed.db").code == 0
    assert Path("typed.db").exists()
    assert archloom("report", "run").code == 0  # it writes no database
    Path("run/architecture.json").unlink()
    assert "search.study" in archloom("resume", "run").err


# --- what else a file can say

READ_ONLY = {"directory", "path", "table", "shared_run", "source", "recipe"}  # read, and parsed as data
WRITES = {"study"}  # refused above
TEXTS = {  # looked up in a table, or printed
    "title", "name", "against", "budget", "seeds", "device", "study_name", "metric", "image_column", "label_column",
    "preset", "kept", "inverse", "cell", "export", "activations", "operations",
}  # fmt: skip


def list_text_settings() -> Iterator[str]:
    """Yield the settings of all sections and of all that a file can name whose values may be texts of any kind.

    Tables inside tables are sections themselves, and a colon in the name of an operation is a plug-in, tested above.
    """
    sections = [*SECTION_TYPES.values(), *PARTS.values(), RetrainText, TrainingSettings, OptimizerSettings]
    named = [entry.load() for table in (SPACES, STRATEGIES, DATA_SETS) for entry in table.values()]
    for target in (*sections, PipelineSettings, ComparisonSettings, *named):
        for name, setting in schema(target).items():
            if re.search(r"\bstr\b|Path", str(setting.type)) and not re.search("Literal|Mapping", str(setting.type)):
                yield name


def test_every_text_that_a_file_can_say_is_known_to_name_no_command_host_or_place_to_write() -> None:
    unknown = set(list_text_settings()) - READ_ONLY - WRITES - TEXTS
    assert not unknown, "say here what the setting may do, and in SECURITY.md if it may do more than read"
