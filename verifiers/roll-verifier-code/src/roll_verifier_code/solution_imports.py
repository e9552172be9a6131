"""Imports of the answer's module in test code, taken out: its names are simply there."""

from __future__ import annotations

import ast

MODULE = "solution"
"""The module that tests import the answer from."""


def without_import(tree: ast.Module) -> ast.Module:
    """The same tests with the names of the answer's module as plain names.

    `import solution as s` makes `s.f` the name `f`. Where a name of the module is used in another way, or bound to
    something else too (`solution = Solution()`), the import stays.
    """
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == MODULE
    }
    bases = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    kept = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in imported and id(node) not in bases
    }
    kept |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)} & imported
    _Rewrite(imported - kept).visit(tree)  # a module stays the same object
    return tree


class _Rewrite(ast.NodeTransformer):
    """Makes attributes of some names plain names."""

    def __init__(self, modules: set[str]) -> None:
        self._modules = modules

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        kept = [a for a in node.names if a.name != MODULE or (a.asname or a.name) not in self._modules]
        return ast.Import(kept) if kept else ast.Pass()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        if node.module != MODULE:
            return node
        renames: list[ast.stmt] = []
        for alias in node.names:
            if alias.asname and alias.asname != alias.name:
                renames.append(ast.Assign([ast.Name(alias.asname, ast.Store())], ast.Name(alias.name, ast.Load())))
        return renames or ast.Pass()

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self._modules and isinstance(node.ctx, ast.Load):
            return ast.Name(node.attr, ast.Load())
        return node
