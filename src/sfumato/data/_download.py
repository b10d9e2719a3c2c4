"""Files from official sources: fetched once into the cache, kept only if their SHA-256 is the published one."""

from __future__ import annotations

import hashlib
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit

from sfumato.cache import cache_folder
from sfumato.errors import DataError, EnvironmentProblem, printable
from sfumato.files import written_whole
from sfumato.progress import track

BLOCK = 2**18  # bytes
LARGEST = 400 * 2**20  # bytes
TIMEOUT = 30.0  # seconds without an answer


@dataclass(frozen=True, slots=True)
class Download:
    """A file, where it can be had, and the checksum that it must have."""

    name: str
    sha256: str
    urls: tuple[str, ...]


def put_there(name: str, *, called: str, fix: str) -> Path:
    """The folder of that name in the cache, for data that users get themselves because its terms must be agreed to."""
    folder = cache_folder() / name
    if not folder.is_dir():
        raise DataError(f"Expected {called} in the cache folder, got no such folder.", where=folder, fix=fix)
    return folder


def fetch(download: Download, folder: Path, *, beside: Sequence[str] = ()) -> Path:
    """The file, in that folder; what has the wrong checksum or stops half-way leaves nothing behind."""
    target = folder / download.name
    more = f", with {', '.join(beside)} beside it" if beside else ""
    by_hand = f"get {download.urls[0]} on another machine and put it at {target}{more}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentProblem(
            f"Expected a cache folder that can be written, got: {error.strerror}.",
            where=folder,
            fix="set SFUMATO_CACHE to another folder",
        ) from error
    problem = ""
    for url in download.urls:
        try:
            got = _save(url, target, download.sha256)
        except (
            OSError,
            HTTPException,
            ValueError,
        ) as error:  # also no network, no such host, a bad certificate
            problem = str(error)
            if isinstance(error, HTTPError):  # it is also the answer, still open
                error.close()
            continue
        if got == download.sha256:
            return target
        raise DataError(
            f"Expected {download.name} with SHA-256 {download.sha256[:16]}..., got {got[:16]}...; nothing was kept.",
            where=url,
            fix=f"try again later, or {by_hand}",
        )
    raise EnvironmentProblem(
        f"Expected {download.name} from its official source, got no answer ({printable(problem)[:150]}).",
        where=target,
        fix=by_hand,
    )


class _WrongChecksum(Exception):
    """The downloaded file must not be kept."""


def _save(url: str, target: Path, sha256: str) -> str:
    """Fetch to a temporary file beside the target, and move it there if the checksum is right."""
    parts = urlsplit(url)
    if parts.scheme not in ("https", "file") and parts.hostname not in ("127.0.0.1", "localhost"):
        raise ValueError(f"refusing the address {url}")
    digest = hashlib.sha256()
    with suppress(_WrongChecksum), written_whole(target) as unfinished:
        with (
            unfinished.open("wb") as file,
            urllib.request.urlopen(url, timeout=TIMEOUT) as answer,  # noqa: S310 - the scheme is checked above
        ):
            total = -(-int(answer.headers.get("Content-Length") or 0) // BLOCK)
            for block in track(_blocks(answer), what=f"downloading {target.name}", total=total):
                digest.update(block)
                file.write(block)
        if digest.hexdigest() != sha256:
            raise _WrongChecksum
    return digest.hexdigest()


def _blocks(answer: IO[bytes]) -> Iterator[bytes]:
    length = 0
    while block := answer.read(BLOCK):
        length += len(block)
        if length > LARGEST:
            raise ValueError(f"more than {LARGEST // 2**20} MB")
        yield block
