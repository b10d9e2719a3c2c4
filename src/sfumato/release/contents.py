"""Checks on the files of a release: the right ones, unchanged, with nothing in card, preview and weights but theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sfumato.errors import SfumatoError, printable
from sfumato.release import layout
from sfumato.release.card import card_problem
from sfumato.release.certificate import AnyCertificate, Certificate, ModelCertificate
from sfumato.release.hidden_facts import HiddenFacts
from sfumato.release.sums import entries, sums_problems
from sfumato.release.tensors import file_problem, values_problem
from sfumato.release.verdict import Check
from sfumato.values import ReleaseKind

_SEVERAL = 3  # problems named in one detail


def attempt(name: str, question: Callable[[], str | list[str]]) -> Check:
    """Run a check; problems or any error make it a failed one, so that the other checks still run."""
    try:
        answer = question()
    except SfumatoError as error:
        return Check(name, False, error.what)
    except Exception as error:  # noqa: BLE001  # a hostile file can make a reader raise anything
        return Check(name, False, f"could not be read ({type(error).__name__}: {printable(error)[:200]})")
    if isinstance(answer, str):
        return Check(name, True, answer)
    more = f" (and {len(answer) - _SEVERAL} more)" if len(answer) > _SEVERAL else ""
    return Check(name, False, "; ".join(answer[:_SEVERAL]) + more)


def check_files(folder: Path, kind: ReleaseKind) -> list[Check]:
    """Sums and names."""

    def names() -> str | list[str]:
        strange = [
            f"{printable(name)} does not belong in a release"
            for name, _ in entries(folder)
            if not layout.allowed(name, kind)
        ]
        return strange or "only files that a release may have"

    return [
        attempt("sums", lambda: sums_problems(folder) or f"every file is listed in {layout.SUMS} and unchanged"),
        attempt("file names", names),
    ]


def check_pictures(folder: Path, certificate: Certificate | HiddenFacts) -> list[Check]:
    """Card and preview."""
    return [
        attempt("card", lambda: _card(folder, certificate)),
        attempt("preview", lambda: _preview(folder)),
    ]


def check_model(folder: Path, certificate: ModelCertificate) -> list[Check]:
    """The card of a classifier, the file of its weights, and every number in it."""
    path, facts = folder / layout.WEIGHTS, certificate.model
    stated = f"{len(facts.tensors):,} tensors with {facts.parameters:,} parameters, as stated, and nothing beside them"

    def tensors() -> str | list[str]:
        problem = file_problem(path, facts.tensors)
        return [f"{layout.WEIGHTS} {problem}"] if problem else stated

    def weights() -> str | list[str]:
        problem = values_problem(path)
        return [f"{layout.WEIGHTS} {problem}"] if problem else "all finite"

    as_stated = attempt("tensors", tensors)
    unread = Check("weights", False, "not read, because the file is not one of the tensors that are stated")
    return [
        attempt("card", lambda: _card(folder, certificate)),
        as_stated,
        attempt("weights", weights) if as_stated.ok else unread,
    ]


def _card(folder: Path, certificate: AnyCertificate | HiddenFacts) -> str | list[str]:
    text = layout.read_regular(folder / layout.CARD, most=1 << 20).decode("utf-8")
    exported = any(layout.exported(name) for name, _ in entries(folder))
    problem = card_problem(text, certificate, folders=exported)
    source = layout.HIDDEN if isinstance(certificate, HiddenFacts) else "the certificate"
    return [f"{layout.CARD} {problem}"] if problem else f"the one that {source} gives"


def _preview(folder: Path) -> str | list[str]:
    raw = layout.read_regular(folder / layout.PREVIEW, most=1 << 26)
    problem = layout.png_problem(raw, channels=3, size=None)
    return [f"{layout.PREVIEW} {problem}"] if problem else "a plain picture without hidden parts"
