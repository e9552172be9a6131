"""Options from signatures, and what is passed to a factory."""

from __future__ import annotations

import functools
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import pydantic
import pytest

from roll_core.errors import ConfigError, PluginError
from roll_core.plugin.component import Component, model_of_signature

if TYPE_CHECKING:
    from nowhere import Setup


class Thing:
    def __init__(self, *, size: Annotated[int, pydantic.Field(ge=1)] = 3, mode: Literal["a", "b"] = "a") -> None:
        self.size, self.mode = size, mode


@dataclass
class Data:
    size: int
    label: str = "x"


class Settings(pydantic.BaseModel):
    """Own config model."""

    model_config = pydantic.ConfigDict(extra="forbid")
    depth: int = 2


def strategy(*, setup: Setup, steps: int = 4) -> tuple[object, int]:
    return setup, steps


def test_a_class_and_a_dataclass() -> None:
    assert Component("t", Thing).build({"size": "5"}).size == 5
    assert Component("d", Data).build({"size": 5}) == Data(5)
    for options in ({"size": 0}, {"mode": "c"}, {"sise": 1}):
        with pytest.raises(pydantic.ValidationError):
            Component("t", Thing).build(options)


def test_what_the_engine_supplies_is_no_option_and_need_not_be_annotated() -> None:
    component = Component("s", strategy)
    assert list(component.config_model(["setup"]).model_fields) == ["steps"]
    assert component.build({}, setup="S", unasked=1) == ("S", 4)


def test_a_config_model_by_path_and_a_factory_by_path() -> None:
    component = Component("c", "builtins:dict", config=Settings)
    assert component.build({}) == {"depth": 2}
    with pytest.raises(PluginError, match=r"not a pydantic model"):
        Component("c", dict, config="builtins:dict").config_model()
    with pytest.raises(PluginError, match=r"has no attribute 'nothing'"):
        Component("c", "json:nothing").load_factory()
    with pytest.raises(PluginError, match=r"not of the form"):
        Component("c", "json").load_factory()


def test_partials_and_callable_objects() -> None:
    class Maker:
        def __call__(self, *, count: int = 1) -> int:
            return count

    assert Component("p", functools.partial(Thing, size=7)).build({"mode": "b"}).size == 7
    assert Component("m", Maker()).build({"count": "3"}) == 3


def test_signatures_that_say_too_little() -> None:
    with pytest.raises(ConfigError, match=r"parameter 'size' of its factory needs an annotation"):
        model_of_signature(lambda size: size, "x")
    with pytest.raises(ConfigError, match=r"must not be variadic"):
        model_of_signature(lambda **kwargs: kwargs, "x")
    with pytest.raises(ConfigError, match=r"annotation of its factory cannot be evaluated"):
        model_of_signature(strategy, "x")
    with pytest.raises(ConfigError, match=r"no signature found"):
        model_of_signature(dict, "x")


def test_option_names_may_start_like_pydantic_methods() -> None:
    def make(*, model_path: str) -> str:
        return model_path

    assert Component("m", make).build({"model_path": "p"}) == "p"


def test_components_pickle() -> None:
    component = Component("t", Thing, permissions=frozenset({"gpu"}))
    assert pickle.loads(pickle.dumps(component)) == component
