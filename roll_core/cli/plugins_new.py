"""`roll plugins new`: write the package of a new plugin, which installs and passes its own tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import click

from roll_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Template:
    """What differs between the packages of two kinds, beside their template files."""

    kind: str
    """Plural, as in the hook."""
    summary: str
    """What the generated component does."""
    article: str
    """The kind in the singular, with its article."""
    prefix: str = "plugin"
    """Distributions are called roll-<prefix>-<name>."""
    declarations: str = ""
    """Further arguments of its `Component`."""
    dev_requirements: tuple[str, ...] = ()
    """What its tests need beside the core."""


_RANK = '\n            scope="rank",'
_FILES = '\n            permissions=frozenset({"files"}),'
TEMPLATES: dict[str, Template] = {
    "verifier": Template("verifiers", "the last line of the response is the reference", "a verifier", "verifier"),
    "reward": Template("rewards", "1 for a short response", "a reward"),
    "filter": Template("filters", "drop groups with too few scores", "a filter"),
    "mixer": Template("mixers", "independent draws by the sizes of the data", "a mixer", "mixer"),
    "source": Template("sources", "sums of two numbers", "a source"),
    "environment": Template("environments", "guess a number", "an environment"),
    "advantage": Template("advantages", "reward centred within its group, clipped", "an advantage estimator"),
    "policy_loss": Template(
        "policy_losses",
        "REINFORCE with a truncated weight",
        "a policy loss",
        declarations=_RANK,
        dev_requirements=("torch>=2.6",),
    ),
    "tracker": Template("trackers", "a CSV file of metrics", "a tracker", declarations=_FILES),
    "command": Template("commands", "count the lines of a file", "a command"),
}
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_FIRST_MINOR = re.compile(r"(\d+)\.(\d+)")


@click.command()
@click.argument("kind", type=click.Choice(list(TEMPLATES)))
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where the package's folder is put.",
)
def new(kind: str, name: str, into: Path) -> None:
    """Write the package of a new plugin of KIND, called NAME, ready to install and to change."""
    folder = write_package(kind, name, into)
    click.echo(f"wrote {folder}")
    click.echo(f"next: pip install -e {folder} && pytest {folder}")


def write_package(kind: str, name: str, into: Path) -> Path:
    """Write a package and return its folder, `into/roll-<prefix>-<name>`.

    Args:
        kind: one of `TEMPLATES`.
        name: lower case, words joined by hyphens (underscores are taken for hyphens).
        into: where the folder is put; made where it is missing.

    Raises:
        ConfigError: the name does not fit, or the folder exists already.
    """
    values = _values(kind, name)
    folder = into / values["distribution"]
    if folder.exists():
        raise ConfigError(f"{folder} exists already: choose another name, or remove it first")
    for path, text in _files(kind, values).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder


def _values(kind: str, name: str) -> dict[str, str]:
    template = TEMPLATES[kind]
    kebab = name.replace("_", "-")
    if not _NAME.fullmatch(kebab):
        raise ConfigError(
            f"'{name}' is no name for a plugin: use lower-case letters, digits and single hyphens, starting with a "
            "letter, such as 'word-count'"
        )
    if kebab.startswith("roll-"):
        raise ConfigError(f"leave the prefix away: '{name}' would become roll-{template.prefix}-{kebab}")
    component = kebab.replace("-", "_")
    words = kind.replace("_", " ")
    cls = "".join(part.capitalize() for part in [*kebab.split("-"), *words.split()])
    values = {
        "kind": template.kind,
        "component": component,
        "distribution": f"roll-{template.prefix}-{kebab}",
        "package": f"roll_{template.prefix}_{component}",
        "entry": f"{template.prefix}_{component}",
        "module": kind,
        "cls": cls,
        "attribute": f"make_{component}" if kind == "command" else cls,
        "title": words.capitalize(),
        "words": template.kind.replace("_", " "),
        "article": template.article,
        "summary": template.summary,
        "declarations": template.declarations,
        "requirement": _requirement(),
        "dev_requirements": "".join(f', "{name}"' for name in template.dev_requirements),
    }
    return {**values, "usage": _render(_read(kind, "usage"), values).strip()}


def _files(kind: str, values: Mapping[str, str]) -> dict[str, str]:
    package, source = values["package"], f"src/{values['package']}"
    layout = {
        "pyproject.toml": ("common", "pyproject.toml"),
        "README.md": ("common", "README.md"),
        "CHANGELOG.md": ("common", "CHANGELOG.md"),
        ".gitignore": ("common", "gitignore"),
        f"{source}/__init__.py": ("common", "init.py"),
        f"{source}/plugin.py": ("common", "plugin.py"),
        f"{source}/{values['module']}.py": (kind, "component.py"),
        f"{source}/conformance.py": (kind, "conformance.py"),
        f"tests/test_{package}_conformance.py": ("common", "test_conformance.py"),
        f"tests/test_{package}_{values['module']}.py": (kind, "test.py"),
    }
    files = {path: _render(_read(*template), values) for path, template in layout.items()}
    return {**files, f"{source}/py.typed": ""}


def _read(group: str, name: str) -> str:
    path = resources.files("roll_core.cli").joinpath("templates", group, f"{name}.tmpl")
    return path.read_text(encoding="utf-8")


def _render(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _requirement() -> str:
    """The installed core's minor version and the one after it; no bounds when the core's version is unknown."""
    from roll_core.plugin.discovery import core_version

    version = _FIRST_MINOR.match(core_version())
    if version is None:
        return "roll-core"
    major, minor = int(version[1]), int(version[2])
    return f"roll-core>={major}.{minor},<{major}.{minor + 2}"
