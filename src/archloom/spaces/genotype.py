"""Genotypes: the text form that DARTS gave to cells. Read from the syntax tree, never evaluated."""

from __future__ import annotations

import ast

from archloom.core.errors import ParseError

LONGEST_TEXT = 100_000


def parse_genotype(text: str) -> dict[str, object]:
    """Return the keyword arguments of `Genotype(...)`, read from the syntax tree; nothing is executed."""
    if len(text) > LONGEST_TEXT:
        raise ParseError(f"a genotype has at most {LONGEST_TEXT} characters, got {len(text)}")
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"not a genotype: {str(error) or 'nested too deeply'}") from error
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != "Genotype" or call.args:
        raise ParseError(f"a genotype reads Genotype(normal=[...], ...), got {text[:60]!r}")
    return {str(keyword.arg): _genotype_value(keyword.value) for keyword in call.keywords}


def _genotype_value(node: ast.expr) -> list[object]:
    """Return a list of (operation, source) pairs, a list of numbers, or range(a, b)."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and not node.keywords:
        bounds = [_number(argument) for argument in node.args]
        if len(bounds) == 2 and max(bounds) <= 1000:
            return list(range(*bounds))
    if isinstance(node, ast.List | ast.Tuple):
        return [_genotype_item(item) for item in node.elts]
    raise ParseError(f"a part of a genotype is a list or range(a, b), got '{_excerpt(node)}'")


def _genotype_item(node: ast.expr) -> object:
    if isinstance(node, ast.Tuple | ast.List) and len(node.elts) == 2:
        operation, source = node.elts
        if isinstance(operation, ast.Constant) and isinstance(operation.value, str):
            return operation.value, _number(source)
    return _number(node)


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise ParseError(f"a genotype holds pairs like ('skip_connect', 0), got '{_excerpt(node)}'")


def _excerpt(node: ast.expr) -> str:
    try:
        return ast.unparse(node)[:60]
    except RecursionError:  # an expression may parse and yet be too deep to be written
        return "an expression of great depth"
