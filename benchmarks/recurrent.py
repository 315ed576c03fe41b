"""Search recurrent cells on Penn Treebank cut to 2,000 words; train what is found beside published and random cells.

    python benchmarks/recurrent.py --data-dir DATA --out rows.jsonl                    # all rows, one after the other
    python benchmarks/recurrent.py --data-dir DATA --out rows.jsonl --only gdas,cells  # rows whose name has such a word

A row is a search (300 steps) with the training of its cell, or the training of a known cell: 800 steps of SGD at 20.
Every row is one line of the output; rows that are there are not run again. The figures do not compare with published
tables.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from archloom.data.corpora import ptb
from archloom.data.text import TextData, TextLoader
from archloom.searches.build import build_search
from archloom.searches.short_training import build_standalone
from archloom.searches.spec import SearchSpec
from archloom.spaces import Architecture, Recurrent
from archloom.spaces.published import PUBLISHED
from archloom.supernet import SharedWeights, WeightSettings
from archloom.tasks import LANGUAGE, TextShape

WORDS, HIDDEN, COLUMNS, SEGMENT = 2000, 64, 32, 35
NETWORK = {
    "hidden": HIDDEN,
    "dropout_output": 0.2,
    "dropout_hidden": 0.1,
    "dropout_input": 0.2,
    "dropout_embedding": 0.1,
}
PAIRS = 300
SEEDS = (0, 1, 2)
RANDOM_CELLS = 3
STRATEGIES: dict[str, dict[str, Any]] = {
    "gdas": {"learning_rate": 0.03, "weight_decay": 0.0, "temperature_end": 0.1, "first_beta": 0.9},
    "gdas-soft": {
        "gradient": "soft",
        "learning_rate": 0.03,
        "weight_decay": 0.0,
        "temperature_end": 0.1,
        "first_beta": 0.9,
    },
    "darts": {"learning_rate": 0.03, "weight_decay": 0.0, "first_beta": 0.9},
    "gibbs": {},
    "rsps": {"candidates": 30, "candidates_each_epoch": 1},
}
SPACE = Recurrent()


def rows(steps: int) -> Iterator[tuple[str, Architecture | None]]:
    for seed in SEEDS:
        for name in ("gdas_rnn", "darts_v2_rnn", "darts_v1_rnn"):
            yield f"cells/{name}/{steps}/{seed}", SPACE.parse(PUBLISHED[name][1])
        for number in range(RANDOM_CELLS):
            yield f"cells/random{number}/{steps}/{seed}", SPACE.sample(random.Random(number))
        for strategy in STRATEGIES:
            yield f"{strategy}/{steps}/{seed}", None


def run_search(strategy: str, seed: int, data: TextData) -> dict[str, Any]:
    """Return what a search of PAIRS steps derives, and the CPU seconds that it took."""
    pair_words = PAIRS * COLUMNS * SEGMENT + COLUMNS  # an epoch of so many steps
    spec = SearchSpec.resolve(
        {
            "seed": seed,
            "space": {"name": "recurrent"},
            "strategy": {"name": strategy.partition("-")[0], **STRATEGIES[strategy]},
            "data": {"name": "given", "train_words": pair_words},
            "network": NETWORK,
            "search": {"epochs": 1, "batch_size": COLUMNS, "random_baseline_samples": 10},
            "race": {"steps": 0},
            "monitor": {"action": "off"},
            "machine": {"torch_threads": 1, "device": "cpu"},
        }
    )
    start = time.process_time()
    loop = build_search(spec, data=data)
    outcome = loop.run()
    probabilities = loop.strategy.probabilities() or {}  # type: ignore[attr-defined]
    largest = [max(row) for row in probabilities.values()]
    return {
        "cell": outcome.text,
        "verdict": outcome.verdict,
        "search_seconds": time.process_time() - start,
        "supernet_perplexity": LANGUAGE.metric.to_value(loop.history[-1].derived_accuracy),
        "mean_largest_probability": sum(largest) / len(largest) if largest else None,
    }


def train(architecture: Architecture, seed: int, data: TextData, steps: int) -> dict[str, float]:
    """Return perplexities of a cell after so many steps of SGD at 20."""
    start = time.process_time()
    settings = WeightSettings(learning_rate=20.0, learning_rate_end=20.0, momentum=0.0, weight_decay=5e-7, clip=0.25)
    weights = build_standalone(
        SPACE,
        architecture,
        seed=seed,
        place=lambda network: network,
        shape=TextShape(WORDS),
        network=NETWORK,
        weights=settings,
        task=LANGUAGE,
    )
    loader = TextLoader(data.train, columns=COLUMNS, segment=SEGMENT, stream="train")
    weights.train()
    for step in range(steps):
        weights.fit(loader.batch(*divmod(step, loader.steps)), {})
    assert data.test is not None
    found = {"valid": perplexity(weights, data.valid, "valid"), "test": perplexity(weights, data.test, "test")}
    return {**found, "train_seconds": time.process_time() - start}


def perplexity(weights: SharedWeights, tokens: torch.Tensor, stream: str) -> float:
    loader = TextLoader(tokens, columns=10, segment=SEGMENT, stream=stream, whole=False)
    return LANGUAGE.metric.to_value(weights.deployed_score(loader.epoch(0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True, help="the folder with ptb/ptb.train.txt")
    parser.add_argument("--out", type=Path, required=True, help="a file of JSON lines")
    parser.add_argument("--steps", type=int, default=800, help="steps of each training")
    parser.add_argument("--only", default="", help="words, separated by commas: rows with one of them in their name")
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = ptb(given.data_dir, vocabulary=WORDS)
    done = {json.loads(line)["row"] for line in given.out.read_text().splitlines()} if given.out.exists() else set()
    words = [word for word in given.only.split(",") if word]
    for row, known in rows(given.steps):
        if row in done or (words and not any(word in row for word in words)):
            continue
        seed = int(row.rpartition("/")[2])
        found = {} if known is not None else run_search(row.partition("/")[0], seed, data)
        architecture = SPACE.parse(found["cell"]) if known is None else known
        line = {"row": row, "cell": SPACE.format(architecture), **found}
        line |= train(architecture, seed, data, given.steps)
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(row, round(line["valid"], 2), round(line["test"], 2), flush=True)


if __name__ == "__main__":
    main()
