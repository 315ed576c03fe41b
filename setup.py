"""What pyproject.toml cannot say: recipes beside the sources belong into a wheel, and one wheel fits every Python."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithRecipes(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # a checkout in use finds them where they are
            shutil.copytree("recipes", Path(self.build_lib) / "archloom" / "recipes", dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithRecipes}, options={"bdist_wheel": {"py_limited_api": "cp311"}})
