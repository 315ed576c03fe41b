"""Strategies by name. A new one is a file and a row here, or `package.module:Class` in a configuration."""

from __future__ import annotations

from archloom.catalogue import Catalogue, Entry

STRATEGIES = Catalogue(
    "strategy",
    {
        "darts": Entry("archloom.strategies.darts:Darts"),
        "gibbs": Entry("archloom.strategies.gibbs:Gibbs"),
        "gdas": Entry("archloom.strategies.gdas:Gdas"),
        "rsps": Entry("archloom.strategies.rsps:Rsps"),
        "random_search": Entry("archloom.strategies.random_search:RandomSearch"),
    },
    makes="archloom.strategies.base:Stateful",
)
