"""The documentation as a site: complete, without dead links, without other hosts; and the hooks before a commit."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import pytest

import archloom
import archloom.testing

pytest.importorskip("material", reason="the site needs the extra 'docs'")
pytest.importorskip("mkdocstrings", reason="the site needs the extra 'docs'")

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 300  # far more than the build needs: only a build that hangs is stopped
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class Html(HTMLParser):
    """The ids, links and loaded addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what the tag names."""
        given = {name: value for name, value in attrs if value is not None}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADING.get(tag, "") in given:
            self.loads.append(given[LOADING[tag]])


def is_elsewhere(address: str) -> bool:
    return re.match(r"(https?:)?//", address) is not None


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Html]:
    """Return every page of the site; the page for missing pages has addresses of a server's root."""
    files = [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]
    return {path: Html(path.read_text(encoding="utf-8")) for path in files}


def test_every_page_is_on_the_site(site: Path) -> None:
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert len(sources) > 20
    wanted = [*sources, Path("CONTRIBUTING.md"), Path("CHANGELOG.md")]
    assert [path for path in wanted if not (site / path).with_suffix(".html").is_file()] == []


def test_the_api_page_has_every_public_name(pages: dict[Path, Html], site: Path) -> None:
    ids = pages[site / "api" / "index.html"].ids
    assert [name for name in archloom.__all__ if f"archloom.{name}" not in ids] == []
    assert [name for name in archloom.testing.__all__ if f"archloom.testing.{name}" not in ids] == []


def test_links_lead_to_files_and_anchors(pages: dict[Path, Html]) -> None:
    dead = []
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            if is_elsewhere(link) or link.startswith(("mailto:", "data:")):
                continue
            target, _, anchor = link.partition("#")
            place = Path(os.path.normpath(path.parent / unquote(target))) if target else path
            place = place / "index.html" if place.is_dir() else place
            if not place.is_file() or (anchor and place in pages and unquote(anchor) not in pages[place].ids):
                dead.append((path.name, link))
    assert dead == []


def test_a_page_loads_nothing_from_other_hosts(pages: dict[Path, Html], site: Path) -> None:
    assert [(path.name, load) for path, page in pages.items() for load in page.loads if is_elsewhere(load)] == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert [
        found for text in styles for found in re.findall(r"(?:url\(|@import\s)[\"']?(?:https?:)?//[^)]*", text)
    ] == []


def test_a_font_from_another_host_would_be_noticed() -> None:
    page = Html('<link rel="stylesheet" href="//fonts.example/css"><script src="https://cdn.example/a.js"></script>')
    assert [is_elsewhere(load) for load in page.loads] == [True, True]


def test_code_fences_are_rendered(pages: dict[Path, Html]) -> None:
    assert [path.name for path in pages if "```" in path.read_text(encoding="utf-8")] == []


# --- what makes a strict build fail


def build(folder: Path, **texts: str) -> None:
    """Build a site of the given pages with the validation of mkdocs.yml; only `index` is in the navigation."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config

    (folder / "docs").mkdir()
    for name, text in texts.items():
        (folder / "docs" / f"{name}.md").write_text(text, encoding="utf-8")
    settings: dict[str, Any] = {"plugins": [], "hooks": [], "nav": [{"Start": "index.md"}], "strict": True}
    config = load_config(
        str(ROOT / "mkdocs.yml"), docs_dir=str(folder / "docs"), site_dir=str(folder / "site"), **settings
    )
    build_site(config)


def test_a_page_without_faults_builds(tmp_path: Path) -> None:
    build(tmp_path, index="# Start\n\n[here](#start)\n")
    assert (tmp_path / "site" / "index.html").is_file()


@pytest.mark.parametrize(
    "texts",
    [
        {"index": "[gone](gone.md)"},
        {"index": "# Start\n\n[gone](#gone)"},
        {"index": "[outside](../gone.md)"},
        {"index": "# Start", "other": "# A page that the navigation lacks"},
    ],
    ids=["page", "anchor", "outside", "navigation"],
)
def test_a_fault_stops_the_build(tmp_path: Path, texts: dict[str, str]) -> None:
    from mkdocs.exceptions import Abort

    with pytest.raises(Abort, match="strict mode"):
        build(tmp_path, **texts)


# --- pages from outside docs/


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("site_pages")


@pytest.mark.parametrize(
    ("source", "link", "wanted"),
    [
        ("CONTRIBUTING.md", "docs/own.md#data", "own.md#data"),
        ("CONTRIBUTING.md", "CHANGELOG.md", "CHANGELOG.md"),
        ("ARCHITECTURE.md", "../CONTRIBUTING.md", "CONTRIBUTING.md"),
        ("search.md", "../recipes/first.toml", "recipes/first.toml"),
        ("search.md", "../README.md", "index.md"),
        ("results/gibbs.md", "../../recipes/first.toml", "../recipes/first.toml"),
        ("results/gibbs.md", "../benchmarks.md", "../benchmarks.md"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(
    hook: ModuleType, source: str, link: str, wanted: str
) -> None:
    assert hook.site_links(f"see [this]({link})", source) == f"see [this]({wanted})"


# --- hooks before a commit


def test_hooks_are_local_and_installed_at_their_stages() -> None:
    clientlib = pytest.importorskip("pre_commit.clientlib", reason="needs the extra 'dev'")
    config = clientlib.load_config(ROOT / ".pre-commit-config.yaml")  # refuses a file that pre-commit would refuse
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert {repository["repo"] for repository in config["repos"]} == {"local"}
    assert {hook["id"] for hook in hooks} == {"ruff-format", "ruff-check", "commit-subject", "mypy", "import-linter"}
    used = {stage for hook in hooks for stage in hook["stages"] or config["default_stages"]}
    assert used == set(config["default_install_hook_types"])
