"""What all campaigns share: options, tries with seeds of their own, and a summary whose seeds repeat a failure."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


class Draws(random.Random):
    """The randomness of one try, which follows from its kind and its number."""

    def __init__(self, kind: str, number: int) -> None:
        super().__init__(f"{kind} {number}")
        self.number = number


Try = Callable[[Draws], str]
"""Tries one thing and returns what happened in a word; an exception is a failure."""


@dataclass
class Summary:
    """What happened in all tries of a campaign."""

    tries: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, int, str]] = field(default_factory=list)  # kind, seed, message

    def print(self, name: str) -> int:
        """Print the summary; return the exit code."""
        for kind, seed, message in self.failures[:20]:
            print(f"FAILED {kind} --only {seed}: {message}")
        listed = ", ".join(f"{count:,} {what}" for what, count in sorted(self.outcomes.items()))
        print(f"{name}: {self.tries:,} tries, {len(self.failures):,} failures ({listed})")
        return 1 if self.failures else 0


def read_options(description: str, kinds: Mapping[str, Try], tries: int) -> argparse.Namespace:
    """Return the options of a campaign."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--tries", type=int, default=tries, help="of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first try; the others count on from it")
    parser.add_argument("--only", type=int, help="repeat the try of this seed, with its traceback")
    parser.add_argument(
        "--kind", action="append", default=[], help="the end of its name is enough; may be repeated; default: all"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no try starts after this time")
    return parser.parse_args()


def run_campaign(name: str, description: str, kinds: Mapping[str, Try], *, tries: int) -> None:
    """Run all kinds of tries in rounds, so that a campaign cut short has tried each; exit with 1 after a failure."""
    options = read_options(description, kinds, tries)
    chosen = {kind: one for kind, one in kinds.items() if kind.endswith(tuple(options.kind) or "")}
    if not chosen:
        sys.exit(f"no kind ends with {options.kind}; there are {', '.join(kinds)}")
    os.environ.pop("ARCHLOOM_PLUGINS", None)
    summary, end = Summary(), time.monotonic() + options.seconds
    seeds = [options.only] if options.only is not None else range(options.seed, options.seed + options.tries)
    with contextlib.suppress(KeyboardInterrupt):  # what was tried until then counts
        for seed in seeds:
            for kind, one in chosen.items():
                if time.monotonic() < end:
                    _try(summary, kind, seed, one, verbose=options.only is not None)
    sys.exit(summary.print(name))


def _try(summary: Summary, kind: str, seed: int, one: Try, *, verbose: bool) -> None:
    summary.tries += 1
    try:
        summary.outcomes[one(Draws(kind, seed))] += 1
    except Exception as error:  # whatever it is: that is what a campaign looks for
        summary.outcomes["failed"] += 1
        message = f"{type(error).__name__}: {str(error)[:300]}"
        summary.failures.append((kind, seed, message))
        print(f"FAILED {kind} --only {seed}: {message}", flush=True)
        if verbose:
            traceback.print_exc()
