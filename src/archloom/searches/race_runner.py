"""Run the finalist race of a search: gather the contestants, race them within the time, and describe the winner."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from archloom.core.json_object import JsonObject
from archloom.core.seeds import derive_seed
from archloom.execution.executors import Executor, Stop
from archloom.execution.machine import Machine
from archloom.searches.budget import RACE_END, Budget
from archloom.searches.finalist_race import FinalistRace, Propose, ShortTraining, TimeIsUpError
from archloom.searches.race_certainty import measure_certainty
from archloom.searches.race_proposals import Entrant, Knowledge, Proposer, random_proposals
from archloom.searches.race_settings import RaceSettings, rounds_of
from archloom.searches.race_verdict import RaceResult, list_changes, summarize_race, yield_to_reference
from archloom.searches.records import FinalistRecord
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import OneShot


@dataclass(frozen=True)
class Decision:
    """The architecture that a search returns, and the finalist race if there was one."""

    architecture: Architecture
    race: RaceResult | None = None
    finalists: tuple[FinalistRecord, ...] = ()
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class RaceRunner:
    """The finalist race of a search, with everything that does not depend on what the search learned."""

    space: SearchSpace
    settings: RaceSettings
    training: ShortTraining
    executor: Executor
    references: Mapping[str, Architecture]
    seed: int
    machine: Machine | None = None

    def run(
        self,
        strategy: OneShot,
        derived: Architecture | None,
        *,
        known: Iterable[JsonObject] = (),
        allowed: Callable[[Architecture], bool],
        describe: Callable[[str], None],
        note: Callable[[JsonObject], None],
        stop: Stop,
        budget: Budget | None = None,
    ) -> Decision | None:
        """Return the winner, what the race shows of it, and the records of all trainings.

        None where no contestant is allowed, or none was trained in time: that leaves what the search derived.
        """
        settings = self.settings
        references = self.references if settings.references else {}
        knowledge = Knowledge(
            space=self.space,
            derived=derived if derived is not None and allowed(derived) else None,
            references={name: one for name, one in references.items() if allowed(one)},
            sample=strategy.sample,
            log_probability=strategy.log_probability,
            allowed=allowed,
        )
        rng = random.Random(derive_seed(self.seed, "race"))
        most = settings.contestants or 0
        entrants = knowledge.entrants(rng, samples=settings.samples, uniform=settings.random, most=most)
        if not entrants:
            return None
        race = FinalistRace(
            self.training,
            self.executor,
            steps=settings.steps,
            contestants=most,
            size=settings.size,
            rounds=rounds_of(most),
            machine=self.machine,
            known=[FinalistRecord.from_json(one) for one in known],
        )
        try:
            outcome = race.run(
                entrants,
                self._propose(knowledge),
                describe=describe,
                note=note,
                stop=stop,
                time_left=None if budget is None else lambda: budget.left_until(RACE_END),
            )
        except TimeIsUpError:
            describe("the budget is over before a short training ended: there is no finalist race")
            return None
        named = tuple(self._name(record) for record in outcome.records)
        text = None if derived is None else self.space.format(derived)
        decided = yield_to_reference(replace(outcome, records=named))
        changes = () if derived is None else list_changes(derived, decided.winner)
        certainty = measure_certainty(knowledge, named, decided.winner, size=settings.size)
        summary = summarize_race(decided, derived=text, changes=changes, certainty=certainty)
        return Decision(decided.winner, summary, named)

    def first_reference(self, allowed: Callable[[Architecture], bool]) -> Entrant | None:
        """Return the first reference that may take part: what a user would take without a search."""
        named = self.references if self.settings.references else {}
        return next((Entrant(one, name) for name, one in named.items() if allowed(one)), None)

    def _propose(self, knowledge: Knowledge) -> Propose:
        seed = derive_seed(self.seed, "race proposals")
        if self.settings.proposals == "random":
            return random_proposals(knowledge, seed=seed)
        return Proposer(knowledge, size=self.settings.size, seed=seed)

    def _name(self, record: FinalistRecord) -> FinalistRecord:
        return replace(record, text=self.space.format(self.space.check(record.architecture)))
