"""Export as source: one readable file of plain PyTorch for one architecture, with its weights beside it.

The file needs nothing of archloom, today or in ten years. The family of the space writes the network; the template
beside this module is what every file has. Text of a model file gets into the source as a quoted literal only: no name
of a class can become code.
"""

from __future__ import annotations

import importlib.util
import tempfile
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jinja2
from safetensors.torch import save
from torch import Tensor

from archloom.core.errors import SettingError
from archloom.core.files import write_atomically, writing
from archloom.export.deployed import Deployed, Predict, measure_difference, read_version
from archloom.families import family_of
from archloom.families.base import Source
from archloom.families.cell_source import LINE
from archloom.retrainings.model_file import ModelCard

SOURCE, WEIGHTS = "model.py", "model.safetensors"
TOLERANCE = 1e-6  # relative: the same operations of the same library
MODES = {1: "L", 3: "RGB"}  # of pictures, by channels


def export_standalone(model: Deployed, folder: Path) -> tuple[list[Path], float]:
    """Write `model.py` and `model.safetensors`; returns their paths and the largest difference from torch."""
    written = write_standalone(model)
    weights = save(written.weights)
    with writing(folder), tempfile.TemporaryDirectory() as trial:
        for name, content in ((SOURCE, written.source.encode()), (WEIGHTS, weights)):
            (Path(trial) / name).write_bytes(content)
        difference = measure_difference(
            model, _import_model(Path(trial) / SOURCE), what="standalone", tolerance=TOLERANCE
        )
    paths = [folder / WEIGHTS, folder / SOURCE]  # weights first: a source without them would be of no use
    for path, content in zip(paths, (weights, written.source.encode()), strict=True):
        write_atomically(path, content)
    return paths, difference


@dataclass(frozen=True)
class Standalone:
    """A network as source, and its weights by the names that the source gives them."""

    source: str
    weights: dict[str, Tensor]


def write_standalone(model: Deployed) -> Standalone:
    """Write the source and the weights of a model; nothing is checked yet."""
    card = model.card
    space, family = card.search_space(), family_of(card.search_space())
    network = family.source(space, card.checked_architecture(), model.network, card.network)
    if network is None:
        raise SettingError(
            f"format standalone needs a family that writes its source; '{family.name}' ({type(space).__name__}) does "
            "not: export another format, or give the family a method `source`"
        )
    weights = {
        f"{own}.{key}": tensor.detach().clone().contiguous()
        for own, theirs in network.modules.items()
        for key, tensor in model.network.get_submodule(theirs).state_dict().items()
    }
    return Standalone(_write_file(card, network), weights)


def _write_file(card: ModelCard, network: Source) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("archloom.export", "."),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("standalone.jinja").render(
        {**_list_common_parts(card, network), "code": network.code}
    )


def _import_model(source: Path) -> Predict:
    """Return the model of a file that was just written, imported as its user will import it."""
    spec = importlib.util.spec_from_file_location("archloom_standalone_model", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    predict: Predict = module.load()
    return predict


# --- what every file has


def _list_common_parts(card: ModelCard, network: Source) -> dict[str, object]:
    channels, height, width = card.image_shape
    imports = {"from pathlib import Path", *network.imports, *(["import sys"] if channels in MODES else [])}
    return {
        "title": f"A classifier of {len(card.classes)} kinds of images, in plain PyTorch.",
        "text": textwrap.wrap(card.text, LINE - 8, break_long_words=False, break_on_hyphens=False),
        "facts": _list_facts(card),
        "classes": _write_tuple("CLASSES", map(quote_text, card.classes)),
        "mean": _write_tuple("MEAN", map(repr, card.mean)),
        "std": _write_tuple("STD", map(repr, card.std)),
        "imports": sorted(imports, key=lambda line: (line.startswith("from"), line)),
        "mode": MODES.get(channels),
        "height": height,
        "square": card.square,
        "width": width,
    }


def _list_facts(card: ModelCard) -> list[str]:
    channels, height, width = card.image_shape
    lines = [f"Found and trained with archloom {read_version()}."]
    if card.details.test_score is not None:
        lines += [f"Accuracy on test images: {card.details.test_score:.2f} %."]
    return [*lines, f"It takes images [batch, {channels}, {height}, {width}] with values in 0..1."]


def _write_tuple(name: str, items: Iterable[str]) -> str:
    """Return an assignment of a tuple: on one line if it fits, else with an item per line."""
    listed = list(items)
    line = f"{name} = ({', '.join(listed)}{',' if len(listed) == 1 else ''})"
    if len(line) <= LINE:
        return line
    return "\n".join([f"{name} = (", *(f"    {item}," for item in listed), ")"])


def quote_text(text: str) -> str:
    """Return text as a literal; in double quotes, unless single quotes need fewer escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    escaped = "".join(_escape(character) for character in text.replace("\\", "\\\\"))
    return quote + escaped.replace(quote, f"\\{quote}") + quote


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    return repr(character)[1:-1]  # control characters, line breaks of any kind, halves of surrogate pairs
