"""Texts about options come from the source of their factory."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from roll_core.plugin.component import Component, model_of_signature
from roll_core.plugin.option_docs import option_docs


@dataclass
class Base:
    low: float = 0.0
    """Lower bound."""


@dataclass
class Fields(Base):
    high: float = 1.0
    """Upper bound,
    inclusive."""
    plain: int = 3


class Section:
    """Does something.

    Args:
        path: a file,
            or a folder.
        size: rows; "all" takes: everything.

    Raises:
        ValueError: never.
    """

    def __init__(self, *, path: str, size: int = 3) -> None:
        self.path, self.size = path, size


def function(response: str, reference: str, *, strip: bool = True) -> bool:
    """Compare.

    Args:
        strip: leave out blanks at both ends.
    """
    return response.strip() == reference if strip else response == reference


def test_strings_under_fields_are_read_and_inherited() -> None:
    assert option_docs(Fields) == {"low": "Lower bound.", "high": "Upper bound, inclusive."}


def test_entries_of_the_args_section_are_read_with_their_continued_lines() -> None:
    assert option_docs(Section) == {"path": "a file, or a folder.", "size": 'rows; "all" takes: everything.'}


def test_functions_and_partials_are_read() -> None:
    expected = {"strip": "leave out blanks at both ends."}
    assert option_docs(function) == expected
    assert option_docs(functools.partial(function, strip=False)) == expected


def test_a_factory_without_source_has_no_texts() -> None:
    scope: dict[str, Any] = {}
    exec("class Made:\n    size: int = 3\n    'Rows.'\n", scope)
    assert option_docs(scope["Made"]) == {}


def test_texts_become_descriptions_of_the_options() -> None:
    fields = model_of_signature(Section, "section").model_fields
    assert fields["path"].description == "a file, or a folder."
    assert fields["path"].is_required()
    assert fields["size"].default == 3
    assert Component("fields", Fields).config_model().model_fields["plain"].description is None
