"""Streams of text: columns, segments, lengths as a function of seed and epoch."""

from __future__ import annotations

import pytest
import torch

from archloom.core.errors import DataError, SettingError
from archloom.data.text import TextData, TextLoader


def loader(count: int = 101, *, columns: int = 2, segment: int = 7, **options: object) -> TextLoader:
    return TextLoader(torch.arange(count), columns=columns, segment=segment, stream="train", **options)  # type: ignore[arg-type]


def test_columns_are_contiguous_and_the_next_word_is_the_label() -> None:
    batch = loader().batch(0, 1)
    assert batch.inputs.tolist() == [[row, 50 + row] for row in range(7, 14)]
    assert batch.labels.view(7, 2).tolist() == [[row, 50 + row] for row in range(8, 15)]
    assert (batch.stream, batch.starts, len(batch)) == ("train", False, 14)


def test_an_epoch_begins_with_zeros_and_every_place_is_its_own() -> None:
    found = loader()
    batches = [batch for epoch in range(2) for batch in found.epoch(epoch)]
    assert [batch.starts for batch in batches] == [True, *[False] * 6] * 2
    assert len({batch.place for batch in batches}) == 14


@pytest.mark.parametrize(("columns", "rows", "steps"), [(256, 3_631, 103), (128, 7_262, 207), (32, 29_049, 829)])
def test_penn_treebank_has_the_published_number_of_rows_and_steps(columns: int, rows: int, steps: int) -> None:
    found = TextLoader(torch.zeros(929_589, dtype=torch.int64), columns=columns, segment=35, stream="train")
    assert (found.rows + 1, found.steps) == (rows, steps)
    assert found.examples == columns * steps * 35


def test_without_whole_segments_every_word_is_predicted_once() -> None:
    found = loader(whole=False)  # 49 predictions in each column: seven segments of seven
    assert sum(len(batch) for batch in found.epoch(0)) == found.examples == 98
    rest = loader(104, whole=False)  # 51
    assert [len(batch) // 2 for batch in rest.epoch(0)] == [7] * 7 + [2]


@pytest.mark.parametrize("lengths", ["darts", "drawn"])
def test_drawn_lengths_follow_from_seed_and_epoch_alone(lengths: str) -> None:
    first, again = (loader(4000, segment=35, lengths=lengths, seed=3) for _ in range(2))
    for epoch in (5, 0, 5):
        sizes = [len(batch.inputs) for batch in first.epoch(epoch)]
        assert sizes == [len(batch.inputs) for batch in again.epoch(epoch)]
        assert sum(sizes) == first.rows and len(sizes) == first.steps_of(epoch)
    other = loader(4000, segment=35, lengths=lengths, seed=4)
    epochs = [[len(batch.inputs) for batch in one.epoch(epoch)] for one, epoch in ((first, 0), (first, 1), (other, 0))]
    assert len({tuple(sizes) for sizes in epochs}) == 3


def test_drawn_lengths_have_the_published_distribution() -> None:
    found = loader(400_000, columns=1, segment=35, lengths="drawn")
    sizes = [length for _, length in found._segments(0)][:-1]
    assert min(sizes) >= 5 and max(sizes) <= 55
    assert sum(sizes) / len(sizes) == pytest.approx(33.6, abs=0.3)
    half = loader(400_000, columns=1, segment=35, lengths="darts")
    lengths = [length for _, length in half._segments(0)][:-1]
    assert set(lengths) == {17, 35}
    assert lengths.count(17) / len(lengths) == pytest.approx(0.05, abs=0.01)


def test_a_part_of_a_batch_keeps_its_columns() -> None:
    batch = loader().batch(0, 0)
    part = batch.first(6)
    assert part.inputs.shape == (3, 2) and torch.equal(part.labels, batch.labels[:6])
    assert batch.first(1).inputs.shape == (1, 2)


def test_a_text_too_short_is_refused() -> None:
    with pytest.raises(SettingError, match=r"the train text of 10 words is too short for 4 columns of 8 words; use a"):
        loader(10, columns=4)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"words": ("a",)}, "must have at least 2 different words, got 1"),
        ({"train": torch.tensor([0])}, "the train text of data set 'x' needs at least 2 words, got 1"),
        ({"valid": torch.tensor([0, 2])}, "words of the valid text of data set 'x' must lie in 0..1, got 2"),
        ({"test": torch.tensor([-1, 0])}, "words of the test text of data set 'x' must lie in 0..1, got -1"),
        ({"train": torch.zeros(4)}, r"the train text of data set 'x' must be int64 \[n\], got float32 \[4\]"),
    ],
)
def test_texts_that_no_search_can_use_are_refused(parts: dict[str, object], message: str) -> None:
    good = {"name": "x", "words": ("a", "b"), "train": torch.tensor([0, 1]), "valid": torch.tensor([1, 0])}
    assert TextData(**good).check().amount == 40  # type: ignore[arg-type]
    with pytest.raises(DataError, match=message):
        TextData(**{**good, **parts}).check()  # type: ignore[arg-type]
