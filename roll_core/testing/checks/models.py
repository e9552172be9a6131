"""Checks of `contracts.ModelResolver`."""

from __future__ import annotations

from pathlib import Path

from roll_core.testing.cases import ModelCases
from roll_core.testing.kit import CheckFailed, CheckSkipped, Subject, check


@check("models")
def resolves_to_a_model_folder(subject: Subject) -> None:
    """The name resolves to a folder with config, tokenizer and weights, and a second time to the same one."""
    if not subject.require_cases(ModelCases).is_runnable:
        raise CheckSkipped("its cases say that it must not be prepared in a test")
    resolver = subject.build()
    folder = Path(resolver.resolve(subject.component.name))
    if not folder.is_dir():
        raise CheckFailed(f"resolve() returned {folder}, which is no folder")
    present = {path.name for path in folder.iterdir()}
    if "config.json" not in present:
        raise CheckFailed(f"{folder} has no config.json: write a Hugging Face model folder")
    if not present & {"tokenizer.json", "tokenizer_config.json"}:
        raise CheckFailed(f"{folder} has no tokenizer.json: save the tokenizer beside the model")
    if not any(name.endswith(".safetensors") for name in present):
        raise CheckFailed(f"{folder} has no *.safetensors")
    if Path(resolver.resolve(subject.component.name)) != folder:
        raise CheckFailed("a second resolve() led to another folder: prepare once, then reuse")
