"""The public page: true to its release and to nothing else, plain in words, and with snippets that run."""

from __future__ import annotations

import html
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import norm

import sfumato
from release.making import CLASSES, OPEN, PUBLIC_NETWORK, edit_certificate, make_certificate, make_images, renew_sums
from sfumato.auditing import fixture
from sfumato.contracts import Reading
from sfumato.errors import EnvironmentProblem, SfumatoError, UsageError, VerificationFailed
from sfumato.making import charged_run
from sfumato.making import release as making
from sfumato.making.release import Job, make_release
from sfumato.privacy import GaussianSum, NoisyChoice, Recording, ShardedAnswers, ShardedSums, profile
from sfumato.release import Certificate, Method, statements, write_release
from sfumato.report.public import write_page_here
from sfumato.values import Images

HOSTILE = ("<script>alert(1)</script>", "a\"'&{{ 7*7 }}", "up\u202edown\nline", "../../" + "w" * 190)


def made(folder: Path, *, export: bool = False, **changes: Any) -> Path:
    kinds = {name: changes.pop(name) for name in ("channels", "logits", "transfer", "network") if name in changes}
    images = make_images(**kinds)
    return write_release(folder, images, make_certificate(images, **changes), export_folders=export)


def page(release: Path, out: Path | None = None) -> str:
    return write_page_here(release, out or release.with_name("page.html")).read_text("utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def words(text: str) -> str:
    """What a reader sees."""
    return " ".join(html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", text, flags=re.DOTALL)).split())


def snippet(text: str, name: str, release: Path) -> str:
    found = re.search(rf'id="snippet-{name}"><code>(.*?)</code>', text, re.DOTALL)
    assert found is not None
    return html.unescape(found[1]).replace("path/to/release", str(release))


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("public") / "r")


def test_it_says_what_was_protected_and_what_that_means(release: Path) -> None:
    text = page(release)
    said = words(text)
    certificate = json.loads((release / "certificate.json").read_text())
    assert certificate["guarantee"]["epsilon"] == pytest.approx(0.8142, abs=1e-3)
    for expected in (
        "60,000 private images of 8 x 8 pixels in grey",
        "40 images that a program made",
        "the place of that image is empty",
        "at most 2.26 (e to the power of epsilon",  # e^0.8142 = 2.2573, rounded up
        "at most 1 in 100,000 (delta 0.00001)",
        "On noise that nobody can draw again (source: ChaCha20 keyed from OS entropy)",
        "class balance of a release says nothing",
        "mean embedding",
        "A sum over all images, once",
        "Each person stands behind at most one image",
        "sfumato verify",
        "sfumato 0.1.0",
        "Licence: not stated",
    ):
        assert expected in said, expected
    assert "NOT PRIVATE" not in text
    for line in (release / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert digest in text
        assert name in said


def test_a_release_without_guarantee_is_loud(tmp_path: Path) -> None:
    naked = made(tmp_path / "r", guarantee=OPEN, budget={"epsilon": None, "delta": 1e-5}, profile=[])
    text = page(naked)
    assert text.count("NOT PRIVATE") >= 3
    assert text.index("NOT PRIVATE", text.index("<body>")) < text.index("<h1>")
    said = words(text).replace(statements.PERSON, "")
    for promised in ("at most", "certified", "The same guarantee", "provably", "The budget", "The whole curve"):
        assert promised not in said
    assert "do not publish it" in said
    assert "Each answer got random noise" not in said


@pytest.mark.parametrize(
    ("epsilon", "factor"),
    [(0.2, "at most 1.23 (e"), (1.0, "at most 2.72 (e"), (10.0, "at most 22,100 (e"), (50.0, "more than a million")],
)
def test_the_factor_is_rounded_against_the_release(epsilon: float, factor: str, tmp_path: Path) -> None:
    images = make_images()
    plain = make_certificate(images)
    guarantee = plain.guarantee.model_copy(update={"epsilon": epsilon})
    certificate = plain.model_copy(update={"guarantee": guarantee})
    said = words(page(write_release(tmp_path / "r", images, certificate)))
    assert factor in said
    assert ("is weak" in said) == (epsilon > 5)


@pytest.mark.parametrize("noise", [1.5, 4.5, 60.0])
def test_the_best_guess_is_the_one_of_theory(noise: float, tmp_path: Path) -> None:
    asked, grid = (GaussianSum(noise_multiplier=noise),), [0.0, 0.5, 1.0, 2.0]
    images = make_images()
    curve = list(zip(grid, profile(asked, grid), strict=True))
    said = words(page(write_release(tmp_path / "r", images, make_certificate(images, *asked, profile=curve))))
    shown = re.search(r"right in at most ([\d.]+) of 100", said)
    assert shown is not None
    exact = 100 * norm.cdf(1 / (2 * noise))  # two Gaussians, one bound apart
    assert exact <= float(shown[1]) <= exact + 0.2


def test_questions_are_printed_in_plain_words(tmp_path: Path) -> None:
    asked = (
        GaussianSum(noise_multiplier=30.0, rounds=7, sampling=0.125),
        NoisyChoice(candidates=5, noise_multiplier=40.0),
        ShardedAnswers(shards=20, rounds=3, noise_multiplier=30.0),
        ShardedSums(shards=20, rounds=3, noise_multiplier=30.0),
    )
    said = words(
        page(
            made(
                tmp_path / "r",
                mechanisms=[
                    {**m.to_dict(), "purpose": purpose}
                    for m, purpose in zip(asked, ("teacher", "x", "y", "z"), strict=True)
                ],
            )
        )
    )
    assert "teacher A sum over" in said
    assert "A sum over a random 12.5 % of the images, 7 times, each time others 30" in said
    assert "The best of 5 candidates, once 40" in said
    assert "The answer of one of 20 models, each trained on a part of its own, 3 times 30" in said
    assert "The sum of the answers of 20 models, each trained on a part of its own, 3 times 30" in said


def test_a_purpose_is_shown_as_the_certificate_states_it(tmp_path: Path) -> None:
    purposes = ("the tint of <each> class", "training of a teacher")
    asked = [{**GaussianSum(noise_multiplier=9.0).to_dict(), "purpose": purpose} for purpose in purposes]
    text = page(made(tmp_path / "r", mechanisms=asked))
    table = text[text.index('<section id="asked"') :].split("</table>")[0]
    asked_once = "A sum over all images, once 9"
    assert [words(row) for row in table.split("<tr>")[2:]] == [f"{purpose} {asked_once}" for purpose in purposes]


def test_the_curve_is_to_scale(release: Path) -> None:
    text = page(release)
    points = [tuple(map(float, p.split(","))) for p in re.search(r'<polyline points="([^"]+)"', text)[1].split()]
    certificate = json.loads((release / "certificate.json").read_text())
    stated = [certificate["guarantee"]["epsilon"], certificate["guarantee"]["delta"]]
    curve = sorted([*certificate["profile"], stated])
    assert [x for x, _ in points] == pytest.approx([70 + 296 * e / curve[-1][0] for e, _ in curve], abs=0.06)
    falls = [math.log10(d) for _, d in curve]
    drawn = [y for _, y in points]
    assert np.corrcoef(falls, drawn)[0, 1] < -0.9999
    assert f'cx="{points[curve.index(stated)][0]}"' in text.split('r="7.5"')[0].splitlines()[-1]
    assert 28 <= min(drawn) <= max(drawn) <= 232


def test_names_from_outside_are_text(tmp_path: Path) -> None:
    images = make_images()
    images = Images(images.pixels, images.labels, HOSTILE)
    public = {"count": 100, "channels": 1, "height": 8, "width": 8, "classes": HOSTILE, "public_data": HOSTILE[0]}
    certificate = make_certificate(
        images,
        public=public,
        versions={HOSTILE[1]: HOSTILE[2]},
        method={"name": "<b>&", "hyperparameters": {HOSTILE[1]: HOSTILE[0]}},
    )
    text = page(write_release(tmp_path / "r", images, certificate))
    assert "<script" not in text
    assert "{{ 7*7 }}" in text
    assert "\u202e" not in text
    assert "\\u202e" in text
    assert text.count("&lt;script&gt;") >= 4
    assert "<b>&" not in text


def test_the_licence_is_the_publishers_and_nothing_else(release: Path, tmp_path: Path) -> None:
    mine = shutil.copytree(release, tmp_path / "r")
    card = mine / "README.md"
    old = card.read_text("utf-8")
    card.write_text(re.sub("license: .*", "license: cc0-1.0", old))
    renew_sums(mine)
    assert "Licence: cc0-1.0." in page(mine)
    card.write_text(re.sub("pretty_name: .*", "pretty_name: 'Shoes <3'", old))
    renew_sums(mine)
    with pytest.raises(VerificationFailed, match=r"README\.md is not the card that the certificate gives"):
        page(mine)


@pytest.mark.parametrize(
    "extreme",
    [
        {"profile": [[0.0, 1.0], [1e308, 5e-324]]},
        {"profile": [[0.0, 0.0]]},
        {"profile": [[1e-320, 0.5], [1e-310, 0.1]]},
        {"profile": [[0.0, 1.0], [3.0, 1.0]]},
        {"budget": {"epsilon": 0.0, "delta": 0.0}},
        {"guarantee": {**OPEN, "level": "certified", "epsilon": 1e308, "delta": 5e-324}},
        {"guarantee": {**OPEN, "level": "certified", "epsilon": 0.0, "delta": 0.0}},
    ],
)
def test_odd_numbers_break_nothing(extreme: dict[str, Any], tmp_path: Path) -> None:
    text = page(made(tmp_path / "r", **extreme))
    assert not re.search(r'"-?(inf|nan)', text)
    assert "</html>" in text


def test_it_names_the_public_network_and_what_is_assumed_of_it(release: Path, tmp_path: Path) -> None:
    text = words(page(made(tmp_path / "r", network=9)))
    assert "9 further images in network/ are for training a model that uses a public network" in text
    assert text.count(PUBLIC_NETWORK) == 2
    assert statements.NETWORK in text
    assert "public network" not in words(page(release, tmp_path / "without.html")).lower()


@pytest.mark.parametrize("kind", [{}, {"channels": 3}, {"logits": True}, {"transfer": 25}, {"network": 9}])
def test_the_pytorch_snippet_runs(kind: dict[str, Any], tmp_path: Path) -> None:
    release, images = made(tmp_path / "r", **kind), make_images(**kind)
    ran: dict[str, Any] = {}
    exec(snippet(page(release), "pytorch", release), ran)
    assert len(ran["train"]) == len(images)
    assert ran["images"].shape == (40, *images.pixels.shape[1:])
    for index in (0, 39):
        image, label = ran["train"][index]
        assert torch.equal(image, images.unit()[index])
        assert label == images.labels[index]


@pytest.mark.parametrize("many", [False, True])
def test_the_folder_snippet_writes_class_folders(many: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = make_images()
    classes = CLASSES + tuple(f"c{k}" for k in range(60)) if many else CLASSES
    images = Images(images.pixels, images.labels, classes)
    release = write_release(tmp_path / "r", images, make_certificate(images))
    monkeypatch.chdir(tmp_path)
    exec(snippet(page(release), "folders", release), {})
    folders = ["00000", "00001", "00002"] if many else ["zero", "T-shirt-top", "up"]
    assert sorted(p.name for p in (tmp_path / "pictures").iterdir()) == sorted(folders)
    assert sum(1 for _ in (tmp_path / "pictures").rglob("*.png")) == len(images)
    with Image.open(tmp_path / "pictures" / folders[images.labels[7]] / "000007.png") as picture:
        assert np.array_equal(np.asarray(picture), images.pixels[7, 0].numpy())


def test_the_folder_snippet_reads_exported_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release = made(tmp_path / "r", export=True)
    text = page(release)
    exec(snippet(text, "folders", release), {})
    assert len(capsys.readouterr().out.splitlines()) == 40
    assert "40 pictures, each listed in SHA256SUMS" in words(text)
    assert "000007.png" not in text


@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="needs the package `datasets`")
def test_the_datasets_snippet_runs(tmp_path: Path) -> None:
    release, images = made(tmp_path / "r", logits=True, transfer=25, network=9), make_images(logits=True)
    script = snippet(page(release), "datasets", release) + (
        "\nimport json, numpy\n"
        "print(json.dumps([len(train), label, name, numpy.asarray(image).tolist()]\n"
        "  + [len(transfer), len(network), len(logits)]))\n"
    )
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | offline,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    label = int(images.labels[0])
    assert json.loads(done.stdout) == [40, label, CLASSES[label], images.pixels[0, 0].tolist(), 25, 9, 3]


def test_it_depends_on_the_bytes_of_the_release_alone(release: Path, tmp_path: Path) -> None:
    before = contents(release)
    first = write_page_here(release, tmp_path / "one.html").read_bytes()
    assert write_page_here(release, tmp_path / "one.html").read_bytes() == first
    assert contents(release) == before
    elsewhere = tmp_path / "else where" / "another name"
    shutil.copytree(release, elsewhere, copy_function=shutil.copyfile)
    os.utime(elsewhere / "certificate.json", (0, 0))
    call = "from pathlib import Path; from sfumato.report.public import write_page_here as w; import sys\n"
    call += "w(Path('another name'), Path('../two.html'))\n"
    call += "print(sorted(m for m in sys.modules if m.split('.')[0] in ('torch', 'sfumato')))"
    strange = {
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
        "PYTHONHASHSEED": "7",
        "HOME": "/nowhere",
        "PYTHONPATH": str(Path(sfumato.__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", call],
        cwd=elsewhere.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=os.environ | strange,
    )
    assert (tmp_path / "two.html").read_bytes() == first
    for hidden in (str(tmp_path), "another name", os.uname().nodename):
        assert not re.search(rf"\b{re.escape(hidden)}\b", words(first.decode()))
    loaded = done.stdout
    assert "sfumato.release.certificate" in loaded
    for package in ("making", "judging", "experiments", "data", "privacy", "methods", "metrics", "attacks", "networks"):
        assert f"'sfumato.{package}" not in loaded
    assert "'torch" not in loaded


SMALL = {
    "dp-merf": (("steps", "3"), ("frequencies", "100")),
    "p3gm": (("steps", "3"), ("hidden", "16"), ("coefficients", "20"), ("latent", "4")),
}


def replayed_page(records: fixture.Records, pair: tuple[Any, Any], method: str, folder: Path) -> bytes:
    """The page of a release of these records whose noise and answers come from a recording."""
    folder.mkdir()
    job = Job(
        str(records.save(folder / "private.npz")),
        method,
        1.0,
        count=12,
        settings=SMALL[method],
        reading=Reading(classes=fixture.CLASSES),
    )
    release = make_release(job, folder / "r", noise=pair[0], tape=pair[1])
    return write_page_here(release, folder / "page.html").read_bytes()


@pytest.mark.parametrize("method", SMALL)
def test_neighbouring_data_with_the_same_answers_gives_the_same_page(method: str, tmp_path: Path) -> None:
    data, recording = fixture.records(), Recording()
    first = replayed_page(data, recording.recorder(), method, tmp_path / "data")
    for number, kind in enumerate(("the last record", "a white outlier")):
        neighbour = fixture.neighbours(data)[kind]
        assert replayed_page(neighbour, recording.player(), method, tmp_path / f"neighbour{number}") == first
    assert not recording.violations
    assert recording.worst > 0, "the neighbours must differ where it is allowed"
    assert replayed_page(data, Recording().recorder(), method, tmp_path / "fresh") != first  # it can fail


def test_a_word_about_the_data_that_is_in_no_ledger_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = making.certify

    def talkative(job: Job, *others: Any) -> Certificate:
        certificate = original(job, *others)
        with np.load(job.data) as private:
            settings = {**certificate.method.hyperparameters, "mean": float(private["x"].mean())}
        return certificate.model_copy(update={"method": Method(name=job.method, hyperparameters=settings)})

    monkeypatch.setattr(making, "certify", talkative)
    data, recording = fixture.records(), Recording()
    first = replayed_page(data, recording.recorder(), "dp-merf", tmp_path / "data")
    neighbour = fixture.neighbours(data)["a white outlier"]
    other = replayed_page(neighbour, recording.player(), "dp-merf", tmp_path / "neighbour")
    assert not recording.violations, "every answer was within its reach"
    assert other != first


def test_a_sentence_about_the_data_is_refused_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = charged_run.assumptions_of
    told = "The images have a mean of 17."
    monkeypatch.setattr(charged_run, "assumptions_of", lambda *given: [*original(*given), told])
    with pytest.raises(UsageError, match="assumptions from the list of known ones") as refused:
        replayed_page(fixture.records(), Recording().recorder(), "dp-merf", tmp_path / "data")
    assert "17" not in refused.value.message()
    assert not (tmp_path / "data" / "r").exists()


def spoilt(release: Path, how: str) -> None:
    if how == "edited":
        edit_certificate(release, lambda c: c["guarantee"].update(epsilon=0.1))
    elif how == "extra":
        (release / "notes.txt").write_text("private")
        renew_sums(release)
    elif how == "other card":
        edit_certificate(release, lambda c: c["guarantee"].update(epsilon=0.1))
        renew_sums(release)
    elif how == "other picture":
        (release / "preview.png").write_bytes(b"<svg onload=alert(1)>")
        renew_sums(release)
    elif how == "no certificate":
        (release / "certificate.json").unlink()
    elif how == "link":
        (release / "preview.png").rename(release.with_name("p.png"))
        (release / "preview.png").symlink_to(release.with_name("p.png"))


@pytest.mark.parametrize("how", ["edited", "extra", "other card", "other picture", "no certificate", "link"])
def test_what_is_no_release_is_refused_in_one_sentence(how: str, release: Path, tmp_path: Path) -> None:
    mine = shutil.copytree(release, tmp_path / "r")
    spoilt(mine, how)
    with pytest.raises(VerificationFailed, match=r"^Expected .*\.\n") as refused:
        write_page_here(mine, tmp_path / "page.html")
    assert "\n" not in refused.value.what
    assert not list(tmp_path.glob("page.html*"))


def test_it_is_written_beside_a_release_and_never_into_it(release: Path, tmp_path: Path) -> None:
    before = contents(release)
    link = tmp_path / "link"
    link.symlink_to(release)
    for inside in (
        release / "page.html",
        release / "data" / "page.html",
        link / "page.html",
        release / ".." / "r" / "p",
    ):
        with pytest.raises(UsageError, match="outside of the release"):
            write_page_here(release, inside)
    for no_file in (tmp_path, tmp_path / "none" / "page.html"):
        with pytest.raises(UsageError, match="name of a file"):
            write_page_here(release, no_file)
    with pytest.raises(SfumatoError, match="Expected a release folder"):
        write_page_here(tmp_path / "nothing", tmp_path / "page.html")
    assert contents(release) == before


def test_a_write_that_fails_leaves_the_old_page(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "page.html"
    out.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(EnvironmentProblem, match="No space left"):
        write_page_here(release, out)
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]
