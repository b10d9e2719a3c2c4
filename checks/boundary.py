"""The privacy boundary as lint: what a method, metric, attack or network may not even write.

Import direction is import-linter's part; this looks at the ways around it. It works by exclusion: a room that is not
named below is held to the strictest rules from the moment it exists. Run: python checks/boundary.py [FILE...]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "sfumato"
# Rooms and modules that read files, hold real images in the clear, or are the core: all others may only ask.
TRUSTED = {
    "privacy",
    "data",
    "release",
    "making",
    "lab",
    "judging",
    "auditing",
    "experiments",
    "report",
    "cli",
    "__init__.py",
    "cache.py",
    "contracts.py",
    "discovery.py",
    "cluster.py",
    "errors.py",
    "files.py",
    "progress.py",
    "values.py",
    "openmp.py",
}
# What a room that may only ask can import of us; of `privacy` the names below.
LOWER = {
    "cache",
    "errors",
    "discovery",
    "values",
    "standardised_convolution",
    "contracts",
    "progress",
    "privacy",
    "networks",
    "training",
    "synthesis",
    "statistics",
}
ASKABLE = {  # what they may use of the core: questions and handles, no noise, no ledger, no replay
    "Budget",
    "Companion",
    "GaussianSum",
    "Mechanism",
    "NoisyChoice",
    "PrivateImages",
    "Query",
    "ShardedAnswers",
    "ShardedSums",
    "TeacherModel",
    "Teachers",
    "noisy_gradient",
    "Descent",
    "descend",
}
SNOOPING = {"builtins", "ctypes", "gc", "importlib", "inspect", "marshal", "pickle", "random", "sys", "weakref", "os"}
PICKLES = {"pickle", "cloudpickle", "marshal", "shelve", "dill"}
REFLECTION = {
    "__import__",
    "compile",
    "delattr",
    "eval",
    "exec",
    "getattr",
    "globals",
    "locals",
    "open",
    "setattr",
    "vars",
}
# What methods and learners know of the data was asked in this run: an answer from a file of an earlier run would have
# been paid for by nobody, or once and used often. So they name nothing that reads, or that keeps and brings back; and
# what synthesis does for them reads nothing, either.
ASKING = {"methods", "learners"}
READS_NOTHING = ASKING | {"synthesis"}
# of synthesis: trainings on public images, the folder of a public pipeline, and whether there is one
MAY_READ = {"pretraining.py", "stable_diffusion.py", "candidates.py"}
KEEPERS = {"CachedTrainings", "DataSource", "from_file", "in_cache", "_in_cache"}
KEEPING = {"keep", "restore"}  # methods that keep a state and bring one back; on anything but self
# What says that images are public, so that a training on them is kept; said by the base classes for `--public` alone.
VOUCHING = {"images_are_public", "pretrain_autoencoder"}
# calls that read a file
READING = {
    "fromfile",
    "genfromtxt",
    "load",
    "load_file",
    "loadtxt",
    "memmap",
    "read_bytes",
    "read_csv",
    "read_parquet",
    "read_text",
    "safe_open",
}
HARMLESS_DUNDERS = {"__call__", "__getitem__", "__init__", "__name__", "__post_init__"}
RANDOMNESS = {
    "np.random",
    "numpy.random",
    "torch.bernoulli",
    "torch.manual_seed",
    "torch.multinomial",
    "torch.normal",
    "torch.rand",
    "torch.randint",
    "torch.randn",
    "torch.random",
    "torch.randperm",
    "torch.seed",
}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def in_outer_room(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Ways around the ledger."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(node)
        elif isinstance(node, ast.Attribute):
            owner = dotted(node.value)
            if node.attr.startswith("_") and owner not in ("self", "cls") and node.attr not in HARMLESS_DUNDERS:
                yield node.lineno, f"reads the hidden attribute {node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REFLECTION:
            yield node.lineno, f"calls {node.func.id}, which can look around the ledger"


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[int, str]]:
    for module in _modules(node):
        if module.split(".")[0] in SNOOPING:
            yield node.lineno, f"imports {module}, which can look around the ledger"
        named = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
        for ours in _of_ours(module, named):
            if ours not in LOWER:
                yield node.lineno, f"imports sfumato.{ours}, which is out of bounds here"
        if module == "sfumato.privacy":
            imported = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else {"the whole core"}
            for name in sorted(imported - ASKABLE):
                yield node.lineno, f"imports {name} from the core; it may only ask"


def _of_ours(module: str, named: set[str]) -> set[str]:
    """The rooms and modules of ours that an import reaches."""
    first, _, rest = module.partition(".")
    if first != "sfumato":
        return set()
    return {rest.split(".")[0]} if rest else named


def reading(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What is known of the data is what was asked in this run."""
    must = "what is known of the data must be asked"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (called := _called(node)) in READING:
            yield node.lineno, f"calls {called}, which reads a file; {must}"
        if isinstance(node, ast.Import | ast.ImportFrom) and any(m.split(".")[0] == "pathlib" for m in _modules(node)):
            yield node.lineno, f"imports pathlib, which reads files; {must}"
        for name in _names(node) & KEEPERS:
            yield getattr(node, "lineno", 0), f"names {name}, which brings back what is kept; {must}"


def in_asking_room(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """A method keeps no state of its own that a later run could take up."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in KEEPING and dotted(node.value) != "self":
            yield node.lineno, f"uses {node.attr} of another object; what is known of the data must be asked"
        said = {node.arg} if isinstance(node, ast.keyword) else _names(node)
        for name in said & VOUCHING:
            yield getattr(node, "lineno", 0), f"says {name}; a base class says what came through --public"


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]


def _names(node: ast.AST) -> set[str]:
    """The names that a node itself writes."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    return {node.id} if isinstance(node, ast.Name) else set()


def _called(call: ast.Call) -> str:
    """The last name of what is called, whatever it is called on."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else dotted(call.func)


def outside_core(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The core is reached through its public names, by everyone; so a new module of it is closed from the start."""
    for node in ast.walk(tree):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else modules
        for module in modules:
            if module.startswith("sfumato.privacy."):
                yield node.lineno, f"imports {module}; the core is reached through sfumato.privacy alone"


def in_core(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Randomness in the core comes from noise.py alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and dotted(node) in RANDOMNESS:
            yield node.lineno, f"draws randomness ({dotted(node)}) outside noise.py"


def _pickles(call: ast.Call, room: str) -> bool:
    """Whether torch reads or writes a pickle here; published weights may be read by the loader that runs nothing."""
    safe = any(
        k.arg == "weights_only" and isinstance(k.value, ast.Constant) and k.value.value is True for k in call.keywords
    )
    called = dotted(call.func)
    unsafe = called == "torch.load" and not (safe and room == "networks")
    # A user's own public network is a program, which its owner trusts; one file loads it.
    return called == "torch.save" or unsafe or (called == "torch.export.load" and room != "networks")


def anywhere(tree: ast.AST, *, room: str, name: str) -> Iterator[tuple[int, str]]:
    """Pickle runs code from files; no part of the product loads or writes one.

    One file sends functions between the processes of a crew, which share a secret, and for that alone uses cloudpickle.
    """
    kin = PICKLES - ({"cloudpickle"} if (room, name) == ("privacy", "gloo_crew.py") else set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if kin & {m.split(".")[0] for m in modules}:
                yield node.lineno, "imports pickle or its kin"
        if isinstance(node, ast.Call) and _pickles(node, room):
            yield node.lineno, f"calls {dotted(node.func)}, which pickles"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and getattr(node.value, "value", True):
            yield node.lineno, "allows pickle"


def problems(path: Path, *, room: str) -> list[str]:
    tree = ast.parse(path.read_text("utf-8"))
    found = list(anywhere(tree, room=room, name=path.name))
    if room not in TRUSTED:
        found += in_outer_room(tree)
    if room in READS_NOTHING and not (room == "synthesis" and path.name in MAY_READ):
        found += reading(tree)
    if room in ASKING:
        found += in_asking_room(tree)
    if room != "privacy":
        found += outside_core(tree)
    elif path.name != "noise.py":
        found += in_core(tree)
    return [f"{path}:{line}: {what}" for line, what in sorted(set(found))]


def tree_problems(source: Path) -> list[str]:
    files = sorted(source.rglob("*.py"))
    return [p for file in files for p in problems(file, room=file.relative_to(source).parts[0])]


def main(named: list[str]) -> int:
    """The named files as if they were methods, or the whole source tree."""
    if named:
        found = [p for name in named for p in problems(Path(name), room="methods")]
    else:
        found = tree_problems(SOURCE)
    print("\n".join(found) if found else "boundary: nothing reaches around the ledger")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
