"""The page of a release's lab: its table of scores with charts and pictures, in one file that opens anywhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sfumato.errors import printable
from sfumato.lab.folder import Lab
from sfumato.lab.scores import LAB_SIDE, read_scores
from sfumato.release import read_certificate
from sfumato.release.certificate import AnyCertificate
from sfumato.report.charts import Bar, bars

Row = dict[str, Any]
SECTIONS = {
    "utility": (
        "Utility",
        "How accurate are classifiers that are trained on the release alone, and how accurate are classifiers "
        "trained on real images on the release? Means over classifiers and seeds, nothing selected.",
    ),
    "fidelity": (
        "Fidelity",
        "How near is the release to real images by the features of the extractor in brackets? "
        "Scores of two extractors, or of different sample sizes, must not be compared.",
    ),
    "privacy": (
        "Privacy under attack",
        "What attacks find out from the release. They can detect copying; "
        "an attack that fails proves nothing: only the guarantee above does.",
    ),
    "fairness": ("Fairness", "Which groups and classes get worse results, and is a bias of the real data amplified?"),
    "all": ("Altogether", "Accuracy, privacy and fairness as one number; its formula is in the details."),
}
OF_A_MODEL = {  # the sentences that differ for a released classifier
    "utility": "How accurate is the released classifier on real images, and is it as often right as it is sure?",
    "privacy": "What attacks find out from the classifier's answers. They can detect memorisation; "
    "an attack that fails proves nothing: only the guarantee above does.",
    "fairness": "Which groups and classes does the classifier treat worse, and does it read the class from colour?",
}
PICTURES = {
    "utility": (),
    "fidelity": (("real_vs_synthetic.png", "Real images (private) beside released ones."),),
    "privacy": (
        ("attacks.png", "True against false positives of each attack."),
        ("near_duplicates.png", "The released images nearest to training images (private)."),
    ),
    "fairness": (),
    "all": (),
}


def write_page(release: Path | str) -> Path:
    """Write `scores.html` into the lab of a release, from the files that are there."""
    release = Path(release).absolute()
    with Lab.beside(release) as lab:
        return lab.write("scores.html", _page(release, lab.folder))


def _page(release: Path, lab: Path) -> str:
    document = read_scores(lab)
    rows: list[Row] = document["scores"]
    certificate = read_certificate(release)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, autoescape=True
    )
    return environment.get_template("evaluation.html.jinja").render(
        title=f"What {printable(release.name)} is worth",
        lab_side=LAB_SIDE,
        claim=_claim(certificate),
        tiles=_tiles(rows),
        warnings=_warnings(rows),
        sections=[
            _section(judged, rows, lab, OF_A_MODEL if certificate.kind == "model" else {})
            for judged in SECTIONS
            if any(row["judges"] == judged for row in rows)
        ],
        left_out=sorted(document["left_out"].items()),
    )


def _claim(certificate: AnyCertificate) -> str:
    guarantee, made = certificate.guarantee, f"{certificate.holds} by {certificate.method.name}"
    if guarantee.level != "certified":
        return f"{made}: NOT PRIVATE, there is no guarantee."
    return f"{made} under epsilon {guarantee.epsilon:.4g}, delta {guarantee.delta:g}; run `sfumato verify` to check it."


def _section(kind: str, rows: list[Row], lab: Path, other_sentences: dict[str, str]) -> dict[str, Any]:
    ours = [row for row in rows if row["judges"] == kind]
    title, sentence = SECTIONS[kind]
    pictures = [
        {"base64": base64.b64encode((lab / name).read_bytes()).decode(), "caption": caption}
        for name, caption in PICTURES[kind]
        if (lab / name).exists()
    ]
    machine = [{key: row[key] for key in ("score", "settings", "seeds", "versions", "details")} for row in ours]
    return {
        "title": title,
        "sentence": other_sentences.get(kind, sentence),
        "charts": _charts(kind, rows),
        "pictures": pictures,
        "rows": [{**row, "shown": _shown(row["value"]), "error": _shown(row["standard_error"])} for row in ours],
        "machine": json.dumps(machine, indent=1),
    }


def _charts(kind: str, rows: list[Row]) -> list[dict[str, str]]:
    charts = []
    trained = _named(rows, "gen2real")
    if kind == "utility" and trained is not None:
        by_arch = []
        for arch in trained["details"].get("accuracies", {}):
            row, ceiling = _named(rows, f"gen2real-{arch}"), _named(rows, f"real2real-{arch}")
            if row is not None:
                by_arch.append(
                    Bar(arch, row["value"], row["standard_error"], None if ceiling is None else ceiling["value"])
                )
        marked = "trained on real images instead" if any(bar.mark is not None for bar in by_arch) else ""
        charts.append(_chart("Accuracy on real images, by classifier trained on the release", by_arch, marked))
    if kind == "fairness" and trained is not None:
        charts.append(_by_class("Accuracy on real images, by class, of classifiers trained on the release", trained))
    released = _named(rows, "accuracy")
    if kind == "fairness" and released is not None:
        charts.append(_by_class("Accuracy of the released classifier on real images, by class", released))
    return [chart for chart in charts if chart["svg"]]


def _by_class(caption: str, row: Row) -> dict[str, str]:
    known = row["details"].get("per_class", {})
    return _chart(caption, [Bar(printable(name), value) for name, value in known.items() if value is not None][:50])


def _chart(caption: str, chart: list[Bar], mark_means: str = "") -> dict[str, str]:
    return {"caption": caption, "svg": bars(chart, mark_means=mark_means) if chart else ""}


def _tiles(rows: list[Row]) -> list[dict[str, str]]:
    """The handful of numbers that people ask for first; those that were not computed are not shown."""
    attacks = [row for row in rows if row["score"].startswith("attack-") and not row["part_of"]]
    strongest = max(attacks, key=lambda row: row["value"] or 0.0, default=None)
    wanted: list[tuple[str, Row | None, str]] = [
        ("trained on the release", _named(rows, "gen2real"), "accuracy on real images"),
        ("trained on real images", _named(rows, "real2real"), "the ceiling"),
        ("worst class", _named(rows, "gen2real-worst-class"), "accuracy on real images"),
        ("accuracy", _named(rows, "accuracy"), "of the classifier on real images"),
        ("worst class", _named(rows, "worst-class"), "accuracy on real images"),
        ("calibration error", _named(rows, "calibration"), "lower is better"),
        ("bias", _named(rows, "classifier-bias"), "0 is none, 0.5 is all"),
        ("Frechet distance", _starting(rows, "fid["), "lower is better"),
        ("strongest attack", strongest, "area under the curve; 0.5 is guessing"),
        ("near duplicates", _named(rows, "near-duplicates"), "share of the release"),
        ("harmonic score", _named(rows, "harmonic-score"), "accuracy, privacy, fairness"),
    ]
    return [{"label": label, "value": _shown(row["value"]), "note": note} for label, row, note in wanted if row]


def _warnings(rows: Iterable[Row]) -> list[str]:
    warnings = []
    for row in rows:
        if row["details"].get("flagged"):
            warnings.append(
                f"{row['score']}: released images lie nearer to training images than chance allows. Look at them."
            )
        if row["details"].get("above_claim"):
            warnings.append(f"{row['score']}: the attack shows more than the claimed epsilon allows. Do not publish.")
    return warnings


def _named(rows: Iterable[Row], name: str) -> Row | None:
    return next((row for row in rows if row["score"] == name), None)


def _starting(rows: Iterable[Row], start: str) -> Row | None:
    return next((row for row in rows if row["score"].startswith(start)), None)


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 10 else f"{value:.4f}"
