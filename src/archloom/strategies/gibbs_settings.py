"""The settings of GibbsNAS, a table each for the two blocks, the posterior and the two curvatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_doc import Doc

from archloom.core.errors import require
from archloom.samplers import NoiseRule


@dataclass(frozen=True, kw_only=True)
class LogitDrawSettings:
    """How the logits are drawn, on validation images."""

    update: Annotated[Literal["mean", "sample", "sgd", "adam"], Doc("how the logits move")] = "sample"
    learning_rate: Annotated[
        float | None, Doc("of the logits; 1 is a full Newton step; left out: 0.1, more in a search of few draws")
    ] = None
    schedule: Annotated[
        Literal["constant", "cosine"], Doc("of the learning rate; with cosine the chain stops moving at the end")
    ] = "constant"
    weight_decay: Annotated[float, Doc("of the logits: the precision of their prior")] = 0.1
    temperature: Annotated[float, Doc("of the posterior of the logits; below 1 is colder")] = 1.0
    images: Annotated[
        int | None, Doc("validation images per draw, if the split has as many; left out: enough to limit batch noise")
    ] = None
    weight_steps: Annotated[
        int | None, Doc("weight steps per draw; left out: enough to see as many training images")
    ] = None
    center: Annotated[bool, Doc("project out movements of the logits that a softmax ignores")] = True
    step_clip: Annotated[float, Doc("largest norm of the mean step; 0 is off")] = 1.0

    def __post_init__(self) -> None:
        not_negative = ("weight_decay", "temperature", "step_clip")
        ranges = _ranges(self, "strategy.logits", positive=("images", "weight_steps"), not_negative=not_negative)
        require(_rate_rule("strategy.logits", self.learning_rate) | ranges)


@dataclass(frozen=True, kw_only=True)
class WeightDrawSettings:
    """How the weights are drawn, on training images; section `weights` has the settings of SGD."""

    update: Annotated[
        Literal["sgd", "mean", "sample"] | None, Doc("how the weights move; left out: sgd in first order, else sample")
    ] = None
    learning_rate: Annotated[float, Doc("of the sampler, on a cosine to 0")] = 0.1
    weight_decay: Annotated[float, Doc("of the sampler: the precision of the prior")] = 1e-4
    temperature: Annotated[float, Doc("of the posterior of the weights; below 1 is colder")] = 1.0
    noise_wait: Annotated[float, Doc("share of the steps without noise at the start")] = 0.2
    noise_ramp: Annotated[float, Doc("share of the steps over which the noise then rises")] = 0.2
    step_clip: Annotated[float, Doc("largest mean step of a weight tensor, relative to it; 0 is off")] = 0.1
    noise_clip: Annotated[float, Doc("largest noise on a weight tensor, relative to it; 0 is off")] = 0.02

    def __post_init__(self) -> None:
        not_negative, shares = ("weight_decay", "temperature", "step_clip", "noise_clip"), ("noise_wait", "noise_ramp")
        ranges = _ranges(self, "strategy.weights", not_negative=not_negative, shares=shares)
        require(_rate_rule("strategy.weights", self.learning_rate) | ranges)


@dataclass(frozen=True, kw_only=True)
class PosteriorSettings:
    """The posterior of both blocks, and how an architecture is derived from its draws."""

    observations: Annotated[
        int | None, Doc("images that the posterior counts; left out: those of the split, at least least_observations")
    ] = None
    least_observations: Annotated[int, Doc("the fewest images to count: on small data a cold posterior")] = 25_000
    decay_units: Annotated[
        Literal["mean", "sum"], Doc("weight decays relative to the mean loss, or to its sum over all images")
    ] = "mean"
    noise_rule: Annotated[NoiseRule, Doc("how the noise depends on the learning rate")] = "exact"
    noise_limit: Annotated[float, Doc("largest standard normal number; 0 is off")] = 3.0
    batch_noise: Annotated[
        Literal["subtract", "ignore"],
        Doc("whether the noise of batches counts as noise of the draws of the logits; needs the noise rule exact"),
    ] = "subtract"
    gamma_shape: Annotated[
        float, Doc("of a Gamma prior on both precisions, which are then drawn as well; 0 is off")
    ] = 0.0
    gamma_rate: Annotated[float, Doc("of that prior")] = 1.0
    burn_in: Annotated[float, Doc("first share of the draws that the posterior leaves out")] = 0.67
    derive_from: Annotated[
        Literal["mean", "last"], Doc("the mean of the draws after the burn-in, or the last draw alone")
    ] = "mean"

    def __post_init__(self) -> None:
        positive, not_negative = ("observations", "least_observations", "gamma_rate"), ("noise_limit", "gamma_shape")
        require(_ranges(self, "strategy.posterior", positive=positive, not_negative=not_negative, shares=("burn_in",)))

    @property
    def subtracts_batch_noise(self) -> bool:
        """Return whether draws inject less noise where batches bring their own."""
        return self.batch_noise == "subtract" and self.noise_rule == "exact"

    def count(self, images: int) -> int:
        """Return the number of observations that a split of so many images stands for."""
        return self.observations if self.observations is not None else max(images, self.least_observations)

    def scale_decay(self, decay: float, observations: int) -> float:
        """Return a weight decay relative to the mean loss."""
        return decay / observations if self.decay_units == "sum" else decay


@dataclass(frozen=True, kw_only=True)
class LogitCurvatureSettings:
    """The inverse curvature of the logits, by BFGS."""

    pairs: Annotated[
        Literal["same", "different"], Doc("batches of a gradient pair; different shows what goes wrong")
    ] = "same"
    smallest: Annotated[float, Doc("smallest eigenvalue of the inverse curvature")] = 1e-3
    largest: Annotated[float, Doc("largest eigenvalue of the inverse curvature")] = 100.0
    learn_every: Annotated[int, Doc("draws per curvature update, which takes a second pass")] = 1
    pair_share: Annotated[float, Doc("share of the images of a draw that its second pass repeats")] = 0.25
    reset_every: Annotated[int, Doc("draws after which the curvature is reset; 0 is never")] = 0

    def __post_init__(self) -> None:
        section = "strategy.logit_curvature"
        ranges = _ranges(self, section, positive=("learn_every",), not_negative=("reset_every",))
        share = {f"{section}.pair_share must lie in (0, 1], got {self.pair_share}": 0 < self.pair_share <= 1}
        require(_bound_rules(section, self.smallest, self.largest) | ranges | share)


@dataclass(frozen=True, kw_only=True)
class WeightCurvatureSettings:
    """The diagonal of the inverse curvature of the weights, by L-BFGS."""

    memory: Annotated[int, Doc("steps that the curvature is learned from")] = 10
    start: Annotated[
        Literal["gnb", "scalar"], Doc("what L-BFGS starts from: the Gauss-Newton diagonal, or one number")
    ] = "gnb"
    start_every: Annotated[int, Doc("weight steps between updates of that diagonal")] = 5
    start_average: Annotated[float, Doc("share of the old diagonal that an update keeps")] = 0.9
    damping: Annotated[float, Doc("added to that diagonal")] = 1e-2
    mean: Annotated[Literal["diagonal", "direction"], Doc("the mean step: by the diagonal, or by all of L-BFGS")] = (
        "diagonal"
    )
    smallest: Annotated[float, Doc("smallest value of the inverse curvature")] = 1e-3
    largest: Annotated[float, Doc("largest value of the inverse curvature")] = 50.0

    def __post_init__(self) -> None:
        section, not_negative = "strategy.weight_curvature", ("memory", "damping")
        ranges = _ranges(self, section, positive=("start_every",), not_negative=not_negative, shares=("start_average",))
        require(_bound_rules(section, self.smallest, self.largest) | ranges)


Rules = dict[str, bool]


def _ranges(
    settings: object,
    section: str,
    *,
    positive: Sequence[str] = (),
    not_negative: Sequence[str] = (),
    shares: Sequence[str] = (),
) -> Rules:
    """Return the rules of settings with a simple range; a value that is left out is in range."""
    given = {name: getattr(settings, name) for name in (*positive, *not_negative, *shares)}
    values = {name: value for name, value in given.items() if value is not None}
    return (
        {f"{section}.{n} must be above 0, got {v}": v > 0 for n, v in values.items() if n in positive}
        | {f"{section}.{n} must be 0 or more, got {v}": v >= 0 for n, v in values.items() if n in not_negative}
        | {f"{section}.{n} must lie in [0, 1), got {v}": 0 <= v < 1 for n, v in values.items() if n in shares}
    )


def _rate_rule(section: str, rate: float | None) -> Rules:
    rule = f"{section}.learning_rate must lie in (0, 2), where a step converges, got {rate}"
    return {rule: rate is None or 0 < rate < 2}


def _bound_rules(section: str, smallest: float, largest: float) -> Rules:
    return {
        f"{section}.smallest must be above 0, got {smallest}": smallest > 0,
        f"{section}.largest must be at least {section}.smallest ({smallest}), got {largest}": largest >= smallest,
    }
