"""Declares the tasks. Imports nothing heavy."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl

_PACKAGE = "roll_plugin_smalltasks"


@hookimpl
def roll_register_sources() -> list[Component]:
    """The tasks of this package."""
    return [
        Component("add_numbers", f"{_PACKAGE}.arithmetic:AddNumbers", summary="sum of two numbers (math)"),
        Component("larger_number", f"{_PACKAGE}.arithmetic:LargerNumber", summary="larger of two numbers (math)"),
        Component("max_of_four", f"{_PACKAGE}.arithmetic:MaxOfFour", summary="largest of four numbers (math)"),
        Component("sort_numbers", f"{_PACKAGE}.arithmetic:SortNumbers", summary="numbers put in order"),
        Component("json_people", f"{_PACKAGE}.people:JsonPeople", summary="facts as a JSON object (json_fields)"),
        Component(
            "short_description",
            f"{_PACKAGE}.description:ShortDescription",
            summary="a description of at most n words (word_limit)",
        ),
    ]
