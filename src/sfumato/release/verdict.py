"""What a verification found, check by check, and the same on one screen in plain words."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfumato.errors import NoGuarantee, VerificationFailed, printable
from sfumato.release.statements import NO_EPSILON

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Check:
    """One question put to a release."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """All checks of one release, and the facts that were counted or checked in them."""

    path: Path
    checks: tuple[Check, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the claim of the release holds; one that is empirical makes none."""
        return self.intact and not self.empirical

    @property
    def intact(self) -> bool:
        """Whether every check holds."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def empirical(self) -> bool:
        """Whether the release says itself that nothing about it is proved."""
        return self.facts.get("level") == "empirical"

    @property
    def exit_code(self) -> int:
        """0: the claim holds; 7: there is none, and the files are whole; 6: something is wrong."""
        return 0 if self.ok else NoGuarantee.exit_code if self.intact else VerificationFailed.exit_code

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.ok)

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        checks = [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in self.checks]
        return {"ok": self.ok, "path": str(self.path), "checks": checks, "facts": self.facts}

    def require(self) -> None:
        """Raise if the claim does not hold, or there is none."""
        if self.empirical and self.intact:
            raise NoGuarantee(
                f"Expected a release with a guarantee, got images with a hidden attribute: {NO_EPSILON}.",
                where=self.path,
                fix="use a certified release; or measure what this one gives away with `sfumato leak`",
            )
        if not self.ok:
            raise VerificationFailed(
                "; ".join(f"{c.name}: {c.detail}" for c in self.failed[:3]) + f" ({len(self.failed)} failed)",
                where=self.path,
                fix="do not rely on this release; ask its publisher for a new one",
            )

    def text(self) -> str:
        """One screen: what is guaranteed, under which assumptions, against whom, and what remains open."""
        lines = [self._first_line(), ""]
        for check in self.checks:
            lines += _wrapped(f"{'ok' if check.ok else 'NO':>4}  {check.name:<18} ", check.detail)
        lines.append("")
        if self.ok:
            lines += self._promise()
        elif self.empirical:
            lines += self._measured()
        elif self.facts.get("level") == "not-private":
            lines += _wrapped("", "NOT PRIVATE. This release claims no guarantee. Treat it like the private data.")
        else:
            lines += _wrapped("", "The claim does not hold as it stands here. Do not rely on this release.")
        return "\n".join(lines) + "\n"

    def _first_line(self) -> str:
        if self.empirical:
            return f"NO GUARANTEE  {printable(self.path)}: {NO_EPSILON}."
        return f"{'VERIFIED' if self.ok else 'FAILED'}  {printable(self.path)}"

    def _measured(self) -> list[str]:
        if not self.intact:
            return _wrapped("", "FAILED. The files are not those that were written. Do not use this release.")
        lines = _wrapped("", "The files are whole and belong together. Nothing is proved about what they give away.")
        for text in (
            "hidden.json states which attribute was hidden, and how. That it is hidden can only be measured, by "
            "someone who has the real images (sfumato leak); a measurement holds for the attackers that it tried.",
            "An attribute hidden is not a person hidden: each image was made from a real one, and people may still be "
            "recognised.",
            "A release is not signed: nobody can tell from here who made it.",
        ):
            lines += _wrapped("  - ", text)
        return lines

    def _promise(self) -> list[str]:
        f = self.facts
        lines = []
        if "parameters" in f:
            of = f"a classifier of {f['parameters']:,} parameters; its architecture is stated as {f['architecture']}."
            lines += _wrapped("Released: ", of)
        lines += _wrapped(
            "Guaranteed: ",
            f"({f['epsilon']:.4g}, {f['delta']:.3g})-differential privacy for {f['unit']} ({f['adjacency']}). "
            "Taking one private image away changes the odds of anything that is inferred from the release by a factor "
            f"of at most e^{f['epsilon']:.4g}, except with probability {f['delta']:.3g}.",
        )
        lines += _wrapped(
            "Against: ", "everyone who sees the release, whatever else they know, compute, or learn later."
        )
        lines.append("Assuming:")
        for text in f["assumptions"]:
            lines += _wrapped("  - ", text)
        lines += _wrapped(
            "Stated in certificate.json: ", "what was asked of the data, by which method, of how many records."
        )
        lines.append("Not checkable here, because a release is not signed:")
        for text in (
            "that nobody rewrote the whole folder consistently (compare SHA256SUMS over a channel you trust);",
            "that the noise was really drawn as stated, from a source that nobody can replay;",
            "that the stated record count and mechanisms are what was run on the private data.",
        ):
            lines += _wrapped("  - ", text)
        return lines


def _wrapped(head: str, text: str) -> list[str]:
    inside = " " * min(len(head), 28)
    return textwrap.wrap(head + printable(text), _WIDTH, subsequent_indent=inside, drop_whitespace=True)
