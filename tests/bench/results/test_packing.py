"""A compressed result is read like the file in it, and no small file takes the machine."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.bench.results import documents, packing, reader

Ask = Callable[..., Any]
Build = Callable[..., dict[str, Any]]
PACK = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("kind", sorted(PACK))
def test_a_compressed_file_is_read_like_the_one_in_it(
    ask: Ask, vllm_result: Build, kind: str
) -> None:
    plain = json.dumps(vllm_result()).encode()
    answer = ask(PACK[kind](plain), f"result.json.{kind}")
    assert answer.rules == []
    assert answer.row | {"file": ""} == ask(plain).row | {"file": ""}


def test_a_compressed_file_may_be_large(
    ask: Ask, vllm_result: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_SMALL", 64)
    monkeypatch.setattr(packing, "_PIECE", 64)
    assert ask(gzip.compress(json.dumps(vllm_result()).encode())).rules == []


def test_a_table_may_be_compressed(ask: Ask, tables: dict[str, str]) -> None:
    assert ask(gzip.compress(tables["aiperf"].encode()), "x.csv.gz").row["completed"] == 800


def test_gzip_of_several_parts_is_one_file(ask: Ask, vllm_result: Build) -> None:
    part = gzip.compress(json.dumps(vllm_result(detail=False)).encode() + b"\n")
    assert len(ask(part + part).rows) == 2


@pytest.mark.parametrize("kind", sorted(PACK))
def test_a_compressed_file_that_is_cut_off_is_refused(
    ask: Ask, vllm_result: Build, kind: str
) -> None:
    answer = ask(PACK[kind](json.dumps(vllm_result()).encode())[:-12])
    assert answer.rules == ["file.unreadable"]
    assert "cut off" in answer.sentences[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (gzip.compress(b"{}")[:-8] + b"12345678", "no sound gzip"),
        (b"\xfd7zXZ\x00" + b"x" * 40, "no sound xz"),
        (gzip.compress(gzip.compress(b"{}")), "second time"),
        (gzip.compress(b""), "empty"),
        (b"\x28\xb5\x2f\xfd1234", "zstd"),
        (b"\x04\x22\x4d\x181234", "lz4"),
        (b"7z\xbc\xaf\x27\x1c", "7z archive"),
        (b"PAR1", "Parquet"),
        (b"SQLite format 3\x00", "SQLite"),
        (b"<!DOCTYPE html>\n<html>", "HTML"),
        (b"{\x00}\x00" * 40, "UTF-16"),
        (b"\x00\x01\x02\x03" * 9, "binary"),
        (b'{"a": 1}\x00\x00', "binary"),
    ],
)
def test_what_is_no_text_is_refused_by_its_name(ask: Ask, content: bytes, words: str) -> None:
    answer = ask(content)
    assert answer.rules == ["file.unreadable"]
    assert words in answer.sentences[0]


def test_archives_are_refused_with_advice(ask: Ask) -> None:
    packed, taped = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("result.json", "{}")
    with tarfile.open(fileobj=taped, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("result.json"), io.BytesIO())
    for content in (packed.getvalue(), taped.getvalue(), gzip.compress(taped.getvalue())):
        answer = ask(content)
        assert answer.rules == ["file.unreadable"]
        assert "unpack it first" in answer.sentences[0]


def test_a_file_that_unpacks_without_end_is_refused(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_SMALL", 1 << 12)
    monkeypatch.setattr(packing, "MOST", 1 << 16)
    answer = ask(gzip.compress(b"0," * (1 << 18)))
    assert answer.rules == ["file.unreadable"]
    assert "unpacks to more" in answer.sentences[0]


@pytest.mark.parametrize("item", ["{}", "[]", "1", '"a"', '{"a": {}}', "null"])
def test_a_document_of_endless_values_is_refused(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, item: str
) -> None:
    monkeypatch.setattr(documents, "WHOLE", 1 << 10)
    monkeypatch.setattr(documents, "MEMORY", 1 << 16)
    answer = ask('{"requests": [' + ", ".join([item] * 20_000) + "]}")
    assert answer.rules == ["file.unreadable"]
    assert "memory" in answer.sentences[0]


def test_a_link_to_itself_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "one.json").symlink_to(tmp_path / "two.json")
    (tmp_path / "two.json").symlink_to(tmp_path / "one.json")
    reading = reader.read(tmp_path / "one.json")
    assert "cannot be read" in str(reading.error)
