"""Run untrusted source the way `python solution.py` would, from its first line to its exit status."""

from __future__ import annotations

import _sitebuiltins
import atexit
import builtins
import gc
import linecache
import sys
import threading
import traceback
import types
from typing import Any, NoReturn

from roll_core.sandbox.inside.streams import Streams

FILE_NAME = "solution.py"
INTERRUPTED = 130
"""Exit status of an uncaught KeyboardInterrupt, as a shell reports it."""


def run_program(source: str, streams: Streams) -> NoReturn:
    """Run a script as `__main__` and end the process with the status CPython would give."""
    prepare_interpreter()
    module = make_module("__main__", source)
    status = execute(source, module)
    finish(status or 0, module, streams)


def prepare_interpreter() -> None:
    """Set what a script expects of a fresh interpreter."""
    sys.argv = [FILE_NAME]
    sys.excepthook = sys.__excepthook__ = _show
    sys.set_int_max_str_digits(0)
    for name in ("exit", "quit"):
        if not hasattr(builtins, name):  # an interpreter without `site` lacks them
            setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))


def make_module(name: str, source: str, file_name: str = FILE_NAME) -> types.ModuleType:
    """A fresh module under `name` in `sys.modules`, whose source tracebacks and `inspect` can show."""
    module = types.ModuleType(name)
    module.__file__ = file_name
    module.__dict__["__builtins__"] = builtins
    module.__dict__.setdefault("__annotations__", {})
    sys.modules[name] = module
    lines = source.splitlines(keepends=True)
    linecache.cache[file_name] = (len(source), None, lines, file_name)
    return module


def execute(source: str, module: types.ModuleType) -> int | None:
    """Execute the source in the module.

    Returns:
        None where it ran to its end, else the exit status that CPython gives for what ended it (0 for `sys.exit()`);
        its message is on standard error then.
    """
    failure: BaseException
    try:
        code = compile(source.removeprefix("\ufeff"), str(module.__file__), "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102  this is the place for it: the process is locked down
    except SystemExit as error:
        return exit_status(error.code)
    except BaseException as error:  # noqa: BLE001  whatever the program raises ends it with a status
        failure = error
    else:
        return None
    report(failure)
    return INTERRUPTED if isinstance(failure, KeyboardInterrupt) else 1


def exit_status(code: Any) -> int:
    """The exit status for the argument of `sys.exit`; what is no number is printed on standard error."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(1 << 63) <= code < 1 << 63 else 0xFF
    try:
        sys.stderr.write(f"{code}\n")
    except BaseException as error:  # noqa: BLE001  the object, or the stream, is the program's own
        report(error)
    return 1


def report(error: BaseException) -> None:
    """Show an uncaught exception through `sys.excepthook`, without the frames of this module."""
    error = _without_own_frames(error)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException as hook_error:  # noqa: BLE001  the hook may be the program's own
        failure = _without_own_frames(hook_error)
    else:
        return
    try:
        sys.stderr.write("Error in sys.excepthook:\n")
        traceback.print_exception(failure)
        sys.stderr.write("\nOriginal exception was:\n")
        traceback.print_exception(error)
    except BaseException:  # noqa: BLE001  the program broke standard error too, and nothing is left to tell it to
        return


def _without_own_frames(error: BaseException) -> BaseException:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") == __name__:
        trace = trace.tb_next
    return error.with_traceback(trace)


def _show(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Print an exception with the lines of its source, which the built-in hook looks for in files only."""
    if sys.stderr is not None:
        traceback.print_exception(kind, error, trace)


def finish(status: int, module: types.ModuleType, streams: Streams) -> NoReturn:
    """End the process as the interpreter does: threads, exit handlers, the module's objects, the streams."""
    for step in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]  # what finalisation calls
        try:
            step()
        except BaseException as error:  # noqa: BLE001  an exit handler may raise anything; the status stays
            if not isinstance(error, SystemExit):
                report(error)
    status = streams.flushed(status)
    _drop(module)
    streams.leave(status)


def _drop(module: types.ModuleType) -> None:
    """Unbind the module's names in CPython's order, so that files of the program are flushed and `__del__` runs."""
    names = module.__dict__
    for private in (True, False):
        for name in list(names):
            if name != "__builtins__" and (name.startswith("_") and not name.startswith("__")) is private:
                names[name] = None
    gc.collect()
