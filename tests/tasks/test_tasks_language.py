"""Language modelling: the score is 1 / perplexity, which lies in 0..1 and rises; people read the perplexity."""

from __future__ import annotations

import math

import pytest
import torch

from archloom.core.errors import DataError
from archloom.data.text import TextData
from archloom.tasks import CLASSIFICATION, LANGUAGE, PERPLEXITY, TextShape
from archloom.tasks.language import unigram_perplexity
from archloom.testing import make_tiny_data

LOGITS = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]], dtype=torch.float64).log()
LABELS = torch.tensor([0, 2])
TEXT = TextData(name="abc", words=("a", "b", "c"), train=torch.tensor([0, 1, 2]), valid=torch.tensor([0, 1]))


def test_a_model_that_gives_a_half_has_a_perplexity_of_two() -> None:
    assert float(LANGUAGE.score(LOGITS, LABELS)) == pytest.approx(0.5, rel=1e-12)
    loss = LANGUAGE.loss(LOGITS, LABELS)
    assert float(LANGUAGE.score(LOGITS, LABELS, loss=loss)) == pytest.approx(0.5, rel=1e-12)
    total = LANGUAGE.sum_scores(LOGITS, LABELS)
    assert total == pytest.approx(2 * math.log(0.5), rel=1e-12)
    assert LANGUAGE.score_of_sum(total, 2) == pytest.approx(0.5, rel=1e-12)


def test_every_column_has_its_own_mean() -> None:
    logits = torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.5, 0.5], [0.75, 0.25]], dtype=torch.float64).log()
    found = LANGUAGE.score_examples(logits, torch.tensor([0, 0, 1, 1]), columns=2)
    assert found.tolist() == pytest.approx([math.log(0.5), math.log(0.25)])


def test_perplexities_average_by_the_geometric_mean_of_words() -> None:
    assert PERPLEXITY.mean([(0.5, 1), (0.125, 1)]) == pytest.approx(0.25)
    assert PERPLEXITY.mean([(0.5, 3), (0.125, 1)]) == pytest.approx(math.exp((3 * math.log(0.5) + math.log(0.125)) / 4))
    assert PERPLEXITY.mean([(0.0, 1), (0.5, 1)]) == 0.0


def test_a_perplexity_has_no_unit_and_lower_is_better() -> None:
    assert (PERPLEXITY.format(0.0125), PERPLEXITY.format(0.0)) == ("80.0", "inf")
    assert (PERPLEXITY.better, PERPLEXITY.higher_is_better, PERPLEXITY.label) == ("lower", False, "perplexity")
    assert PERPLEXITY.to_figure(0.5) == 2.0


def test_a_model_no_better_than_frequencies_is_named() -> None:
    counts = [2, 1, 1]  # entropy of 1.5 bits
    assert unigram_perplexity(counts) == pytest.approx(2**1.5)
    assert LANGUAGE.chance_sentence(1 / 2.8, counts) == ""
    said = LANGUAGE.chance_sentence(1 / 2.9, counts)
    assert said == (
        "The network has learned nothing: its perplexity, 2.9, is not below 2.8, that of guessing words by how often "
        "they occur."
    )


def test_a_difference_of_log_probabilities_is_a_share_of_the_perplexity() -> None:
    points = 100 * math.log(2)  # words are twice as probable: half the perplexity
    said = LANGUAGE.describe_difference(points, points, points, "the GDAS cell after 40 steps")
    assert said == "perplexity 50.0 % below that of the GDAS cell after 40 steps (95 % -50.0 to -50.0)"
    assert "100.0 % above" in LANGUAGE.describe_difference(-points, -points, -points, "it")


def test_data_of_another_task_are_refused() -> None:
    LANGUAGE.check(TEXT)
    assert LANGUAGE.shape_of(TEXT) == TextShape(words=3)
    with pytest.raises(DataError, match=r"is for language modelling and needs words .TextData., got ImageData"):
        LANGUAGE.check(make_tiny_data())
    with pytest.raises(DataError, match=r"is for image classification and needs images .ImageData., got TextData"):
        CLASSIFICATION.check(TEXT)
