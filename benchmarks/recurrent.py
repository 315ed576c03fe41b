"""Search recurrent cells on Penn Treebank cut to 2,000 words; train what is found beside published and random cells.

    python benchmarks/recurrent.py --data-dir DATA --out rows.jsonl                    # all rows, one after the other
    python benchmarks/recurrent.py --data-dir DATA --out rows.jsonl --only gdas,cells  # rows whose name has such a word
    python benchmarks/recurrent.py --data-dir DATA --out long.jsonl --steps 2400 --only cells   # with a curve
    python benchmarks/recurrent.py --data-dir DATA --floors                            # unigram and bigram

A row is a search (300 steps; random search: 6 trainings of 200 steps) with the training of its cell, or the training of
a known cell: 800 steps of SGD at 20.
Every row is one line of the output; rows that are there are not run again. The figures do not compare with published
tables.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.data.corpora import ptb, wikitext2
from archloom.data.text import TextData, TextLoader
from archloom.families.recurrent import VariationalDropout
from archloom.searches.build import build_search
from archloom.searches.loop import SearchLoop
from archloom.searches.short_training import build_standalone, seeded
from archloom.searches.spec import SearchSpec
from archloom.spaces import Architecture, Recurrent
from archloom.spaces.published import PUBLISHED
from archloom.supernet import Continuation, SharedWeights, WeightSettings
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
TRIALS, TRIAL_STEPS = 6, 200  # of random search: about the CPU time of a one-shot search
DISCOUNT = 0.75  # of the counts of pairs, in the bigram floor
CURVE_STEPS = 800  # between two validations of a long training
SEEDS = (0, 1, 2)
RANDOM_CELLS = 3
LOW_RATE = 5.0  # of trainings whose name ends in @5
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
    "darts-second": {  # as the public code takes it: differences of gradients, and clipped virtual steps
        "order": "second",
        "products": "differences",
        "clip_virtual": True,
        "learning_rate": 0.03,
        "weight_decay": 0.0,
        "first_beta": 0.9,
    },
    "gibbs": {},
    "rsps": {"candidates": 30, "candidates_each_epoch": 1},
    "random_search": {},
}
RATE = 20.0
TRAINING = {"learning_rate": RATE, "learning_rate_end": RATE, "momentum": 0.0, "weight_decay": 5e-7, "clip": 0.25}
SPACE = Recurrent()


class Lstm(nn.Module):
    """An LSTM of as many weights as a cell of eight nodes, with the same dropouts, embedding and decoder."""

    def __init__(self, words: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(words, hidden).uniform_(-0.04, 0.04))
        self.decoder_bias = nn.Parameter(torch.zeros(words))
        units = 20 * hidden * hidden // (9 * hidden)  # 9 hidden * units weights, against 20 hidden * hidden
        self.lstm = nn.LSTM(hidden, units, proj_size=hidden, bias=False)
        self.hidden = hidden
        rates = {"embedding": 0.1, "input": 0.2, "output": 0.2}
        self.drops = nn.ModuleDict({name: VariationalDropout(rate) for name, rate in rates.items()})

    def forward(self, words: Tensor, gates: object = None, state: Tensor | None = None) -> Continuation:
        embedded = F.embedding(words, self.embedding)
        for name in ("embedding", "input"):
            embedded = self._drop(name, embedded)
        before = None
        if state is not None:
            before = state[None, :, : self.hidden].contiguous(), state[None, :, self.hidden :].contiguous()
        outputs, (last, memory) = self.lstm(embedded, before)
        logits = F.linear(self._drop("output", outputs).flatten(0, 1), self.embedding, self.decoder_bias)
        return Continuation(logits, torch.cat([last[0], memory[0]], dim=1), logits.new_zeros(()))

    def _drop(self, name: str, value: Tensor) -> Tensor:
        mask = self.drops[name].draw(value, 1, *value.shape[1:])  # type: ignore[operator]
        return value if mask is None else value * mask


def rows(steps: int) -> Iterator[tuple[str, Architecture | None]]:
    gdas_rnn, random1 = SPACE.parse(PUBLISHED["gdas_rnn"][1]), SPACE.sample(random.Random(1))
    for seed in SEEDS:
        for rate in ("", f"@{LOW_RATE:g}"):
            yield f"wikitext2/gdas_rnn{rate}/{steps}/{seed}", gdas_rnn
            yield f"wikitext2/lstm{rate}/{steps}/{seed}", None
            yield f"cells/lstm{rate}/{steps}/{seed}", None
        yield f"wikitext2/random1/{steps}/{seed}", random1
        yield f"wikitext2/found/{steps}/{seed}", None  # the cell that gdas-soft found with seed 0
    for seed in SEEDS:
        for name in ("gdas_rnn", "darts_v2_rnn", "darts_v1_rnn"):
            yield f"cells/{name}/{steps}/{seed}", SPACE.parse(PUBLISHED[name][1])
        for number in range(RANDOM_CELLS):
            yield f"cells/random{number}/{steps}/{seed}", SPACE.sample(random.Random(number))
        for strategy in STRATEGIES:
            yield f"{strategy}/{steps}/{seed}", None


def run_search(strategy: str, seed: int, data: TextData) -> dict[str, Any]:
    """Return what a search of PAIRS steps, or of TRIALS short trainings, derives, and the CPU seconds that it took."""
    trains = strategy == "random_search"
    steps = TRIAL_STEPS if trains else PAIRS
    settings = {
        "seed": seed,
        "space": {"name": "recurrent"},
        "strategy": {"name": strategy.partition("-")[0], **STRATEGIES[strategy]},
        "data": {"name": "given", "train_words": steps * COLUMNS * SEGMENT + COLUMNS},  # an epoch of so many steps
        "network": NETWORK,
        "search": {"epochs": 1, "batch_size": COLUMNS, "random_baseline_samples": 10},
        "race": {"steps": 0},
        "monitor": {"action": "off"},
        "machine": {"torch_threads": 1, "device": "cpu"},
    }
    if trains:
        trials = {"batch_size": COLUMNS, "trials": TRIALS, "score": "training", "score_epochs": 1}
        settings |= {"search": trials, "weights": TRAINING}
    start = time.process_time()
    loop = build_search(SearchSpec.resolve(settings), data=data)
    outcome = loop.run()
    found = {"cell": outcome.text, "verdict": outcome.verdict, "search_seconds": time.process_time() - start}
    return found if trains else {**found, **describe_supernet(loop)}


def describe_supernet(loop: SearchLoop[Any]) -> dict[str, Any]:
    """Return the perplexity of the derived path, and how far the search has decided."""
    largest = [max(row) for row in (loop.strategy.probabilities() or {}).values()]  # type: ignore[attr-defined]
    return {
        "supernet_perplexity": LANGUAGE.metric.to_value(loop.history[-1].derived_score),
        "mean_largest_probability": sum(largest) / len(largest) if largest else None,
    }


def train(
    architecture: Architecture | None, seed: int, data: TextData, steps: int, *, rate: float = RATE
) -> dict[str, Any]:
    """Return perplexities of a cell, or of an LSTM, after so many steps of SGD; `curve` has those on the way."""
    start = time.process_time()
    settings = WeightSettings(**{**TRAINING, "learning_rate": rate, "learning_rate_end": rate})
    if architecture is None:
        with seeded(seed):
            weights = SharedWeights(Lstm(WORDS, HIDDEN), settings, noise_seed=seed, task=LANGUAGE)
    else:
        weights = build_cell(architecture, seed, settings)
    loader = TextLoader(data.train, columns=COLUMNS, segment=SEGMENT, stream="train")
    weights.train()
    curve: dict[int, float] = {}
    for step in range(steps):
        if step and step % CURVE_STEPS == 0:
            curve[step] = perplexity(weights, data.valid, "valid")
        weights.fit(loader.batch(*divmod(step, loader.steps)), {})
    assert data.test is not None
    found = {"valid": perplexity(weights, data.valid, "valid"), "test": perplexity(weights, data.test, "test")}
    seconds = time.process_time() - start
    return {**found, "curve": curve, "train_seconds": seconds, "parameters": weights.parameter_count}


def build_cell(architecture: Architecture, seed: int, settings: WeightSettings) -> SharedWeights:
    return build_standalone(
        SPACE,
        architecture,
        seed=seed,
        place=lambda network: network,
        shape=TextShape(WORDS),
        network=NETWORK,
        weights=settings,
        task=LANGUAGE,
    )


def perplexity(weights: SharedWeights, tokens: torch.Tensor, stream: str) -> float:
    loader = TextLoader(tokens, columns=10, segment=SEGMENT, stream=stream, whole=False)
    return LANGUAGE.metric.to_value(weights.deployed_score(loader.epoch(0)))


def unigram_floor(train: Tensor, text: Tensor) -> float:
    """Return the perplexity of words by their frequencies in the training text, each plus one."""
    counts = torch.bincount(train, minlength=WORDS).double() + 1
    return float((counts / counts.sum())[text[1:]].log().mean().neg().exp())


def bigram_floor(train: Tensor, text: Tensor) -> float:
    """Return the perplexity of words by the last word, with an absolute discount over the frequencies."""
    pairs = torch.bincount(train[:-1] * WORDS + train[1:], minlength=WORDS**2).view(WORDS, WORDS).double()
    single = torch.bincount(train, minlength=WORDS).double() + 1
    left, different = pairs.sum(dim=1, keepdim=True).clamp_min(1), (pairs > 0).sum(dim=1, keepdim=True)
    known = (pairs - DISCOUNT).clamp_min(0) / left + DISCOUNT * different / left * (single / single.sum())
    return float(known[text[:-1], text[1:]].log().mean().neg().exp())


def print_floors(data: TextData) -> None:
    """Print what guessing by frequencies reaches: validation / test."""
    assert data.test is not None
    for name, floor in (("unigram", unigram_floor), ("bigram", bigram_floor)):
        print(f"{data.name} {name} {floor(data.train, data.valid):.1f} / {floor(data.train, data.test):.1f}")


def find_cell(file: Path, row: str) -> Architecture:
    """Return the cell of a row that is done."""
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return SPACE.parse(next(line["cell"] for line in lines if line["row"] == row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True, help="the folder with ptb/ptb.train.txt")
    parser.add_argument("--out", type=Path, default=Path("rows.jsonl"), help="a file of JSON lines")
    parser.add_argument("--floors", action="store_true", help="print unigram and bigram floors, and run nothing")
    parser.add_argument("--steps", type=int, default=800, help="steps of each training")
    parser.add_argument("--only", default="", help="words, separated by commas: rows with one of them in their name")
    given = parser.parse_args()
    torch.set_num_threads(1)
    texts = [
        cache(lambda: ptb(given.data_dir, vocabulary=WORDS)),
        cache(lambda: wikitext2(given.data_dir, vocabulary=WORDS)),
    ]
    if given.floors:
        for load in texts:
            print_floors(load())
        return
    done = {json.loads(line)["row"] for line in given.out.read_text().splitlines()} if given.out.exists() else set()
    words = [word for word in given.only.split(",") if word]
    for row, known in rows(given.steps):
        if row in done or (words and not any(word in row for word in words)):
            continue
        seed = int(row.rpartition("/")[2])
        kind, name = row.split("/")[:2]
        text = texts[kind == "wikitext2"]()
        found = run_search(kind, seed, text) if known is None and kind in STRATEGIES else {}
        architecture = SPACE.parse(found["cell"]) if found else known
        rate = LOW_RATE if "@" in name else RATE
        if name == "found":
            architecture = find_cell(given.out, f"gdas-soft/{given.steps}/0")
        cell = "LSTM" if architecture is None else SPACE.format(architecture)
        line = {"row": row, "cell": cell, **found, **train(architecture, seed, text, given.steps, rate=rate)}
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(row, round(line["valid"], 2), round(line["test"], 2), flush=True)


if __name__ == "__main__":
    main()
