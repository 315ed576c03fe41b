"""`archloom predict`: what a trained model says of pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from archloom.cli.console import make_table, open_message_console, open_result_console, print_line
from archloom.core.errors import SettingError
from archloom.core.lazy_imports import lazy_imports

with lazy_imports():  # help needs no torch
    import archloom.export.prediction as predictions


UNREADABLE = 2  # exit code, as for any bad input


def predict(
    model: Annotated[
        Path,
        typer.Argument(help="The folder of any run with a trained model, a model file, or an .onnx file."),
    ],
    images: Annotated[list[Path], typer.Argument(help="Image files, or folders of them.")],
    *,
    top: Annotated[int, typer.Option(help="Labels to tell for each, the most probable first.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Label pictures with a trained model.

    A picture that cannot be read gets a line of its own and exit code 2; the others are labelled all the same.

        archloom predict runs/retrained holiday.jpg more-pictures/

        archloom predict export/model.onnx holiday.jpg --json
    """
    if top < 1:
        raise SettingError(f"--top must be at least 1, got {top}")
    files = predictions.find_pictures(images)
    predictor = predictions.open_predictor(model, tell=lambda line: print_line(line, console=open_message_console()))
    if predictor.caution:
        print_line(f"note: {predictor.caution}", console=open_message_console())
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
