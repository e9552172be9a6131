"""Rows from a file, a folder, or the Hugging Face hub."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

from roll_core.builtin.sources.files import READERS
from roll_core.errors import DataError, near_match

Format = Literal["jsonl", "json", "csv", "parquet", "arrow", "hub"]

_SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
_SHOWN_FILES = 6

_Rows = Sequence[Mapping[str, Any]]


class DatasetSource:
    """A finite, indexable data set.

    JSON lines, JSON and CSV are read as they are; parquet, arrow and the hub through `datasets`, memory-mapped.

    Args:
        path: a file (.jsonl, .ndjson, .json, .csv, .parquet, .arrow), a folder (written by `save_to_disk`, or of data
            files as the hub has them), or the name of a set on the hub. Relative to the working directory.
        name: configuration of a hub set or data folder.
        split: split of a hub set, data folder or saved `DatasetDict`.
        format: what `path` is; None takes it from the ending.
        revision: commit or tag of a hub set.

    Raises:
        DataError: missing, unreadable, malformed or empty, or an option that does not apply.

    Source: https://huggingface.co/docs/datasets (parquet, arrow, hub).
    """

    def __init__(
        self,
        *,
        path: str,
        name: str | None = None,
        split: str = "train",
        format: Format | None = None,  # the config's word
        revision: str | None = None,
    ) -> None:
        local = Path(path).expanduser()
        kind = format or _guess(path, local)
        _check_options(path, local, kind, name=name, split=split, revision=revision)
        if kind != "hub" and not local.exists():
            raise DataError(_missing(local))
        self.path = path
        try:
            self._rows = _read(path, local, kind, name=name, split=split, revision=revision)
        except OSError as error:
            raise DataError(f"data set '{path}' cannot be read: {error}") from error
        if len(self._rows) == 0:
            raise DataError(f"data set '{path}' holds no rows")

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        """Row `index`, from 0."""
        if not 0 <= index < len(self._rows):
            raise IndexError(f"row {index} of {len(self._rows)} in data set '{self.path}'")
        return self._rows[index]


def _guess(path: str, local: Path) -> Format:
    if local.is_dir():
        saved = any((local / file).exists() for file in ("state.json", "dataset_dict.json"))
        return "arrow" if saved else "hub"
    suffix = local.suffix.lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if local.exists():
        raise DataError(
            f"cannot tell the format of data file {local} from its ending{near_match(suffix, _SUFFIXES) or ';'} "
            f"set 'format' to one of {', '.join(get_args(Format))}"
        )
    if path.startswith(("/", "./", "../", "~")) or path.count("/") > 1:
        raise DataError(_missing(local))
    return "hub"


def _check_options(path: str, local: Path, kind: Format, *, name: str | None, split: str, revision: str | None) -> None:
    given = {
        "name": name is not None and kind != "hub",
        "split": split != "train" and kind != "hub" and not local.is_dir(),
        "revision": revision is not None and (kind != "hub" or local.exists()),
    }
    idle = [option for option, does_nothing in given.items() if does_nothing]
    if idle:
        raise DataError(f"data set '{path}' is read as {kind}, where {', '.join(idle)} has no meaning; remove it")


def _missing(local: Path) -> str:
    folder = local.parent
    while not folder.is_dir():
        folder = folder.parent
    files = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    near = difflib.get_close_matches(local.name, files, n=3, cutoff=0.6)
    if near and folder == local.parent:
        hint = f"did you mean {' or '.join(str(folder / entry) for entry in near)}?"
    else:
        more = ", ..." if len(files) > _SHOWN_FILES else ""
        hint = f"{folder.resolve()} holds: {', '.join(files[:_SHOWN_FILES]) or 'nothing'}{more}"
    return f"data set {local} does not exist; {hint}"


def _read(path: str, local: Path, kind: Format, *, name: str | None, split: str, revision: str | None) -> _Rows:
    if kind in READERS:
        return READERS[kind](local)
    datasets = _import_datasets(path)
    if kind == "hub":
        return _through(lambda: datasets.load_dataset(path, name, split=split, revision=revision), path, kind)
    if kind == "parquet":
        return _through(lambda: datasets.Dataset.from_parquet(str(local)), path, kind)
    if local.is_file():
        return _through(lambda: datasets.Dataset.from_file(str(local)), path, kind)
    return _saved(datasets, path, local, split)


def _saved(datasets: ModuleType, path: str, local: Path, split: str) -> _Rows:
    """A folder that `save_to_disk` wrote."""
    loaded: Any = _through(lambda: datasets.load_from_disk(str(local)), path, "arrow")
    if not isinstance(loaded, datasets.DatasetDict):
        if split != "train":
            raise DataError(f"data set '{path}' has no splits, where 'split: {split}' has no meaning; remove it")
        rows: _Rows = loaded
        return rows
    if split not in loaded:
        raise DataError(
            f"data set '{path}' has no split '{split}'{near_match(split, loaded) or ';'} splits: {', '.join(loaded)}"
        )
    return _through(lambda: loaded[split], path, "arrow")


def _through(load: Callable[[], Any], path: str, kind: str) -> _Rows:
    """Call into `datasets`, whose failures come as exceptions of many libraries."""
    try:
        rows: _Rows = load()
    except Exception as error:
        is_remote = kind == "hub" and not Path(path).expanduser().exists()
        where = "no local file or folder; tried the hub" if is_remote else kind
        raise DataError(f"data set '{path}' ({where}) cannot be loaded: {type(error).__name__}: {error}") from error
    return rows


def _import_datasets(path: str) -> ModuleType:
    try:
        import datasets
    except ImportError as error:
        raise DataError(f"reading '{path}' needs the package 'datasets': pip install 'roll-core[train]'") from error
    module: ModuleType = datasets
    return module
