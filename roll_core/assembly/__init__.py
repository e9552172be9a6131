"""Builds and wires everything a run is made of, from its config and the installed plugins.

`run` is the whole, built from `building` (components by name), `policy` (the model's folder and tokenizer), `data`
(prompts and their order) and `processes` (what trains, generates and verifies). Parts are built lazily and once,
cheapest first: a wrong config, a missing file or an unknown name stops the run before a model is loaded.
"""

from __future__ import annotations

from roll_core.assembly.run import CONFIG_FILE, RUN_FILE, Assembly

__all__ = ["CONFIG_FILE", "RUN_FILE", "Assembly"]
