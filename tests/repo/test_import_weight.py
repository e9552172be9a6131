"""What must stay light: `import roll_core`, every `plugin.py`, and the start of the command line."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "ray", "transformers", "vllm", "datasets", "sympy")
SLOW = ("numpy", "pydantic", "click", "rich")
"""Not heavy, but each takes a good part of the half second, and a plugin that is only listed needs none of them."""
TOPS = ("plugins", "verifiers", "data_mixers")
SOURCES = sorted({path.parents[1] for top in TOPS for path in ROOT.glob(f"{top}/*/src/*/plugin.py")})
PLUGINS = ["roll_core.builtin.plugin"] + [
    f"{path.parent.name}.plugin" for source in SOURCES for path in source.glob("*/plugin.py")
]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(str(p) for p in (ROOT, *SOURCES)), "ROLL_PLUGINS": "auto"}
SECONDS = 0.5


def fresh(code: str, watched: tuple[str, ...] = HEAVY) -> str:
    """Run code in a new interpreter; returns which of the watched modules it loaded."""
    report = f"\nimport sys\nprint([name for name in {watched!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code + report], env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert fresh("import roll_core; roll_core.Component, roll_core.load_verifier, roll_core.Verdict") == "[]"


def test_importing_the_package_alone_loads_no_third_party_module() -> None:
    assert fresh("import roll_core", (*HEAVY, *SLOW, "pluggy")) == "[]"


@pytest.mark.parametrize("module", PLUGINS)
def test_plugin_modules_load_nothing_heavy(module: str) -> None:
    assert fresh(f"import {module}", (*HEAVY, *SLOW)) == "[]"


@pytest.mark.parametrize("arguments", [["plugins", "list"], ["--help"]])
def test_the_command_line_loads_nothing_heavy(arguments: list[str]) -> None:
    code = f"import sys\nsys.argv = ['roll', *{arguments!r}]\nfrom roll_core.cli.main import main\n"
    assert fresh(code + "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code") == "[]"


def test_listing_plugins_is_quick() -> None:
    """Processor time, best of three: listing waits for nothing, and other work on the machine must not count."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "roll_core.cli.main", "plugins", "list"],
            env=ENVIRONMENT,
            capture_output=True,
            timeout=60,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < SECONDS, f"best of three: {min(seconds):.2f} s"


def test_every_public_name_is_there() -> None:
    code = "import roll_core\nfor name in roll_core.__all__: getattr(roll_core, name)\n"
    assert fresh(code + "assert set(roll_core.__all__) <= set(dir(roll_core))") == "[]"
