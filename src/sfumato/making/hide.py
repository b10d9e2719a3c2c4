"""Hide an attribute of images: split, train a hider, re-generate every image, write the release; no epsilon here."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sfumato import contracts, data
from sfumato.contracts import DEFAULT_HIDER, Hider, Reading
from sfumato.errors import DataError, UsageError, expect_within
from sfumato.lab.checkpoints import LabCheckpoints
from sfumato.lab.folder import Lab
from sfumato.lab.provenance import PARTS, Provenance, fingerprint
from sfumato.making.charged_run import refuse_bad_target
from sfumato.making.parts import split_parts
from sfumato.making.settings import with_settings
from sfumato.progress import track
from sfumato.release import HiddenFacts, checked_facts, write_hidden
from sfumato.values import Attributed, Images, Rewriter, Spec

if TYPE_CHECKING:
    from torch import Tensor

Parts = Literal["g", "v+g", "tr+v+g"]
NO_READING = Reading()
DEFAULT_SHARES = (55.0, 6.0, 24.0, 15.0)  # of tr, v, g and test, as in DECO-Bench's counts
AT_A_TIME = 1024  # images that are re-generated between two checkpoints
LEAST = 2  # records of each value of the attribute that a hider learns from
TELLING = 0.9  # of what is not known of the hidden attribute by its most frequent value: a label that tells more is it
FEW = 5  # records for each value of a label: with fewer it says who is on an image


@dataclass(frozen=True, slots=True)
class HidingJob:
    """What a user asks for who wants an attribute hidden; with the same job a killed run resumes."""

    data: str
    attribute: str  # several are hidden together when joined: race+gender
    method: str = DEFAULT_HIDER
    keep: tuple[str, ...] | None = None  # attributes that are released as labels; None: all others that can be labels
    parts: Parts = "tr+v+g"  # which images are re-generated and released
    shares: tuple[float, ...] = DEFAULT_SHARES
    person: str | None = None  # the attribute that tells persons apart, each of whom is in one part
    train_on: tuple[str, ...] = ()  # other data sets to learn from, in the place of this one
    train_readings: tuple[Reading, ...] = ()  # how each of them is read; none: as `reading` says
    front: bool = False  # use front faces alone
    seed: int = 0
    reading: Reading = NO_READING
    settings: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        expect_within(self, seed=(0, 2**31 - 2))


@dataclass(frozen=True, slots=True)
class HidingPlan:
    """What a job will do; the images are read for it, and nothing is learnt."""

    spec: Spec  # of the images that train the hider, with the values of the attribute as classes
    hider: Hider
    counts: dict[str, int]  # records of each part
    keep: tuple[str, ...]
    left_out: tuple[str, ...]  # labels that are not released, because they tell the hidden attribute or who it is
    released: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Data:
    """The records of a data set, the hidden attribute of each, and their parts."""

    images: Attributed  # all that were read
    hidden: Tensor  # int64 (n,), places in `values`
    values: tuple[str, ...]  # of the hidden attribute, those that are there
    parts: Tensor  # int64 (n,), places in PARTS; -1: in none

    def some(self, rows: Tensor) -> Images:
        """Images with the hidden attribute as their label."""
        return Images(self.images.pixels[rows], self.hidden[rows], self.values)

    def part(self, name: str) -> Images:
        return self.some(self.parts == PARTS.index(name))


def plan_hiding(job: HidingJob) -> HidingPlan:
    """Counts, settings and expected time."""
    read = _read(job, job.data, _kept(job))
    return _planned(job, read, _learnt_from(job, read))


def hide_attribute(job: HidingJob, out: Path | str, *, other_labs: Sequence[Path] = ()) -> Path:
    """Re-generate the images of a job into the release folder `out`, or resume a run that was killed.

    The part `test` is neither learnt from nor released: it is there to measure the leak. Lab material goes to
    `<out>.lab`. A diffusion model that one of the `other_labs` holds, trained on the same images in the same way, is
    taken over from there.
    """
    out = Path(out).absolute()
    refuse_bad_target(out, job.data)
    read = _read(job, job.data, _kept(job))
    learnt_from = _learnt_from(job, read)
    plan = _planned(job, read, learnt_from)
    facts = _facts(job, plan, read)
    with Lab.beside(out) as lab:
        lab.remember(_identity(job, read, learnt_from, plan.hider))
        train, validation = (_joined(learnt_from, part) for part in ("tr", "v"))
        rewriter = plan.hider.fit(train, validation, checkpoints=LabCheckpoints(lab, tuple(other_labs)))
        came = _provenance(job, read)
        order, seeds = _chance(lab, len(came.sources))
        came = replace(came, sources=came.sources[order])
        sources = came.sources
        pixels = _rewritten(rewriter, read.some(sources), lab, seeds)
        told = None if rewriter.tells is None else rewriter.tells(pixels)
        own = any(one.images.pixels.equal(read.images.pixels) for one in learnt_from)
        came.with_head(told, train, read.images.classes[job.attribute], tr_trained=own).write(lab)
        labels = {name: read.images.attributes[name][sources] for name in plan.keep}
        return write_hidden(out, Attributed(pixels, labels, facts.labels), facts)


def real_side(job: HidingJob) -> tuple[Attributed, Provenance]:
    """The images that a job reads, and which of them it releases; nothing is learnt and nothing is written.

    It does not depend on the method, nor on what that learns from.
    """
    read = _read(job, job.data, _kept(job))
    return read.images, _provenance(job, read)


def _provenance(job: HidingJob, read: _Data) -> Provenance:
    """Where the released images come from; what the method's head tells of them is not known yet."""
    names = tuple(name for name in read.images.attributes if name != job.person)
    sources = _sources(job, read.parts)
    return Provenance(job.attribute, names, job.person, read.parts, sources, None, fingerprint(read.images))


def _labels(job: HidingJob, read: _Data) -> tuple[str, ...]:
    """The attributes that were read and are released as labels.

    By default a label is left out that tells the hidden attribute under another name, or who is on an image; one that
    was asked for is refused if it tells the attribute.
    """
    names = tuple(name for name in read.images.attributes if name not in (job.attribute, job.person))
    if job.keep is None:
        return tuple(name for name in names if not _says_who(read, name) and not _tells(read, name))
    for name in names:
        if _tells(read, name) and not _says_who(read, name):
            raise UsageError(
                f"Expected labels that do not tell {job.attribute!r}, which is hidden; who knows {name!r} knows it.",
                fix="leave it out of --keep",
            )
    return names


def _tells(read: _Data, name: str) -> bool:
    """Whether who knows this label of an image knows the hidden attribute, but for few images."""
    import torch

    labels, hidden = read.images.attributes[name], read.hidden
    table = torch.zeros(len(read.images.classes[name]), len(read.values))
    table.index_put_((labels, hidden), torch.ones(1), accumulate=True)
    known, usual = float(table.amax(1).sum()) / len(labels), float(table.sum(0).max()) / len(labels)
    return known >= usual + TELLING * (1 - usual)


def _says_who(read: _Data, name: str) -> bool:
    held = read.images.attributes[name].bincount()
    return int(held.sum()) < FEW * int((held > 0).sum())


def _kept(job: HidingJob) -> tuple[str, ...]:
    """The attributes that are read as labels."""
    if job.reading.label is not None or job.reading.classes is not None:
        raise UsageError(
            "Expected neither --label nor --classes: which attributes are read follows from --attribute and --keep.",
            fix="leave them out",
        )
    there = data.attributes_of(job.data, job.reading)
    hidden = {job.attribute, *data.parts_of(job.attribute, there)}
    if job.person in hidden:
        raise UsageError(
            f"Expected another attribute as --person than the hidden one, got {job.person!r}.",
            fix="name the column that says who is on an image",
        )
    if job.keep is None:
        others = {*hidden, job.person}
        return tuple(name for name in data.labels_of(job.data, job.reading) if name not in others)
    for name in job.keep:
        if {*data.parts_of(name, there), name} & {*hidden, job.person}:
            raise UsageError(
                f"Expected other labels to keep than the hidden attribute and who it is, got {name!r}.",
                fix="leave it out of --keep",
            )
    return job.keep


def _read(job: HidingJob, where: str, names: tuple[str, ...]) -> _Data:
    """The records of a data set with these attributes and the hidden one, split into parts."""
    import torch

    images = data.load_attributed(where, (job.attribute, *names), job.reading, person=job.person)
    there = torch.unique(images.attributes[job.attribute])  # of a known attribute, such as race, a class may be missing
    values = tuple(images.classes[job.attribute][number] for number in there.tolist())
    if len(values) < 2:
        raise DataError(
            f"Expected an attribute of at least two values to hide, got {len(values)} in {job.attribute!r}.",
            where=where,
            fix="name another --attribute",
        )
    hidden = torch.searchsorted(there, images.attributes[job.attribute])
    rows = _front(images) if job.front else torch.arange(len(images))
    person = None if job.person is None else images.attributes[job.person][rows]
    parts = torch.full((len(images),), -1)
    parts[rows] = split_parts(hidden[rows], shares=job.shares, seed=job.seed, person=person)
    return _Data(images, hidden, values, parts)


def _front(images: Attributed) -> Tensor:
    """The numbers of the images that show a face from the front."""
    from sfumato.statistics.faces import front_faces

    return front_faces(images.pixels).nonzero()[:, 0]


def _learnt_from(job: HidingJob, read: _Data) -> tuple[_Data, ...]:
    """What the hider learns from: this data, or the others that are named in its place."""
    if not job.train_on:
        return (read,)
    shape = tuple(read.images.pixels.shape[1:])
    others = []
    readings = job.train_readings or (job.reading,) * len(job.train_on)
    if len(readings) != len(job.train_on):
        raise UsageError(
            f"Expected a reading for each of {len(job.train_on)} data sets to learn from, got {len(readings)}.",
            fix="leave train_readings out to read all alike",
        )
    for where, reading in zip(job.train_on, readings, strict=True):
        same = (where, reading) == (job.data, job.reading)
        other = read if same else _read(replace(job, reading=reading), where, ())
        if tuple(other.images.pixels.shape[1:]) != shape or other.values != read.values:
            raise DataError(
                f"Expected images of {shape} whose {job.attribute} is one of {', '.join(read.values)}, as in the "
                "data to release; got others.",
                where=where,
                fix="read both with the same --size and --mode, and use the same names of values",
            )
        others.append(other)
    return tuple(others)


def _planned(job: HidingJob, read: _Data, learnt_from: tuple[_Data, ...]) -> HidingPlan:
    train = _joined(learnt_from, "tr")
    sizes = train.labels.bincount(minlength=len(train.classes)).tolist()
    for name, size in zip(train.classes, sizes, strict=True):
        if size < LEAST:
            raise DataError(
                f"Expected at least {LEAST} images of {job.attribute} {name!r} to learn from, got {size}.",
                where=" and ".join(job.train_on) or job.data,
                fix="add images of it, take out those that there are, or give `tr` a larger share",
            )
    channels, height, width = train.pixels.shape[1:]
    spec = Spec(len(train), channels, height, width, train.classes)
    hider: Hider = with_settings(contracts.find("hiding", job.method).for_task(spec), dict(job.settings))
    hider.check(spec)
    counts = {name: int((read.parts == number).sum()) for number, name in enumerate(PARTS)}
    released = sum(counts[name] for name in job.parts.split("+"))
    if released == 0:
        raise UsageError(
            f"Expected images in the parts {job.parts}, got none.", fix="give them a larger share with --shares"
        )
    seconds = hider.seconds(spec) * (1 + released / max(1, len(train))) / 2
    keep = _labels(job, read)
    left_out = tuple(name for name in read.images.attributes if name not in (job.attribute, job.person, *keep))
    return HidingPlan(spec, hider, counts, keep, left_out, released, seconds)


def _joined(sets: tuple[_Data, ...], part: str) -> Images:
    import torch

    found = [one.part(part) for one in sets]
    pixels, labels = torch.cat([one.pixels for one in found]), torch.cat([one.labels for one in found])
    return Images(pixels, labels, found[0].classes)


def _sources(job: HidingJob, parts: Tensor) -> Tensor:
    """The records to release, in the order of the files."""
    import torch

    wanted = torch.isin(parts, torch.tensor([PARTS.index(name) for name in job.parts.split("+")]))
    return wanted.nonzero()[:, 0]


def _chance(lab: Lab, count: int) -> tuple[Tensor, Tensor]:
    """A random order of so many images, and a seed for each piece of them, from the operating system.

    With a seed that can be guessed, the order of the released images would lead back to that of the files, which may
    say who is on them, and what was drawn for an image to what it was made of. They are kept in the lab, so a resumed
    run finds them.
    """
    import torch

    checkpoints = LabCheckpoints(lab)
    kept = checkpoints.restore("chance")
    if kept is None:
        order = list(range(count))
        secrets.SystemRandom().shuffle(order)
        seeds = [secrets.randbits(63) for _ in range(0, count, AT_A_TIME)]
        kept = {"order": torch.tensor(order), "seeds": torch.tensor(seeds)}
        checkpoints.keep("chance", kept)
    return kept["order"], kept["seeds"]


def _rewritten(rewriter: Rewriter, images: Images, lab: Lab, seeds: Tensor) -> Tensor:
    """One image for each, piece by piece; what is done is kept, so that a killed run goes on."""
    import torch

    checkpoints, made = LabCheckpoints(lab), []
    pieces = torch.split(torch.arange(len(images)), AT_A_TIME)
    for number, rows in track(enumerate(pieces), what="re-generating", total=len(pieces)):
        name = f"rewritten-{number}"
        piece = checkpoints.restore(name)
        if piece is None:
            generator = torch.Generator().manual_seed(int(seeds[number]))
            piece = {"pixels": rewriter.rewrite(images.rows(rows), generator)}
            checkpoints.keep(name, piece)
        made.append(piece["pixels"])
    return torch.cat(made)


def _identity(job: HidingJob, read: _Data, learnt_from: tuple[_Data, ...], hider: Hider) -> dict[str, Any]:
    """What must be the same when a run is resumed."""
    return {
        **asdict(job),
        "records": fingerprint(read.images),
        "learnt_from": [fingerprint(one.images) for one in learnt_from],
        "hyperparameters": asdict(hider),  # type: ignore[call-overload]
        "weights": hider.public_weights(),
        "package_version": version("sfumato"),
    }


def _facts(job: HidingJob, plan: HidingPlan, read: _Data) -> HiddenFacts:
    """What the release says of itself; refused here, before any work, where it cannot be stated."""
    spec = plan.spec
    settings = asdict(plan.hider)  # type: ignore[call-overload]
    settings.pop("weights", None)  # the path of a folder; what is in it is stated by name and checksum
    return checked_facts(
        hidden=job.attribute,
        values=spec.classes,
        method={
            "name": job.method,
            "package_version": version("sfumato"),
            "hyperparameters": settings,
        },
        weights=plan.hider.public_weights(),
        images={"count": plan.released, "channels": spec.channels, "height": spec.height, "width": spec.width},
        labels={name: read.images.classes[name] for name in plan.keep},
    )
