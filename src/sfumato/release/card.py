"""The card: a release explained in plain words, from its certificate or its hidden.json alone."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from sfumato.errors import printable
from sfumato.release import layout
from sfumato.release.certificate import AnyCertificate, Certificate, PrivacyCertificate
from sfumato.release.hidden_facts import HiddenFacts

_LICENCE = "license: unknown  # for the publisher to fill in, before renewing SHA256SUMS"  # as in the template
_FILLED_IN = re.compile(r"license: [A-Za-z0-9.-]{1,60}(  # for the publisher to fill in, before renewing SHA256SUMS)?")
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))


def render_card(certificate: AnyCertificate | HiddenFacts, *, folders: bool = False) -> str:
    """README.md; that of images has the front matter that makes `datasets.load_dataset` open the folder as it is.

    `folders` says whether images are there as class folders, too.
    """
    if isinstance(certificate, HiddenFacts):
        return _template("hidden_card.md.jinja").render(f=certificate, size_category=_size(certificate.images.count))
    asked = _sentences(certificate)
    if not isinstance(certificate, Certificate):
        return _template("model_card.md.jinja").render(c=certificate, mechanisms=asked)
    samples = certificate.samples
    images = samples.count + samples.transfer + samples.network
    return _template("card.md.jinja").render(
        c=certificate, size_category=_size(images), folders=folders, mechanisms=asked
    )


def _size(images: int) -> str:
    return next((name for below, name in _SIZES if images < below), "n>10M")


@functools.cache
def _template(name: str) -> Template:
    # Markdown, not HTML: `plain` and `quoted` below do the escaping, where strings come from outside.
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701
    )
    environment.filters.update(plain=_plain, quoted=_quoted, number=_number)
    return environment.get_template(name)


def card_problem(text: str, certificate: AnyCertificate | HiddenFacts, *, folders: bool = False) -> str | None:
    """Where a card is not the one of its certificate or facts; a licence in the front matter is the publisher's.

    Any other difference fails, whatever it says: a list of what a card must not contain is never complete. So the
    templates belong to the release format, and cannot be changed without another number of the format.
    """
    expected, found = render_card(certificate, folders=folders).split("\n"), text.split("\n")
    line = expected.index(_LICENCE)  # names in the front matter are quoted, so this is the template's own line
    if len(found) > line and _FILLED_IN.fullmatch(found[line]):
        found[line] = _LICENCE
    if found == expected:
        return None
    pairs = zip(found, expected, strict=False)
    differs = next((k for k, (one, other) in enumerate(pairs) if one != other), min(len(found), len(expected)))
    source = layout.HIDDEN if isinstance(certificate, HiddenFacts) else "the certificate"
    return f"is not the card that {source} gives (from line {differs + 1}; only the licence may be filled in)"


def _sentences(certificate: PrivacyCertificate) -> list[str]:
    return [f"{_plain(asked.purpose)}: {_sentence(asked.described())}" for asked in certificate.mechanisms]


def _sentence(asked: dict[str, Any]) -> str:
    times = "once" if asked["rounds"] == 1 else f"{asked['rounds']:,} times"
    noise = _number(asked["noise_multiplier"] or 0.0)
    if asked["kind"] == "gaussian-sum":
        rate = asked["sampling"]
        who = "all records" if rate == 1 else f"a fresh random sample of the records (rate {_number(rate)})"
        return f"a sum over {who}, asked {times}, Gaussian noise {noise} times what one record can change"
    if asked["kind"] == "noisy-choice":
        return (
            f"the best of {asked['candidates']:,} candidates, chosen {times} under Gumbel noise of multiplier {noise}"
        )
    return (
        f"an answer of one of {asked['shards']:,} teachers on disjoint shards, drawn at random, asked {times}, "
        f"Gaussian noise {noise} times what one record can change"
    )


def _plain(text: object) -> str:
    """Text that Markdown and HTML leave alone."""
    return re.sub(r"([\\`*_\[\]<>|#~$&])", r"\\\1", printable(text))


def _quoted(text: object) -> str:
    """A YAML scalar: JSON strings are valid ones."""
    return json.dumps(str(text))


def _number(value: float) -> str:
    return f"{value:.4g}"
