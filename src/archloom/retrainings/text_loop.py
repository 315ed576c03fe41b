"""Train a language model from scratch: segments in order with a carried state, and averaging once learning stalls."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from archloom.core.state import StateDict
from archloom.data.loader import Batch, Batches
from archloom.retrainings.averaging import RunningMean, should_average
from archloom.retrainings.loop import RetrainLoop
from archloom.retrainings.records import AnyEvaluation
from archloom.retrainings.text_evaluation import TextEvaluation, evaluate_text
from archloom.searches.short_training import seeded
from archloom.supernet.shared_weights import scaled_rate
from archloom.tasks import LANGUAGE


class TextRetrainLoop(RetrainLoop):
    """The training of one language model; its state is carried on, and zero where an epoch begins."""

    def __init__(self, network: nn.Module, **options: Any) -> None:
        super().__init__(network, **options)
        self._state: Tensor | None = None  # after the last segment
        self._rate = 1.0  # of the last step, relative to the usual one
        self._losses: list[float] = []  # of validation, by epoch
        self._mean: RunningMean | None = None

    @property
    def model(self) -> nn.Module:
        """Return the model: the network itself or, once averaging began, the mean of its weights."""
        return super().model if self._mean is None else self._mean.network

    # --- one step

    def _fit(self, batch: Batch) -> tuple[float, float]:
        """Take one step; return the loss without penalties, and the words by how probable they were."""
        with seeded(self._seed_of(self.position)):
            found = self.network(batch.inputs, None, None if batch.starts else self._state)
        loss = LANGUAGE.loss(found.logits, batch.labels)
        self._descend(loss + found.penalty, batch)
        self._state = found.state.detach()
        if self._mean is not None:
            self._mean.update(self.network)
        value = float(loss.detach())
        return value, len(batch) * math.exp(-value)

    def _step_optimizer(self, batch: Batch) -> None:
        """Take a step in proportion to the length of the segment; torch's ASGD is one segment late with that."""
        late = self.settings.averaging == "torch" and self._mean is not None
        with scaled_rate(self.optimizer, self._rate if late else batch.rate):
            self.optimizer.step()
        self._rate = batch.rate

    # --- one epoch

    def _validate(self, epoch: int) -> dict[str, Any]:
        found: dict[str, Any] = {"metric": LANGUAGE.metric.name, **super()._validate(epoch)}
        if "valid_loss" not in found or self.settings.averaging == "off":
            return found
        loss = found["valid_loss"]
        found["averaged"] = self._mean is not None
        if self._mean is None and should_average(self._losses, loss, patience=self.settings.patience):
            self._mean = RunningMean(self.network, skips_first=self.settings.averaging == "torch")
        self._losses.append(loss)
        return found

    def _list_figures(self, found: AnyEvaluation) -> dict[str, float]:
        return {"valid_score": found.top1, "valid_loss": found.loss}

    def _train_score(self) -> float:
        """Return 100 / perplexity: scores of segments have no other mean."""
        return 100 * math.exp(-self._sums["loss"] / self._sums["images"])

    def _step_figures(self, loss: float, right: float, batch: Batch) -> dict[str, float]:
        return {"train_loss": loss, "train_perplexity": math.exp(loss)}

    def _evaluate(self, network: nn.Module, images: Batches | None, *, mistakes: int = 0) -> TextEvaluation | None:
        return None if images is None else evaluate_text(network, images)

    # --- state

    def state_dict(self) -> StateDict:
        """Return everything that a checkpoint must hold."""
        return {
            **super().state_dict(),
            "state": self._state,
            "rate": self._rate,
            "losses": list(self._losses),
            "mean": None if self._mean is None else self._mean.state_dict(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        self._state = state["state"]
        self._rate, self._losses = state["rate"], list(state["losses"])
        if state["mean"] is not None:
            self._mean = RunningMean(self.network, skips_first=self.settings.averaging == "torch")
            self._mean.load_state_dict(state["mean"])
