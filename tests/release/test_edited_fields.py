"""Whoever edits one field of a certificate, and what follows from it, is caught or changes nothing that is shown."""

from __future__ import annotations

import copy
import functools
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from release.making import ACCOUNTANT, PUBLIC_NETWORK, edit_certificate, make_certificate, make_images, renew_sums
from sfumato import privacy
from sfumato.errors import VerificationFailed
from sfumato.privacy import (
    LATTICE_BITS,
    GaussianSum,
    Noise,
    NoisyChoice,
    SeededNoise,
    ShardedAnswers,
    ShardedSums,
    accounting,
    profile,
)
from sfumato.release import card as card_module
from sfumato.release import claim as claim_module
from sfumato.release import layout, statements, verify, write_release
from sfumato.release.card import render_card
from sfumato.release.certificate import parse_certificate
from sfumato.release.contents import check_pictures

MECHANISMS = (  # little noise: an epsilon above 4 is counted on a coarser grid, in less time
    GaussianSum(noise_multiplier=1.5),
    GaussianSum(noise_multiplier=1.5, rounds=10, sampling=0.1),
    NoisyChoice(noise_multiplier=5.0, candidates=4),
    ShardedAnswers(noise_multiplier=2.0, shards=3, rounds=2),
    ShardedSums(noise_multiplier=6.0, shards=3, rounds=2),
)
CURVE = [0.0, 2.0, 4.5]
SECTIONS = (
    "format",
    "guarantee",
    "budget",
    "mechanisms",
    "assumptions",
    "public",
    "method",
    "noise",
    "profile",
    "versions",
    "samples",
)
BOAST = "every person and every hospital, however many images they gave"
UNNOTICED = [  # mechanisms that cost less than any accountant can see
    {"kind": "gaussian-sum", "noise_multiplier": 1e8, "rounds": 1, "sampling": 1.0, "purpose": BOAST},
    {"kind": "gaussian-sum", "noise_multiplier": 1e8, "rounds": 3, "sampling": 0.01, "purpose": BOAST},
]


@pytest.fixture(scope="module", autouse=True)
def remembered() -> Iterator[None]:
    """The accountants are asked hundreds of times for the same mechanisms."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (claim_module, "recount"),
            (privacy, "epsilon_pld"),
            (privacy, "epsilon_rdp"),
            (privacy, "profile"),
        ):
            patch.setattr(module, name, remembering(getattr(module, name)))
        patch.setattr(accounting, "_loss", functools.cache(accounting._loss))
        yield


def remembering(account: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    answers: dict[str, Any] = {}

    def answer(mechanisms: Any, at: Any) -> Any:
        asked = f"{mechanisms} {at}"
        if asked not in answers:
            answers[asked] = account(mechanisms, at)
        return answers[asked]

    return answer


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with everything that a certificate can state."""
    images = make_images(count=6, logits=True, transfer=4, network=3)
    public = {
        "count": 60_000,
        "channels": 1,
        "height": 8,
        "width": 8,
        "classes": images.classes,
        "public_data": "textures",
        "public_network": PUBLIC_NETWORK,
    }
    settings = {"features": 100, "rate": 0.001, "deep": True, "form": "paper", "start": None}
    certificate = make_certificate(
        images,
        *MECHANISMS,
        public=public,
        method={"name": "dp-merf", "hyperparameters": settings},
        versions={"sfumato": "0.1.0", "dp-accounting": ACCOUNTANT.split()[-1]},
        assumptions=[*statements.assumptions(public=True, network=True), statements.TOGETHER],
        profile=list(zip(CURVE, profile(MECHANISMS, CURVE), strict=True)),
    )
    return write_release(tmp_path_factory.mktemp("original") / "r", images, certificate)


@pytest.fixture
def mine(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "r"))


def shown(folder: Path) -> tuple[bool, str, str]:
    """All that verify says of a release, in words and for machines."""
    verdict = verify(folder)
    path = str(folder)
    return verdict.ok, verdict.text().replace(path, "r"), json.dumps(verdict.to_dict()).replace(path, "r")


def publish(folder: Path, values: Any) -> bool:
    """Write an edited certificate, and everything that follows from it, as well as an attacker can."""
    text = json.dumps(values, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    try:
        certificate = parse_certificate(text.encode())
    except VerificationFailed:
        (folder / layout.CERTIFICATE).write_text(text, "utf-8")
    else:
        if certificate.to_json() == (folder / layout.CERTIFICATE).read_text("utf-8"):
            return False  # another way to write what was there
        (folder / layout.CERTIFICATE).write_text(certificate.to_json(), "utf-8")
        (folder / layout.CARD).write_text(render_card(certificate, folders=False), "utf-8")
    renew_sums(folder)
    return True


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every leaf, list and dictionary below a value."""
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in pairs:
        yield from places(part, (*path, key))


def others(value: Any) -> Iterator[Any]:
    """What may be put in the place of a value."""
    yield from (None, [], {})
    if isinstance(value, bool):
        yield from (not value, int(value), str(value))
    elif isinstance(value, int | float):
        yield from (
            2 * value,
            value / 2,
            value * (1 + 1e-4),
            value * (1 + 1e-9),
            value + 1,
            0,
            0.0,
            -value,
            str(value),
            True,
            1e308,
        )
        yield from (2 * int(value), int(value) + 1, 10**11)
    elif isinstance(value, str) or value is None:
        yield from (BOAST, "", "x" * 1900, "x" * 5000, "\u202egnirts", f"{value} {BOAST}.", f"{value}\n", 1, True)
        yield from (
            statements.ALONE_BEFORE,
            statements.TOGETHER,
            statements.NETWORK,
            *statements.NOISE_SOURCES,
            "PLD, dp-accounting 0.4.3",
        )
    elif isinstance(value, dict):
        yield from ({**value, "note": BOAST}, {**value, "note": 1.0})
    else:
        yield from (value[:k] + value[k + 1 :] for k in range(len(value)))
        yield from (value[:k] + value[k : k + 1] + value[k:] for k in range(len(value)))
        yield from (value[::-1], value[1:] + value[:1], [*value, BOAST], [*value, 1.0], [*value, [1.0, 1.0]])
        yield from ([*value, asked] for asked in UNNOTICED)
        yield from ([*value, text] for text in (statements.ALONE_BEFORE, statements.TOGETHER, statements.NETWORK))


def edits(values: dict[str, Any], section: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The certificate with one edit in a section, and what was edited."""
    for path in places(values[section], (section,)):
        found = functools.reduce(lambda part, key: part[key], path, values)
        for other in others(found):
            yield f"{path} became {str(other)[:80]!r}", _with(values, path, lambda at, key, o=other: _put(at, key, o))
        yield f"{path} was deleted", _with(values, path, lambda at, key: at.pop(key))


def _with(values: Any, path: tuple[Any, ...], change: Callable[[Any, Any], object]) -> dict[str, Any]:
    copied: dict[str, Any] = copy.deepcopy(values)
    change(functools.reduce(lambda part, key: part[key], path[:-1], copied), path[-1])
    return copied


def _put(at: Any, key: Any, value: Any) -> None:
    at[key] = value


@pytest.mark.parametrize("section", SECTIONS)
def test_an_edit_of_any_field_fails_or_changes_nothing_that_is_shown(section: str, original: Path, mine: Path) -> None:
    values = json.loads((original / layout.CERTIFICATE).read_text("utf-8"))
    assert set(values) == set(SECTIONS)
    before = shown(original)
    assert before[0], before[1]
    kept = {name: (original / name).read_bytes() for name in (layout.CERTIFICATE, layout.CARD, layout.SUMS)}
    tried, wrong = set[bytes](), []
    for what, edited in edits(values, section):
        for name, contents in kept.items():
            (mine / name).write_bytes(contents)
        if not publish(mine, edited) or (text := (mine / layout.CERTIFICATE).read_bytes()) in tried:
            continue
        tried.add(text)
        after = shown(mine)
        if after[0] and after != before:
            wrong.append(what)
    assert len(tried) >= 10
    assert not wrong, f"{len(wrong)} of {len(tried)} edits pass and change what is shown: {wrong[:10]}"


def test_edits_that_pass_are_among_them(original: Path, mine: Path) -> None:
    """Else the test above would say nothing about what is shown."""
    values = json.loads((original / layout.CERTIFICATE).read_text("utf-8"))
    before = shown(original)
    for edited in (
        _with(values, ("method", "name"), lambda at, key: _put(at, key, BOAST)),
        _with(values, ("mechanisms", 0, "purpose"), lambda at, key: _put(at, key, BOAST)),
        _with(values, ("mechanisms",), lambda at, key: _put(at, key, [*at[key], UNNOTICED[0]])),
        _with(values, ("mechanisms",), lambda at, key: _put(at, key, at[key][::-1])),
        _with(values, ("assumptions",), lambda at, key: _put(at, key, at[key][:-1])),
        _with(values, ("public", "count"), lambda at, key: _put(at, key, 30_000)),
        _with(values, ("public", "public_network"), lambda at, key: _put(at, key, f"x{at[key]}")),
        _with(values, ("guarantee", "epsilon"), lambda at, key: _put(at, key, at[key] * (1 + 1e-8))),
    ):
        assert publish(mine, edited)
        assert shown(mine) == before
        assert BOAST not in before[1]


def test_a_stronger_promise_in_the_unit_fails(mine: Path) -> None:
    edit_certificate(mine, lambda values: values["guarantee"].update(unit=BOAST))
    card = mine / layout.CARD
    card.write_text(card.read_text("utf-8").replace(f"unit: {statements.UNIT};", f"unit: {BOAST};"), "utf-8")
    renew_sums(mine)
    verdict = verify(mine)
    assert verdict.text().startswith("FAILED")
    assert "one image" in {check.name: check.detail for check in verdict.failed}["certificate"]
    assert BOAST not in verdict.text()
    assert BOAST not in json.dumps(verdict.to_dict())


@pytest.mark.parametrize("old", [True, False])
def test_the_words_of_older_releases_still_verify(old: bool, tmp_path: Path) -> None:
    images = make_images(count=6)
    stated = statements.assumptions(public=False, network=False)
    if old:
        stated[stated.index(statements.ALONE)] = statements.ALONE_BEFORE
    folder = write_release(tmp_path / "r", images, make_certificate(images, assumptions=stated))
    assert verify(folder).ok, verify(folder).text()
    assert verify(folder).facts["assumptions"] == statements.assumptions(public=False, network=False)


def test_another_version_of_the_accountant_may_differ_a_little(mine: Path) -> None:
    other = {"accountant": "PLD, dp-accounting 0.0.1"}
    for factor, version, fine in ((1 + 1e-4, {}, False), (1 + 1e-4, other, True), (1 + 1e-2, other, False)):
        images = make_images(count=6)
        plain = make_certificate(images)
        guarantee = {**plain.guarantee.model_dump(), **version, "epsilon": plain.guarantee.epsilon * factor}
        budget = {"epsilon": 20.0, "delta": plain.guarantee.delta}
        certificate = make_certificate(images, guarantee=guarantee, budget=budget)
        folder = write_release(mine.with_name(f"{factor}{fine}"), images, certificate)
        assert {check.name for check in verify(folder).failed} == (set() if fine else {"epsilon"})


def test_numbers_are_rounded_up_and_a_hair_above_a_budget_is_none() -> None:
    shown = {0.99999998: 1.0, 1.0: 1.0, 1.0000005: 1.0, 1.00001: 1.001, 0.81421: 0.8143, 0.0: 0.0, 5e-324: 5e-324}
    assert {value: claim_module.rounded_up(value) for value in shown} == shown
    assert claim_module.rounded_up(1.2301e-5, 3) == 1.24e-5


def test_what_cannot_be_counted_does_not_agree_with_anything(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.privacy.epsilon_pld", lambda mechanisms, delta: float("inf"))
    assert "inf by privacy-loss distributions" in {c.name: c.detail for c in verify(mine).failed}["epsilon"]


def test_the_facts_of_a_failed_release_are_no_facts(mine: Path) -> None:
    edit_certificate(mine, lambda values: values["guarantee"].update(epsilon=0.01))
    renew_sums(mine)
    assert verify(mine).to_dict()["facts"] == {"level": "certified"}


def _link(card: str) -> str:
    return card.replace("## Classes", "[click](javascript:alert(1))\n\n## Classes")


CARDS: dict[str, Callable[[str], str]] = {
    "style": lambda card: card + "<style>body { display: none }</style>\n",
    "script": lambda card: card + "<ScRiPt src=//x.y></sCrIpT>\n",
    "script after a backslash": lambda card: card + "\\\\<script>alert(1)</script>\n",
    "picture": lambda card: card + "<img src='data:image/png;base64,AAAA'>\n",
    "link": _link,
    "paragraph": lambda card: card.replace("## What is guaranteed\n", f"## What is guaranteed\n\nFor {BOAST}.\n"),
    "number": lambda card: re.sub(r"Epsilon \*\*[^*]+\*\*", "Epsilon **0.001**", card),
    "title": lambda card: re.sub("pretty_name: .*", "pretty_name: Safe", card),
    "front matter": lambda card: card.replace("tags:\n", "tags:\n- approved\n"),
    "sentence as a licence": lambda card: re.sub("license: .*", f"license: {BOAST}", card),
    "comment on the licence": lambda card: re.sub("license: .*", f"license: mit  # {BOAST}", card),
    "second licence": lambda card: re.sub("(license: .*)", "\\1\nlicense: mit", card),
    "long licence": lambda card: re.sub("license: .*", "license: " + "x" * 61, card),
    "carriage returns": lambda card: card.replace("\n", "\r\n"),
    "no end of line": lambda card: card.rstrip("\n"),
    "mark of the byte order": lambda card: "\ufeff" + card,
    "nothing": lambda card: "",
}


@pytest.mark.parametrize("change", CARDS.values(), ids=CARDS)
def test_a_card_with_a_word_of_its_own_fails(change: Callable[[str], str], mine: Path) -> None:
    card = (mine / layout.CARD).read_bytes().decode()
    assert change(card) != card
    (mine / layout.CARD).write_bytes(change(card).encode())
    renew_sums(mine)
    (found,) = verify(mine).failed
    assert (found.name, found.detail.startswith("README.md is not the card that the certificate gives")) == (
        "card",
        True,
    )


def test_a_card_without_its_banner_fails(tmp_path: Path) -> None:
    images = make_images(count=6)
    plain = make_certificate(images).model_dump()
    plain["guarantee"] |= {"level": "not-private", "epsilon": None, "epsilon_rdp": None}
    folder = write_release(tmp_path / "r", images, parse_certificate(json.dumps({**plain, "profile": []}).encode()))
    card = (folder / layout.CARD).read_text("utf-8")
    quiet = re.sub(r"> \*\*NOT PRIVATE\.\*\*.*?\n\n", "", card, flags=re.DOTALL)
    assert "NOT PRIVATE" in quiet, "further down it is still said, which was enough before"
    assert quiet != card
    (folder / layout.CARD).write_text(quiet, "utf-8")
    renew_sums(folder)
    assert "card" in {check.name for check in verify(folder).failed}


def test_the_card_of_a_huge_certificate_is_compared_like_any_other(tmp_path: Path) -> None:
    images = make_images(count=6)
    plain = make_certificate(images).model_dump(mode="json")
    plain["public"]["classes"] = [f"<{k}>" for k in range(10_000)]
    plain["mechanisms"] = 500 * [{**plain["mechanisms"][0], "purpose": 300 * "<"}]
    certificate = parse_certificate(json.dumps(plain).encode())
    (tmp_path / layout.CARD).write_text(render_card(certificate, folders=False), "utf-8")
    (card, _) = check_pictures(tmp_path, certificate)
    assert card.ok, card.detail


def test_a_card_that_cannot_be_made_fails_and_stops_nothing(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> str:
        raise ZeroDivisionError("no card")

    monkeypatch.setattr(card_module, "render_card", broken)
    (found,) = verify(mine).failed
    assert (found.name, "ZeroDivisionError" in found.detail) == ("card", True)


@pytest.mark.parametrize(
    "licence",
    [
        "license: cc0-1.0",
        "license: unknown",
        "license: CC-BY-4.0  # for the publisher to fill in, before renewing SHA256SUMS",
    ],
)
@pytest.mark.parametrize("export", [True, False])
def test_a_licence_may_be_filled_in(licence: str, export: bool, tmp_path: Path) -> None:
    images = make_images(count=6)
    folder = write_release(tmp_path / "r", images, make_certificate(images), export_folders=export)
    card = folder / layout.CARD
    card.write_text(re.sub("license: .*", licence, card.read_text("utf-8")), "utf-8")
    renew_sums(folder)
    assert verify(folder).ok, verify(folder).text()


def test_the_noise_is_called_what_the_core_calls_it() -> None:
    assert {kind.source: kind.private for kind in (Noise, SeededNoise)} == dict(statements.NOISE_SOURCES)
    assert LATTICE_BITS == statements.LATTICE_BITS
