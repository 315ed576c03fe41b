"""Execute the notebook of the documentation, and take pictures of its results with Chromium.

    python tools/notebook_pictures.py [FOLDER]

Writes notebook-search.png and notebook-model.png, by default into docs/images. The executed notebook is not kept.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK, PICTURES = ROOT / "docs" / "notebooks" / "first.ipynb", ROOT / "docs" / "images"
SHOWN = {"search": "notebook-search.png", "model": "notebook-model.png"}  # by the id of the cell
SECONDS = 600


def execute(path: Path = NOTEBOOK) -> nbformat.NotebookNode:
    """Return the notebook with its outputs; the error of a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=place).execute()
    return notebook


def take_pictures(notebook: nbformat.NotebookNode, out: Path) -> list[Path]:
    """Write a picture of each cell that is shown, and return the files."""
    page, _ = HTMLExporter(embed_images=True).from_notebook_node(notebook)
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if program is None:
        sys.exit("needs Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder) / "notebook.html"
        file.write_text(page, encoding="utf-8")
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 900, "height": 900})
        view.goto(file.as_uri(), wait_until="domcontentloaded")
        for cell, name in SHOWN.items():
            view.locator(f"[id='cell-id={cell}']").screenshot(path=str(out / name))
        browser.close()
    return [out / name for name in SHOWN.values()]


def main() -> None:
    """Write the pictures of the documentation."""
    for path in take_pictures(execute(), Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES):
        print(path)


if __name__ == "__main__":
    main()
