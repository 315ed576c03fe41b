"""GibbsNAS: draw weights and logits alternately from their posterior (Xue et al., 2021).

Each block is drawn from a local Gaussian: a quasi-Newton step towards the mode, and noise with the inverse curvature.
`docs/gibbs.md` has the corrected equations and explains the settings, which are declared in `gibbs_settings.py`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.families import OperationKind, family_of
from archloom.policies import Chain, mean_probabilities, summarize_draws
from archloom.policies.posterior import Posterior
from archloom.policies.probabilities import describe_indecision
from archloom.samplers import BfgsPosterior, DiagonalLbfgsPosterior, PosteriorSampler, draw_precision
from archloom.spaces import Architecture, Scores, SearchSpace
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
from archloom.strategies.gibbs_settings import (
    LogitCurvatureSettings,
    LogitDrawSettings,
    PosteriorSettings,
    WeightCurvatureSettings,
    WeightDrawSettings,
)
from archloom.supernet import SharedWeights, StepResult

NEWTON_RATE = 0.1  # share of a Newton step that a draw of the logits moves
LARGEST_RATE = 0.5  # in a search of few draws
BURN_IN = 3.0  # sum of the rates over the burn-in, at least


class Gibbs(Differentiable):
    """Draw the weights on every training batch, and after some of them the logits on validation images."""

    stateful = ("policy", "optimizer", "chain")
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {
            "strategy": {
                "order": "second",
                "keep_none": "space",
                "logits": {
                    "learning_rate": 0.1,
                    "weight_decay": 1e-4,
                    "schedule": "cosine",
                    "images": 2048,
                    "center": False,
                },
                "posterior": {"noise_rule": "lr", "least_observations": 1, "derive_from": "last"},
                "logit_curvature": {"learn_every": 1},
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
        logits: Annotated[LogitDrawSettings, Doc("how the logits are drawn")] = LogitDrawSettings(),
        weights: Annotated[WeightDrawSettings, Doc("how the weights are drawn")] = WeightDrawSettings(),
        posterior: Annotated[PosteriorSettings, Doc("the posterior of both")] = PosteriorSettings(),
        logit_curvature: Annotated[
            LogitCurvatureSettings, Doc("the inverse curvature of the logits")
        ] = LogitCurvatureSettings(),
        weight_curvature: Annotated[
            WeightCurvatureSettings, Doc("the inverse curvature of the weights, in second order")
        ] = WeightCurvatureSettings(),
        none: Annotated[Literal["free", "absent"], Doc("whether `none` takes part in the mixture")] = "free",
        keep_none: Annotated[
            bool | Literal["space"] | None, Doc("may `none` win; space: as the space has it")
        ] = False,  # a word, since a file cannot hold that a value is left out
        warmup: Annotated[float, Doc("share of the search that trains the weights alone")] = 0.0,
    ) -> None:
        super().__init__(
            space,
            generator,
            learning_rate=logits.learning_rate or NEWTON_RATE,
            weight_decay=logits.weight_decay,
            warmup=warmup,
            none=none,
            keep_none=None if keep_none == "space" else keep_none,
        )
        self.chain = Chain(self.policy.values.numel())
        self._logits, self._weights, self._posterior = logits, weights, posterior
        self._rate = logits.learning_rate or NEWTON_RATE  # until `begin` knows the number of draws
        self._logit_curvature, self._weight_curvature = logit_curvature, weight_curvature
        self._weight_update = weights.update or ("sgd" if order == "first" else "sample")
        self._weight_sampler: PosteriorSampler | None = None

    def begin(self, weights: SharedWeights, plan: Plan) -> None:
        """Give both blocks their samplers, now that the numbers of images are known."""
        most = max(1, plan.valid_images // plan.valid_batch_size)
        batches = min(math.ceil(self._logits.images / plan.valid_batch_size), most)
        images = batches * plan.valid_batch_size
        steps = self._logits.weight_steps or math.ceil(images / plan.batch_size)
        self.validation = Validation(every=steps, batches=batches)
        self._observations = {
            "a": self._posterior.count(plan.valid_images),
            "w": self._posterior.count(plan.train_images),
        }
        self._images = {"a": images, "w": plan.batch_size}  # that a draw sees
        self._rate = self._plan_rate((1 - self._warmup) * plan.steps / steps)
        self._make_logit_optimizer()
        if self._weight_update != "sgd":
            self._weight_sampler = self._make_weight_sampler(weights, plan.steps)
            weights.optimize_with(self._weight_sampler)

    def _plan_rate(self, draws: float) -> float:
        """Return the share of a Newton step that a draw moves: more in a search of few draws, unless it is stated.

        A Newton step has the scale of the posterior, whatever the number of steps. Only the burn-in must suffice: after
        it, exp(-BURN_IN) of the distance from the start remains. The noise is exact at any rate.
        """
        if self._logits.learning_rate is not None or self._logits.update in ("sgd", "adam"):
            return self._rate
        return min(max(NEWTON_RATE, BURN_IN / max(1.0, draws * (self._posterior.burn_in or 1.0))), LARGEST_RATE)

    def _make_logit_optimizer(self) -> None:
        settings, curvature, observations = self._logits, self._logit_curvature, self._observations["a"]
        decay = self._posterior.scale_decay(settings.weight_decay, observations)
        if settings.update == "sgd":
            self.optimizer = torch.optim.SGD([self.policy.values], lr=self._rate, weight_decay=decay)
        elif settings.update != "adam":
            self.optimizer = BfgsPosterior(
                [self.policy.values],
                generator=self.new_generator(),
                observations=observations,
                lr=self._rate,
                decay=decay,
                temperature=settings.temperature,
                noise_rule=self._posterior.noise_rule,
                noise_limit=self._posterior.noise_limit,
                sample=settings.update == "sample",
                pairs=curvature.pairs,
                smallest=curvature.smallest,
                largest=curvature.largest,
                step_clip=settings.step_clip,
                learn_every=curvature.learn_every,
                reset_every=curvature.reset_every,
                project=self.policy.center if settings.center else None,
            )

    def _make_weight_sampler(self, weights: SharedWeights, steps: int) -> DiagonalLbfgsPosterior:
        settings, curvature, observations = self._weights, self._weight_curvature, self._observations["w"]
        return DiagonalLbfgsPosterior(
            weights.parameters.values(),
            generator=self.new_generator(),
            observations=observations,
            lr=settings.learning_rate,
            decay=self._posterior.scale_decay(settings.weight_decay, observations),
            temperature=settings.temperature,
            noise_rule=self._posterior.noise_rule,
            noise_limit=self._posterior.noise_limit,
            sample=self._weight_update == "sample",
            memory=curvature.memory,
            start=curvature.start,
            start_every=curvature.start_every,
            start_average=curvature.start_average,
            damping=curvature.damping,
            mean=curvature.mean,
            smallest=curvature.smallest,
            largest=curvature.largest,
            step_clip=settings.step_clip,
            noise_clip=settings.noise_clip,
            quiet_steps=round(settings.noise_wait * steps),
            ramp_steps=round(settings.noise_ramp * steps),
        )

    # --- the search

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Sample the weights given the logits, then the logits given the weights."""
        trained = weights.fit(batch.train, self.policy.mixture())
        if self._posterior.gamma_shape:
            weights.set_weight_decay(self._draw_decay("w", list(weights.parameters.values())))
        figures = self._draw_figures("w", self._weight_sampler)
        if not batch.valids or self.is_warming_up(batch):
            return {**metrics(trained), **figures}
        evaluated = self._draw_logits(weights, batch)
        if self._posterior.gamma_shape:
            decay = self._draw_decay("a", [self.policy.values])
            for group in self.optimizer.param_groups:
                group["decay" if "decay" in group else "weight_decay"] = decay
        figures |= self._draw_figures("a", self.optimizer)
        return {**metrics(trained, evaluated), **figures, **self._logit_figures()}

    def _draw_logits(self, weights: SharedWeights, batch: SearchBatch) -> StepResult:
        """Draw logits given the weights; both gradients are taken over all validation images."""
        results: list[StepResult] = []

        def closure() -> Tensor:
            results.append(self._set_gradient(weights, batch))
            return results[-1].loss

        cosine = (1 + math.cos(math.pi * batch.progress)) / 2 if self._logits.schedule == "cosine" else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate * cosine
        self.optimizer.step(closure)  # type: ignore[arg-type]
        self.chain.append(self.policy.values)
        return results[0]

    def _set_gradient(self, weights: SharedWeights, batch: SearchBatch) -> StepResult:
        """Set the gradient of the logits and return the mean loss and score, with one batch in memory at a time."""
        values, images = self.policy.values, sum(map(len, batch.valids))
        total, loss, score = torch.zeros_like(values), values.new_zeros(()), values.new_zeros(())
        for valid in batch.valids:
            result, share = weights.step_result(valid, self.policy.mixture()), len(valid) / images
            total += weights.gradient(result.loss, of=values) * share
            loss += result.loss.detach() * share
            score += result.score * share
        values.grad = self.add_target_gradient(total)
        return StepResult(loss, score)

    def _draw_decay(self, block: str, parameters: list[Tensor]) -> float:
        """Draw the precision of a block's prior given the block, and return it as a weight decay."""
        shape, rate = self._posterior.gamma_shape, self._posterior.gamma_rate
        return draw_precision(parameters, self.generator, shape=shape, rate=rate) / self._observations[block]

    # --- the end

    def probabilities(self) -> Scores:
        """Return the probability of every option."""
        if len(self.chain) == 0:
            return super().probabilities()
        share = 0.0 if self._posterior.derive_from == "last" else 1 - self._posterior.burn_in
        return mean_probabilities(self.policy, self.chain.last(share))

    def sample(self, rng: random.Random) -> Architecture:
        """Return the architecture of a random draw after the burn-in: a sample of the posterior of architectures."""
        if len(self.chain) == 0:
            return super().sample(rng)
        draws = self.chain.last(1 - self._posterior.burn_in)
        number = rng.randrange(len(draws))
        return self.space.decode(mean_probabilities(self.policy, draws[number : number + 1]), keep_none=self._keep_none)

    def undecided(self) -> str | None:
        """Return a sentence if no option leads in most draws: one draw's softmax is flat by its prior."""
        if len(self.chain) == 0:
            return super().undecided()
        decisions = self.summarize_chains([self.chain]).decisions
        return describe_indecision({name: list(one.best.values()) for name, one in decisions.items()})

    def findings(self) -> StrategyFindings:
        """Return the posterior as far as it was sampled; without noise it shows where updates went, not certainty."""
        return StrategyFindings(self.summarize_chains([self.chain]) if len(self.chain) else None)

    def summarize_chains(self, chains: Sequence[Chain], *, runs: Sequence[str] = ()) -> Posterior:
        """Return the posterior of several chains, without their burn-in."""
        draws = [chain.last(1 - self._posterior.burn_in) for chain in chains]
        return summarize_draws(
            self.space,
            self.policy,
            draws,
            burn_in=sum(map(len, chains)) - sum(map(len, draws)),
            sampled=self._logits.update == "sample",
            keep_none=self._keep_none,
            runs=runs,
        )

    # --- figures

    def _draw_figures(self, block: str, optimizer: torch.optim.Optimizer | None) -> dict[str, float]:
        """Return figures of the last draw of a block."""
        if not isinstance(optimizer, PosteriorSampler):
            return {}
        rate = optimizer.param_groups[0]["lr"]
        noise = rate * self._observations[block] / ((2 - rate) * self._images[block])
        figures = {**optimizer.draw, "batch_noise_ratio": noise, "decay": optimizer.param_groups[0]["decay"]}
        return {f"{block}_{name}": value for name, value in figures.items()}

    def _logit_figures(self) -> dict[str, float]:
        """Return the entropy of the logits, and the share of decisions that a skip leads."""
        rows = {name: row.detach().softmax(dim=0) for name, row in self.policy.rows().items()}
        entropies = [float(torch.special.entr(row).sum()) for row in rows.values()]
        family = family_of(self.space)
        best = [d.options[int(rows[d.name].argmax())] for d in self.space.decisions]
        return {
            "entropy": sum(entropies) / len(entropies),
            "entropy_least": min(entropies),
            "skip_share": [family.kind_of(option) for option in best].count(OperationKind.SKIP) / len(best),
        }
