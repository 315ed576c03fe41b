"""GibbsNAS: draw weights and architecture importance in turn from their posterior (Xue et al., 2021).

Each block is drawn from a local Gaussian: a quasi-Newton step towards the mode, and noise with the inverse curvature.
`docs/gibbs.md` has the corrected equations and says what each setting stands for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import require
from archloom.families import OperationKind, family_of
from archloom.policies import Chain, mean_probabilities, summarize_draws
from archloom.policies.posterior import Posterior
from archloom.samplers import BfgsPosterior, DiagonalLbfgsPosterior, NoiseRule, PosteriorSampler, draw_precision
from archloom.spaces import Scores, SearchSpace
from archloom.strategies.base import (
    Differentiable,
    Metrics,
    Plan,
    Preset,
    SearchBatch,
    StrategyFindings,
    Validation,
    metrics,
)
from archloom.supernet import SharedWeights, StepResult


class Gibbs(Differentiable):
    """A draw of the weights on every training batch; after some of them, one of the logits on validation images."""

    stateful = ("policy", "optimizer", "chain")
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {
            "strategy": {
                "order": "second",
                "weight_decay_a": 1e-4,
                "schedule": "cosine",
                "noise_rule": "lr",
                "n_eff_least": 1,
                "draw_images": 2048,
                "learn_every": 1,
                "center": False,
                "keep_none": None,
                "derive_from": "last",
                "finalists": 1,
            },
            "weights": {"learning_rate": 0.1, "learning_rate_end": 0.0, "weight_decay": 1e-4},
            "search": {"epochs": 50},
        },
    }

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        order: Annotated[
            Literal["first", "second"], Doc("curvature for the logits only, or for the weights too")
        ] = "first",
        w_update: Annotated[
            Literal["sgd", "mean", "sample"] | None, Doc("left out: sgd in first order, sample in second")
        ] = None,
        a_update: Annotated[Literal["mean", "sample", "sgd", "adam"], Doc("how the logits move")] = "sample",
        learning_rate_a: Annotated[float, Doc("of the logits; 1 is a full Newton step")] = 0.1,
        schedule: Annotated[
            Literal["constant", "cosine"], Doc("of that rate; a cosine ends with a chain at rest")
        ] = "constant",
        learning_rate_w: Annotated[
            float, Doc("of the weights, on a cosine to 0; section weights has that of sgd")
        ] = 0.1,
        weight_decay_a: Annotated[float, Doc("of the logits: the precision of their prior")] = 0.1,
        weight_decay_w: Annotated[float, Doc("of the weights; section weights has that of sgd")] = 1e-4,
        decay_units: Annotated[
            Literal["mean", "sum"], Doc("decays beside the mean loss, or beside its sum over all images")
        ] = "mean",
        n_eff: Annotated[int | None, Doc("images that the posterior believes in; left out: those there are,")] = None,
        n_eff_least: Annotated[int, Doc("but at least so many, which is a cold posterior on small data")] = 25_000,
        temperature_w: Annotated[float, Doc("of the posterior of the weights; below 1 is colder")] = 1.0,
        temperature_a: Annotated[float, Doc("of the posterior of the logits")] = 1.0,
        noise_rule: Annotated[NoiseRule, Doc("how the noise depends on the learning rate")] = "exact",
        noise_limit: Annotated[float, Doc("largest standard normal number; 0 is off")] = 3.0,
        noise_wait: Annotated[float, Doc("share of the steps that leave the weights without noise")] = 0.2,
        noise_ramp: Annotated[float, Doc("share of the steps over which it then rises")] = 0.2,
        draw_images: Annotated[int, Doc("validation images for a draw of the logits, as far as there are")] = 256,
        steps_per_draw: Annotated[
            int | None, Doc("weight steps to each; left out: those that see as many images")
        ] = None,
        pairs: Annotated[
            Literal["same", "different"], Doc("batches that teach curvature; different is there to fail")
        ] = "same",
        center: Annotated[bool, Doc("keep out movements of the logits that a softmax cannot see")] = True,
        smallest_a: Annotated[float, Doc("bounds of the inverse curvature of the logits")] = 1e-3,
        largest_a: Annotated[float, Doc("see smallest_a")] = 100.0,
        step_clip_a: Annotated[float, Doc("largest mean step of the logits; 0 is off")] = 1.0,
        learn_every: Annotated[
            int, Doc("draws to each look at the curvature of the logits, which takes a second pass")
        ] = 4,
        reset_every: Annotated[int, Doc("draws after which the curvature of the logits is forgotten; 0 is never")] = 0,
        lbfgs_memory: Annotated[int, Doc("steps that the curvature of the weights is learnt from")] = 10,
        w_start: Annotated[
            Literal["gnb", "scalar"], Doc("the Gauss-Newton diagonal or one number, to start L-BFGS from")
        ] = "gnb",
        w_start_every: Annotated[int, Doc("weight steps between looks at that diagonal")] = 5,
        w_start_average: Annotated[float, Doc("share of the old diagonal that stays")] = 0.9,
        damping_w: Annotated[float, Doc("added to that diagonal")] = 1e-2,
        w_mean: Annotated[
            Literal["diagonal", "direction"], Doc("the mean step: by the diagonal, or all of L-BFGS")
        ] = "diagonal",
        smallest_w: Annotated[float, Doc("bounds of the inverse curvature of the weights")] = 1e-3,
        largest_w: Annotated[float, Doc("see smallest_w")] = 50.0,
        step_clip_w: Annotated[float, Doc("largest mean step of a weight tensor, relative to it; 0 is off")] = 0.1,
        noise_clip_w: Annotated[float, Doc("largest noise on a weight tensor, relative to it; 0 is off")] = 0.02,
        gamma_shape: Annotated[
            float, Doc("of a Gamma prior on both precisions, which are then drawn as well; 0 is off")
        ] = 0.0,
        gamma_rate: Annotated[float, Doc("of that prior")] = 1.0,
        none: Annotated[Literal["free", "absent"], Doc("whether `none` takes part in the mixture")] = "free",
        keep_none: Annotated[bool | None, Doc("may `none` win; left out: as the space has it")] = False,
        warmup: Annotated[float, Doc("share of the epochs that moves the weights alone")] = 0.0,
        finalists: Annotated[
            int, Doc("what is derived and its neighbours, trained for a short while to decide; 1 is none")
        ] = 20,
        burn_in: Annotated[float, Doc("first share of the draws that the posterior leaves out")] = 0.67,
        derive_from: Annotated[
            Literal["mean", "last"], Doc("of the draws after the burn-in, or the last draw alone")
        ] = "mean",
    ) -> None:
        positive = {
            "learning_rate_a": learning_rate_a,
            "learning_rate_w": learning_rate_w,
            "n_eff": 1 if n_eff is None else n_eff,
            "n_eff_least": n_eff_least,
            "draw_images": draw_images,
            "steps_per_draw": 1 if steps_per_draw is None else steps_per_draw,
            "smallest_a": smallest_a,
            "smallest_w": smallest_w,
            "learn_every": learn_every,
            "w_start_every": w_start_every,
            "gamma_rate": gamma_rate,
        }
        not_negative = {
            "weight_decay_a": weight_decay_a,
            "weight_decay_w": weight_decay_w,
            "temperature_w": temperature_w,
            "temperature_a": temperature_a,
            "noise_limit": noise_limit,
            "step_clip_a": step_clip_a,
            "step_clip_w": step_clip_w,
            "noise_clip_w": noise_clip_w,
            "reset_every": reset_every,
            "lbfgs_memory": lbfgs_memory,
            "damping_w": damping_w,
            "gamma_shape": gamma_shape,
        }
        shares = {
            "noise_wait": noise_wait,
            "noise_ramp": noise_ramp,
            "warmup": warmup,
            "w_start_average": w_start_average,
            "burn_in": burn_in,
        }
        require(
            {f"strategy.{name} must be above 0, got {value}": value > 0 for name, value in positive.items()}
            | {f"strategy.{name} must be 0 or more, got {value}": value >= 0 for name, value in not_negative.items()}
            | {f"strategy.{name} must lie in [0, 1), got {value}": 0 <= value < 1 for name, value in shares.items()}
            | {
                f"strategy.largest_a must be at least smallest_a ({smallest_a}), got {largest_a}": largest_a
                >= smallest_a,
                f"strategy.largest_w must be at least smallest_w ({smallest_w}), got {largest_w}": largest_w
                >= smallest_w,
                f"strategy.learning_rate_w must be below 2, got {learning_rate_w}": learning_rate_w < 2,
                f"strategy.learning_rate_a must be below 2, got {learning_rate_a}": learning_rate_a < 2,
            }
        )
        super().__init__(
            space,
            generator,
            learning_rate=learning_rate_a,
            weight_decay=weight_decay_a,
            warmup=warmup,
            none=none,
            keep_none=keep_none,
            finalists=finalists,
        )
        self.chain = Chain(self.policy.values.numel())
        self._w_update = w_update or ("sgd" if order == "first" else "sample")
        self._a_update, self._rate, self._cosine = a_update, learning_rate_a, schedule == "cosine"
        self._draw_images, self._steps_per_draw = draw_images, steps_per_draw
        self._n_eff, self._n_eff_least, self._summed = n_eff, n_eff_least, decay_units == "sum"
        self._gamma = {"shape": gamma_shape, "rate": gamma_rate} if gamma_shape else None
        self._center, self._burn_in, self._from_last = center, burn_in, derive_from == "last"
        self._noise_wait, self._noise_ramp = noise_wait, noise_ramp
        self._for_logits: dict[str, Any] = {
            "lr": learning_rate_a,
            "temperature": temperature_a,
            "noise_rule": noise_rule,
            "noise_limit": noise_limit,
            "sample": a_update == "sample",
            "pairs": pairs,
            "smallest": smallest_a,
            "largest": largest_a,
            "step_clip": step_clip_a,
            "learn_every": learn_every,
            "reset_every": reset_every,
        }
        self._for_weights: dict[str, Any] = {
            "lr": learning_rate_w,
            "temperature": temperature_w,
            "noise_rule": noise_rule,
            "noise_limit": noise_limit,
            "sample": self._w_update == "sample",
            "memory": lbfgs_memory,
            "start": w_start,
            "start_every": w_start_every,
            "start_average": w_start_average,
            "damping": damping_w,
            "mean": w_mean,
            "smallest": smallest_w,
            "largest": largest_w,
            "step_clip": step_clip_w,
            "noise_clip": noise_clip_w,
        }
        self._decay, self._decay_w = weight_decay_a, weight_decay_w
        self._weight_sampler: PosteriorSampler | None = None

    def begin(self, weights: SharedWeights, plan: Plan) -> None:
        """Give both blocks their samplers, now that the numbers of images are known."""
        most = max(1, plan.valid_images // plan.valid_batch_size)
        batches = min(math.ceil(self._draw_images / plan.valid_batch_size), most)
        images = batches * plan.valid_batch_size
        self.validation = Validation(every=self._steps_per_draw or math.ceil(images / plan.batch_size), batches=batches)
        believed, believed_w = self._believed(plan.valid_images), self._believed(plan.train_images)
        self._believed_images = {"a": believed, "w": believed_w}
        self._draws_from = {"a": images, "w": plan.batch_size}
        decay = self._decay / believed if self._summed else self._decay
        decay_w = self._decay_w / believed_w if self._summed else self._decay_w
        if self._a_update == "sgd":
            self.optimizer = torch.optim.SGD([self.policy.values], lr=self._rate, weight_decay=decay)
        elif self._a_update != "adam":
            self.optimizer = BfgsPosterior(
                [self.policy.values],
                generator=self.new_generator(),
                observations=believed,
                decay=decay,
                project=self.policy.center if self._center else None,
                **self._for_logits,
            )
        if self._w_update != "sgd":
            sampler = DiagonalLbfgsPosterior(
                weights.parameters.values(),
                generator=self.new_generator(),
                observations=believed_w,
                decay=decay_w,
                quiet_steps=round(self._noise_wait * plan.steps),
                ramp_steps=round(self._noise_ramp * plan.steps),
                **self._for_weights,
            )
            weights.optimize_with(sampler)
            self._weight_sampler = sampler

    def _believed(self, images: int) -> int:
        return self._n_eff if self._n_eff is not None else max(images, self._n_eff_least)

    # --- the search

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        fitted = weights.fit(batch.train, self.policy.mixture())
        if self._gamma is not None:
            weights.set_weight_decay(self._draw_decay("w", list(weights.parameters.values())))
        figures = self._figures("w", self._weight_sampler)
        if not batch.valids or self.is_warming_up(batch):
            return {**metrics(fitted), **figures}
        judged = self._draw(weights, batch)
        if self._gamma is not None:
            decay = self._draw_decay("a", [self.policy.values])
            for group in self.optimizer.param_groups:
                group["decay" if "decay" in group else "weight_decay"] = decay
        return {**metrics(fitted, judged), **figures, **self._figures("a", self.optimizer), **self._shape()}

    def _draw(self, weights: SharedWeights, batch: SearchBatch) -> StepResult:
        """New logits, given the weights: the gradient is taken over all validation images, here and where it leads."""
        outcomes: list[StepResult] = []

        def gradient() -> Tensor:
            outcomes.append(self._judge(weights, batch))
            return outcomes[-1].loss

        for group in self.optimizer.param_groups:
            group["lr"] = self._rate * ((1 + math.cos(math.pi * batch.progress)) / 2 if self._cosine else 1.0)
        self.optimizer.step(gradient)  # type: ignore[arg-type]
        self.chain.append(self.policy.values)
        return outcomes[0]

    def _judge(self, weights: SharedWeights, batch: SearchBatch) -> StepResult:
        """Mean loss over the validation batches, one in memory at a time; its gradient is left with the logits."""
        values, images = self.policy.values, sum(map(len, batch.valids))
        total, loss, accuracy = torch.zeros_like(values), values.new_zeros(()), values.new_zeros(())
        for valid in batch.valids:
            outcome, share = weights.step_result(valid, self.policy.mixture()), len(valid) / images
            total += weights.gradient(outcome.loss, of=values) * share
            loss += outcome.loss.detach() * share
            accuracy += outcome.score * share
        values.grad = self.add_target_gradient(total)
        return StepResult(loss, accuracy)

    def _draw_decay(self, block: str, parameters: list[Tensor]) -> float:
        """Sample the precision of a block's prior, given the block, and return the weight decay it stands for."""
        assert self._gamma is not None
        return draw_precision(parameters, self.generator, **self._gamma) / self._believed_images[block]

    # --- what it came to

    def probabilities(self) -> Scores:
        if len(self.chain) == 0:
            return super().probabilities()
        share = 0.0 if self._from_last else 1 - self._burn_in
        return mean_probabilities(self.policy, self.chain.last(share))

    def findings(self) -> StrategyFindings:
        """Return the posterior as far as it was sampled; without noise it shows where updates went, not certainty."""
        return StrategyFindings(self.summarize_chains([self.chain]) if len(self.chain) else None)

    def summarize_chains(self, chains: Sequence[Chain], *, runs: Sequence[str] = ()) -> Posterior:
        draws = [chain.last(1 - self._burn_in) for chain in chains]
        return summarize_draws(
            self.space,
            self.policy,
            draws,
            burn_in=sum(map(len, chains)) - sum(map(len, draws)),
            sampled=self._a_update == "sample",
            keep_none=self._keep_none,
            runs=runs,
        )

    def _figures(self, block: str, optimizer: torch.optim.Optimizer | None) -> dict[str, float]:
        """How the last draw of a block went."""
        if not isinstance(optimizer, PosteriorSampler):
            return {}
        rate = optimizer.param_groups[0]["lr"]
        noise = rate * self._believed_images[block] / ((2 - rate) * self._draws_from[block])
        figures = {**optimizer.draw, "batch_noise_ratio": noise, "decay": optimizer.param_groups[0]["decay"]}
        return {f"{block}_{name}": value for name, value in figures.items()}

    def _shape(self) -> dict[str, float]:
        """How decided the logits are, and how far they lean towards skips."""
        rows = {name: row.detach().softmax(dim=0) for name, row in self.policy.rows().items()}
        entropies = [float(torch.special.entr(row).sum()) for row in rows.values()]
        family = family_of(self.space)
        best = [d.options[int(rows[d.name].argmax())] for d in self.space.decisions]
        return {
            "entropy": sum(entropies) / len(entropies),
            "entropy_least": min(entropies),
            "skip_share": [family.kind_of(option) for option in best].count(OperationKind.SKIP) / len(best),
        }
