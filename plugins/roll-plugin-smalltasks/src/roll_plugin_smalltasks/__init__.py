"""Small procedural tasks with disjoint held-out sets, and their baselines."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roll_plugin_smalltasks.arithmetic import AddNumbers, LargerNumber, MaxOfFour, SortNumbers
    from roll_plugin_smalltasks.baselines import ConstantAnswer, best_constant_answer, constant_answer_rate
    from roll_plugin_smalltasks.description import ShortDescription
    from roll_plugin_smalltasks.people import JsonPeople
    from roll_plugin_smalltasks.task import SmallTask

__all__ = [
    "AddNumbers",
    "ConstantAnswer",
    "JsonPeople",
    "LargerNumber",
    "MaxOfFour",
    "ShortDescription",
    "SmallTask",
    "SortNumbers",
    "best_constant_answer",
    "constant_answer_rate",
]

_HOMES = {
    "AddNumbers": "roll_plugin_smalltasks.arithmetic",
    "ConstantAnswer": "roll_plugin_smalltasks.baselines",
    "JsonPeople": "roll_plugin_smalltasks.people",
    "LargerNumber": "roll_plugin_smalltasks.arithmetic",
    "MaxOfFour": "roll_plugin_smalltasks.arithmetic",
    "ShortDescription": "roll_plugin_smalltasks.description",
    "SmallTask": "roll_plugin_smalltasks.task",
    "SortNumbers": "roll_plugin_smalltasks.arithmetic",
    "best_constant_answer": "roll_plugin_smalltasks.baselines",
    "constant_answer_rate": "roll_plugin_smalltasks.baselines",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that declaring the plugin costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
