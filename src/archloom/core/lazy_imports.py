"""Imports that stand at the top of a file and load a module when it is first used.

Help and lists must answer at once, and torch alone takes a second. Commands therefore import what runs them lazily.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

WRITTEN = ("__all__", "__version__")  # names like those of the import system that a module has written itself


@contextmanager
def lazy_imports() -> Iterator[None]:
    """Load the modules that are imported in this block when one of their names is first used.

    Import whole modules, as `import package.module as name`. `from package import name` needs the name, and loads the
    package at once. A module that is not installed is an error in the block, as ever.

    Only for modules of this package. If a lazy package of others gets an ordinary import of one of its modules, that
    module runs before its package, and many packages (optuna) cannot be imported in that order.

    Example:
        >>> from archloom.core.lazy_imports import lazy_imports
        >>> with lazy_imports():
        ...     import wave
        >>> wave.Error.__name__  # loads it
        'Error'
    """
    finder = _LazyFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _LazyFinder(MetaPathFinder):
    """Finds modules as Python does, and postpones the loading of those written in Python."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _LazyLoader(spec.loader)
        return spec


class _LazyLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        module.__class__ = _LazyModule


class _LazyModule(ModuleType):
    """A module that is loaded at the first use of a name.

    What the import system reads (`__spec__`, `__path__`, modules inside a package) is known before.
    """

    def __getattribute__(self, name: str) -> Any:
        if (name.startswith("__") and name not in WRITTEN) or name in self.__dict__:
            return super().__getattribute__(name)
        _load(self)
        return getattr(self, name)


def _load(module: ModuleType) -> None:
    """Run a module that is still lazy, its package first, as Python does."""
    package = sys.modules.get(module.__name__.rpartition(".")[0])
    if isinstance(package, _LazyModule):
        _load(package)
    if not isinstance(module, _LazyModule):  # its package has loaded it
        return
    module.__class__ = ModuleType  # type: ignore[assignment]  # before it runs: what it imports may refer to it
    try:
        module.__spec__.loader.exec_module(module)  # type: ignore[union-attr]  # set by _LazyLoader
    except BaseException:
        module.__class__ = _LazyModule  # the next use tries again
        raise
