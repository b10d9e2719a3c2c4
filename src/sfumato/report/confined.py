"""The public page of a release, built by a process of its own that can open nothing else.

Guarantee: once `confine` has returned, Python code of this process can open the files of the release and of installed
packages to read them, the page to write it, and no other file, whatever links lie in between; nor a socket, another
process or a foreign library. It is an audit hook of the interpreter and not a sandbox of the kernel: native code that
opens files by itself is not seen, nor is reading the size or date of a file by its name, and what was imported
before is trusted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.errors import EnvironmentProblem, SfumatoError, VerificationFailed
from sfumato.files import unfinished_name
from sfumato.report.public import write_page_here

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
LISTING, MOVING = ("os.listdir", "os.scandir", "os.walk"), ("os.rename", "os.remove")
CLOSED = frozenset(  # first parts of the names of events; what of them is allowed is listed above
    {"ctypes", "os", "pty", "shutil", "socket", "sqlite3", "subprocess", "syslog", "urllib", "webbrowser"}
)
KINDS: dict[str, type[SfumatoError]] = {kind.__name__: kind for kind in SfumatoError.__subclasses__()}


def write_public_page(release: Path | str, out: Path | str | None = None) -> Path:
    """Write the page of a release to the file `out` (its name with .html), at once or not at all.

    A process of its own that cannot open anything else makes it; the release is read and never changed.
    """
    release = Path(release)
    out = Path(out or f"{release.absolute().name}.html")
    found_as_here = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # -P: a module in the working folder is not taken for one of ours; a signal is for us, who then end the child
    command = [sys.executable, "-P", "-B", "-m", "sfumato.report.confined", str(release), str(out)]
    done = subprocess.run(  # noqa: S603  # no shell reads the two paths
        command, env=found_as_here, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, process_group=0, check=False
    )
    if done.returncode:
        raise EnvironmentProblem(
            f"Expected a page, got an end of the process that builds it ({done.returncode}).",
            where=release,
            fix="set SFUMATO_DEBUG=1 and run it again",
        )
    if problem := json.loads(done.stdout):
        raise KINDS.get(problem["kind"], SfumatoError)(problem["what"], where=problem["where"], fix=problem["fix"])
    return out


def confine(release: Path, out: Path) -> None:
    """Restrict this process to a release and the file of its page; this cannot be undone."""
    permissions = _Permissions((_real(release), *_installed()), frozenset(map(_place, (out, unfinished_name(out)))))
    sys.dont_write_bytecode, sys.pycache_prefix = True, None
    sys.path[:] = [entry for entry in sys.path if permissions.inside(_real(entry))]  # an import searches all of them
    sys.addaudithook(permissions)


@dataclass(frozen=True, slots=True)
class _Permissions:
    """The audit hook: which files may be opened, checked at every event of the interpreter."""

    readable: tuple[str, ...]  # folders with all that is below them, and single files
    writable: frozenset[str]

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            self._opened(path, flags & WRITING != 0)
        elif event in LISTING:
            self._opened(arguments[0], False)
        elif event in MOVING:
            for path in arguments[: 2 if event == "os.rename" else 1]:
                if _place(path) not in self.writable:
                    raise _refusal("change a file", path)
        elif event.partition(".")[0] in CLOSED:
            raise _refusal(f"use {event}")

    def _opened(self, path: Any, writing: bool) -> None:
        if isinstance(path, int):  # open already, and it was checked then
            return
        real = _real("." if path is None else path)
        if writing and real not in self.writable:
            raise _refusal("write to another file", path)
        if not writing and not self.inside(real):
            raise _refusal("read another file", path)

    def inside(self, real: str) -> bool:
        return any(real == root or real.startswith(root + os.sep) for root in self.readable)


def _real(path: Any) -> str:
    return os.path.realpath(os.fsdecode(path))


def _place(path: Any) -> str:
    """Where a name stands; moving or removing a link touches the link and not what it leads to."""
    named = Path(os.fsdecode(path)).absolute()
    return str(Path(_real(named.parent), named.name))


def _installed() -> set[str]:
    """Python's own folders, those of installed packages, and whatever was imported from elsewhere."""
    found = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for name, module in list(sys.modules.items()):
        if "." not in name:
            found.update(getattr(module, "__path__", None) or [getattr(module, "__file__", None) or ""])
    return {_real(path) for path in found if path}


def _refusal(what: str, path: Any = None) -> VerificationFailed:
    where = None if path is None else os.fsdecode(path)
    return VerificationFailed(f"Expected a page made of its release alone, got an attempt to {what}.", where=where)


def main() -> None:
    """Build the page that the command line names; what went wrong is printed as JSON for the parent process."""
    release, out = map(Path, sys.argv[1:])
    problem: SfumatoError | None = None
    try:
        confine(release, out)
        write_page_here(release, out)
    except SfumatoError as error:
        problem = error
    except MemoryError:
        problem = EnvironmentProblem("Memory ran out.", fix="close other programs")
    except OSError as error:
        problem = EnvironmentProblem(f"The system refused: {error.strerror or error}.", where=error.filename)
    except Exception as error:
        if os.environ.get("SFUMATO_DEBUG"):
            raise
        what = f"Sfumato has met something it did not expect ({type(error).__name__})."
        problem = SfumatoError(what, fix="set SFUMATO_DEBUG=1, run it again and report the traceback")
    print(json.dumps(_described(problem) if problem else {}))


def _described(problem: SfumatoError) -> dict[str, str | None]:
    where = None if problem.where is None else str(problem.where)
    return {"kind": type(problem).__name__, "what": problem.what, "where": where, "fix": problem.fix}


if __name__ == "__main__":
    main()
