"""Lines are counted by the rule that is written down, and the committed table keeps to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.bench import source_lines
from assay.errors import InputError
from assay.ledger import store

TABLE = source_lines.committed()


def test_a_comment_behind_code_is_code() -> None:
    assert source_lines.count("x = 1  # why\n").code == 1


def test_a_line_with_a_comment_only_is_a_comment() -> None:
    found = source_lines.count("# why\n    # still\nx = 1\n")
    assert (found.comment, found.code) == (2, 1)


def test_every_line_of_a_string_is_code_even_an_empty_one() -> None:
    found = source_lines.count('x = """a\n\nb"""\n')
    assert (found.code, found.blank) == (3, 0)


def test_a_docstring_is_code() -> None:
    assert source_lines.count('"""Say what it owns."""\n').code == 1


def test_a_line_between_brackets_is_code() -> None:
    assert source_lines.count("x = [\n    1,\n]\n").code == 3


def test_a_comment_between_brackets_is_a_comment() -> None:
    assert source_lines.count("x = [\n    # one\n    1,\n]\n").comment == 1


def test_the_three_kinds_add_up_to_the_lines_of_a_file() -> None:
    text = Path(source_lines.__file__).read_text("utf-8")
    assert source_lines.count(text).lines == len(text.splitlines())


def test_an_empty_file_has_no_lines() -> None:
    assert source_lines.count("").lines == 0


def test_classes_of_the_top_level_are_named() -> None:
    assert source_lines.count("class A:\n    class B: ...\n\n\nclass C: ...\n").classes == (
        "A",
        "C",
    )


@pytest.mark.parametrize("text", ["def (:\n", "x = [\n"])
def test_what_is_not_python_is_refused_in_words(text: str) -> None:
    with pytest.raises(InputError, match="is not Python"):
        source_lines.count(text, "odd.py")


def test_a_folder_without_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no Python files"):
        source_lines.package(tmp_path)


def test_a_package_is_counted_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "one.py").write_text("a = 1\n\n", "utf-8")
    (tmp_path / "two.py").write_text("class B: ...\n", "utf-8")
    found = source_lines.package(tmp_path)
    assert [(one.file, one.code, one.blank) for one in found] == [
        ("engine/one.py", 1, 1),
        ("two.py", 1, 0),
    ]


def test_the_committed_table_has_the_lines_that_were_counted_by_other_means() -> None:
    # Rows nano-vllm-lines-* of the published measurements: counted before this rule was written.
    counted = {row["row"]: row["value"] for row in store.published("measurements")}
    whole = source_lines.total(TABLE)
    assert str(whole.lines) == counted["nano-vllm-lines-total"]
    assert str(whole.code) == counted["nano-vllm-lines-code"]


@pytest.mark.parametrize("name", ["LLMEngine", "BlockManager", "Scheduler", "ModelRunner"])
def test_each_named_part_is_a_class_of_one_file(name: str) -> None:
    assert [one.file.startswith("engine/") for one in TABLE if name in one.classes] == [True]


def test_the_table_reads_back_as_it_is_written() -> None:
    committed = store.path("data", "published", "nano_vllm_lines.csv").read_text("utf-8")
    assert source_lines.text(TABLE) == committed
