"""Trained models in forms that others can run: ONNX, a torch.export program, or plain source; each checked at once."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from archloom.core.errors import SettingError, suggestion
from archloom.export.deployed import Deployed
from archloom.export.onnx import NEEDS as ONNX_NEEDS
from archloom.export.onnx import export_onnx
from archloom.export.program import export_program
from archloom.export.standalone import export_standalone
from archloom.retrainings.best_model import find_best_model

FOLDER = "export"  # of a run


@dataclass(frozen=True)
class Format:
    """A way to write a model, and the packages it needs beyond archloom's own."""

    write: Callable[[Deployed, Path], tuple[list[Path], float]]
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """Return the packages that the format needs and that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


FORMATS = {
    "onnx": Format(export_onnx, ONNX_NEEDS),
    "torch": Format(export_program),
    "standalone": Format(export_standalone),
}


@dataclass(frozen=True)
class Exported:
    """Files of one format, and by how much their logits differ from torch's at most."""

    format: str
    paths: tuple[Path, ...]
    difference: float


def export_model(
    model: str | Path,
    *,
    formats: Sequence[str] | None = None,
    out: str | Path | None = None,
    plugins: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Exported]:
    """Write a trained model in other formats; each file is compared with the model before it is written.

    Args:
        model: A model file, or the folder of a run, whose best model is taken.
        formats: `onnx`, `torch`, `standalone`. Default: all that can be written here.
        out: The folder to write to. Default: `export` beside the model's file.
        plugins: Whether to import a plug-in that only the file names; see SECURITY.md.
        tell: Called with what is begun, and what is left out and why.

    Returns:
        The files of each format.

    Raises:
        SettingError: If there is no model, or a format that was asked for needs a missing package.

    Examples:
        >>> import archloom, tempfile
        >>> settings = {"space": {"name": "nb201_mini"}, "training": {"epochs": 1}, "network": {"channels": 4}}
        >>> settings["data"] = {"split": "random"}
        >>> cell, run = "|nor_conv_3x3~0|+|none~0|skip_connect~1|", tempfile.mkdtemp() + "/run"
        >>> result = archloom.retrain(cell, recipe="nb201_12", data="digits", out=run, settings=settings)
        >>> [path.name for form in archloom.export_model(run, formats=["standalone"]) for path in form.paths][-1]
        'model.py'
    """
    names = list(dict.fromkeys(FORMATS if formats is None else formats))
    _check(names, insisted=formats is not None)
    found = find_best_model(Path(model))
    path = found.path
    if found.reason:
        tell(found.reason)
    folder = path.parent / FOLDER if out is None else Path(out)
    loaded = Deployed.load(path, plugins=plugins)
    exported = []
    for name in names:
        missing = FORMATS[name].missing
        if missing:
            tell(f"{name} is left out: it needs {', '.join(missing)} (pip install 'archloom[{name}]')")
            continue
        tell(f"writing and checking {name}")
        paths, difference = FORMATS[name].write(loaded, folder)
        exported.append(Exported(name, tuple(paths), difference))
    return exported


def _check(names: Sequence[str], *, insisted: bool) -> None:
    problems = [f"unknown format '{name}'{suggestion(name, FORMATS)}" for name in names if name not in FORMATS]
    problems += [
        f"format {name} needs {', '.join(FORMATS[name].missing)}: pip install 'archloom[{name}]'"
        for name in names
        if insisted and name in FORMATS and FORMATS[name].missing
    ]
    if problems:
        raise SettingError(problems)


__all__ = ["FORMATS", "Deployed", "Exported", "Format", "export_model"]
