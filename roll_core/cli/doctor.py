"""`roll doctor`: whether this machine and installation are fit for a run."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import click

from roll_core.cli.context import host_of

GIB = 2**30
MIN_FREE_GIB = 5.0
"""Below this much free disk a warning is given: a checkpoint of a small model takes about 2 GiB."""
_LIBRARIES = ("torch", "transformers", "datasets", "peft", "safetensors", "pyarrow", "ray", "vllm")
_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    area: str
    status: Literal["ok", "warn", "fail"]
    text: str


@click.command()
@click.option("--probe", is_flag=True, help="Measure matrix multiplication in float32 and bfloat16 (a few seconds).")
@click.option("--folder", type=click.Path(path_type=Path), default=Path(), help="Where runs are kept.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(context: click.Context, probe: bool, folder: Path, as_json: bool) -> None:
    """Check versions, devices, plugins and disk. Exits 1 when something is broken."""
    findings = [*_versions(), *_plugins(context), *_disk(folder), *_sandbox(), *_devices(probe)]
    if as_json:
        click.echo(json.dumps([asdict(f) for f in findings], indent=2))
    else:
        for finding in findings:
            mark = click.style(f"{finding.status:<4}", fg=_STYLES[finding.status])
            click.echo(f"{mark}  {finding.area:<9} {finding.text}")
    if any(f.status == "fail" for f in findings):
        context.exit(1)


def _versions() -> Iterator[Finding]:
    from roll_core.plugin.discovery import core_version

    yield Finding("version", "ok", f"roll-core {core_version()}, Python {platform.python_version()}, {sys.platform}")
    for name in _LIBRARIES:
        found = _version(name)
        if found is not None:
            yield Finding("version", "ok", f"{name} {found}")
        elif name not in ("ray", "vllm"):
            yield Finding("version", "warn", f"{name} is not installed: pip install 'roll-core[train]' to train")


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _plugins(context: click.Context) -> Iterator[Finding]:
    records = host_of(context, enforce=False).records.values()
    loaded = sorted(r.name for r in records if r.state == "loaded")
    yield Finding("plugins", "ok", f"{len(loaded)} loaded: {', '.join(loaded)}")
    for record in records:
        if record.state == "blocked":
            yield Finding("plugins", "warn", f"{record.name} is blocked")
        elif record.state == "failed":
            yield Finding("plugins", "fail", f"{record.name} failed to load: {record.error}")


def _disk(folder: Path) -> Iterator[Finding]:
    existing = folder.resolve()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free / GIB
    yield Finding("disk", "ok" if free >= MIN_FREE_GIB else "warn", f"{free:.1f} GiB free at {existing}")
    if not os.access(existing, os.W_OK):
        yield Finding("disk", "fail", f"{existing} is not writable")


def _sandbox() -> Iterator[Finding]:
    """Which levels of the jail hold here, each tried with live attacks."""
    from roll_core.sandbox import probe

    levels = probe()
    holding = [level for level, problem in levels.items() if problem is None]
    if holding:
        yield Finding("sandbox", "ok", f"model-written code runs at level {holding[0]}; {', '.join(holding)} hold")
    else:
        yield Finding("sandbox", "warn", "no level of the jail holds here: model-written code is refused")
    for level, problem in levels.items():
        if problem is not None:
            yield Finding("sandbox", "warn", f"{level}: {problem}")


def _devices(probe: bool) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("devices", "ok", f"{cores} CPU cores, {_memory_gib()} memory")
    if _version("torch") is None:
        return
    try:
        import torch
    except (ImportError, OSError) as error:
        yield Finding("devices", "fail", f"torch cannot be imported: {error}")
        return
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        yield Finding("devices", "ok", f"cuda:{index} {device.name}, {device.total_memory / GIB:.0f} GiB")
    if torch.cuda.device_count() == 0:
        yield Finding("devices", "ok", f"no CUDA device; torch uses {torch.get_num_threads()} threads")
    if probe:
        device_name = "cuda" if torch.cuda.is_available() else "cpu"
        rates = {name: matmul_rate(torch, device_name, name) for name in ("float32", "bfloat16")}
        faster = max(rates, key=lambda name: rates[name])
        text = ", ".join(f"{name} {rate / 1e9:.0f} GFLOP/s" for name, rate in rates.items())
        yield Finding("rate", "ok", f"{device_name}: {text}; compute in {faster}")


def matmul_rate(torch: Any, device: str, dtype: str, *, size: int = 1024, repeats: int = 5) -> float:
    """Best rate of a square matrix multiplication in floating-point operations a second.

    Args:
        torch: the module.
        device: "cpu" or "cuda".
        dtype: name of a torch dtype.
        size: rows and columns.
        repeats: timed multiplications after one that warms up; the fastest counts.
    """
    left = torch.ones(size, size, dtype=getattr(torch, dtype), device=device)
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        left @ left
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return float(2 * size**3 / min(seconds[1:]))


def _memory_gib() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.1f} GiB"
    except (AttributeError, OSError, ValueError):
        return "unknown"
