"""Feed bad inputs to every reader: text forms, assignments, TOML, JSON, model cards, arrays.

    python tests/campaigns/inputs.py --tries 1000

An input is accepted, or refused with an ArchloomError whose lines are short; anything else is a failure, and so is a
reader that takes longer than some seconds. What a space accepts must come back from its own text form.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from campaign import run_campaign
from PIL import Image
from safetensors.torch import save

import archloom
from archloom.benchmarks.csv_table import CsvTable
from archloom.comparisons.spec import ComparisonSpec
from archloom.core import leases
from archloom.core.durations import parse_duration
from archloom.core.errors import ArchloomError
from archloom.core.json_object import to_json_object
from archloom.core.progress_file import Progress, progress_path
from archloom.core.seeds import parse_seeds
from archloom.core.settings import parse_assignments, read_toml, write_toml
from archloom.data.arrays import npz
from archloom.data.corpora import text
from archloom.data.hugging_face import huggingface
from archloom.execution.checkpoint import digest
from archloom.execution.loop import Interrupted
from archloom.execution.run_folder import RunFolder
from archloom.latency.measuring import Size, build_untrained
from archloom.objectives.cost_model_file import CostModelFile
from archloom.pipelines.spec import PipelineSpec
from archloom.retrainings.model_file import FORMAT, ModelCard, load_model
from archloom.retrainings.result import read_retrain_result
from archloom.retrainings.spec import RetrainSpec
from archloom.searches.architectures import find_architecture, find_space, read_architecture
from archloom.searches.result import read_history, read_result
from archloom.searches.spec import SearchSpec
from archloom.spaces.published import PUBLISHED

ROOT = Path(tempfile.mkdtemp(prefix="archloom-inputs-"))
SECONDS = 60
LONGEST = 4000  # characters of a message, all its lines together
SPACES = ("nb201", "nb201_mini", "darts", "s1", "s2", "proxylessnas_32", "mobilenet_v3_like_32", "nats_size")
PIECES = (
    "|", "~", "+", "none", "skip_connect", "nor_conv_3x3", "Genotype(", "normal=[", "('sep_conv_3x3', 0)",
    "range(2, 6)", ")", "]", ":", ",", "0", "-1", "99999999999999999999", "1e999", "nan", "'", '"', "\\", "\x00",
    "\x1b[2J", "\u202e", "\ud800", "é", " ", "\n", "__import__('os')", "k3e6", "=", "{", "}", "[[", "true",
    "1979-05-27", "0x10", "_", "%s", "../", "A" * 300,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**30, 0.0, -0.5, 1e308, float("inf"), float("nan"), "", "x",
    "nb201", "os:system", "missing.module:Thing", "a\x00b", "\u202e", "9" * 400, [], [None], [[]], {},
    {"name": None}, {"a": {"b": []}}, ["none"], [10**12],
)  # fmt: skip


class TooSlowError(Exception):
    """A reader takes longer than it may."""


def read(reader: Callable[[], object]) -> str:
    """Call a reader; return whether it accepts, and refuse any other error than a line for the user."""
    signal.signal(signal.SIGALRM, _raise_too_slow)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader()
    except ArchloomError as error:
        assert 0 < len(str(error)) < LONGEST, f"a message of {len(str(error)):,} characters: {str(error)[:200]}"
        return "refused"
    finally:
        signal.alarm(0)
    return "accepted"


def _raise_too_slow(number: int, frame: object) -> None:
    raise TooSlowError(f"longer than {SECONDS} s")


# --- making inputs bad


def mutate_text(text: str, rng: random.Random) -> str:
    """Return a text with a few changes: pieces inserted, cut, doubled or moved, characters replaced."""
    for _ in range(rng.randint(1, 4)):
        start, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        change = rng.randrange(6)
        if change == 0:
            text = text[:start] + rng.choice(PIECES) + text[start:]
        elif change == 1:
            text = text[:start] + text[end:]
        elif change == 2:
            text = text[:end] + text[start:end] + text[end:]
        elif change == 3:
            text = text[end:] + text[:start]
        elif change == 4 and text:
            text = text[:start] + chr(rng.choice((rng.randrange(128), rng.randrange(0x3000)))) + text[start + 1 :]
        else:
            text = text[:start] + rng.choice(PIECES) + text[end:]
        text = text[:20_000]
    return text


def mutate_value(value: Any, rng: random.Random) -> Any:
    """Return a nested value with one part replaced, left out, renamed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        change = rng.random()
        if change < 0.1:
            return {key: item for key, item in value.items() if key != name}
        if change < 0.2:
            return {**value, rng.choice(("x", "", "name", mutate_text(str(name), rng))): rng.choice(VALUES)}
        return {**value, name: mutate_value(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        place = rng.randrange(len(value))
        return [*value[:place], mutate_value(value[place], rng), *value[place + 1 :]]
    if isinstance(value, str) and rng.random() < 0.3:
        return mutate_text(value, rng)
    return rng.choice(VALUES)


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few flipped, or cut short."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed[: rng.randrange(len(changed) + 1)] if rng.random() < 0.2 else changed)


def several(value: Any, rng: random.Random) -> Any:
    """Return a nested value with one to three changes."""
    for _ in range(rng.randint(1, 3)):
        value = mutate_value(value, rng)
    return value


def write(name: str, content: bytes | str) -> Path:
    """Write a file for a reader."""
    path = ROOT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return path


# --- readers


@cache
def space_of(name: str) -> Any:
    return find_space(name)


def text_form(name: str, rng: random.Random) -> str:
    """Parse a changed text form of a space."""
    space = space_of(name)
    text = mutate_text(space.format(space.sample(rng)), rng)

    def parse() -> None:
        architecture = space.parse(text)
        again = space.parse(space.format(architecture))
        assert space.format(again) == space.format(architecture), f"{text!r} does not come back"

    return read(parse)


def json_form(name: str, rng: random.Random) -> str:
    """Read a changed architecture in JSON."""
    space = space_of(name)
    content = several(dict(space.sample(rng)), rng)
    return read(lambda: space.from_json(json.dumps(content)))


def any_form(rng: random.Random) -> str:
    """Read a text that may be any form, as commands do."""
    text = mutate_text(rng.choice([*PUBLISHED, *(PUBLISHED[name][1] for name in PUBLISHED)]), rng)
    return read(lambda: read_architecture(text))


def assignment(rng: random.Random) -> str:
    """Read a changed --set."""
    text = mutate_text(rng.choice(("search.epochs=5", "data.path='x y'", "space.layers=[1, 2]", "a.b={c = 1}")), rng)
    parse_assignments([text])
    return "read"


def small_text(rng: random.Random) -> str:
    """Read changed seeds and budgets."""
    reader, text = rng.choice(((parse_seeds, "0-4,9"), (parse_duration, "15m"), (parse_duration, "2h")))
    changed = mutate_text(text, rng)
    return read(lambda: reader(changed))  # type: ignore[operator]


@cache
def configurations() -> dict[str, Any]:
    search = SearchSpec.resolve({"space": {"name": "nb201_mini"}, "strategy": {"name": "gdas"}}).to_settings()
    mobile = SearchSpec.resolve({"space": {"name": "proxylessnas_32"}, "strategy": {"name": "tunas"}}).to_settings()
    plain = json.loads(json.dumps([search, mobile], default=str))
    member = {"space": {"name": "nb201_mini"}, "strategy": {"name": "random_search"}, "search": {"trials": 2}}
    architecture = {"0->1": "none", "0->2": "none", "1->2": "none"}
    retrain = RetrainSpec.resolve({"space": {"name": "nb201", "nodes": 3}, "architecture": architecture}).to_settings()
    return {
        "search": plain[0],
        "mobile": plain[1],
        "retrain": json.loads(json.dumps(retrain, default=str)),
        "compare": {
            "title": "t",
            "seeds": "0-1",
            "all": {"network": {"channels": 2}},
            "entry": {"a": member, "b": member},
        },
        "run": {"searches": 1, "retrainings": 1, "search": member, "retrain": {"recipe": "nb201_12", "training": {}}},
    }


RESOLVERS: dict[str, Callable[[Any], object]] = {
    "search": SearchSpec.resolve,
    "mobile": SearchSpec.resolve,
    "retrain": RetrainSpec.resolve,
    "compare": ComparisonSpec.resolve,
    "run": PipelineSpec.resolve,
}


def configuration(kind: str, rng: random.Random) -> str:
    """Resolve a changed configuration."""
    content = several(configurations()[kind], rng)
    if not isinstance(content, dict):
        return "no table"  # no file can hold that
    return read(lambda: RESOLVERS[kind](content))


def toml(kind: str, rng: random.Random) -> str:
    """Resolve a TOML file whose text was changed."""
    path = write("changed.toml", mutate_text(write_toml(configurations()[kind]), rng))
    return read(lambda: RESOLVERS[kind](read_toml(path)))


@cache
def card() -> tuple[ModelCard, dict[str, Any]]:
    made = ModelCard(
        space={"name": "nb201", "nodes": 2, "cells_per_stage": 1},
        architecture={"0->1": "nor_conv_3x3"},
        network={"channels": 2},
        classes=("cat", "dog"),
        image_shape=(1, 8, 8),
        mean=(0.5,),
        std=(0.25,),
    )
    return made, dict(made.build().state_dict())


def model_card(rng: random.Random) -> str:
    """Load a model whose card was changed; its digest is right."""
    made, tensors = card()
    text = json.dumps(several(json.loads(json.dumps(asdict(made))), rng))
    data = save(tensors, metadata={"format": FORMAT, "card": text, "sha256": digest(text, tensors)})
    path = write("model.safetensors", data)
    return read(lambda: load_model(path))


def language_card(rng: random.Random) -> str:
    """Load a language model whose card was changed; its digest is right."""
    space = space_of("recurrent")
    made = ModelCard(
        space={"name": "recurrent"},
        architecture=dict(space.sample(random.Random(0))),
        network={"hidden": 2},
        words=("a", "b", "<eos>"),
        tokens="spaces",
    )
    tensors = language_weights()
    text = json.dumps(several(json.loads(json.dumps(asdict(made))), rng))
    data = save(tensors, metadata={"format": FORMAT, "card": text, "sha256": digest(text, tensors)})
    path = write("language.safetensors", data)
    return read(lambda: load_model(path))


@cache
def language_weights() -> dict[str, Any]:
    """Return weights of a language model; those of a changed card may not fit."""
    return {"weight": torch.zeros(2, 2)}


def model_bytes(rng: random.Random) -> str:
    """Load a model with flipped bits: never accepted."""
    made, tensors = card()
    text = json.dumps(asdict(made))
    data = save(tensors, metadata={"format": FORMAT, "card": text, "sha256": digest(text, tensors)})
    path = write("model.safetensors", mutate_bytes(data, rng))
    outcome = read(lambda: load_model(path))
    assert outcome == "refused" or path.read_bytes() == data, "a damaged model was accepted"
    return outcome


@cache
def finished_runs() -> dict[str, Path]:
    from workloads import retrain, search

    runs = {"search": ROOT / "run", "gibbs": ROOT / "gibbs", "retrain": ROOT / "trained"}
    search("gdas")(runs["search"])
    search("gibbs")(runs["gibbs"])
    retrain(runs["retrain"])
    return runs


def result(kind: str, rng: random.Random) -> str:
    """Read a run whose result or metrics were changed."""
    source, folder = finished_runs()[kind], ROOT / "changed"
    shutil.rmtree(folder, ignore_errors=True)
    name = "result.json" if kind == "retrain" else "architecture.json"
    content = json.loads((source / name).read_text())
    write(f"changed/{name}", json.dumps(several(content, rng)))
    shutil.copy(source / "config.toml", folder)
    lines = (source / "metrics.jsonl").read_text().splitlines()
    place = rng.randrange(len(lines))
    if rng.random() < 0.5:
        lines[place] = json.dumps(several(json.loads(lines[place]), rng))
    write("changed/metrics.jsonl", "\n".join(lines) + "\n")
    if kind == "retrain":
        from archloom.retrainings.folder import RetrainFolder

        return read(lambda: read_retrain_result(RetrainFolder(folder)))

    def read_all() -> None:
        found = read_result(RunFolder(folder), space_of("nb201_mini"))
        read_history(RunFolder(folder))
        if found is not None:
            repr(found)

    return read(read_all)


def found_architecture(rng: random.Random) -> str:
    """Find and build the architecture of a changed file."""
    content = {"space": {"name": "nb201", "nodes": 3, "cells_per_stage": 1}, "data": "digits", "classes": 10}
    content |= {"architecture": {"0->1": "none", "0->2": "none", "1->2": "none"}, "image_shape": [1, 8, 8]}
    path = write("found.json", json.dumps(several(content, rng)))

    def find() -> None:
        find_architecture(str(path))
        build_untrained(str(path), space=None, size=Size(channels=2))

    return read(find)


def cost_model(rng: random.Random) -> str:
    """Read a changed cost model."""
    space = space_of("nb201_mini")
    content = {
        "kind": "archloom cost model", "version": 2, "space": "nb201_mini", "space_settings": {}, "classes": 10,
        "image_shape": [1, 8, 8], "batch": 1, "network": {}, "device": "cpu", "threads": 1, "repeats": 30, "seed": 0,
        "versions": {}, "decisions": {d.name: list(d.options) for d in space.decisions}, "constant_ms": 1.0,
        "forced": False, "networks": 50, "uncovered_features": 0, "held_out_r2": 1.0, "held_out_error": 0.0,
        "intercept": 1.0, "weights": [[["0->1", "none"], 1.0]], "unit": "ms", "dtype": "float32",
    }  # fmt: skip
    path = write("cost.json", json.dumps(several(content, rng)))
    return read(lambda: CostModelFile.read(path).to_source(space, path).measure(space.sample(rng)))


def arrays(rng: random.Random) -> str:
    """Read a changed .npz."""
    file = io.BytesIO()
    images = np.arange(40 * 3 * 4 * 4, dtype=np.uint8).reshape(40, 3, 4, 4)
    (np.savez if rng.random() < 0.5 else np.savez_compressed)(file, images=images, labels=np.arange(40) % 2)
    write("arrays/a.npz", mutate_bytes(file.getvalue(), rng))
    return read(lambda: npz(ROOT / "arrays"))


def arrow_file(rng: random.Random) -> bytes:
    """Return some pictures of two classes as an Arrow file; some have columns of other types, names or contents."""
    import pyarrow

    picture, sink = io.BytesIO(), pyarrow.BufferOutputStream()
    Image.new("RGB", (4, 4), (9, 9, 9)).save(picture, "PNG")
    columns = {"image": [{"bytes": picture.getvalue(), "path": None}] * 10, "label": [0, 1] * 5}
    others = ([0.5] * 10, ["x"] * 10, [-1] * 10, [10**12] * 10, [None] * 10, [b""] * 10, [{"bytes": b"x"}] * 10)
    if rng.random() < 0.5:
        columns[rng.choice(("image", "label", "x"))] = rng.choice(others)
    if rng.random() < 0.1:
        del columns[rng.choice(("image", "label"))]
    if rng.random() < 0.1:
        columns = {name: values[:0] for name, values in columns.items()}
    table = pyarrow.table(columns)
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def hugging_face(rng: random.Random) -> str:
    """Read a changed folder of `save_to_disk`; changed bytes of an Arrow file are the affair of pyarrow."""
    label = {"names": ["a", "b"], "_type": "ClassLabel"}
    files: dict[str, Any] = {
        "dataset_info.json": {"features": {"image": {"_type": "Image"}, "label": label}},
        "state.json": {"_data_files": [{"filename": "data.arrow"}]},
        "dataset_dict.json": {"splits": ["train", "test"]},
    }
    shutil.rmtree(ROOT / "saved", ignore_errors=True)
    is_split, changed, arrow = rng.random() < 0.3, rng.choice([*files, ""]), arrow_file(rng)
    files = {name: several(content, rng) if name == changed else content for name, content in files.items()}
    for part in ("train", "test") if is_split else ("",):
        write(f"saved/{part}/data.arrow", arrow)
        for name in ("dataset_info.json", "state.json"):
            write(f"saved/{part}/{name}", json.dumps(files[name]))
    write("saved/dataset_dict.json", json.dumps(files["dataset_dict.json"]))
    named = {"image_column": "image", "label_column": "label"} if rng.random() < 0.3 else {}
    settings: dict[str, Any] = {"path": str(ROOT / "saved"), "size": 4, "memory_limit_mb": rng.choice((0, 2000))}
    return read(lambda: huggingface(None, **settings, **named).train.fetch(torch.arange(2)))


def csv_table(rng: random.Random) -> str:
    """Read a changed table of scores."""
    space = space_of("nb201_mini")
    rows = [f"{space.format(space.sample(rng))},{rng.random() * 100},{rng.random() * 100}" for _ in range(4)]
    content = "\n".join(["architecture,test,valid", *rows])
    path = write("table.csv", mutate_text(content, rng) if rng.random() < 0.7 else mutate_bytes(content.encode(), rng))
    return read(lambda: CsvTable(path, space, "digits").column("digits"))


def texts(rng: random.Random) -> str:
    """Read a changed text."""
    lines = "\n".join(" ".join(rng.choice("abcd") for _ in range(5)) for _ in range(20))
    for part in ("train", "valid", "test"):
        write(f"text/{part}.txt", mutate_text(lines, rng) if rng.random() < 0.5 else mutate_bytes(lines.encode(), rng))
    return read(lambda: text(None, path=str(ROOT / "text"), vocabulary=rng.choice((0, 1, 3, 10**9))))


def served_folder(rng: random.Random) -> str:
    """Show a run whose lease and whose file of progress were changed."""
    from starlette.testclient import TestClient

    from archloom.dashboard.app import make_app

    source, folder = finished_runs()["search"], ROOT / "served" / "run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("architecture.json", "checkpoints", "*.html"))
    progress = to_json_object(Progress(position=3, total=8, units_per_record=2, seconds_per_unit=1.0))
    holder = to_json_object(leases.Holder.of_this_process(attempt=1, seconds=60.0))
    progress_path(folder).parent.mkdir(exist_ok=True)
    progress_path(folder).write_text(json.dumps(several(dict(progress), rng)))
    (folder / f"{leases.PREFIX}{rng.choice(('1', '7', '9' * 240, '0' * 240))}").write_text(
        json.dumps(several(dict(holder), rng))
    )

    def show() -> None:
        client = TestClient(make_app([folder.parent], hosts=frozenset({"127.0.0.1"})), base_url="http://127.0.0.1:8421")
        for page in ("/", "/api/runs", "/page/served/run"):
            assert client.get(page).status_code == 200, page

    return read(show)


def checkpoint(kind: str, rng: random.Random) -> str:
    """Resume a run whose checkpoint was changed; its digest is right."""
    source, folder = begun_runs()[kind], ROOT / "resumed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    saved = RunFolder(folder).checkpoints
    state = saved.load_latest(warn=lambda line: None)
    shutil.rmtree(folder / "checkpoints")
    changed = several(state, rng)
    if not isinstance(changed, dict):
        changed = {"x": changed}
    saved.save(changed, step=int(state["position"]))
    return read(lambda: archloom.resume(folder))


@cache
def begun_runs() -> dict[str, Path]:
    """Return runs that were stopped before their end."""
    from workloads import SMALL, TEXT

    runs = {"search": ROOT / "begun", "retrain": ROOT / "begun-retraining"}
    small = {**SMALL, "search": {**SMALL["search"], "epochs": 2}, "race": {"contestants": 0}}
    stops = iter([False, False, True])
    with contextlib.suppress(Interrupted):
        archloom.search("nb201_mini", "gdas", out=runs["search"], settings=small, stop=lambda: next(stops))
    stops = iter([False, False, True])
    sections = {"space": {"name": "nb201_mini"}, "training": {"epochs": 2}, "network": {"channels": 2}}
    sections |= {"data": {"split": "random", "train_images": 64}, "machine": SMALL["machine"]}
    with contextlib.suppress(Interrupted):
        archloom.retrain(
            TEXT, recipe="nb201_12", data="digits", out=runs["retrain"], settings=sections, stop=lambda: next(stops)
        )
    return runs


KINDS = {
    **{f"text form of {name}": partial(text_form, name) for name in SPACES},
    **{f"JSON of {name}": partial(json_form, name) for name in SPACES},
    "any form": any_form,
    "assignment": assignment,
    "seeds and budgets": small_text,
    "architecture file": found_architecture,
    "cost model": cost_model,
    "arrays": arrays,
    "Hugging Face folder": hugging_face,
    "CSV table": csv_table,
    "text": texts,
    "served folder": served_folder,
    **{f"checkpoint of a {kind}": partial(checkpoint, kind) for kind in ("search", "retrain")},
    "model card": model_card,
    "card of a language model": language_card,
    "model bytes": model_bytes,
    **{f"result of {kind}": partial(result, kind) for kind in ("search", "gibbs", "retrain")},
    **{f"configuration of {kind}": partial(configuration, kind) for kind in RESOLVERS},
    **{f"TOML of {kind}": partial(toml, kind) for kind in RESOLVERS},
}

if __name__ == "__main__":
    try:
        run_campaign("inputs", __doc__ or "", KINDS, tries=1000)
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)
