"""Print figures of the code and the documentation that a refactor should improve.

python tools/code_figures.py [CHECKOUT]
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

UNTYPED = re.compile(r"\b(?:Mapping|dict)\[str, Any\]")
ODD_WORDS = re.compile(
    r"\b(whoever|somebody|told|rests|resting|goes on|carried out|carry out|side by side)\b", re.IGNORECASE
)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def late_imports(tree: ast.Module) -> int:
    """Count import statements inside functions."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return len(
        {id(node) for one in functions for node in ast.walk(one) if isinstance(node, ast.Import | ast.ImportFrom)}
    )


def public_definitions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Yield public functions, classes and methods of a module."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                inner = [one for one in node.body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")]
                yield from inner


def sentences(page: str) -> list[int]:
    """Return the number of words of every sentence of the running text."""
    lines = [line for line in FENCED.sub("", page).splitlines() if not re.match(r"\s*(\||#|    |>)", line)]
    text = re.sub(r"`[^`]*`", "x", " ".join(line if line.strip() else "\0" for line in lines))
    parts = re.split(r"(?<=[.!?:;])\s|\0", text)
    return [len(part.split()) for part in parts if len(part.split()) > 2]


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    sources = {path: path.read_text() for path in sorted((root / "src").rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in sources.items()}
    pages = {path: path.read_text() for path in (root / "README.md", *sorted((root / "docs").rglob("*.md")))}
    public = [node for tree in trees.values() for node in public_definitions(tree)]
    documented = sum(ast.get_docstring(node) is not None for node in public)
    lengths = [length for page in pages.values() for length in sentences(page)]
    print(f"source lines            {sum(text.count(chr(10)) for text in sources.values()):,}")
    print(f"untyped mappings        {sum(len(UNTYPED.findall(text)) for text in sources.values())}")
    print(f"late imports            {sum(map(late_imports, trees.values()))}")
    print(f"public with docstring   {documented} of {len(public)} ({documented / len(public):.0%})")
    print(f"words per sentence      {statistics.mean(lengths):.1f} (documentation)")
    print(f"odd words, docs         {sum(len(ODD_WORDS.findall(page)) for page in pages.values())}")
    print(f"odd words, source       {sum(len(ODD_WORDS.findall(text)) for text in sources.values())}")


if __name__ == "__main__":
    main()
