"""Export a language model: one word of every text and a state in, logits of the next word and the next state out.

A graph of one word serves texts of any length. Its user carries the state, from zeros on.
"""

from __future__ import annotations

import importlib.util
import io
import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from archloom.core.errors import CheckpointError
from archloom.core.files import write_atomically, writing
from archloom.export import onnx as onnx_export
from archloom.export import program as program_export
from archloom.export import standalone as standalone_export
from archloom.export.deployed import TOLERANCE, read_version
from archloom.families.recurrent import RecurrentNetwork
from archloom.fast import use_kernels
from archloom.retrainings.model_file import ModelCard, load_model
from archloom.spaces import Recurrent

INPUTS, OUTPUTS = ("words", "state"), ("logits", "next_state")
WORDS = "model.words.json"
CHECKED = 5  # words that an exported form reads before it is believed
TRACED_WITH = 2  # texts: torch takes 0 and 1 for constants

Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class DeployedText(nn.Module):
    """A language model for users: the next word of several texts at once."""

    def __init__(self, card: ModelCard, network: nn.Module) -> None:
        super().__init__()
        assert isinstance(network, RecurrentNetwork)
        self.card, self.network = card, network

    @classmethod
    def load(cls, path: Path, *, plugins: bool = False) -> DeployedText:
        """Return the model of a file, in evaluation mode and without gradients."""
        return cls(*load_model(path, plugins=plugins)).eval().requires_grad_(False)

    def forward(self, words: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits [B, words] after one word of each text [B], and the next state [B, H]."""
        with use_kernels("plain"):
            found = self.network(words.unsqueeze(0), None, state)
        return found.logits, found.state

    def zeros(self, texts: int) -> Tensor:
        """Return the state before the first word."""
        return torch.zeros(texts, self.network.hidden)


def measure_text_difference(model: DeployedText, step: Step, *, what: str, tolerance: float = TOLERANCE) -> float:
    """Return the largest difference of an exported form over some words; raise CheckpointError above the tolerance."""
    largest = 0.0
    for texts in (1, 3):
        words = torch.randint(len(model.card.words), (CHECKED, texts), generator=torch.Generator().manual_seed(texts))
        state = other = model.zeros(texts)
        for word in words:
            with torch.no_grad():
                logits, state = model(word, state)
                found, other = step(word, other)
            difference = max(float((found - logits).abs().max()), float((other - state).abs().max()))
            size = max(float(logits.abs().max()), float(state.abs().max()))
            if not difference <= tolerance * size:  # so that NaN is refused, too
                raise CheckpointError(
                    f"the {what} model differs from torch by {difference:.1e} in logits of size {size:.1e}, more than "
                    f"{tolerance:g} of it; nothing written"
                )
            largest = max(largest, difference)
    return largest


def _trace(model: DeployedText) -> ExportedProgram:
    batch = Dim("batch", min=1)
    example = (torch.zeros(TRACED_WITH, dtype=torch.int64), model.zeros(TRACED_WITH))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about its own parts
        return torch.export.export(model, example, dynamic_shapes={"words": {0: batch}, "state": {0: batch}})


def export_text_program(model: DeployedText, folder: Path) -> tuple[list[Path], float]:
    """Write the model as `model.pt2`; return its path and the largest difference from torch."""
    written = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(_trace(model), written)
        content = written.getvalue()
        again = torch.export.load(io.BytesIO(content)).module()
    difference = measure_text_difference(model, again, what="torch.export")
    path = folder / program_export.FILE_NAME
    write_atomically(path, content)
    return [path], difference


def export_text_onnx(model: DeployedText, folder: Path) -> tuple[list[Path], float]:
    """Write the model as `model.onnx`; return its path and the largest difference from torch."""
    import onnx

    with onnx_export.silence_torch():
        made = torch.onnx.export(
            _trace(model),
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            opset_version=onnx_export.OPSET,
            external_data=False,
            verbose=False,
        )
    assert made is not None
    written = made.model_proto
    onnx.helper.set_model_props(written, _metadata(model.card))
    onnx.checker.check_model(written)
    content: bytes = written.SerializeToString()
    difference = measure_text_difference(model, _run_onnx(content), what="ONNX")
    path = folder / onnx_export.FILE_NAME
    write_atomically(path, content)
    return [path], difference


def _metadata(card: ModelCard) -> dict[str, str]:
    return {
        "words": json.dumps(card.words),
        "tokens": card.tokens,
        "input": "words [batch], the number of the last word of each text; state [batch, hidden], zeros at first",
        "output": "logits [batch, words] of the next word; next_state, the state to pass with it",
        "text": card.text,
        "archloom": read_version(),
    }


def _run_onnx(content: bytes) -> Step:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def step(words: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        given = {"words": np.ascontiguousarray(words.numpy()), "state": np.ascontiguousarray(state.numpy())}
        logits, after = session.run(list(OUTPUTS), given)
        return torch.from_numpy(logits), torch.from_numpy(after)

    return step


# --- plain PyTorch


_SOURCE = '''"""A language model of {count:,} words, in plain PyTorch.

{text}

Made with archloom {version}. It needs torch, safetensors and the two files beside it:
`python model.py "the first words"` prints the most probable next words.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parent
WORDS = json.loads((HERE / "{words}").read_text(encoding="utf-8"))
HIDDEN = {hidden}
CELL = {cell}  # of every node: its activation, and the state that it reads
OUTPUTS = {outputs}  # the states that are averaged
ACTIVATIONS = {{"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid, "identity": lambda u: u}}


class Model(nn.Module):
    """Takes the last word of each text [B] and a state [B, {hidden}]; returns logits [B, {count}] and a state."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(len(WORDS), HIDDEN))
        self.decoder_bias = nn.Parameter(torch.empty(len(WORDS)))
        self.start = nn.Parameter(torch.empty(2 * HIDDEN, 2 * HIDDEN))
        self.nodes = nn.Parameter(torch.empty(len(CELL), HIDDEN, 2 * HIDDEN))

    def forward(self, words, state):
        both = torch.cat([self.embedding[words], state], dim=1)
        states = [highway(state, both @ self.start, torch.tanh)]
        for matrix, node in zip(self.nodes, CELL):
            if node is None:
                states.append(torch.zeros_like(state))
            else:
                activation, source = node
                states.append(highway(states[source], states[source] @ matrix, ACTIVATIONS[activation]))
        output = torch.stack([states[number] for number in OUTPUTS]).mean(dim=0)
        return F.linear(output, self.embedding, self.decoder_bias), output


def highway(state, product, activation):
    gate, candidate = product.chunk(2, dim=1)
    return state + torch.sigmoid(gate) * (activation(candidate) - state)


def load():
    model = Model()
    model.load_state_dict(load_file(HERE / "{weights}"))
    return model.eval().requires_grad_(False)


if __name__ == "__main__":
    model, state = load(), torch.zeros(1, HIDDEN)
    numbers = {{word: number for number, word in enumerate(WORDS)}}
    unknown = numbers.get("<unk>", 0)
    logits = None
    for word in " ".join(sys.argv[1:]).split() or [WORDS[0]]:
        logits, state = model(torch.tensor([numbers.get(word, unknown)]), state)
    for probability, number in zip(*logits.softmax(dim=1)[0].topk(5)):
        print(f"{{float(probability):7.1%}}  {{WORDS[int(number)]}}")
'''


def export_text_source(model: DeployedText, folder: Path) -> tuple[list[Path], float]:
    """Write `model.py`, its weights and its words; return their paths and the largest difference from torch."""
    card, space = model.card, model.card.search_space()
    assert isinstance(space, Recurrent)
    architecture = card.checked_architecture()
    source = _SOURCE.format(
        count=len(card.words),
        text=card.text,
        version=read_version(),
        words=WORDS,
        weights=standalone_export.WEIGHTS,
        hidden=model.network.hidden,
        cell=space.read_nodes(architecture),
        outputs=list(space.list_outputs(architecture)),
    )
    files = {  # the source last: without the others it would be of no use
        standalone_export.WEIGHTS: save({name: t.contiguous() for name, t in model.network.state_dict().items()}),
        WORDS: json.dumps(card.words).encode(),
        standalone_export.SOURCE: source.encode(),
    }
    with writing(folder), tempfile.TemporaryDirectory() as trial:
        for name, content in files.items():
            (Path(trial) / name).write_bytes(content)
        step: Step = _import(Path(trial) / standalone_export.SOURCE)
        difference = measure_text_difference(model, step, what="standalone", tolerance=standalone_export.TOLERANCE * 10)
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files], difference


def _import(source: Path) -> Any:
    spec = importlib.util.spec_from_file_location("archloom_standalone_text", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load()
