"""The random numbers of training (dropout of adapters), apart from everybody else's in the process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch


class TrainingRandomness:
    """A random stream of its own: the same seed gives the same run, whatever else draws numbers.

    Args:
        seed: of the run.
        device: where the model computes.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._device = device
        with self._forked():
            torch.manual_seed(seed)
            self._state = self._current()

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Draw from this stream inside the block, and leave the process's own stream as it was."""
        with self._forked():
            self._apply(self._state)
            yield
            self._state = self._current()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Where the stream stands."""
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on from a saved place; that of a device that is not here any more is left out."""
        self._state = self._state | {name: value for name, value in state.items() if name in self._state}

    def _forked(self) -> Any:
        return torch.random.fork_rng(devices=[self._device] if self._device.type == "cuda" else [])

    def _current(self) -> dict[str, torch.Tensor]:
        state = {"cpu": torch.get_rng_state()}
        return state | ({"cuda": torch.cuda.get_rng_state(self._device)} if self._device.type == "cuda" else {})

    def _apply(self, state: Mapping[str, torch.Tensor]) -> None:
        torch.set_rng_state(state["cpu"])
        if "cuda" in state:
            torch.cuda.set_rng_state(state["cuda"], self._device)
