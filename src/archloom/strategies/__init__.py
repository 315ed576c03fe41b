"""Strategies by name. A new one is a file and a row here, or `package.module:Class` in a configuration."""

from __future__ import annotations

from archloom.core.registry import Catalogue, Entry

STRATEGIES = Catalogue(
    "strategy",
    {
        "darts": Entry("archloom.strategies.darts:Darts"),
        "pc_darts": Entry("archloom.strategies.pc_darts:PcDarts"),
        "p_darts": Entry("archloom.strategies.p_darts:PDarts"),
        "drnas": Entry("archloom.strategies.drnas:DrNas"),
        "amended_darts": Entry("archloom.strategies.amended_darts:AmendedDarts"),
        "bayes_nas": Entry("archloom.strategies.bayes_nas:BayesNas"),
        "gibbs": Entry("archloom.strategies.gibbs:Gibbs"),
        "gdas": Entry("archloom.strategies.gdas:Gdas"),
        "rsps": Entry("archloom.strategies.rsps:Rsps"),
        "setn": Entry("archloom.strategies.setn:Setn"),
        "enas": Entry("archloom.strategies.enas:Enas"),
        "snas": Entry("archloom.strategies.snas:Snas"),
        "tunas": Entry("archloom.strategies.tunas:Tunas"),
        "random_search": Entry("archloom.strategies.random_search:RandomSearch"),
        "regularized_evolution": Entry("archloom.strategies.regularized_evolution:RegularizedEvolution"),
        "reinforce": Entry("archloom.strategies.reinforce:Reinforce"),
        "tpe": Entry("archloom.strategies.tpe:Tpe"),
        "bohb": Entry("archloom.strategies.bohb:Bohb"),
    },
    makes="archloom.strategies.base:Stateful",
)
