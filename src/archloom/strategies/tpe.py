"""TPE: sample where good scores are dense and bad ones are not (Bergstra et al., 2011), by Optuna's sampler."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar

import torch
from annotated_doc import Doc

from archloom.core.errors import ParseError, require
from archloom.core.state import StateDict
from archloom.spaces import NONE, Architecture, SearchSpace
from archloom.strategies.base import BlackBox, Trial

try:
    import optuna
    from optuna.trial import TrialState, create_trial
except ImportError:  # an extra: the constructor reports it
    optuna = None  # type: ignore[assignment]

NAME = "told"  # Hyperband assigns brackets by the study's name and a trial's number: it must not change


class Tpe(BlackBox):
    """A study in memory holds the reported trials; a new sampler for every trial proposes the next.

    The state is those trials as plain values, without anything of Optuna: a resumed search continues exactly.
    """

    stateful: ClassVar[tuple[str, ...]] = ("trials",)
    former_names: ClassVar[Mapping[str, str]] = {"trials": "told"}

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        startup_trials: Annotated[int, Doc("trials sampled uniformly before the densities are used")] = 10,
        candidates: Annotated[int, Doc("samples from the density of good trials; the most promising is chosen")] = 24,
        multivariate: Annotated[bool, Doc("one density of all decisions together; else one for each")] = True,
    ) -> None:
        super().__init__(space, generator)
        require(
            {
                "strategy.name: this one needs an extra: pip install 'archloom[optuna]'": optuna is not None,
                f"strategy.startup_trials must be at least 1, got {startup_trials}": startup_trials >= 1,
                f"strategy.candidates must be at least 1, got {candidates}": candidates >= 1,
            }
        )
        self._startup_trials, self._candidates, self._multivariate = startup_trials, candidates, multivariate
        self.trials = TrialStudy(space, pruner=self.pruner)

    def pruner(self) -> optuna.pruners.BasePruner:
        """Return what stops trials early: nothing here."""
        return optuna.pruners.NopPruner()

    def ask(self, number: int) -> Trial:
        """Return a random trial at first, later one that the study proposes."""
        rng = self.python_random()
        if len(self.trials) < self._startup_trials:
            return Trial(number, self.space.sample(rng))
        choices = self.trials.propose(
            seed=rng.randrange(2**32), candidates=self._candidates, multivariate=self._multivariate
        )
        return Trial(number, complete_architecture(self.space, choices, rng))

    def tell(self, trial: Trial, score: float) -> None:
        """Report the score of a trial to the study."""
        self.trials.add(trial, score)


class TrialStudy:
    """Trials and their scores as an Optuna study in memory: one categorical parameter for every decision."""

    def __init__(self, space: SearchSpace, *, pruner: Callable[[], optuna.pruners.BasePruner]) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        options = {decision.name: space.allowed(decision) for decision in space.decisions}
        self._forced = {name: choices[0] for name, choices in options.items() if len(choices) == 1}
        self._distributions: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.CategoricalDistribution(choices)
            for name, choices in sorted(options.items())  # the order in which Optuna itself samples
            if name not in self._forced
        }
        self._make_pruner = pruner
        self._reset()

    def _reset(self) -> None:
        self._storage = optuna.storages.InMemoryStorage()
        self._study = optuna.create_study(
            storage=self._storage, study_name=NAME, direction="maximize", pruner=self._make_pruner()
        )
        self._running: dict[int, optuna.Trial] = {}  # those with intermediate scores, by our number
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def propose(self, *, seed: int, candidates: int, multivariate: bool) -> dict[str, str]:
        """Return the options that Optuna's sampler would try next.

        The sampler is called directly: `Study.ask` would first collect the parameters from all trials.
        """
        sampler = optuna.samplers.TPESampler(
            seed=seed, multivariate=multivariate, n_startup_trials=0, constant_liar=False, n_ei_candidates=candidates
        )
        study = optuna.load_study(study_name=NAME, storage=self._storage, sampler=sampler)  # the old one caches trials
        blank = create_trial(state=TrialState.RUNNING)
        if multivariate:
            chosen = sampler.sample_relative(study, blank, self._distributions)
        else:
            each = self._distributions.items()
            chosen = {name: sampler.sample_independent(study, blank, name, options) for name, options in each}
        return {**self._forced, **chosen}

    def report(self, trial: Trial, epochs: int, score: float) -> bool:
        """Report an intermediate score, and return whether the pruner would stop here."""
        if trial.number not in self._running:
            self._study.enqueue_trial(self._parameters(trial))  # then `ask` returns this one
            self._running[trial.number] = self._study.ask(self._distributions)
        running = self._running[trial.number]
        running.report(score, step=epochs)
        return running.should_prune()

    def add(self, trial: Trial, score: float, *, pruned: bool = False) -> None:
        """Add the score of a trial to the study."""
        running = self._running.pop(trial.number, None)
        if running is None:
            self._add({"parameters": self._parameters(trial), "score": score, "pruned": pruned})
            return
        if pruned:
            self._study.tell(running, state=TrialState.PRUNED)  # takes the last score that was reported
        else:
            self._study.tell(running, score)
        self._count += 1

    def _add(self, saved: StateDict) -> None:
        trial = create_trial(
            state=TrialState.PRUNED if saved["pruned"] else TrialState.COMPLETE,
            value=saved["score"],
            params=saved["parameters"],
            distributions=self._distributions,
            intermediate_values=saved.get("reports"),
            system_attrs=saved.get("attributes"),
        )
        self._study.add_trial(trial)
        self._count += 1

    def _parameters(self, trial: Trial) -> dict[str, str]:
        return {name: trial.architecture[name] for name in self._distributions}

    def state_dict(self) -> StateDict:
        """Return everything that a checkpoint must hold."""
        return {
            "trials": [
                {
                    "parameters": dict(trial.params),
                    "score": trial.value,
                    "pruned": trial.state == TrialState.PRUNED,
                    "reports": dict(trial.intermediate_values),
                    "attributes": dict(trial.system_attrs),  # how far a trial was promoted is kept there
                }
                for trial in self._study.get_trials(deepcopy=False)
                if trial.state.is_finished()
            ]
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        self._reset()
        for saved in state["trials"]:
            self._add(saved)


def complete_architecture(space: SearchSpace, choices: Mapping[str, str], rng: random.Random) -> Architecture:
    """Return an architecture of these options; where a space joins decisions, its rule leaves out random ones."""
    try:
        return space.check(choices)
    except ParseError:
        return space.decode(
            {
                decision.name: [
                    rng.random() + (option == choices[decision.name] != NONE) for option in decision.options
                ]
                for decision in space.decisions
            }
        )
