"""A MkDocs hook: give the site the files that live outside docs/, with links that work on disk and on the site.

MkDocs only knows docs/. Contributors expect CONTRIBUTING.md and the recipes in the root folder, so the site takes them
from there instead of keeping copies.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the root folder's pages, license and recipes to the site, under the same names."""
    for path in [*map(ROOT.joinpath, ROOT_PAGES), ROOT / "LICENSE", *sorted(ROOT.glob("recipes/**/*.toml"))]:
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page with the links and fences that MkDocs understands."""
    return plain_fences(site_links(markdown, page.file.src_uri))


def site_links(markdown: str, source: str) -> str:
    """Return the text with links of the repository turned into links of the site, where docs/ is the top."""
    if source in ROOT_PAGES:
        return markdown.replace("](docs/", "](")
    up = "../" * source.count("/")
    markdown = markdown.replace(f"]({up}../README.md", f"]({up}index.md")  # the site's start page stands for the README
    return markdown.replace(f"]({up}../", f"]({up}")


def plain_fences(markdown: str) -> str:
    """Return the text without the words after a fence's language that only our tests read."""
    return re.sub(r"^```python signatures$", "```python", markdown, flags=re.MULTILINE)
