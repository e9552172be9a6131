"""Small procedural tasks with disjoint held-out sets, and their baselines."""

from __future__ import annotations

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
