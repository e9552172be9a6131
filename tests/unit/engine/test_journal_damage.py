"""Journals that cannot be read are refused with the file's name; a prompt that changed is the config's fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roll_core.errors import CheckpointError, ConfigError
from roll_core.rollout.journal import Pending, UnderWay, read_pending, write_pending
from roll_core.types import Completion, PolicyRef, Prompt, Ticket, VersionRun

TICKET = Ticket(3, "d", "p3", 3)


def prompt_of(ticket: Ticket) -> Prompt:
    return Prompt(ticket.prompt_id, ticket.domain, text="x", token_ids=(1, 2))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = Completion(
        "d:3/0/0",
        np.array([4, 5], np.int32),
        np.array([-0.5, -1.0], np.float32),
        (VersionRun(0, 1, PolicyRef(0)), VersionRun(1, 2, PolicyRef(1))),
        "abort",
    )
    write_pending(tmp_path, Pending(under_way=[UnderWay(TICKET, 0, 1)], made={"d:3/0/0": made}))
    return tmp_path


def test_what_was_under_way_comes_back(folder: Path) -> None:
    pending = read_pending(folder, prompt_of)
    assert pending.under_way == [UnderWay(TICKET, 0, 1)]
    made = pending.made["d:3/0/0"]
    assert made.token_ids.tolist() == [4, 5] and [run.policy.version for run in made.versions] == [0, 1]


def alter(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    meta = json.loads((folder / "pending.json").read_text())
    change(meta)
    (folder / "pending.json").write_text(json.dumps(meta))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "pending.json").unlink(), r"pending\.json cannot be read: FileNotFoundError"),
        (lambda f: (f / "pending.json").write_text("{"), r"pending\.json cannot be read: JSONDecodeError"),
        (lambda f: (f / "pending.json").write_bytes(b"\xff\xfe"), r"pending\.json cannot be read: UnicodeDecodeError"),
        (lambda f: (f / "pending.npz").unlink(), r"pending\.npz cannot be read: FileNotFoundError"),
        (lambda f: (f / "pending.npz").write_bytes(b""), r"pending\.npz cannot be read: EOFError"),
        (lambda f: (f / "pending.npz").write_bytes(b"PK\x03\x04 no zip"), r"pending\.npz cannot be read: BadZipFile"),
        (lambda f: (f / "pending.npz").write_bytes(b"no arrays at all"), r"pending\.npz cannot be read: ValueError"),
        (lambda f: alter(f, lambda m: m.pop("under_way")), "not of a kind that this version reads"),
        (lambda f: alter(f, lambda m: m["under_way"][0][0].pop("id")), "not of a kind that this version reads"),
        (lambda f: alter(f, lambda m: m["made"]["d:3/0/0"].update(token_ids="99")), "not of a kind"),
    ],
)
def test_damage_is_named(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(folder)
    with pytest.raises(CheckpointError, match=f"{message}.*--checkpoint"):
        read_pending(folder, prompt_of)


def test_another_prompt_is_said_as_it_is(folder: Path) -> None:
    alter(
        folder, lambda m: m["admitted"].append({"ticket": {"id": 1, "domain": "d", "prompt_id": "p1", "position": 1}})
    )

    def changed(ticket: Ticket) -> Prompt:
        raise ConfigError("domains.d.data has another prompt there")

    with pytest.raises(ConfigError, match="another prompt"):
        read_pending(folder, changed)
