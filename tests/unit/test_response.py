"""What counts of a response."""

import pytest

from roll_core.types import without_thinking


@pytest.mark.parametrize(
    ("response", "left"),
    [
        ("plain", "plain"),
        ("I think so", "I think so"),
        ("<think>a</think> b", " b"),
        ("a</think> b", " b"),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("<think>a", ""),
        ("b <think>a", ""),
        ("<think>a</think> b <think> c", ""),
        ("<THINKING>a</Thinking>b", "b"),
        ("<thought>a</thought>b", "b"),
        ("<reasoning>a</reasoning>b", "b"),
        ("<seed:think>a</seed:think>b", "b"),
        ("[THINK]a[/THINK]b", "b"),
        ("◁think▷a◁/think▷b", "b"),
        ("<|begin_of_thought|>a<|end_of_thought|>b", "b"),
        ("< think >a< / think >b", "b"),
        ("", ""),
    ],
)
def test_what_is_left_outside_thinking(response, left):
    assert without_thinking(response) == left
