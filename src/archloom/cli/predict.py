"""`archloom predict`: what a trained model says of pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from archloom.cli.completion import complete_run
from archloom.cli.console import make_table, open_message_console, open_result_console, print_line
from archloom.core.errors import SettingError
from archloom.core.lazy_imports import lazy_imports

with lazy_imports():  # help needs no torch
    import archloom.export.prediction as predictions
    import archloom.export.text_prediction as text_predictions
    import archloom.retrainings.best_model as best_models


UNREADABLE = 2  # exit code, as for any bad input


def predict(
    model: Annotated[
        Path,
        typer.Argument(
            help="The folder of any run with a trained model, a model file, or an .onnx file.",
            autocompletion=complete_run,
        ),
    ],
    images: Annotated[list[Path], typer.Argument(help="Image files, or folders of them; text files for text.")],
    *,
    words: Annotated[
        int, typer.Option(help="Of a language model: continue the last line of each text by so many words.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of the words that continue a text.")] = 0,
    runtime: Annotated[
        Literal["auto", "torch", "onnx"],
        typer.Option(
            help="auto: ONNX Runtime if it is installed and `archloom export` has written this model beside its file, "
            "else torch."
        ),
    ] = "auto",
    top: Annotated[int, typer.Option(help="Labels to tell for each, the most probable first.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Label pictures with a trained model, or score the lines of a text with a language model.

    A picture that cannot be read gets a line of its own and exit code 2; the others are labelled all the same.

        archloom predict runs/retrained holiday.jpg more-pictures/

        archloom predict runs/retrained holiday.jpg --runtime torch

        archloom predict export/model.onnx holiday.jpg --json

        archloom predict runs/language-model letter.txt --words 20
    """
    if top < 1:
        raise SettingError(f"--top must be at least 1, got {top}")
    if words < 0:
        raise SettingError(f"--words must be 0 or more, got {words}")
    if text_predictions.is_text_model(model):
        if runtime != "auto":
            raise SettingError(f"--runtime is for models of images, and {model} is a language model; leave it out")
        _predict_text(model, images, words=words, seed=seed, as_json=as_json)
        return
    if words:
        best_models.find_best_model(model)  # says where there is none
        raise SettingError(f"--words is for language models, and {model} labels images; leave it out")
    files = predictions.find_pictures(images)
    messages = open_message_console()
    predictor = predictions.open_predictor(model, runtime=runtime, tell=lambda line: print_line(line, console=messages))
    if predictor.caution:
        print_line(f"note: {predictor.caution}", console=messages)
    print_line(f"runtime: {predictor.runtime}", console=messages)
    found = list(predictions.predict_pictures(predictor, files, top=top))
    if as_json:
        typer.echo(json.dumps([_as_json(answer) for answer in found], indent=2))
    else:
        _print(answer for answer in found if not answer.problem)
    problems = [answer.problem for answer in found if answer.problem]
    for problem in problems:
        print_line(f"error: {problem}", console=open_message_console())
    if problems:
        raise typer.Exit(UNREADABLE)


def _predict_text(model: Path, files: list[Path], *, words: int, seed: int, as_json: bool) -> None:
    """Print the perplexity of every line of each text, or a text with words after it."""
    reader = text_predictions.TextModel.load(model)
    texts = {file: text_predictions.read_lines(file) for file in files}
    if words:
        for lines in texts.values():
            typer.echo(reader.continue_text(lines[-1], words, seed=seed))
        return
    found = [(file, line) for file, lines in texts.items() for line in reader.score(lines)]
    if as_json:
        typer.echo(json.dumps([{"file": str(file), **vars(line)} for file, line in found], indent=2))
        return
    rows = [(str(file), f"{one.perplexity:,.1f}", str(one.words), str(one.unknown), one.line) for file, one in found]
    open_result_console().print(make_table(("file", "perplexity", "words", "unknown", "line"), rows))


def _print(found: Iterable[predictions.Answer]) -> None:
    rows = [
        (
            str(answer.file),
            answer.labels[0],
            _percent(answer.probabilities[0]),
            ", ".join(
                f"{label} {_percent(probability)}"
                for label, probability in zip(answer.labels[1:], answer.probabilities[1:], strict=True)
            ),
        )
        for answer in found
    ]
    if rows:
        open_result_console().print(make_table(("file", "label", "probability", "runners-up"), rows))


def _percent(probability: float) -> str:
    return f"{100 * probability:.1f} %"


def _as_json(answer: predictions.Answer) -> dict[str, object]:
    if answer.problem:
        return {"file": str(answer.file), "error": answer.problem}
    pairs = zip(answer.labels, answer.probabilities, strict=True)
    listed = [{"label": label, "probability": probability} for label, probability in pairs]
    return {"file": str(answer.file), "predictions": listed}
