"""The page: whole, harmless and on its own."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from archloom.core.errors import ParseError
from archloom.policies.posterior import ArchitectureFrequency, DecisionPosterior, Mixing, Posterior
from archloom.searches.records import FinalistRecord
from archloom.searches.report import render, table_facts, table_sentence
from archloom.spaces import Architecture
from search_runs import make_entry, make_race

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Outline(HTMLParser):
    """Checks that tags nest, and keeps headings and the addresses that a browser might load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.addresses: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in {"src", "href", "xlink:href"}]

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def test_a_finished_search_has_every_section(make_run: Any) -> None:
    page = render(make_run("nb201", epochs=4, table=True))
    assert Outline(page).headings == [
        "Verdict and architecture",
        "How good it is",
        "Learning curves",
        "Stability",
        "Rank and regret",
        "Architecture probabilities",
        "Time and memory",
        "Settings",
        "Versions",
    ]


def test_the_page_tells_what_the_result_says(make_run: Any) -> None:
    run = make_run("nb201", epochs=4, table=True)
    page = render(run)
    for text in (
        "gdas on nb201, seed 0",
        "Better than 95 of 100",
        "802,426",
        "1 min 1 s",
        "700 MB",
        "temperature.start",
    ):
        assert text in page
    assert run.result.text in page
    assert f"rank {run.result.table_entry.rank} of 15,625" in page
    assert "2.13.0" in page


@pytest.mark.parametrize("name", ["nb201", "s2"])  # small panels, and a raster image
def test_nothing_is_loaded_from_anywhere(make_run: Any, name: str) -> None:
    page = render(make_run(name, epochs=2))
    outline = Outline(page)
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in outline.addresses)
    assert not {"script", "link", "iframe", "object", "embed"} & outline.tags
    assert "@import" not in page
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {
        "http://www.w3.org/2000/svg",  # names of XML vocabularies, which nothing loads
        "http://www.w3.org/1999/xlink",
    }


def test_a_search_without_a_table_does_not_claim_a_rank(make_run: Any) -> None:
    page = render(make_run("nb201_mini", epochs=2))
    assert "its rank is not known" in page
    assert "Accuracy with shared weights" in page
    assert "Rank" not in page


def test_many_cells_scroll(make_run: Any) -> None:
    assert '<div class="scroll">' in render(replace(make_run("s2", epochs=1), history=[]))
    assert '<div class="scroll">' not in render(replace(make_run("darts", epochs=1), history=[]))


def test_an_unfinished_search_says_so_and_shows_what_there_is(make_run: Any) -> None:
    run = replace(make_run("nb201", epochs=3), result=None)
    page = render(run)
    headings = Outline(page).headings
    assert headings[:2] == ["This run has not finished", "Architecture so far"]
    assert "Learning curves" in headings
    assert "the state after 3 epochs; the architecture is the latest one" in page
    assert run.history[-1].text in page
    assert "gdas on nb201" in page


def test_a_run_that_has_recorded_nothing_still_has_a_page(make_run: Any) -> None:
    page = render(replace(make_run("nb201", epochs=1), result=None, history=[], settings={}))
    assert Outline(page).headings == ["This run has not finished", "Time and memory"]
    assert "Nothing has been recorded yet" in page


def test_a_black_box_search_shows_its_trials(make_trials: Any) -> None:
    headings = Outline(render(make_trials())).headings
    assert "Trials" in headings
    assert "Learning curves" not in headings


def test_an_unfinished_black_box_search_shows_its_best_trial(make_trials: Any) -> None:
    run = replace(make_trials(), result=None)
    best = max(run.history, key=lambda record: record.score)
    page = render(run)
    assert f'<pre class="copy">{best.text}</pre>' in page
    assert "the best one so far" in page


def test_gaps_in_the_history_do_no_harm(make_run: Any) -> None:
    run = make_run("nb201", epochs=4, table=True)
    first, second, third, last = run.history
    history = [
        replace(first, seconds=math.nan, metrics={}, probabilities=None, table_entry=None, derived_score=math.nan),
        replace(second, metrics={"train_loss": math.nan}, memory_mb=math.nan),
        replace(third, probabilities={"0->1": [math.nan] * 5, "0->2": [1.0]}),
        last,
    ]
    page = render(replace(run, history=history))
    assert "Stability" in Outline(page).headings
    assert not re.search(r">(nan|None|inf)\b", page)


def test_a_result_without_versions_has_no_such_section(make_run: Any) -> None:
    run = make_run("nb201_mini", epochs=1)
    page = render(replace(run, result=replace(run.result, run=replace(run.result.run, versions={}))))
    assert "Versions" not in Outline(page).headings
    assert "None" not in re.sub(r"none", "", page)


def test_hostile_text_stays_text(make_run: Any) -> None:
    evil = '"><script>alert(1)</script>\ud800'
    run = make_run("nb201_mini", epochs=2)
    facts = replace(run.result.run, versions={evil: evil})
    result = replace(run.result, verdict=evil, text=evil, run=facts)
    history = [replace(record, metrics={**record.metrics, evil: 1.0}) for record in run.history]
    settings = {evil: {evil: [evil]}}
    page = render(replace(run, title=evil, subtitle=evil, settings=settings, result=result, history=history))
    assert "<script" not in page
    assert "script" not in Outline(page).tags
    assert "&lt;script&gt;" in page
    assert page.encode("utf-8")


def test_an_architecture_of_another_space_is_named_as_wrong(make_run: Any) -> None:
    run = make_run("nb201", epochs=1)
    with pytest.raises(ParseError, match="lacks decision '0->1'"):
        render(replace(run, result=replace(run.result, architecture=Architecture({"x": "y"}))))


def test_an_architecture_that_never_changed_is_said_to_be_steady(make_run: Any) -> None:
    run = make_run("nb201_mini", epochs=3)
    steady = [replace(record, architecture=run.history[-1].architecture) for record in run.history]
    assert "The architecture never changed." in render(replace(run, history=steady))
    other = Architecture(dict.fromkeys(run.history[-1].architecture, "none"))
    once = [replace(steady[0], architecture=other), *steady[1:]]
    assert "changed once (open dots), the last time after epoch 2" in render(replace(run, history=once))


def with_posterior(run: Any, **changes: Any) -> Any:
    """Return the run with a posterior that is certain of the first option of every decision but the first."""
    decisions = {
        decision.name: sure_of(decision.options[0], others=decision.options[1:]) for decision in run.space.decisions
    }
    first = run.space.decisions[0]
    even = dict.fromkeys(first.options, 1 / len(first.options))
    decisions[first.name] = DecisionPosterior(even, first.options, entropy=1.0)
    posterior = Posterior(
        draws=40,
        burn_in=20,
        different_architectures=3,
        decisions=decisions,
        architectures=(ArchitectureFrequency(run.result.text, run.result.architecture, 0.25),),
        mixing=Mixing(4, 10, effective_draws=80.0, effective_draws_median=90.0, r_hat=1.01, r_hat_median=1.0),
    )
    return replace(run, result=replace(run.result, posterior=replace(posterior, **changes)))


def sure_of(option: str, *, others: Sequence[str] = ()) -> DecisionPosterior:
    return DecisionPosterior({option: 1.0, **dict.fromkeys(others, 0.0)}, (option,), entropy=0.0)


def section(page: str) -> str:
    """The posterior's part of the page."""
    found = re.search(r'<section id="posterior">(.*?)</section>', page, re.DOTALL)
    assert found is not None
    return found[1]


def test_a_posterior_has_a_section(make_run: Any) -> None:
    run = with_posterior(replace(make_run("nb201", epochs=1), history=[]))
    page = render(run)
    headings = Outline(page).headings
    assert headings.index("Posterior") == headings.index("How good it is") + 1
    shown = section(page)
    assert "40 draws of the logits; the 20 before are left out as burn-in" in shown
    assert "credible set: 5 of 6." in shown
    assert '<svg role="img" aria-label="Probability of every option to be the best one, for 6 decisions"' in shown
    assert f"{run.result.text} (the result)" in shown
    assert "25.00 %" in shown
    assert "test accuracy" not in shown
    assert "least certain" not in shown


def test_a_posterior_that_has_not_converged_shows_no_probabilities(make_run: Any) -> None:
    page = render(with_posterior(replace(make_run("nb201", epochs=1), history=[]), mixing=None))
    assert "Posterior: not converged" in Outline(page).headings
    shown = section(page)
    assert "leading option" in shown and "<svg" not in shown
    assert "25.00 %" not in shown and "95 % set" not in shown


def test_known_test_accuracies_stand_beside_the_architectures(make_run: Any) -> None:
    run = with_posterior(replace(make_run("nb201", epochs=1), history=[]))
    shown = section(render(replace(run, tested={run.result.text: 91.25})))
    assert "test accuracy in the table" in shown
    assert "91.25 %" in shown


def test_positions_without_noise_are_not_called_probabilities(make_run: Any) -> None:
    page = render(with_posterior(replace(make_run("nb201_mini", epochs=1), history=[]), sampled=False))
    assert "Posterior: a path without noise" in Outline(page).headings
    assert "positions of a deterministic path, not probabilities" in section(page)
    assert "the share of the positions, in percent" in section(page)


def test_of_a_large_space_the_map_shows_the_least_certain(make_run: Any) -> None:
    run = make_run("s2", epochs=1)
    count = len(run.space.decisions)
    assert f"the 40 least certain of {count} decisions" in section(render(with_posterior(replace(run, history=[]))))


def test_an_input_that_is_left_out_is_explained(make_run: Any) -> None:
    run = replace(make_run("darts", epochs=1), history=[])
    sure = {d.name: sure_of("skip_connect") for d in run.space.decisions}
    hint = "A diamond at none is an input that the cell leaves out"
    assert hint in section(render(with_posterior(run, decisions=sure)))
    everywhere_none = {d.name: sure_of("none") for d in run.space.decisions}
    assert hint not in section(render(with_posterior(run, decisions=everywhere_none)))


def test_without_draws_there_is_no_section(make_run: Any) -> None:
    page = render(replace(make_run("nb201_mini", epochs=1), history=[]))
    assert "Posterior" not in Outline(page).headings


def test_how_the_draws_went_is_shown_of_an_unfinished_run_too(make_run: Any) -> None:
    run = make_run("nb201_mini", epochs=2)
    history = [replace(record, metrics={"a_step_norm": 0.1}) for record in run.history]
    assert "Sampling diagnostics" in Outline(render(replace(run, history=history, result=None))).headings


def test_reports_load_without_torch() -> None:
    code = (
        "import sys, archloom.searches.report; sys.exit('torch' in sys.modules or 'matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_finalists_have_a_section_where_there_are_any(make_run: Any) -> None:
    run = replace(make_run("nb201", epochs=1), history=[])
    assert 'id="finalists"' not in render(run)
    row = FinalistRecord("|skip_connect~0|", run.result.architecture, 420, 1.51922, 0.42, 181234)
    page = render(replace(run, result=replace(run.result, finalists=(row,), finalists_seconds=290.0)))
    section = re.search(r'<section id="finalists">(.*?)</section>', page, re.DOTALL)
    assert section is not None
    assert all(part in section[1] for part in ("4 min 50 s", "420", "1.519", "42.00 %", "181,234", "|skip_c"))


def test_the_page_says_how_sure_the_race_is(make_run: Any) -> None:
    run = replace(make_run("nb201", epochs=1), history=[])
    row = FinalistRecord("|skip_connect~0|", run.result.architecture, 420, 1.51922, 0.42, 181234)
    result = replace(run.result, finalists=(row,), race=make_race(probability=0.62))
    assert "The probability that the result has the best score of these 24 is 62 %" in render(
        replace(run, result=result)
    )


# --- entries of a table


def test_an_entry_as_a_sentence() -> None:
    assert table_sentence(make_entry(93.1)) == (
        "Trained alone, it reaches 93.10 % on the test images of cifar10, rank 128 of 15,625, ahead of 99.2 %, "
        "1.27 points below the best."
    )
    best = table_sentence(make_entry(94.37))
    assert "the best of the 15,625 architectures in the table" in best
    assert "below" not in best


def test_an_entry_as_facts() -> None:
    facts = dict(table_facts(make_entry(93.1)))
    assert facts["Rank"] == "128 of 15,625"
    assert facts["Regret (points below the best)"] == "1.27"


def test_every_trial_has_a_row(make_trials: Any) -> None:
    page = render(make_trials(trials=3))
    table = page[page.index("Every trial") :]
    for name in ("trial", "seconds", "score", "best", "table test, %", "rank"):
        assert f'<th scope="col">{name}</th>' in table
