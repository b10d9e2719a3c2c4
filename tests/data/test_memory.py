"""An array larger than any chunk is streamed: memory does not grow with the data."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

# The peak is VmHWM, which starts anew with each program; getrusage's ru_maxrss is inherited from the process that
# started it, and under a large pytest it would hide any growth.
PROBE = """
import re, sys
from pathlib import Path
import numpy as np
from sfumato.data import npz, open_source  # what importing costs is not what reading costs

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024

before, total = peak(), 0
for pixels, labels in open_source(sys.argv[1]).chunks():
    total += int(pixels[:, 0, 0, 0].sum()) + len(labels)
streamed = peak() - before
whole = np.load(sys.argv[1])["x"]
print(total, streamed, peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_npz_of_200_megabytes_is_streamed(tmp_path: Path, kind: type) -> None:
    rows, item = 200 * 2**20 // (32 * 32 * 3 * np.dtype(kind).itemsize), np.dtype(kind)
    header = {"descr": item.str, "fortran_order": False, "shape": (rows, 32, 32, 3)}
    block = np.ones((1000, 32, 32, 3), kind)
    with zipfile.ZipFile(tmp_path / "big.npz", "w", zipfile.ZIP_STORED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, header)
            for start in range(0, rows, 1000):
                member.write(block[: min(1000, rows - start)].tobytes())
        with archive.open("y.npy", "w") as member:
            np.lib.format.write_array(member, np.arange(rows) % 10)
    run = subprocess.run(
        [sys.executable, "-c", PROBE, str(tmp_path / "big.npz")], check=True, capture_output=True, text=True
    )
    total, streamed, whole = map(int, run.stdout.split())
    assert total == rows * (1 if kind == np.uint8 else 255) + rows
    assert streamed < 60, f"{streamed} MB"
    assert whole > 150, "the measure itself must notice an array that is read whole"
