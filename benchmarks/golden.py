"""Golden runs: show that a refactor changes no number.

    python benchmarks/golden.py                       # the working tree against HEAD
    python benchmarks/golden.py --base a7939c1        # against another commit
    python benchmarks/golden.py --only gdas,retrain   # cases whose name contains one of these words

Every strategy runs on a space of each network family, on embedded data, for two short epochs. A retraining, a
comparison and a pipeline run as well. Both trees run on this machine with the same seeds. Figures differ between kinds
of CPU, so none are stored in the repository. Compared are digests of the final checkpoint's tensors, every number in
the metrics and results except times and memory, and the architectures found. Names of files, keys and sentences may
change; numbers may not. The results of a base commit are kept in --cache and used again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SPACES: dict[str, dict[str, Any]] = {  # one of each family, as small as it can be
    "nb201_mini": {},
    "darts": {"cells": 3, "nodes": 2},
    "proxylessnas_enlarged_32": {
        "stem": 8,
        "separable": 8,
        "blocks": [8, 16],
        "layers": [1, 2],
        "strides": [2, 1],
        "head": [16],
    },
    "nats_size": {"options": [2, 4, 6]},
}
FIXED_WIDTH = ("nb201_mini", "darts")
STRATEGIES = (
    "darts amended_darts gibbs gdas rsps setn enas snas tunas random_search regularized_evolution reinforce tpe bohb"
)
EXTRA = {  # paths through the code that defaults do not take
    "darts-second": ("darts", {"strategy": {"order": "second"}}),
    "gibbs-paper": ("gibbs", {"strategy": {"preset": "paper"}}),
    "gdas-plain": ("gdas", {"machine": {"kernels": "plain"}}),
    "gdas-torch": ("gdas", {"machine": {"kernels": "torch"}}),
    "gdas-target": ("gdas", {"target": {"metric": "multiply_adds", "value": 60000}}),
    "tunas-target": ("tunas", {"target": {"metric": "multiply_adds", "value": 60000}}),
    "evolution-training": ("regularized_evolution", {"search": {"score": "training", "score_epochs": 1, "trials": 4}}),
}
DATA = {"train_images": 96, "valid_images": 96}
SEARCH = {
    "epochs": 2,
    "batch_size": 32,
    "evaluation_images": 32,
    "chance_samples": 3,
    "trials": 12,
    "score_epochs": None,
    "finalist_steps": 2,
}
UNSTABLE = (
    "seconds",
    "memory",
    "versions",
    "version",
    "finished",
    "threads",
    "images_per_second",
    "kind",
    "path",
    "seed_",
)

Case = Callable[[Path], None]


# --- in each tree


def cases() -> Iterator[tuple[str, Case]]:
    for strategy in STRATEGIES.split():
        for space in SPACES:
            yield f"{strategy}/{space}", _search(strategy, space, {})
    for name, (strategy, settings) in EXTRA.items():
        yield f"{name}/nb201_mini", _search(strategy, "nb201_mini", settings)
    yield "retrain/nb201", _retrain("nb201_mini", "|nor_conv_3x3~0|+|skip_connect~0|avg_pool_3x3~1|")
    yield "retrain/darts", _retrain("darts", "darts_v2")
    yield "compare", _compare
    yield "pipeline", _pipeline


def _search(strategy: str, space: str, more: Mapping[str, Mapping[str, Any]]) -> Case:
    def run(folder: Path) -> None:
        import archloom

        settings: dict[str, dict[str, Any]] = {
            "space": dict(SPACES[space]),
            "network": {"channels": 4} if space in FIXED_WIDTH else {},
            "data": dict(DATA),
            "search": {name: value for name, value in SEARCH.items() if value is not None},
            "monitor": {"eigenvalue_steps": 2, "eigenvalue_images": 8},
            "machine": {"threads": 1, "device": "cpu"},
        }
        if space in FIXED_WIDTH:
            settings["search"]["finalist_channels"] = 4
        if strategy in ("regularized_evolution", "random_search", "reinforce", "tpe", "bohb") and space != "nb201_mini":
            settings["search"] |= {"trials": 3, "score": "training", "score_epochs": 1}
        for section, values in more.items():
            settings[section] = {**settings.get(section, {}), **values}
        archloom.search(space, strategy, "digits", seed=3, out=folder, settings=settings)

    return run


def _retrain(space: str, what: str) -> Case:
    def run(folder: Path) -> None:
        import archloom

        depth = {"cells_per_stage": 1} if space == "nb201_mini" else {"cells": 3}
        archloom.retrain(
            what,
            data="digits",
            recipe="cifar",
            seed=3,
            out=folder,
            settings={
                "space": {"name": space, **depth},
                "network": {"channels": 4},
                "data": {"split": "random", **DATA},
                "training": {"epochs": 2, "batch_size": 32, "ema": 0.9},
                "machine": {"threads": 1, "device": "cpu"},
            },
        )

    return run


_TINY = {
    "space": {"name": "nb201_mini"},
    "network": {"channels": 4},
    "data": {"name": "digits", **DATA},
    "search": {"epochs": 1, "batch_size": 32, "evaluation_images": 32, "chance_samples": 2, "trials": 10},
}


def _compare(folder: Path) -> None:
    import archloom

    entries = {name: {"strategy": {"name": name}} for name in ("gdas", "random_search")}
    archloom.compare({"seeds": "0-1", "seconds_per_trial": 1.0, "all": _TINY, "entry": entries}, out=folder, jobs=2)


def _pipeline(folder: Path) -> None:
    import archloom

    retrain = {
        "recipe": "nb201_12",
        "space": {"cells_per_stage": 1},
        "network": {"channels": 4},
        "data": {"split": "random", **DATA},
        "training": {"epochs": 1, "batch_size": 32},
    }
    archloom.run({"searches": 2, "retrainings": 2, "search": _TINY, "retrain": retrain}, out=folder, jobs=2)


def record(only: list[str], file: Path) -> None:
    """Run the cases in this process and write what each came to, after every one of them."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for name, case in cases():
        if name in found or (only and not any(word in name for word in only)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            case(Path(folder) / "run")
            found[name] = fingerprint(Path(folder) / "run")
        file.write_text(json.dumps(found))
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def fingerprint(folder: Path) -> dict[str, list[str]]:
    """Everything in a folder of runs that a refactor must keep, whatever files and keys are called."""
    tensors: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".safetensors":
            tensors.update(_digests(path))
        elif path.suffix in (".json", ".jsonl"):
            lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
            for line in lines:
                _collect(json.loads(line), numbers, texts)
    kinds = {"tensors": tensors, "numbers": numbers, "architectures": texts}
    return {kind: sorted(f"{value} x{count}" for value, count in counter.items()) for kind, counter in kinds.items()}


def _digests(path: Path) -> Iterator[str]:
    from safetensors.torch import load_file

    for tensor in load_file(path).values():
        data = tensor.contiguous().view(-1).view(dtype=__import__("torch").uint8) if tensor.numel() else tensor
        yield f"{tuple(tensor.shape)} {hashlib.sha256(data.numpy().tobytes()).hexdigest()[:16]}"


def _collect(value: Any, numbers: Counter[str], texts: Counter[str], key: str = "") -> None:
    if any(word in key for word in UNSTABLE):
        return
    if isinstance(value, dict):
        for name, item in value.items():
            _collect(item, numbers, texts, name)
    elif isinstance(value, list):
        for item in value:
            _collect(item, numbers, texts, key)
    elif isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
        numbers[repr(float(value))] += 1
    elif key == "text" and value:
        texts[str(value)] += 1


# --- between the trees


def compare_trees(base: str, only: list[str], cache: Path) -> int:
    commit = _git("rev-parse", "--short=10", base)
    cache.mkdir(parents=True, exist_ok=True)
    before, after = cache / f"{commit}.json", cache / "working-tree.json"
    after.unlink(missing_ok=True)
    tree = cache / f"tree-{commit}"
    if not tree.is_dir():
        _git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        subprocess.run([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=tree, check=True)
    _record_in(tree, only, before)
    _record_in(ROOT, only, after)
    return report(json.loads(before.read_text()), json.loads(after.read_text()))


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout.strip()


def _record_in(tree: Path, only: list[str], file: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, "--record", str(file), "--only", ",".join(only)]
    subprocess.run(command, env=environment, cwd=tree, check=True)


def report(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Print what differs, and return the number of cases that do."""
    differing = 0
    for name, found in after.items():
        lines = [line for kind in found for line in _difference(kind, set(before[name][kind]), set(found[kind]))]
        differing += bool(lines)
        if lines:
            print(name, *lines, sep="\n")
    print(f"{len(after) - differing} of {len(after)} cases identical")
    return differing


def _difference(kind: str, before: set[str], after: set[str]) -> Iterator[str]:
    if before != after:
        gone, come = sorted(before - after), sorted(after - before)
        yield f"  {kind}: {len(gone)} only before {gone[:4]}, {len(come)} only after {come[:4]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="HEAD", help="the commit to compare with")
    parser.add_argument(
        "--only", default="", help="words, separated by commas: only cases with one of them in their name"
    )
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "archloom-golden")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    only = [word for word in given.only.split(",") if word]
    if given.record:
        record(only, given.record)
        return
    sys.exit(1 if compare_trees(given.base, only, given.cache) else 0)


if __name__ == "__main__":
    main()
