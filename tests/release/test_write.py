"""Writing and reading back: complete or absent, the same bytes each time, open to common tools."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from release.making import CLASSES, make_certificate, make_images
from sfumato.errors import EnvironmentProblem, UsageError, VerificationFailed
from sfumato.release import Certificate, layout, read_certificate, read_release, tables, verify, write_release
from sfumato.values import Images


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("logits", [True, False])
def test_round_trip(tmp_path: Path, channels: int, logits: bool) -> None:
    images = make_images(channels=channels, logits=logits)
    certificate = make_certificate(images)
    folder = write_release(tmp_path / "r", images, certificate)
    again = read_release(folder)
    assert torch.equal(again.images.pixels, images.pixels)
    assert torch.equal(again.images.labels, images.labels)
    assert again.images.classes == images.classes
    assert (again.images.logits is None) == (images.logits is None)
    if images.logits is not None and again.images.logits is not None:
        assert torch.equal(again.images.logits, images.logits)
    assert again.certificate == certificate.model_dump(mode="json")
    assert read_certificate(folder) == certificate


def test_several_shards_keep_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SHARD_BYTES", 64 * 15)
    images = make_images(logits=True)
    folder = write_release(tmp_path / "r", images, make_certificate(images))
    assert [p.name for p in layout.shards(folder)] == [f"train-0000{i}-of-00003.parquet" for i in range(3)]
    assert torch.equal(read_release(folder).images.pixels, images.pixels)
    assert verify(folder).ok, verify(folder).text()


def test_two_writes_are_byte_identical(tmp_path: Path) -> None:
    images = make_images(logits=True)
    certificate = make_certificate(images)
    first, second = (
        write_release(tmp_path / name / "r", images, certificate, export_folders=True)
        for name in ("a", "b")
        if not (tmp_path / name).mkdir()  # type: ignore[func-returns-value]
    )
    assert contents(first) == contents(second)


def test_the_folder_holds_only_public_things(pristine: Path) -> None:
    assert sorted(contents(pristine)) == [
        "README.md",
        "SHA256SUMS",
        "certificate.json",
        "data/train-00000-of-00001.parquet",
        "preview.png",
    ]
    everything = b"".join(contents(pristine).values())
    for secret in (str(pristine.parent).encode(), b"tEXt", b"eXIf", b"tIME"):
        assert secret not in everything
    # a host may have a name of two letters, which stand side by side in many a compressed picture
    words = b"".join(contents(pristine)[name] for name in ("README.md", "SHA256SUMS", "certificate.json"))
    assert not re.search(rb"\b" + re.escape(os.uname().nodename.encode()) + rb"\b", words)


def test_datasets_opens_it_as_it_is(pristine: Path, tmp_path: Path) -> None:
    script = (
        "import json, sys, datasets, numpy as np\n"
        "data = datasets.load_dataset(sys.argv[1], split='train')\n"
        "row = data[3]\n"
        "print(json.dumps({'count': len(data), 'names': data.features['label'].names, 'label': row['label'],\n"
        "  'pixels': np.asarray(row['image']).tolist(), 'logits': row['logits'], 'columns': data.column_names}))\n"
    )
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script, str(pristine)],
        env=os.environ | offline,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    seen, images = json.loads(done.stdout), make_images(logits=True)
    assert (seen["count"], tuple(seen["names"])) == (40, CLASSES)
    assert seen["columns"] == ["image", "label", "logits"]
    assert seen["label"] == images.labels[3].item()
    assert seen["pixels"] == images.pixels[3, 0].tolist()
    assert images.logits is not None
    assert seen["logits"] == pytest.approx(images.logits[3].tolist())


def test_class_folders_have_safe_names(tmp_path: Path) -> None:
    images = make_images()
    folder = write_release(tmp_path / "r", images, make_certificate(images), export_folders=True)
    assert sorted(p.name for p in (folder / "images").iterdir()) == ["T-shirt-top", "up", "zero"]
    first = next((folder / "images").rglob("000000.png"))
    with Image.open(first) as picture:
        assert np.array_equal(np.asarray(picture), images.pixels[0, 0].numpy())
    assert verify(folder).ok, verify(folder).text()


def test_class_folder_names_never_clash() -> None:
    names = ["a/b", "a b", "A-b", "", "..", "CON", "é", "🙂", "\n", "x" * 200, "x" * 201, "a-b-1"]
    made = layout.class_folders(names)
    assert len({name.lower() for name in made}) == len(names)
    assert all(layout.exported(f"images/{name}/000000.png") for name in made)
    assert "con" not in {name.lower() for name in made}


def test_an_existing_target_is_left_alone(tmp_path: Path) -> None:
    images = make_images()
    for make in (Path.mkdir, Path.touch, lambda p: p.symlink_to("nowhere")):
        target = tmp_path / "r"
        make(target)
        with pytest.raises(UsageError, match="exists"):
            write_release(target, images, make_certificate(images))
        assert names(tmp_path) == ["r"]
        target.rmdir() if target.is_dir() else target.unlink()


def test_a_missing_or_closed_parent_is_the_environment(tmp_path: Path) -> None:
    images = make_images()
    with pytest.raises(EnvironmentProblem) as refused:
        write_release(tmp_path / "no" / "r", images, make_certificate(images))
    assert refused.value.exit_code == 5
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem):
        write_release(tmp_path / "file" / "r", images, make_certificate(images))
    assert names(tmp_path) == ["file"]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from release.making import make_images, make_certificate\n"
        "from sfumato.errors import EnvironmentProblem\n"
        "from sfumato.release import write_release\n"
        "images = make_images(count=60, side=16, logits=True)\n"
        "certificate = make_certificate(images)\n"
        "hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "for limit in (0, 100, 500, 2000, 5000, 9000, 15000):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))\n"
        "    try:\n        write_release(Path(sys.argv[1]) / 'r', images, certificate)\n"
        "    except EnvironmentProblem as error:\n        assert not list(Path(sys.argv[1]).iterdir())\n"
        "    else:\n        sys.exit(1)\n"
        "sys.exit(5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-B", "-c", script, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )
    assert done.returncode == 5
    assert names(tmp_path) == []


def test_what_a_killed_run_left_is_swept_and_what_lives_is_not(tmp_path: Path) -> None:
    (tmp_path / "r.tmp-1").mkdir()
    (tmp_path / "r.tmp-1" / "half").touch()
    (tmp_path / "r.tmp-2").mkdir()
    (tmp_path / "r.tmp-notes").mkdir()
    alive = os.open(tmp_path / "r.tmp-2", os.O_RDONLY)
    fcntl.flock(alive, fcntl.LOCK_EX)
    images = make_images()
    write_release(tmp_path / "r", images, make_certificate(images))
    os.close(alive)
    assert names(tmp_path) == ["r", "r.tmp-2", "r.tmp-notes"]


def test_images_that_differ_from_the_certificate_are_refused(tmp_path: Path) -> None:
    images = make_images()
    certificate = make_certificate(images)
    wrong = [
        make_images(count=39),
        make_images(channels=3),
        make_images(side=9),
        make_images(logits=True),
        Images(images.pixels, images.labels, ("a", "b", "c")),
        Images(images.pixels, images.labels + 1, CLASSES),
        Images(images.pixels.float(), images.labels, CLASSES),
    ]
    for other in wrong:
        with pytest.raises(UsageError, match="Expected"):
            write_release(tmp_path / "r", other, certificate)
    assert names(tmp_path) == []


def test_logits_must_be_finite(tmp_path: Path) -> None:
    images = make_images(logits=True)
    assert images.logits is not None
    images.logits[2, 1] = float("nan")
    with pytest.raises(UsageError, match="finite"):
        write_release(tmp_path / "r", images, make_certificate(images))


def not_private(images: Images) -> Certificate:
    values = make_certificate(images).model_dump()
    values["guarantee"] |= {"level": "not-private", "epsilon": None, "epsilon_rdp": None}
    values["budget"]["epsilon"] = None
    values["mechanisms"][0]["noise_multiplier"] = 0.0
    return Certificate(**{**values, "profile": ()})


def test_not_private_is_said_loudly(tmp_path: Path) -> None:
    images = make_images()
    folder = write_release(tmp_path / "r", images, not_private(images))
    assert "NOT PRIVATE" in (folder / "README.md").read_text()
    with Image.open(folder / "preview.png") as picture:
        assert picture.getpixel((2, 2)) == (190, 24, 30)
    verdict = verify(folder)
    assert [c.name for c in verdict.failed] == ["level", "noise", "budget"]
    assert "NOT PRIVATE" in verdict.text()
    assert "no guarantee" in verdict.text()


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    images = make_images()
    classes = ("<script>alert(1)</script>", "[x](http://a.b)\n# big", "\x1b[31mred")
    images = Images(images.pixels, images.labels, classes)
    folder = write_release(tmp_path / "r", images, make_certificate(images))
    card = (folder / "README.md").read_text()
    assert "<script>" not in card.replace("\\<", "")
    assert "\x1b" not in card
    assert verify(folder).ok, verify(folder).text()


def test_reading_a_changed_or_missing_release_is_refused(release: Path, tmp_path: Path) -> None:
    (release / "preview.png").write_bytes(b"")
    with pytest.raises(VerificationFailed, match=r"preview\.png differs"):
        read_release(release)
    (release / "SHA256SUMS").unlink()
    with pytest.raises(VerificationFailed, match="missing"):
        read_release(release)
    with pytest.raises(UsageError):
        read_release(tmp_path / "nothing")
