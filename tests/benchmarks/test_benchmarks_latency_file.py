"""Latencies of a user's own: what is read, and the line for what is not."""

from __future__ import annotations

import numpy as np
import pytest

from archloom.benchmarks.digits import DigitsTable
from archloom.benchmarks.latency_file import read_latencies
from archloom.core.errors import BenchmarkError, StorageError

TABLE = DigitsTable()
CELL = "|nor_conv_3x3~0|+|skip_connect~0|avg_pool_3x3~1|"


@pytest.fixture
def read(tmp_path):
    def from_text(text: str | bytes):
        path = tmp_path / "own.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_latencies(path, TABLE, dataset="digits")

    return from_text


@pytest.mark.parametrize("heading", ["", "architecture,ms\n", "\ufeffarchitecture,ms\r\n"])
def test_texts_and_rows_are_read_with_a_heading_or_without(read, heading):
    found = read(f'{heading}{CELL}, 3.5\n\n7,1e1\n"{TABLE.space.format(TABLE.architecture(9))}",2\n')
    assert found[TABLE.row(TABLE.space.parse(CELL))] == 3.5
    assert (found[7], found[9]) == (10.0, 2.0)
    assert np.isnan(found).sum() == 122


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "holds no latencies"),
        ("architecture,ms\n", "holds no latencies"),
        ("3,1\n4,fast\n", "line 2: must be an architecture, a comma and milliseconds above 0, got '4,fast'"),
        ("3,1\n4,-2\n", "line 2: must be"),
        ("3,1\n4,nan\n", "line 2: must be"),
        ("3,1\n4;2\n", "line 2: must be"),
        ("3,1\n4,2,9\n", "line 2: must be"),
        ("3,1\n125,2\n", r"line 2: rows of the digits table lie in 0\.\.124, got 125"),
        ("3,1\n|none~0|,2\n", "line 2: an NB201 string of this space has 2 groups"),
        ("3,1\n3,2\n", "line 2: 3 is there a second time"),
        (b"\xff\xfe3,1\n", "is no CSV file in UTF-8"),
        (b"3,1\n\x004,2\n", "line 2|is no CSV file"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_says_where(read, text, line):
    with pytest.raises(BenchmarkError, match=line) as error:
        read(text)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(StorageError, match=r"cannot read .*none\.csv"):
        read_latencies(tmp_path / "none.csv", TABLE, dataset="digits")
