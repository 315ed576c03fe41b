"""Run the tests of the native kernels with the address and the undefined-behaviour sanitizer.

    python tests/campaigns/sanitize.py

Every library is compiled again with -fsanitize=address,undefined into a temporary folder. Torch runs with the
sanitizer's allocator, so a kernel that reads or writes beside a tensor is caught. The tests cover a grid of shapes with
odd sizes; see tests/fast/test_fast_native.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests/fast/test_fast_native.py"
FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
RUN = """
import sys
from pathlib import Path
from archloom.fast.native import loader
loader.FOLDER = Path(sys.argv[1])
import pytest
print("sanitized levels:", ", ".join(loader.available_levels()), flush=True)
assert loader.available_levels(), "no sanitized library can be opened"
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def build(folder: Path) -> list[str]:
    """Compile the libraries that pyproject.toml lists, with sanitizers; return the levels that could be built."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    built = []
    for module in listed["tool"]["setuptools"]["ext-modules"]:
        name = module["name"].rpartition(".")[2]
        flags = [flag for flag in module["extra-compile-args"] if not re.fullmatch(r"-O\d|-g0", flag)]
        target = folder / f"{name}{EXTENSION_SUFFIXES[0]}"
        command = ["g++", "-shared", "-fPIC", *flags, *FLAGS, *module["sources"], "-o", str(target)]
        if subprocess.run(command, cwd=ROOT, check=False).returncode == 0:
            built.append(name)
    return built


def main() -> int:
    """Build, run the tests, and return their exit code."""
    with tempfile.TemporaryDirectory(prefix="archloom-sanitize-") as folder:
        print("built:", ", ".join(build(Path(folder))), flush=True)
        runtimes = [
            subprocess.run(
                ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
            ).stdout.strip()
            for name in ("libasan.so", "libubsan.so")
        ]
        environment = {
            **os.environ,
            "LD_PRELOAD": " ".join(runtimes),
            "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",  # Python itself leaks at its end
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        }
        command = [sys.executable, "-c", RUN, folder, str(TESTS), *sys.argv[1:]]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
