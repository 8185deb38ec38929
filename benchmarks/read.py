"""Time `assay read` on a large detailed file: prints seconds and peak memory.

Owns the file it makes, in a temporary folder, in the shape of ``vllm bench serve
--save-detailed``, as it is and compressed. Run it as ``python benchmarks/read.py [MB]``; the bars
are 20 s and 1 GB for 200 MB.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: What one request takes in the file: 500 gaps of about 22 B, its text and its numbers.
_GAPS = 500


def write(file: Path, megabytes: int) -> int:
    """Write a detailed file of about so many megabytes (10**6 B); return its requests."""
    draw = random.Random(0)
    requests = max(1, megabytes * 10**6 // (_GAPS * 22 + 1800))
    text = "token é " * 200
    head = {
        "date": "20261130-100000",
        "backend": "openai",
        "model_id": "example-org/small-7b",
        "num_prompts": requests,
        "request_rate": "inf",
        "duration": requests * 0.1,
        "completed": requests,
        "failed": 0,
        "total_input_tokens": 512 * requests,
        "total_output_tokens": (_GAPS + 1) * requests,
        "input_lens": [512] * requests,
        "output_lens": [_GAPS + 1] * requests,
        "ttfts": [draw.uniform(0.05, 0.1) for _ in range(requests)],
    }
    with file.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(head)[:-1] + ', "itls": [')
        for number in range(requests):
            gaps = [draw.uniform(0.01, 0.03) for _ in range(_GAPS)]
            stream.write((", " if number else "") + json.dumps(gaps))
        stream.write("], ")
        rest = {"generated_texts": [text] * requests, "errors": [""] * requests}
        stream.write(json.dumps(rest, ensure_ascii=False)[1:])
    return requests


def timed(file: Path) -> tuple[float, float]:
    """Read a file in a fresh process; return seconds and the peak memory in MB (10**6 B)."""
    command = [sys.executable, "-m", "assay", "read", str(file), "--json"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"assay read ended with {process.returncode}")
    scale = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return time.perf_counter() - start, used.ru_maxrss * scale / 1e6


def main() -> None:
    """Write a file, read it as it is and compressed, and print what that took."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "detailed.json"
        requests = write(file, megabytes)
        size = file.stat().st_size
        packed = file.with_suffix(".json.gz")
        with file.open("rb") as plain, gzip.open(packed, "wb", compresslevel=1) as out:
            shutil.copyfileobj(plain, out, 1 << 20)
        for name, seconds, peak in (("plain", *timed(file)), ("gzip", *timed(packed))):
            what = f"{name}: {size / 1e6:.0f} MB, {requests:,} requests"
            print(f"{what}: {seconds:.1f} s, {peak:.0f} MB")


if __name__ == "__main__":
    main()
