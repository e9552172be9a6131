from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def importable_faults(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
