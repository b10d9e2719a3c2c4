"""Another release from the noisy answers of a finished one: the data is not opened, and no privacy is spent."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sfumato import contracts
from sfumato.contracts import Reading, Synthesizer
from sfumato.errors import DataError, UsageError, VerificationFailed
from sfumato.lab.folder import Lab
from sfumato.making.certify import certify, network_of, resampled
from sfumato.making.charged_run import SHARD_FIELDS, fingerprint, public_images_of, refuse_bad_target
from sfumato.making.release import Job, Task, balanced_sample, check_count
from sfumato.making.settings import with_settings
from sfumato.privacy import Budget, FinishedLedger, Tape, recalled_images
from sfumato.release import Certificate, read_image_certificate, write_release
from sfumato.values import Images, Spec

NOTE = "resampled.json"  # in the lab of a resampled release: whose answers it was made from
_LEDGER, _TAPE, _RUN = "ledger.jsonl", "tape", "run.json"


@dataclass(frozen=True, slots=True)
class Original:
    """A finished run, as read from its release and its lab."""

    folder: Path
    job: Job
    task: Task
    ledger: FinishedLedger
    tape: Tape
    certificate: Certificate
    public_images: str | None  # their fingerprint, where it was taken


def resample_release(
    folder: Path | str,
    out: Path | str,
    *,
    count: int | None = None,
    settings: tuple[tuple[str, str], ...] = (),
    folders: bool = False,
) -> Path:
    """Make a release of `count` images in the folder `out` from the answers that the one in `folder` was made from.

    The method is run again on the answers in the lab; the private data is not opened and need not exist any more.
    `settings` may change hyperparameters that change nothing of what was asked. With none, and the same count, the
    images are the same.
    """
    out = Path(out).absolute()
    check_count(count)
    original = read_original(Path(folder).absolute())
    refuse_bad_target(out, original.job.data)
    if {original.folder.resolve(), Lab.beside(original.folder).folder.resolve()} & set(out.resolve().parents):
        raise UsageError("Expected a folder outside the release and its lab.", where=out, fix="choose another --out")
    lab = Lab.beside(out)
    if (lab.folder / _RUN).exists():
        raise UsageError(
            "Expected a name of its own for the release, got that of a run that was begun.",
            where=lab.folder,
            fix="choose another --out",
        )
    task = replace(original.task, synthesizer=_with_free(original.task, dict(settings)))
    job = replace(original.job, count=count or original.job.count, folders=folders)
    public = _public_again(original)
    _refuse_other_network(original, task)
    _warn_of_other_versions(original.certificate.versions)
    with lab:
        note = {"release": str(original.folder), "answers": f"{original.folder}.lab", "settings": dict(settings)}
        lab.write(NOTE, json.dumps(note, indent=2) + "\n")
        images = _sampled(original, task, public, job.count or task.spec.count)
        assumptions = resampled(original.ledger.assumptions)
        certificate = certify(job, task, original.ledger, original.certificate.noise, images, assumptions)
        return write_release(out, images, certificate, export_folders=folders)


def _sampled(original: Original, task: Task, public: Images | None, count: int) -> Images:
    private = recalled_images(task.spec, original.ledger, original.tape)
    try:
        sampler = task.synthesizer.fit(private, public)
    finally:
        private.close()
    return balanced_sample(sampler, task.spec, count)


def read_original(folder: Path) -> Original:
    """The finished run behind a release; whatever is missing for another release from its answers raises an error."""
    if not folder.is_dir():
        raise UsageError("Expected a release folder, got none.", where=folder, fix="check the path")
    certificate = read_image_certificate(folder)
    lab = Lab.beside(folder).folder
    if not lab.is_dir():
        raise UsageError(
            "Expected the lab of the release beside it, because the noisy answers are there; got none.",
            where=lab,
            fix="resample where the release was made",
        )
    if (lab / NOTE).exists() and not (lab / _RUN).exists():
        origin = json.loads((lab / NOTE).read_text("utf-8"))["release"]
        raise UsageError(
            "Expected a release that was made from private data, got one that was resampled itself.",
            where=folder,
            fix=f"resample {origin}, which its answers are from",
        )
    for name in (_RUN, _LEDGER, _TAPE):
        if not (lab / name).exists():
            raise UsageError(
                f"Expected the run of the release in its lab, got no {name}.",
                where=lab,
                fix="resample where the release was made, or restore the lab",
            )
    job, task, public = _run(lab / _RUN)
    ledger = FinishedLedger(task.budget, lab / _LEDGER)
    charged = [{"purpose": charge.purpose, **charge.mechanism.to_dict()} for charge in ledger.charges]
    if charged != [asked.model_dump() for asked in certificate.mechanisms]:
        raise VerificationFailed(
            "Expected the ledger that the release was certified from, got another.",
            where=lab,
            fix="restore the lab of this release",
        )
    if not ledger.finished:
        raise UsageError(
            "Expected answers to everything that was paid for, got a run with questions left.",
            where=lab,
            fix="make a release of its own, which costs privacy",
        )
    return Original(folder, job, task, ledger, Tape(lab / _TAPE), certificate, public)


def _run(path: Path) -> tuple[Job, Task, str | None]:
    """Job and task as the run wrote them down."""
    try:
        facts: dict[str, Any] = json.loads(path.read_text("utf-8"))
        spec = Spec(**{**facts["spec"], "classes": tuple(facts["spec"]["classes"])})
        classes = facts["reading"]["classes"]
        reading = Reading(**{**facts["reading"], "classes": None if classes is None else tuple(classes)})
        settings = tuple((str(name), str(value)) for name, value in facts["settings"])
        stated = {f.name: facts[f.name] for f in fields(Job) if f.name in facts or f.name not in SHARD_FIELDS}
        job = Job(**{**stated, "reading": reading, "settings": settings})
        budget = Budget(**facts["budget"])
        task = Task(spec, budget, _synthesizer(job.method, spec, budget, facts["hyperparameters"]))
    except (KeyError, TypeError, ValueError, UsageError) as error:
        why = error.what if isinstance(error, UsageError) else f"{type(error).__name__} of {error}."
        raise UsageError(
            f"Expected a run with a method and settings that this version knows; {why}",
            where=path,
            fix="resample with the version that made the release",
        ) from error
    return job, task, facts.get("public_images")


def _synthesizer(method: str, spec: Spec, budget: Budget, stated: Mapping[str, Any]) -> Synthesizer:
    made: Synthesizer = contracts.find("methods", method).for_task(spec, budget)
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in stated.items()}
    return replace(made, **values)  # type: ignore[type-var]


def _with_free(task: Task, settings: Mapping[str, str]) -> Synthesizer:
    """The method with other hyperparameters, of which none may change what was asked."""
    before = task.synthesizer
    after = with_settings(before, settings)
    bound = [
        f.name
        for f in fields(after)  # type: ignore[arg-type]
        if getattr(after, f.name) != getattr(before, f.name) and f.name not in before.free
    ]
    if bound:
        raise UsageError(
            f"Expected changes of {', '.join(sorted(before.free)) or 'nothing'} alone, because {bound[0]} changes "
            "what is asked of the data; got that.",
            fix="leave it out, or make a release of its own, which costs privacy",
        )
    if list(after.plan(task.spec)) != list(before.plan(task.spec)):
        raise UsageError(
            "Expected settings with the plan of the recorded run, got some that ask other questions.",
            fix="change them less, or make a release of its own, which costs privacy",
        )
    return after


def _public_again(original: Original) -> Images | None:
    """The public images; others would give the answers another meaning."""
    public = public_images_of(original.job, original.task.spec)
    if original.public_images not in (None, fingerprint(public)):
        raise DataError(
            "Expected the public images that the release was made with, got others.",
            where=original.job.public,
            fix="put the old ones there again",
        )
    return public


def _refuse_other_network(original: Original, task: Task) -> None:
    """Another public network would give the answers another meaning, as other public images would."""
    then, now = original.certificate.public.public_network, network_of(task.synthesizer)
    if now != then:
        raise DataError(
            f"Expected the public network that the release was made with ({then or 'none'}), got {now or 'none'}.",
            where=original.folder,
            fix="put the file of that network in its place again, and leave the setting as it was",
        )


def _warn_of_other_versions(then: Mapping[str, str]) -> None:
    other = [f"{name} {then[name]}" for name in ("sfumato", "torch") if then.get(name, "") not in ("", version(name))]
    if other:
        print(f"The release was made with {' and '.join(other)}; images may come out otherwise.", file=sys.stderr)
