from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import CbbenchError
from workloads.traces.azure import read_azure
from workloads.traces.formats import FORMATS, read_trace
from workloads.traces.rows import TraceRow

WriteFile = Callable[[str, str], Path]
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
ROWS = (
    "2023-11-16 18:15:46.6805900,374,44",
    "2023-11-16 18:15:50.9951690,396,109",
    "2023-11-16 18:15:51.2224671,879,55",
)
EXPECTED = (TraceRow(0.0, 374, 44), TraceRow(4.314579, 396, 109), TraceRow(4.5418771, 879, 55))


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize("final", [True, False])
def test_line_ends_and_the_last_newline_do_not_matter(
    write: WriteFile, end: str, final: bool
) -> None:
    path = write("a.csv", end.join([HEADER, *ROWS]) + (end if final else ""))
    assert read_azure(path).rows == EXPECTED


def test_all_seven_digits_of_the_fraction_count(write: WriteFile) -> None:
    rows = ["2023-11-16 18:15:46.6805900,1,1", "2023-11-16 18:15:46.6805901,1,1"]
    assert read_azure(write("a.csv", "\n".join([HEADER, *rows]))).rows[1].arrival_s == 1e-7


@given(st.permutations(ROWS))
def test_shuffled_rows_give_the_same_arrivals(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str]
) -> None:
    path = tmp_path_factory.mktemp("shuffled") / "a.csv"
    path.write_text("\n".join([HEADER, *rows]))
    assert read_azure(path).rows == EXPECTED


def test_rows_of_one_instant_keep_the_files_order(write: WriteFile) -> None:
    late, tie = "2023-11-16 10:00:01,9,9", "2023-11-16 10:00:00"
    text = "\n".join([HEADER, late, f"{tie},3,1", f"{tie},1,1", f"{tie},2,1"])
    assert [row.prompt_tokens for row in read_azure(write("a.csv", text)).rows] == [3, 1, 2, 9]


def test_columns_are_found_by_name(write: WriteFile) -> None:
    text = "GeneratedTokens,NumImages,TIMESTAMP,ContextTokens\n44,2,2023-11-16 18:15:46,374\n"
    assert read_azure(write("a.csv", text)).rows == (TraceRow(0.0, 374, 44),)


def test_byte_order_mark_offsets_quotes_and_blank_lines_are_read(write: WriteFile) -> None:
    text = (
        f"\ufeff{HEADER}\n"
        '"2024-05-10 00:00:00.009930+00:00","10","1"\n'
        "\n  \n"
        "2024-05-10T01:00:00.509930+01:00,20,2\n"
    )
    assert read_azure(write("a.csv", text)).rows == (TraceRow(0.0, 10, 1), TraceRow(0.5, 20, 2))


def test_rows_of_no_tokens_are_kept(write: WriteFile) -> None:
    text = f"{HEADER}\n2023-11-16 18:15:46,0,0\n"
    assert read_azure(write("a.csv", text)).rows == (TraceRow(0.0, 0, 0),)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2023-11-16 18:15:50.9951690,396", "2 fields in .*; expected 3"),
        ("2023-11-16 18:15:50.9951690,396,109,7", "4 fields in .*; expected 3"),
        ("2023-11-16 18:15:50.9951690,-396,109", "ContextTokens is '-396'; expected a whole"),
        ("2023-11-16 18:15:50.9951690,396,-1", "GeneratedTokens is '-1'; expected a whole"),
        ("2023-11-16 18:15:50.9951690,396,1e2", "GeneratedTokens is '1e2'; expected a whole"),
        ("2023-11-16 18:15:50.9951690,12.0,1", "ContextTokens is '12.0'; expected a whole"),
        ("2023-11-16 18:15:50.9951690,,1", "ContextTokens is ''; expected a whole"),
        ("2023-11-16 18:15:50.9951690,nan,1", "ContextTokens is 'nan'; expected a whole"),
        ("2023-11-16 18:15:50.9951690,٣,1", "ContextTokens is '٣'; expected a whole"),
        ("16.11.2023 18:15:50,396,109", "TIMESTAMP is '16.11.2023 18:15:50'; expected a time"),
        ("2023-13-16 18:15:50,396,109", "TIMESTAMP is '2023-13-16 18:15:50'; expected a time"),
        ("1700000000.2,396,109", "TIMESTAMP is '1700000000.2'; expected a time"),
        ('"2023-11-16 18:15:50,396,109', "not CSV"),
    ],
)
def test_bad_row_is_refused_with_its_line(write: WriteFile, row: str, message: str) -> None:
    path = write("bad.csv", "\r\n".join([HEADER, ROWS[0], row]))
    with pytest.raises(CbbenchError, match=rf"bad\.csv, line 3: {message}"):
        read_azure(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\r\n \r\n", "is empty"),
        (HEADER + "\n", "a header but no rows"),
        (ROWS[0] + "\n", "line 1: no column TIMESTAMP, ContextTokens, GeneratedTokens"),
        ("TIMESTAMP,ContextTokens\n", "line 1: no column GeneratedTokens"),
    ],
)
def test_file_without_header_or_rows_is_refused(write: WriteFile, text: str, message: str) -> None:
    with pytest.raises(CbbenchError, match=message):
        read_azure(write("bad.csv", text))


def test_missing_and_compressed_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CbbenchError, match="cannot be read: No such file"):
        read_azure(tmp_path / "gone.csv")
    with pytest.raises(CbbenchError, match="cannot be read: Is a directory"):
        read_azure(tmp_path)
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(b"\x1f\x8b\x08\x00\xff\xfe")
    with pytest.raises(CbbenchError, match="not UTF-8 text"):
        read_azure(packed)


def test_format_is_declared_by_name(write: WriteFile) -> None:
    assert "azure" in FORMATS
    with pytest.raises(CbbenchError, match="unknown trace format 'azur'; did you mean 'azure'"):
        read_trace(write("a.csv", HEADER), "azur")


@pytest.mark.parametrize(
    ("name", "count", "prompt_sum", "output_sum", "first", "last"),
    [
        (
            "azure_llm_2023_conv_min00-15.csv",
            4424,
            5_188_168,
            1_125_283,
            [(0.0, 374, 44), (4.314579, 396, 109), (4.541877, 879, 55)],
            (899.881888, 181, 187),
        ),
        (
            "azure_llm_2023_code_min00-20.csv",
            3628,
            7_309_910,
            100_545,
            [(0.0, 4808, 10), (0.052, 3180, 8), (0.098189, 110, 27)],
            (1199.101263, 2056, 24),
        ),
    ],
)
def test_real_slice_is_read_whole(
    real_traces: Path,
    name: str,
    count: int,
    prompt_sum: int,
    output_sum: int,
    first: list[tuple[float, int, int]],
    last: tuple[float, int, int],
) -> None:
    rows = read_azure(real_traces / name).rows
    assert len(rows) == count
    assert sum(row.prompt_tokens for row in rows) == prompt_sum
    assert sum(row.output_tokens for row in rows) == output_sum
    assert [(row.arrival_s, row.prompt_tokens, row.output_tokens) for row in rows[:3]] == first
    assert (rows[-1].arrival_s, rows[-1].prompt_tokens, rows[-1].output_tokens) == last
