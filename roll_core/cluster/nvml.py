"""Memory of NVIDIA devices, read from the driver's own library, without torch and without `nvidia-smi`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

_LIBRARY = "libnvidia-ml.so.1"
_OK = 0


class _Memory(ctypes.Structure):
    """`nvmlMemory_t`."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def device_memory(names: Sequence[str]) -> dict[str, int]:
    """Bytes of memory of some devices.

    Args:
        names: as `CUDA_VISIBLE_DEVICES` names them: numbers in the order of the bus, or identifiers ("GPU-1a2b").

    Returns:
        Bytes by name. Devices the driver does not know are left out; without a driver, all are.

    Source: NVML API reference, https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html.
    """
    if not names:
        return {}
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError:
        return {}
    if nvml.nvmlInit_v2() != _OK:
        return {}
    try:
        found = {name: _total(nvml, name) for name in names}
    finally:
        nvml.nvmlShutdown()
    return {name: total for name, total in found.items() if total is not None}


def _total(nvml: ctypes.CDLL, name: str) -> int | None:
    handle, memory = ctypes.c_void_p(), _Memory()
    if name.isdigit():
        status = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(name)), ctypes.byref(handle))
    else:
        status = nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
    if status != _OK or nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != _OK:
        return None
    return int(memory.total)
