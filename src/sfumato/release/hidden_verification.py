"""Verify a release of images with a hidden attribute: whether its files are whole, and never that a claim holds."""

from __future__ import annotations

from pathlib import Path

from sfumato.errors import VerificationFailed
from sfumato.release import layout
from sfumato.release.contents import attempt, check_files, check_pictures
from sfumato.release.hidden_facts import PROMISING, HiddenFacts, read_hidden_facts
from sfumato.release.rows import check_subset
from sfumato.release.statements import NO_EPSILON
from sfumato.release.verdict import Check, Verdict

_OF_FACTS = ("card", "preview", "columns", "rows")  # checks that need the facts


def verify_hidden(path: Path) -> Verdict:
    """All checks of a folder that has a hidden.json; one that fails does not stop the others."""
    try:
        facts, checks = check_all_but_rows(path)
    except VerificationFailed as error:
        unread = f"not checked, because {layout.HIDDEN} cannot be read"
        checks = [*check_files(path, HiddenFacts.kind), Check("facts", False, error.what)]
        checks += [Check(name, False, unread) for name in _OF_FACTS]
    else:
        checks += check_subset(path, facts.subset)
    return Verdict(path, tuple(map(_promising_nothing, checks)), {"level": "empirical"})


def check_all_but_rows(path: Path) -> tuple[HiddenFacts, list[Check]]:
    """The facts, and the checks of every file but the shards; facts that cannot be read are refused."""
    facts = read_hidden_facts(path)
    checks = [*check_files(path, HiddenFacts.kind), attempt("facts", lambda: _canonical(path, facts))]
    checks += check_pictures(path, facts)
    return facts, list(map(_promising_nothing, checks))


def _canonical(path: Path, facts: HiddenFacts) -> str | list[str]:
    if (path / layout.HIDDEN).read_bytes() != facts.to_json().encode():
        return [f"{layout.HIDDEN} is not written in its one canonical form"]
    return f"{facts.format}, every field known, the hidden attribute not among the labels"


def _promising_nothing(check: Check) -> Check:
    """A problem may quote the folder, and what stands there must not be read as ours."""
    if PROMISING.search(check.detail):
        return Check(check.name, False, f"something there is called like a proved guarantee, and {NO_EPSILON}")
    return check
