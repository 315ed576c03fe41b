"""The documentation keeps its word: its Python runs, its recipes resolve, its signatures and links are today's."""

from __future__ import annotations

import ast
import csv
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main

from archloom.cli.main import app
from archloom.core.registry import Catalogue
from archloom.data import DATA
from archloom.searches.spec import SearchSpec
from archloom.spaces import SPACES
from archloom.strategies import STRATEGIES
from archloom.strategies.base import OneShot

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
SECONDS = 120  # far more than a page needs: only a page that hangs is stopped


@dataclass(frozen=True)
class Block:
    """A fenced block: what follows the fence (`python`, `python signatures`), its first line's number, its text."""

    kind: str
    line: int
    text: str

    @property
    def file(self) -> str | None:
        """The file that the block is, if its first line says so."""
        named = re.match(r"# file: ([\w.]+)\n", self.text)
        return named[1] if named else None


def blocks(page: Path, kind: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```([^\n`]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    all_blocks = [Block(match[1].strip(), text.count("\n", 0, match.start(2)) + 1, match[2]) for match in found]
    return [block for block in all_blocks if block.kind == kind]


def with_any(kind: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, kind)]


def by_name(page: Path) -> str:
    return page.name


@pytest.mark.parametrize("page", with_any("python"), ids=by_name)
def test_python_of_a_page_runs_as_it_stands(page: Path, tmp_path: Path) -> None:
    """As a reader would: files of their own are files, the rest is one script in the same folder."""
    lines: list[str] = []
    for block in blocks(page, "python"):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        else:  # blank lines before it, so that a traceback has the line numbers of the page
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    script = tmp_path / f"{page.stem}_page.py"
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name != "ARCHLOOM_DATA"}
    commands = [[script.name], *(["-m", "pytest", "-q", path.name] for path in tmp_path.glob("test_*.py"))]
    for command in commands:
        ended = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=SECONDS
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_page_on_plug_ins_imports_public_names_only() -> None:
    text = "\n".join(block.text for block in blocks(ROOT / "docs" / "own.md", "python"))
    assert set(re.findall(r"(?:from|import) (archloom[.\w]*)", text)) == {"archloom", "archloom.testing"}


@pytest.mark.parametrize("page", with_any("toml"), ids=by_name)
def test_recipes_of_a_page_resolve(page: Path) -> None:
    for block in blocks(page, "toml"):
        SearchSpec.resolve(tomllib.loads(block.text))


# --- commands


def commands() -> list[str]:
    """Every call of the command line: lines of shell blocks, and calls with options within a sentence."""
    calls = []
    for page in PAGES:
        lines = [line for block in blocks(page, "sh") for line in block.text.splitlines()]
        calls += [line[line.index("archloom ") :] for line in lines if "archloom " in line]
        calls += re.findall(r"`(archloom [^`]* --[^`]*)`", page.read_text(encoding="utf-8"))
    return sorted(set(calls))


def parse(command: Any, words: list[str]) -> None:
    """Have the command line parse the words without running them."""
    below = getattr(command, "commands", None)
    if below is None:
        command.make_context("archloom", words)
    else:
        assert words[0] in below, f"no command '{words[0]}'"
        parse(below[words[0]], words[1:])


@pytest.mark.parametrize("call", commands())
def test_commands_are_understood(call: str) -> None:
    parse(typer.main.get_command(app), shlex.split(call)[1:])


def test_a_command_that_does_not_exist_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="no command"):
        parse(typer.main.get_command(app), ["benchmark", "sell"])
    with pytest.raises(Exception, match="No such option"):
        parse(typer.main.get_command(app), ["search", "--spaces", "nb201"])


# --- signatures


@dataclass(frozen=True)
class Signature:
    """A function with its arguments and result, or a field with its default and type, as they are written."""

    name: str
    arguments: str
    result: str


def signatures(source: str) -> Iterator[Signature]:
    """Of every function and field of a text, those of classes as `Class.name`."""
    tree = ast.parse(source)
    owners: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree)]
    owners += [(f"{node.name}.", node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for prefix, owner in owners:
        for node in owner.body:
            if isinstance(node, ast.FunctionDef):
                yield Signature(prefix + node.name, ast.unparse(node.args), written(node.returns))
            elif isinstance(node, ast.AnnAssign):
                yield Signature(prefix + ast.unparse(node.target), written(node.value), ast.unparse(node.annotation))


def written(node: ast.expr | None) -> str:
    return ast.unparse(node) if node else ""


def test_signatures_in_the_documentation_are_those_of_the_code() -> None:
    known = {
        signature for path in (ROOT / "src").rglob("*.py") for signature in signatures(path.read_text(encoding="utf-8"))
    }
    shown = [
        signature
        for page in with_any("python signatures")
        for block in blocks(page, "python signatures")
        for signature in signatures(block.text)
    ]
    assert len(shown) > 20
    assert [signature for signature in shown if signature not in known] == []


# --- names and links


@pytest.mark.parametrize("catalogue", [STRATEGIES, SPACES, DATA], ids=lambda catalogue: catalogue.kind)
def test_the_catalogue_names_everything_there_is(catalogue: Catalogue) -> None:
    text = (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8")
    assert [name for name in catalogue if f"`{name}`" not in text] == []


def test_the_readme_is_a_landing_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    pictures = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", text)
    assert all(alternative and (ROOT / path).is_file() for alternative, path in pictures)
    first_picture = text.index("docs/images/serve-first.png")
    assert not re.search(r"caveat|however|limit|not measured", text[:first_picture], re.IGNORECASE)
    assert text.index("CPU build of torch") < text.index("pip install")  # else gigabytes of CUDA come first
    assert "pip install -c constraints.txt . && archloom search" in text  # one command from nothing to a result
    assert "pip install -c constraints.txt -e '.[dev]' && make test" in text
    for tool in ("NNI", "NASLib", "archai", "AutoGluon", "Optuna"):
        assert f"[{tool}](" in text


def test_the_readme_says_what_was_measured() -> None:
    """Ranks of the default and of random search are those of the stored results; the picture has the same searches."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    with (ROOT / "docs" / "results" / "own-data-67.csv").open(encoding="utf-8", newline="") as file:
        ranks = [(row["row"], f"{int(row['rank']):,}") for row in csv.DictReader(file)]
    found = re.search(r"ranks ([\d, and]+) of 15,625 networks, random search ([\d, and]+)\b", text)
    alone = re.search(r"race without a search did as well \(([\d, and]+)\)", text)
    assert found is not None and alone is not None
    said = {"gibbs": found[1], "random": found[2], "no_search": alone[1]}
    for name, listed in said.items():
        assert re.findall(r"\d[\d,]*(?<!,)", listed) == [rank for row, rank in ranks if row == name], name


def test_the_start_page_leads_to_every_page() -> None:
    start = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md") if path.name != "index.md"]
    assert [page for page in pages if f"]({page.as_posix()})" not in start] == []
    assert start.index("CPU build of torch") < start.index("pip install")


def test_badges_are_true() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert versions == ["3.11", "3.12", "3.13"] and project["requires-python"] == ">=3.11"
    for file, words in (("python", versions), ("license", project["license"].split("-"))):
        badge = (ROOT / "docs" / "images" / f"{file}.svg").read_text(encoding="utf-8")
        assert all(word in badge for word in words), file
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "for version in 3.12 3.13" in ci and "tools/smoke.py" in ci  # and the suite on the first
    assert '"py_limited_api": "cp311"' in (ROOT / "setup.py").read_text(encoding="utf-8")  # one wheel for all of them
    first = (ROOT / "docs" / "first.md").read_text(encoding="utf-8")
    assert "`pipx install`" in first and "`uv tool install`" in first


def test_the_first_pages_show_a_session_and_a_notebook() -> None:
    """A recorded terminal session, and two pictures of a notebook that CI runs; the commands are those of the pages."""
    page = (ROOT / "docs" / "first.md").read_text(encoding="utf-8")
    for name in ("first-search.svg", "notebook-search.png", "notebook-model.png"):
        assert f"images/{name})" in page and (ROOT / "docs" / "images" / name).stat().st_size > 5_000
    session = re.sub(r"<[^>]+>|&#160;", " ", (ROOT / "docs/images/first-search.svg").read_text(encoding="utf-8"))
    said = " ".join(session.split())
    assert "archloom search --space nb201_mini" in said and "By equal short trainings" in said
    verdict = re.search(r"```\n(By equal short trainings.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert verdict is not None and verdict[1] in page  # one run, on both pages


def test_the_readme_counts_right() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"(\d+) one-shot and (\d+) black-box strategies, and (\d+) search spaces", text)
    assert found is not None
    kinds = [issubclass(entry.load(), OneShot) for entry in STRATEGIES.values()]
    assert list(map(int, found.groups())) == [kinds.count(True), kinds.count(False), len(SPACES)]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as repository sites make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(place), f"{page.name} links to {target}"
