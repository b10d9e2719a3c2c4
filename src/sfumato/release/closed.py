"""Closed JSON documents: frozen values in which nothing is unforeseen, read from files that anyone may have written."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sfumato.errors import VerificationFailed, printable

LARGEST = 1 << 20  # bytes; an honest document has a few thousand

Text = Annotated[str, Field(min_length=1, max_length=2000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Scalar = bool | int | float | str | None
Positive = Annotated[int, Field(ge=1, le=10**12)]
Side = Annotated[int, Field(ge=1, le=1 << 14)]  # pixels


class Closed(BaseModel):
    """Frozen, and an unknown field is an error, so that a document contains nothing unforeseen."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_json(self) -> str:
        """The one way to write this value: sorted keys, shortest numbers, no NaN or infinity."""
        values = self.model_dump(mode="json")
        return json.dumps(values, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


Schema = TypeVar("Schema", bound=Closed)


def read_closed_file(path: Path) -> bytes:
    """The bytes of a document that anyone may have put there."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise refused(f"Expected {path.name} to be a file of its own, got a link, folder or pipe.", path)
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except OSError as error:
        raise refused(f"Expected a readable {path.name}: {error.strerror}.", path) from None


def parse_closed(text: bytes, schema: Callable[[object], type[Schema]], *, named: str, where: object) -> Schema:
    """Read a document by the schema that its plain JSON asks for; whatever is wrong with it is named."""
    if len(text) > LARGEST:
        raise refused(f"Expected at most {LARGEST} bytes in {named}, got {len(text)}.", where)
    try:
        # of two equal keys the schema's parser keeps the last, and other readers may keep the first
        plain = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise refused(f"Expected plain JSON in {named}, got deep nesting.", where) from None
    except ValueError as error:
        raise refused(f"Expected valid JSON in {named}: {printable(error)}.", where) from None
    wanted = schema(plain)
    try:
        return wanted.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise refused(_first_problem(error, named), where) from None


def refused(what: str, where: object) -> VerificationFailed:
    return VerificationFailed(what, where=where, fix="ask the publisher for the release again")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:100]!r} stands there twice")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"the number at {key[:100]!r} is too large")
        found[key] = value
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _first_problem(error: ValidationError, named: str) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    place = ".".join(str(part)[:100] for part in problems[0]["loc"]) or "the whole"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"Expected {named}'s schema; at {printable(place)}: {printable(problems[0]['msg'])}{more}."
