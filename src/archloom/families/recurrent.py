"""The family of recurrent language models: an embedding, one searched cell, and a decoder that shares the embedding.

The supernet has no more weights than the network of one architecture: a matrix belongs to a node, whatever state it
reads and by which activation. The supernet normalises every state by the statistics of the batch. The published cell
has no normalisation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_doc import Doc
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.core.errors import SettingError, require
from archloom.core.settings import Settings
from archloom.families.base import Depth, Family, OperationKind, Size
from archloom.families.recurrent_cell import CellPlan, CellWeights, fuse_cell, plan_cell, run_step
from archloom.fast import Kernels, current_kernels
from archloom.fast.recurrent_segment import SegmentTensors, run_segment
from archloom.spaces import NONE, Recurrent
from archloom.spaces.base import WIDEST
from archloom.supernet import Continuation, Gates, Only, PartialChannels, Resolve, path_gates
from archloom.tasks import LANGUAGE, Task

SPREAD = 0.04  # of the first weights
NARROWEST = 2  # numbers of a state


class VariationalDropout(nn.Dropout):
    """Draws one mask for a whole segment, scaled up by what it drops (Gal & Ghahramani, 2016)."""

    def draw(self, like: Tensor, *shape: int) -> Tensor | None:
        """Return a mask of a shape; None in evaluation, or where nothing is dropped."""
        if not self.training or self.p == 0:
            return None
        return F.dropout(like.new_ones(shape), self.p)


class RecurrentNetwork(nn.Module):
    """A language model with one searched cell; called with (words, gates, state), it returns a `Continuation`.

    All dropout masks are drawn once per segment. The one on states is the same for the last output and for all nodes.
    """

    def __init__(
        self,
        space: Recurrent,
        resolve: Resolve,
        words: int,
        /,
        *,
        hidden: Annotated[int, Doc("numbers of a state and of an embedded word")] = 300,
        dropout_output: Annotated[float, Doc("share of an output dropped before the decoder, in training only")] = 0.75,
        dropout_hidden: Annotated[float, Doc("share of a state dropped where a matrix reads it, in training only")] = (
            0.25
        ),
        dropout_input: Annotated[float, Doc("share of the cell's input dropped, in training only")] = 0.75,
        dropout_embedding: Annotated[float, Doc("share of an embedded word dropped, in training only")] = 0.2,
        dropout_words: Annotated[
            float, Doc("share of the words that are zero wherever they occur in a segment, in training only")
        ] = 0.0,
        activation_penalty: Annotated[float, Doc("weight of the mean square of outputs in the training loss")] = 0.0,
        change_penalty: Annotated[float, Doc("weight of the mean squared change of outputs over time")] = 1e-3,
        normalize: Annotated[
            Literal["auto", "batch", "none"], Doc("states by the statistics of the batch; auto: in a supernet only")
        ] = "auto",
    ) -> None:
        super().__init__()
        rates = {
            "dropout_output": dropout_output,
            "dropout_hidden": dropout_hidden,
            "dropout_input": dropout_input,
            "dropout_embedding": dropout_embedding,
            "dropout_words": dropout_words,
        }
        penalties = {"activation_penalty": activation_penalty, "change_penalty": change_penalty}
        require(
            {
                f"network.hidden must lie in {NARROWEST}..{WIDEST}, got {hidden}": NARROWEST <= hidden <= WIDEST,
                f"network.normalize must be 'auto', 'batch' or 'none', got {normalize!r}": (
                    normalize in ("auto", "batch", "none")
                ),
                **{f"network.{name} must lie in [0, 1), got {rate}": 0 <= rate < 1 for name, rate in rates.items()},
                **{f"network.{name} must be 0 or more, got {value}": value >= 0 for name, value in penalties.items()},
            }
        )
        if isinstance(resolve, PartialChannels):
            raise SettingError(
                f"strategy.parts must be 1 for a recurrent cell, which has no channels, got {resolve.parts}"
            )
        self._space, self.hidden = space, hidden
        alone = isinstance(resolve, Only)
        self._fixed = plan_cell(space, path_gates(space, resolve.architecture)) if isinstance(resolve, Only) else None
        # a network that stands alone has running statistics elsewhere; this family's has no normalisation instead
        shared_statistics = not alone or not getattr(resolve, "running_statistics", True)
        self._normalized = normalize == "batch" or (normalize == "auto" and shared_statistics)
        self._activation_penalty, self._change_penalty = activation_penalty, change_penalty
        self.embedding = nn.Parameter(torch.empty(words, hidden))  # and the matrix of the decoder
        self.decoder_bias = nn.Parameter(torch.zeros(words))
        self.start = nn.Parameter(torch.empty(2 * hidden, 2 * hidden))  # [word, output] -> [gate, candidate]
        self.nodes = nn.Parameter(torch.empty(space.nodes, hidden, 2 * hidden))
        self.drop_output, self.drop_hidden = VariationalDropout(dropout_output), VariationalDropout(dropout_hidden)
        self.drop_input = VariationalDropout(dropout_input)
        self.drop_embedding, self.drop_words = VariationalDropout(dropout_embedding), VariationalDropout(dropout_words)
        for parameter in (self.embedding, self.start, self.nodes):
            nn.init.uniform_(parameter, -SPREAD, SPREAD)

    def forward(self, words: Tensor, gates: Gates | None = None, state: Tensor | None = None) -> Continuation:
        """Read a segment [T, B] of words; return the logits of the next ones and the state after the last."""
        plan = self._fixed or plan_cell(self._space, gates or {})
        outputs = self._read(plan, words, state)
        shown = self._drop(outputs, self.drop_output.draw(outputs, 1, *outputs.shape[1:]))
        decode = kernels.decode if (kernels := _usable_kernels(shown)) else F.linear
        logits = decode(shown.flatten(0, 1), self.embedding, self.decoder_bias)
        return Continuation(logits, outputs[-1], self._penalty(outputs, shown))

    def _read(self, plan: CellPlan, words: Tensor, state: Tensor | None) -> Tensor:
        """Return the outputs of all time steps, [T, B, H]."""
        columns, hidden = words.shape[1], self.hidden
        # the half of the first matrix that words go through, for all time steps at once
        given = self._embed(words) @ self.start[:hidden]
        mask = self.drop_hidden.draw(given, columns, hidden)
        weights = CellWeights(self.start[hidden:], self.nodes, mask, self._normalized)
        output = given.new_zeros(columns, hidden) if state is None else state.to(given)
        kernels = _usable_kernels(given)
        fused = fuse_cell(self._space, plan, normalized=self._normalized) if kernels else None
        if kernels and fused is not None:
            cell, shares = fused
            tensors = SegmentTensors(given, output, weights.hidden, weights.nodes, mask, shares)
            return run_segment(kernels.segment(cell, tensors), cell, tensors)
        outputs = []
        for step in given.unbind():
            output = run_step(plan, weights, step, output, self._space.activations)
            outputs.append(output)
        return torch.stack(outputs)

    def _embed(self, words: Tensor) -> Tensor:
        """Return embedded words, [T, B, H], without what dropout leaves out."""
        embedded = F.embedding(words, self.embedding)
        shape = (1, *embedded.shape[1:])
        kept = self.drop_words.draw(embedded, len(self.embedding), 1)
        embedded = embedded if kept is None else embedded * kept[words]
        embedded = self._drop(embedded, self.drop_embedding.draw(embedded, *shape))
        return self._drop(embedded, self.drop_input.draw(embedded, *shape))

    def _drop(self, value: Tensor, mask: Tensor | None) -> Tensor:
        return value if mask is None else value * mask

    def _penalty(self, outputs: Tensor, shown: Tensor) -> Tensor:
        """Return what training adds to the loss: outputs that are small and change slowly (Merity et al., 2017)."""
        penalty = outputs.new_zeros(())
        if self.training and self._activation_penalty:
            penalty = penalty + self._activation_penalty * shown.square().mean()
        if self.training and self._change_penalty and len(outputs) > 1:
            penalty = penalty + self._change_penalty * (outputs[1:] - outputs[:-1]).square().mean()
        return penalty

    def count_multiply_adds(self, inputs: tuple[Tensor, ...], output: object) -> int:
        """Return the multiply-adds of a segment: cell and decoder, for every word."""
        each = self.start.numel() + self.nodes.numel() + self.embedding.numel()
        return each * inputs[0].numel()


def _usable_kernels(like: Tensor) -> Kernels | None:
    """Return the kernels to use now; None while torch traces the network, which then has to be plain."""
    return None if torch.compiler.is_compiling() or like.device.type == "meta" else current_kernels()


class RecurrentFamily(Family[Recurrent]):
    """Language models of one recurrent cell."""

    task: ClassVar[Task] = LANGUAGE
    costs_differ: ClassVar[bool] = False
    sizes: ClassVar[Sequence[Size]] = tuple(Size(network={"hidden": hidden}) for hidden in (64, 128, 300, 850))
    search_defaults: ClassVar[Mapping[str, Settings]] = {
        # the rate that the normalised supernet learns at; single cells learn at 20
        "weights": {
            "learning_rate": 5.0,
            "learning_rate_end": 5.0,
            "momentum": 0.0,
            "weight_decay": 5e-7,
            "clip": 0.25,
        },
        "search": {"batch_size": 32, "evaluation_images": 7000},
        "race": {"learning_rate": 20.0, "batch_size": 32},
    }

    trial_defaults: ClassVar[Mapping[str, Settings]] = {"weights": {"learning_rate": 20.0, "learning_rate_end": 20.0}}

    @property
    def network(self) -> Any:
        """Return the class of the network."""
        return RecurrentNetwork

    def describe_size(self, space: Recurrent, settings: Settings) -> str:
        """Return nodes and width in words: `8 nodes, 300 hidden`."""
        return f"{space.nodes} nodes, {settings.get('hidden', 300)} hidden"

    def depth_of(self, space: Recurrent) -> Depth | None:
        """Return the number of nodes."""
        return Depth(space.nodes, "nodes")

    def kind_of(self, option: str) -> OperationKind:
        """Return that an activation learns, as every one has a matrix before it; `identity` is no skip."""
        return OperationKind.NONE if option == NONE else OperationKind.CONVOLUTION
