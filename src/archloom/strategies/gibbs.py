"""GibbsNAS: draw weights and logits alternately from their posterior (Xue et al., 2021).

Each block is drawn from a local Gaussian: a quasi-Newton step towards the mode, and noise with the inverse curvature.
`docs/gibbs.md` has the corrected equations and explains the settings, which are declared in `gibbs_settings.py`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import SettingError
from archloom.families import OperationKind, family_of
from archloom.policies import Chain, Logits, mean_probabilities, summarize_draws
from archloom.policies.posterior import Posterior
from archloom.policies.probabilities import describe_indecision
from archloom.samplers import BfgsPosterior, DiagonalLbfgsPosterior, PosteriorSampler, draw_precision
from archloom.spaces import Architecture, Scores, SearchSpace
from archloom.strategies.base import Metrics, Plan, Preset, SearchBatch, StrategyFindings, Validation, metrics
from archloom.strategies.differentiable import Differentiable
from archloom.strategies.gibbs_settings import (
    LogitCurvatureSettings,
    LogitDrawSettings,
    PosteriorSettings,
    WeightCurvatureSettings,
    WeightDrawSettings,
)
from archloom.strategies.logit_chain import LogitChain
from archloom.strategies.logit_gradient import LogitGradient
from archloom.supernet import SharedWeights, StepResult
from archloom.supernet.gradients import gradients_of

NEWTON_RATE = 0.1  # share of a Newton step that a draw of the logits moves
LARGEST_RATE = 0.5  # in a search of few draws
BURN_IN = 3.0  # sum of the rates over the burn-in, at least
MOSTLY_CLIPPED = 0.1  # share of weight tensors whose noise was clipped, from which on the verdict says so
BATCH_NOISE = 0.5  # of the posterior's variance: how much the batches of a draw may add, which is then subtracted


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
                "posterior": {
                    "noise_rule": "lr",
                    "batch_noise": "ignore",
                    "least_observations": 1,
                    "derive_from": "last",
                },
                "logit_curvature": {"pair_share": 1.0},
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
        self._observations = {
            "a": self._posterior.count(plan.valid_images),
            "w": self._posterior.count(plan.train_images),
        }
        batches = self._plan_batches(plan)
        images = batches * plan.valid_batch_size
        steps = self._weight_steps(plan, batches)
        self.validation = Validation(every=steps, batches=batches)
        self._images = {"a": images, "w": plan.batch_size}  # that a draw sees
        self._valid_images = plan.valid_images
        self._rate = self._plan_rate((1 - self._warmup) * plan.steps / steps)
        self._make_logit_optimizer()
        if self._weight_update != "sgd":
            self._weight_sampler = self._make_weight_sampler(weights, plan.steps)
            weights.optimize_with(self._weight_sampler)

    def _weight_steps(self, plan: Plan, batches: int) -> int:
        """Return the weight steps between two draws of the logits."""
        return self._logits.weight_steps or math.ceil(batches * plan.valid_batch_size / plan.batch_size)

    def _plan_batches(self, plan: Plan) -> int:
        """Return the validation batches of a draw: as many as stated, or as its rate needs.

        Batches add rate N (1/B - 1/V) / (2 - rate) to the posterior's variance, for B of V images. More images per draw
        mean fewer draws, and those a higher rate: so the number grows until both fit.
        """
        most = max(1, plan.valid_images // plan.valid_batch_size)
        if self._logits.images is not None:
            return min(math.ceil(self._logits.images / plan.valid_batch_size), most)
        batches = min(2, most)  # a single batch would not show its noise
        while batches < most:
            rate = self._plan_rate((1 - self._warmup) * plan.steps / self._weight_steps(plan, batches))
            unseen = 1 / (batches * plan.valid_batch_size) - 1 / plan.valid_images
            if rate * self._observations["a"] * unseen <= BATCH_NOISE * (2 - rate):
                break
            batches += 1
        return batches

    def _plan_rate(self, draws: float) -> float:
        """Return the share of a Newton step that a draw moves: more in a search of few draws, unless it is stated.

        A Newton step has the scale of the posterior, whatever the number of steps. Only the burn-in must suffice: after
        it, exp(-BURN_IN) of the distance from the start remains. The noise is exact at any rate.
        """
        if self._logits.learning_rate is not None or self._logits.update in ("sgd", "adam"):
            return self._rate
        return min(max(NEWTON_RATE, BURN_IN / max(1.0, draws * (self._posterior.burn_in or 1.0))), LARGEST_RATE)

    def _make_logit_optimizer(self) -> None:
        settings = self._logits
        if settings.update == "sgd":
            decay = self._posterior.scale_decay(settings.weight_decay, self._observations["a"])
            self.optimizer = torch.optim.SGD([self.policy.values], lr=self._rate, weight_decay=decay)
        elif settings.update != "adam":
            self.optimizer = self._make_logit_sampler(self.policy, self.new_generator())

    def _make_logit_sampler(
        self, policy: Logits, generator: torch.Generator, *, rate: float | None = None
    ) -> BfgsPosterior:
        settings, curvature, observations = self._logits, self._logit_curvature, self._observations["a"]
        return BfgsPosterior(
            [policy.values],
            generator=generator,
            observations=observations,
            lr=rate or self._rate,
            decay=self._posterior.scale_decay(settings.weight_decay, observations),
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
            pair_share=curvature.pair_share,
            subtract_batch_noise=self._posterior.subtracts_batch_noise,
            project=policy.center if settings.center else None,
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
            weights.set_weight_decay(self._draw_weight_decay(weights))
        figures = self._draw_figures("w", self._weight_sampler)
        if not batch.valids or self.is_warming_up(batch):
            return {**metrics(trained), **figures}
        evaluated = self._draw_logits(weights, batch)
        if self._posterior.gamma_shape:
            decay = self._draw_logit_decay()
            for group in self.optimizer.param_groups:
                group["decay" if "decay" in group else "weight_decay"] = decay
        figures |= self._draw_figures("a", self.optimizer)
        return {**metrics(trained, evaluated), **figures, **self._logit_figures()}

    def _draw_logits(self, weights: SharedWeights, batch: SearchBatch) -> StepResult:
        """Draw logits given the weights; both gradients are taken over all validation images."""
        closure = LogitGradient(
            weights, self.policy, batch.valids, images=self._valid_images, complete=self.add_target_gradient
        )
        cosine = (1 + math.cos(math.pi * batch.progress)) / 2 if self._logits.schedule == "cosine" else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate * cosine
        self.optimizer.step(closure)  # type: ignore[arg-type]
        self.chain.append(self.policy.values)
        assert closure.result is not None
        return closure.result

    def _draw_weight_decay(self, weights: SharedWeights) -> float:
        """Draw the precision of the weights' prior given those that this step moved, as a weight decay."""
        return self._draw_decay("w", weights.moved, temperature=self._weights.temperature)

    def _draw_logit_decay(self) -> float:
        """Draw the precision of the logits' prior given the directions in which they move, as a weight decay."""
        values, temperature = self.policy.values, self._logits.temperature
        if not self._logits.center:
            return self._draw_decay("a", [values], temperature=temperature)
        constraints = values.numel() - self.policy.free_directions
        return self._draw_decay("a", [self.policy.center(values)], constraints, temperature=temperature)

    def _draw_decay(
        self, block: str, parameters: Sequence[Tensor], constraints: int = 0, *, temperature: float
    ) -> float:
        draw = draw_precision(
            parameters,
            self.generator,
            shape=self._posterior.gamma_shape,
            rate=self._posterior.gamma_rate,
            constraints=constraints,
            temperature=temperature or 1.0,  # without noise there is no temperature
        )
        return draw / self._observations[block]

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

    def remark(self) -> str:
        """Return a sentence if clipping, and not the posterior, set the noise of the weights."""
        sampler = self._weight_sampler
        if not isinstance(sampler, DiagonalLbfgsPosterior) or self._weight_update != "sample":
            return ""
        share = sampler.noise_clipped_share
        if share < MOSTLY_CLIPPED:
            return ""
        return (
            f"The noise of the weights was clipped in {share:.0%} of their tensors: strategy.weights.noise_clip "
            f"({self._weights.noise_clip:g}) set it there, not the posterior."
        )

    def findings(self) -> StrategyFindings:
        """Return the posterior as far as it was sampled; without noise it shows where updates went, not certainty."""
        return StrategyFindings(self.summarize_chains([self.chain]) if len(self.chain) else None)

    @property
    def draws_posterior(self) -> bool:
        """Return whether the logits move with the noise of their posterior."""
        return self._logits.update == "sample"

    def start_chains(self, count: int) -> list[LogitChain]:
        """Return parallel chains around the mean of the draws so far, each with a start and noise of its own.

        Raises:
            SettingError: the logits move without noise, so there is no posterior to draw from.
        """
        if not self.draws_posterior or not isinstance(self.optimizer, BfgsPosterior):
            raise SettingError(f"strategy.logits.update must be sample for a posterior, got '{self._logits.update}'")
        seeds = torch.Generator().set_state(self.generator.get_state())  # a copy: the search itself does not change
        draws = self.chain.last(1 - self._posterior.burn_in) if len(self.chain) else self.policy.values[None].detach()
        return [
            LogitChain(
                self.policy,
                torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=seeds))),
                partial(self._make_logit_sampler, rate=max(self._rate, LARGEST_RATE)),
                centre=draws.mean(dim=0),
                curvature=self.optimizer.inverse.matrix,
                images=self._valid_images,
                complete=self._add_target_gradient_of,
            )
            for _ in range(count)
        ]

    def _add_target_gradient_of(self, policy: Logits, gradient: Tensor) -> Tensor:
        if self.target is None:
            return gradient
        (penalty,) = gradients_of(self.target.penalty(policy.shares()), [policy.values])
        return gradient + penalty

    def summarize_chains(
        self, chains: Sequence[Chain], *, runs: Sequence[str] = (), burn_in: float | None = None
    ) -> Posterior:
        """Return the posterior of several chains, without their burn-in."""
        left_out = self._posterior.burn_in if burn_in is None else burn_in
        draws = [chain.last(1 - left_out) for chain in chains]
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
