"""Read how long recurrent cells must train before their order is known: 345 logs of NAS-Bench-NLP on WikiText-2.

    python benchmarks/nas_bench_nlp.py nas_bench_nlp_wikitext2_logs.zip

Every log is a training of 50 epochs (Klyuchnikov et al., 2020): three layers of 600 hidden, Adam at 0.001, batches of
20 columns of 70 words. The script prints the rank correlation of the validation loss after k epochs with the final test
loss, among all cells, the better half and the best tenth, and how far two trainings of the same cell lie apart.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import spearmanr

EPOCHS = 50
AFTER = (1, 2, 3, 5, 10, 20, 30, 40, 49)


@dataclass(frozen=True)
class Training:
    """One log: a cell, its size, and its losses after every epoch."""

    cell: str
    parameters: int
    valid: tuple[float, ...]
    test: tuple[float, ...]

    @property
    def final(self) -> float:
        """Return the test loss at the epoch of the lowest validation loss."""
        return self.test[min(range(len(self.valid)), key=self.valid.__getitem__)]

    def best_until(self, epochs: int) -> float:
        """Return the lowest validation loss of the first epochs."""
        return min(self.valid[:epochs])


def read_logs(path: Path) -> list[Training]:
    """Return every log of the archive."""
    trainings = []
    with zipfile.ZipFile(path) as archive:
        for name in sorted(name for name in archive.namelist() if name.endswith(".json")):
            log = json.loads(archive.read(name))
            losses = [tuple(map(float, log[f"{part}_losses"])) for part in ("val", "test")]
            trainings.append(Training(log["recepie"], int(log["num_params"]), *losses))
    return trainings


def is_complete(training: Training) -> bool:
    """Return whether a training ran to its end with finite losses."""
    return len(training.valid) == EPOCHS and all(map(math.isfinite, (*training.valid, *training.test)))


def correlate(trainings: Sequence[Training], epochs: int) -> float:
    """Return the rank correlation of the validation loss so far with the final test loss."""
    found = spearmanr([one.best_until(epochs) for one in trainings], [one.final for one in trainings])
    return float(found.statistic)


def group_repeats(trainings: Sequence[Training]) -> list[list[Training]]:
    """Return the trainings of every cell that was trained more than once."""
    cells: dict[str, list[Training]] = defaultdict(list)
    for one in trainings:
        cells[one.cell].append(one)
    return [own for own in cells.values() if len(own) > 1]


def deviation_within(groups: Sequence[Sequence[Training]], epochs: int) -> float:
    """Return the pooled standard deviation of repeated trainings, in validation loss after so many epochs."""
    squares = sum((len(own) - 1) * statistics.variance(one.best_until(epochs) for one in own) for own in groups)
    return math.sqrt(squares / sum(len(own) - 1 for own in groups))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path, help="the archive of logs")
    trainings = read_logs(parser.parse_args().logs)
    complete = [one for one in trainings if is_complete(one)]
    finals = sorted(one.final for one in complete)
    better, best = ([one for one in complete if one.final <= finals[len(finals) // part]] for part in (2, 10))
    groups = group_repeats(complete)
    close = group_repeats(better)
    print(f"{len(trainings)} trainings of {len({one.cell for one in trainings})} cells, {len(complete)} complete")
    quarters = [math.exp(value) for value in statistics.quantiles(finals, n=4)]
    print("test perplexity: best {:.1f}, quarters {:.1f} {:.1f} {:.1f}".format(math.exp(finals[0]), *quarters))
    size = spearmanr([one.parameters for one in complete], [one.final for one in complete]).statistic
    print(f"rank correlation of the number of weights with the final loss: {size:.2f}")
    print(
        f"{len(groups)} cells were trained more than once, {sum(map(len, groups))} trainings; {len(close)} all better"
    )
    print("epochs  all   better half  best tenth  deviation of repeats  deviation of cells (better half)")
    for epochs in (*AFTER, EPOCHS):
        spread = statistics.stdev(one.best_until(epochs) for one in better)
        print(
            f"{epochs:6}  {correlate(complete, epochs):.2f}  {correlate(better, epochs):11.2f}  "
            f"{correlate(best, epochs):10.2f}  "
            f"{deviation_within(close, epochs):20.4f}  {spread:10.4f}"
        )


if __name__ == "__main__":
    main()
