"""Settings that have a new name. Old recipes and run folders keep working, and print one line."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from archloom.core.settings import Settings, merge

RENAMED: Mapping[str, str] = {
    # old dotted name: new dotted name, '' where it is gone. `strategy[gibbs].name` is a setting of that strategy only.
    "search.chance_samples": "search.random_baseline_samples",
    "search.finalist_steps": "race.steps",
    "search.finalist_size": "race.size",
    "search.finalist_shrink": "race.shrink",
    "search.finalist_channels": "race.network.channels",
    "search.finalist_learning_rate": "race.learning_rate",
    "search.finalist_sweeps": "",  # the race proposes contestants one after the other now
    "strategy.finalists": "race.contestants",
    "machine.workers": "machine.loader_threads",
    "machine.threads": "machine.torch_threads",
    "machine.processes": "machine.worker_processes",
    "strategy[gibbs].w_update": "strategy.weights.update",
    "strategy[gibbs].a_update": "strategy.logits.update",
    "strategy[gibbs].learning_rate_a": "strategy.logits.learning_rate",
    "strategy[gibbs].schedule": "strategy.logits.schedule",
    "strategy[gibbs].learning_rate_w": "strategy.weights.learning_rate",
    "strategy[gibbs].weight_decay_a": "strategy.logits.weight_decay",
    "strategy[gibbs].weight_decay_w": "strategy.weights.weight_decay",
    "strategy[gibbs].decay_units": "strategy.posterior.decay_units",
    "strategy[gibbs].n_eff": "strategy.posterior.observations",
    "strategy[gibbs].n_eff_least": "strategy.posterior.least_observations",
    "strategy[gibbs].temperature_w": "strategy.weights.temperature",
    "strategy[gibbs].temperature_a": "strategy.logits.temperature",
    "strategy[gibbs].noise_rule": "strategy.posterior.noise_rule",
    "strategy[gibbs].noise_limit": "strategy.posterior.noise_limit",
    "strategy[gibbs].noise_wait": "strategy.weights.noise_wait",
    "strategy[gibbs].noise_ramp": "strategy.weights.noise_ramp",
    "strategy[gibbs].draw_images": "strategy.logits.images",
    "strategy[gibbs].steps_per_draw": "strategy.logits.weight_steps",
    "strategy[gibbs].pairs": "strategy.logit_curvature.pairs",
    "strategy[gibbs].center": "strategy.logits.center",
    "strategy[gibbs].smallest_a": "strategy.logit_curvature.smallest",
    "strategy[gibbs].largest_a": "strategy.logit_curvature.largest",
    "strategy[gibbs].step_clip_a": "strategy.logits.step_clip",
    "strategy[gibbs].learn_every": "strategy.logit_curvature.learn_every",
    "strategy[gibbs].reset_every": "strategy.logit_curvature.reset_every",
    "strategy[gibbs].lbfgs_memory": "strategy.weight_curvature.memory",
    "strategy[gibbs].w_start": "strategy.weight_curvature.start",
    "strategy[gibbs].w_start_every": "strategy.weight_curvature.start_every",
    "strategy[gibbs].w_start_average": "strategy.weight_curvature.start_average",
    "strategy[gibbs].damping_w": "strategy.weight_curvature.damping",
    "strategy[gibbs].w_mean": "strategy.weight_curvature.mean",
    "strategy[gibbs].smallest_w": "strategy.weight_curvature.smallest",
    "strategy[gibbs].largest_w": "strategy.weight_curvature.largest",
    "strategy[gibbs].step_clip_w": "strategy.weights.step_clip",
    "strategy[gibbs].noise_clip_w": "strategy.weights.noise_clip",
    "strategy[gibbs].gamma_shape": "strategy.posterior.gamma_shape",
    "strategy[gibbs].gamma_rate": "strategy.posterior.gamma_rate",
    "strategy[gibbs].burn_in": "strategy.posterior.burn_in",
    "strategy[gibbs].derive_from": "strategy.posterior.derive_from",
    "strategy[tunas].learning_rate": "strategy.policy.learning_rate",
    "strategy[tunas].growth": "strategy.policy.growth",
    "strategy[tunas].delay": "strategy.policy.delay",
    "strategy[tunas].baseline_momentum": "strategy.policy.baseline_momentum",
    "strategy[tunas].valid_batches": "strategy.policy.valid_batches",
    "strategy[tunas].cost_paths": "strategy.policy.cost_paths",
    "strategy[tunas].optimizer": "strategy.weights.optimizer",
    "strategy[tunas].rmsprop_learning_rate": "strategy.weights.rmsprop_learning_rate",
    "strategy[tunas].rmsprop_weight_decay": "strategy.weights.rmsprop_weight_decay",
    "strategy[tunas].operation_warmup": "strategy.weights.operation_warmup",
    "strategy[tunas].width_warmup": "strategy.weights.width_warmup",
}


LONGEST_LIST = 3  # renamed settings that the line names


class RenamedSettingWarning(UserWarning):
    """A configuration uses the old name of a setting."""


def rename_settings(given: Settings) -> Settings:
    """Return a configuration, by section, with the new names of renamed settings; one warning covers all of them.

    Where both names occur, the later one wins: `merge` keeps the order of its layers, the strongest of which is last.
    """
    renamed: Settings = {}
    found: dict[str, str] = {}
    for section, table in given.items():
        tables = _rename_section(section, table, found) if isinstance(table, Mapping) else {section: table}
        renamed = merge(renamed, tables)
    if found:
        warnings.warn(_describe(found), RenamedSettingWarning, stacklevel=2)
    return renamed


def _describe(found: Mapping[str, str]) -> str:
    """Return one line, however many settings an old run folder has."""
    listed = ", ".join(f"{old} is {f'now {new}' if new else 'gone'}" for old, new in list(found.items())[:LONGEST_LIST])
    more = f" and {len(found) - LONGEST_LIST} more have new names" if len(found) > LONGEST_LIST else ""
    return f"{listed}{more}; the old name{'s' if len(found) > 1 else ''} still work{'' if len(found) > 1 else 's'}"


def new_name(old: str, *, of: str = "") -> str:
    """Return the name that a setting has now; `of` names what its section configures, such as the strategy."""
    section, _, setting = old.partition(".")
    return RENAMED.get(f"{section}[{of}].{setting}", RENAMED.get(old, old))


def _rename_section(section: str, table: Settings, found: dict[str, str]) -> Settings:
    """Return the tables of a section by their new names; note every renamed setting in `found`."""
    tables: Settings = {section: {}}
    for setting, value in table.items():
        old = f"{section}.{setting}"
        new = new_name(old, of=str(table.get("name", "")))
        if new == old:
            tables = merge(tables, {section: {setting: value}})
        else:
            found[old] = new
            tables = merge(tables, _nested(new, value)) if new else tables
    return tables


def _nested(name: str, value: Any) -> Settings:
    first, _, rest = name.partition(".")
    return {first: _nested(rest, value) if rest else value}
