"""The documentation is true: every fence runs, every link leads somewhere, generated pages are fresh.

What stands right before a fence, as an HTML comment, says how it is treated:

* `<!-- not run: reason -->`: only shown.
* `<!-- file: name -->`: written to that file in the page's folder (YAML is checked, Python is compiled).
* `<!-- append: name -->`: added to that file.
* `<!-- exit: 1 -->`: the last command of a console fence ends with that code.

`python` fences of a page share one namespace and one folder, `console` fences run `roll` in it, `yaml` fences must
load with the installed plugins (what is no whole config is laid over a small one), `text` is output, `bash` is for a
shell and never holds `roll`. A page whose first lines hold `<!-- uses the files of PAGE -->` begins with that page's
files and the tiny model.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from roll_core.cli.main import cli
from roll_core.config.load import check_config, load_config
from roll_core.plugin.host import Host
from roll_core.testing.tiny import make_tiny_model

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATED = sorted((DOCS / "reference").glob("*.md"))
MEMBERS = sorted(p for top in ("plugins", "verifiers", "data_mixers") for p in (ROOT / top).glob("*/README.md"))
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *MEMBERS]
MODEL = "tiny-model"
LANGUAGES = {"bash", "python", "yaml", "console", "text", "toml", "json", "jsonl", "mermaid"}
COMMENT = re.compile(r"<!-- (not run|file|append|exit): (.+?) -->")
USES = re.compile(r"<!-- uses the files of (\S+) -->")
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")
ROWS = [{"prompt": "1 + 1", "reference": "2"}]
DOMAIN = {"data": {"use": "rows", "rows": ROWS}, "eval_data": {"use": "rows", "rows": ROWS}, "verifier": "math"}
BASE: dict[str, Any] = {"model": {"path": MODEL}, "domains": {"math": DOMAIN}}


@dataclass(frozen=True)
class Fence:
    """A fenced block: its language, text and first line, and what the comment before it says."""

    page: Path
    line: int
    language: str
    text: str
    mark: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def fences(page: Path) -> list[Fence]:
    found: list[Fence] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    start, before = None, ""
    for number, line in enumerate(lines, 1):
        if start is None and line.startswith("```"):
            start = number
        elif start is not None and line == "```":
            comment = COMMENT.fullmatch(before.strip())
            mark, value = comment.groups() if comment else ("", "")
            text = "\n".join(lines[start : number - 1]) + "\n"
            found.append(Fence(page, start, lines[start - 1].removeprefix("```"), text, mark, value))
            start, before = None, ""
        elif start is None and line.strip():
            before = line
    assert start is None, f"{page}:{start} is not closed"
    return found


class Runner:
    """Runs the fences of a page one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.hosts: dict[str, Host] = {}

    def write_files(self, page: Path) -> None:
        for fence in fences(page):
            if fence.mark == "file":
                self.write(fence)

    def write(self, fence: Fence) -> None:
        path = self.folder / fence.value
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text(encoding="utf-8") + "\n\n" if fence.mark == "append" else ""
        path.write_text(before + fence.text, encoding="utf-8")

    def run(self, fence: Fence) -> None:
        if fence.mark in ("file", "append"):
            self.write(fence)
        check = getattr(self, f"_{fence.language}", None)
        if check is not None and fence.mark != "not run":
            check(fence)

    def _python(self, fence: Fence) -> None:
        code = compile("\n" * fence.line + fence.text, str(fence.page), "exec")
        if fence.mark not in ("file", "append"):
            exec(code, self.namespace)

    def _yaml(self, fence: Fence) -> None:
        written = yaml.safe_load(fence.text)
        if "model" in written and "domains" in written:
            path = self.folder / f"fence-{fence.line}.yaml"
            path.write_text(fence.text, encoding="utf-8")
            loaded = load_config(path)
        elif "extends" in written:
            loaded = load_config(self.folder / fence.value)
        else:
            domains = {name: {**DOMAIN, **own} for name, own in written.pop("domains", BASE["domains"]).items()}
            path = self.folder / f"fence-{fence.line}.yaml"
            path.write_text(yaml.safe_dump({**BASE, "domains": domains, **written}), encoding="utf-8")
            loaded = load_config(path)
        rollfile = loaded.config.plugins.rollfile or ("rollfile.py" if Path("rollfile.py").is_file() else None)
        check_config(loaded, self.host(rollfile))

    def host(self, rollfile: str | None) -> Host:
        text = Path(rollfile).read_text(encoding="utf-8") if rollfile else ""
        if text not in self.hosts:
            self.hosts[text] = Host.discover(rollfile=Path(rollfile) if rollfile else None)
        return self.hosts[text]

    def _toml(self, fence: Fence) -> None:
        tomllib.loads(fence.text)

    def _json(self, fence: Fence) -> None:
        json.loads(fence.text)

    def _jsonl(self, fence: Fence) -> None:
        for line in fence.text.splitlines():
            json.loads(line)

    def _console(self, fence: Fence) -> None:
        *before, last = commands(fence)
        for command in before:
            assert roll(command) == 0, f"{fence}: {command}"
        assert roll(last) == int(fence.value if fence.mark == "exit" else 0), f"{fence}: {last}"


def commands(fence: Fence) -> list[str]:
    text = fence.text.replace("\\\n", " ")
    return [line.removeprefix("$ ").strip() for line in text.splitlines() if line.startswith("$ ")]


def roll(command: str) -> int:
    """Run a `roll` command line in this process; returns its exit code."""
    name, *arguments = shlex.split(command, comments=True)
    assert name == "roll", f"'{command}' needs <!-- not run: reason -->"
    root, handlers = logging.getLogger(), list(logging.getLogger().handlers)
    try:
        cli.main(args=arguments, prog_name="roll")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        root.handlers[:] = handlers
    return 0


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("docs") / MODEL)


@pytest.mark.parametrize("page", [p for p in PAGES if fences(p) and p not in GENERATED], ids=str)
def test_fences_run(page: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROLL_PLUGINS", "auto")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rollfile", raising=False)
    runner = Runner(tmp_path)
    uses = USES.search(page.read_text(encoding="utf-8"))
    if uses is not None:
        runner.write_files(page.parent / uses[1])
        Path(MODEL).symlink_to(tiny_model)
    for fence in fences(page):
        try:
            runner.run(fence)
        except BaseException as error:
            error.add_note(f"in the fence at {fence}")
            raise


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_fences_have_a_known_language_and_commands_a_reason_not_to_run(page: Path) -> None:
    for fence in fences(page):
        assert fence.language in LANGUAGES, f"{fence}: '{fence.language}'"
        assert fence.language != "bash" or "roll " not in re.sub(r"#.*", "", fence.text), (
            f"{fence}: use a console fence"
        )
        if fence.language == "console":
            assert commands(fence), f"{fence}: no line begins with '$ '"
            assert fence.mark == "not run" or all(c.startswith("roll ") for c in commands(fence)), fence


# --- links, generated pages, README -----------------------------------------------------------------------------------


def links(page: Path) -> Iterator[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    yield from (target for target in LINK.findall(text) if not target.startswith(("http://", "https://")))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.relative_to(ROOT)}: {link}"
        assert target.is_relative_to(ROOT), f"{page.relative_to(ROOT)}: {link} leaves the repository"
        assert not anchor or anchor in anchors(target), f"{page.relative_to(ROOT)}: {link}"


def test_every_page_is_on_the_map() -> None:
    reached = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "index.md")}
    missing = set(DOCS.rglob("*.md")) - reached - {DOCS / "index.md"}
    assert not missing, names(sorted(missing))


def test_generated_pages_are_fresh() -> None:
    assert generator().stale() == [], "run `make docs`"


def test_the_layers_of_the_architecture_are_those_the_linter_holds() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    text = "\n".join(layer.replace("roll_core.", "") for layer in layers)
    assert f"```text\n{text}\n```" in (DOCS / "architecture.md").read_text(encoding="utf-8")


def test_the_tree_of_the_architecture_exists() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    tree = text.partition("```text\nroll_core/")[2].partition("```")[0]
    named = {
        word for line in tree.splitlines() if line.startswith("  ") for word in line.split("   ")[0].split() if word
    } | {"__init__.py", "__pycache__", "py.typed"}
    there = {path.name + "/" * path.is_dir() for path in (ROOT / "roll_core").iterdir()} - {"__pycache__/"}
    assert there <= named | {"__pycache__/"}, there - named


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_readme_is_short_and_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") < 100
    for part in ("make quickstart", "make test", "docs/images/quickstart.png", "docs/index.md", "docs/tutorial.md"):
        assert part in text, part


# --- metrics ----------------------------------------------------------------------------------------------------------


def documented() -> list[str]:
    text = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def pattern_of(name: str) -> re.Pattern[str]:
    """`reward/score[/<domain>]` matches with and without the part in brackets; `<...>` is any one word."""
    text = re.escape(name).replace(r"\[", "(?:").replace(r"\]", ")?")
    return re.compile(re.sub(r"<\w+>", "[^/]+", text))


VARIANTS: dict[str, dict[str, Any]] = {
    "correction, entropy, adaptive divergence, filters": {
        "algorithm": {
            "kl": {"coef": 0.01, "adaptive": {"target": 0.1}},
            "correction": {"kind": "token_tis"},
            "entropy_coef": 0.001,
            "overlong": {"buffer": 2},
        },
        "filters": ["informative_groups"],
    },
    "critic, divergence in the reward": {
        "algorithm": {"advantage": "gae", "kl": {"coef": 0.01, "where": "reward"}},
        "batch": {"prompts": 4, "group_size": 4, "mini_batches": 2},
    },
    "greedy baseline, other losses": {
        "algorithm": {"advantage": "remax", "loss": "decoupled_ppo"},
        "domains": {"two": {"algorithm": {"loss": {"use": "sapo"}}}},
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_metric_of_a_run_is_documented(variant: str, tiny_model: Path, tmp_path: Path) -> None:
    from roll_core import train

    rows = [{"prompt": letter, "reference": "digits"} for letter in "abcdefgh"]
    domain = {"data": rows, "verifier": {"use": digits}, "sampling": {"max_new_tokens": 3}}
    changes = dict(VARIANTS[variant])
    own = changes.pop("domains", {})
    domains = {name: {**domain, **own.get(name, {})} for name in ("one", "two")}
    domains["one"]["eval_data"] = rows
    base: dict[str, Any] = {"batch": {"prompts": 4, "group_size": 4}, "scoring": {"workers": 0}, "trackers": ["jsonl"]}
    run = train(folder=str(tmp_path), steps=2, model={"path": str(tiny_model)}, domains=domains, **{**base, **changes})
    lines = (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    emitted = {name for line in lines for name in json.loads(line)} - {"step"}
    known = [pattern_of(name) for name in documented()]
    unknown = sorted(name for name in emitted if not any(p.fullmatch(name) for p in known))
    assert emitted
    assert not unknown, f"not in docs/reference/metrics.md: {unknown}"


def digits(response: str, reference: object) -> float:
    return sum(c.isdigit() for c in response) / max(1, len(response))


def test_every_documented_metric_exists() -> None:
    """The last fixed word of each name stands in the code that reports metrics."""
    files = [*(ROOT / "roll_core").rglob("*.py"), *(ROOT / "plugins").glob("*/src/**/*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    for name in documented():
        word = [part for part in re.sub(r"\[.*?\]", "", name).split("/") if "<" not in part][-1]
        assert re.sub(r"^run_|_s$", "", word) in code, name


# --- examples ---------------------------------------------------------------------------------------------------------

SMALL = {
    "quickstart.yaml": [
        "domains.sums.data.size=8", "domains.sums.eval_data.size=4", "domains.people.data.size=8",
        "domains.people.eval_data.size=4", "domains.people.sampling.max_new_tokens=8",
        "domains.sums.sampling.max_new_tokens=8", "batch.prompts=2", "batch.group_size=2",
    ],
    "ppo.yaml": [
        "domains.sums.data.size=8", "domains.sums.eval_data.size=4", "domains.sums.sampling.max_new_tokens=4",
        "batch.prompts=4", "batch.group_size=2",
    ],
    "ray_async.yaml": [
        "rollout.backend={use: local, replicas: 1}", "cluster={executor: local}", "faults={restarts: 0}",
        "train.strategy={use: fsdp, world_size: 2}", "domains.sums.data.size=8", "domains.sums.eval_data.size=4",
        "domains.people.data.size=8", "domains.people.eval_data.size=4", "domains.people.sampling.max_new_tokens=8",
        "domains.sums.sampling.max_new_tokens=8", "batch.prompts=2", "batch.group_size=2",
    ],
}  # fmt: skip
"""Overrides that make an example's run small, and of what is installed here."""


@pytest.mark.parametrize("name", sorted(p.name for p in (ROOT / "examples").glob("*.yaml")))
def test_yaml_examples_run(name: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = ROOT / "examples" / name
    overrides = [f"model.path={tiny_model}", "steps=1", *SMALL[name]]
    assert roll(shlex.join(["roll", "train", str(config), *overrides])) == 0
    assert list((tmp_path / "runs").glob("*/summary.json"))


@pytest.mark.parametrize("name", sorted(p.name for p in (ROOT / "examples").glob("*.py")))
def test_python_examples_run(name: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, "--model", str(tiny_model), "--steps", "1", "--small"])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert list((tmp_path / "runs").glob("*/summary.json"))


def test_examples_are_listed_in_the_index() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    for path in (ROOT / "examples").iterdir():
        assert path.name in text or path.name.startswith(("_", ".")), path.name
