"""The command line: one file for each command, a few lines around one function of the Python API."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

from sfumato.cli._command import application, commands
from sfumato.errors import EnvironmentProblem, SfumatoError, UsageError

__all__ = ["application", "commands", "main"]

KEEP_MEMORY = {-1: (1 << 31) - 1, -2: 1 << 26, -3: 1 << 30}  # mallopt: trim threshold, top pad, mmap threshold


def main() -> NoReturn:
    """Run a command; a refusal is one to three lines on standard error and an exit code, never a traceback."""
    _keep_memory()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        application()()
        sys.exit(0)
    except SfumatoError as error:
        _fail(error, error.exit_code)
    except MemoryError:
        _fail(EnvironmentProblem("Memory ran out.", fix="close other programs, or use a smaller --size"), 5)
    except OSError as error:
        _fail(EnvironmentProblem(f"The system refused: {error.strerror or error}.", where=error.filename), 5)
    except Exception as error:  # the last resort: a traceback of our own defect could contain private values
        if os.environ.get("SFUMATO_DEBUG"):
            raise
        what = f"Sfumato has met something it did not expect ({type(error).__name__})."
        _fail(UsageError(what, fix="set SFUMATO_DEBUG=1, run it again and report the traceback"), 1)


def _keep_memory() -> None:
    """Let glibc keep what is freed for the next tensor: giving pages back and fetching others takes long."""
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
        for option, size in KEEP_MEMORY.items():
            ctypes.CDLL(None).mallopt(option, size)


def _stop(number: int, _frame: object) -> NoReturn:
    """Leave at once; charges are written ahead, so nothing is forgotten. A second signal is not waited for."""
    signal.signal(number, signal.SIG_DFL)
    print("Stopped. What was charged stays charged; the same command resumes.", file=sys.stderr)
    sys.exit(128 + number)


def _fail(error: SfumatoError, code: int) -> NoReturn:
    print(error.message(), file=sys.stderr)
    sys.exit(code)
