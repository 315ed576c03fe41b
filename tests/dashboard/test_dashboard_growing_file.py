import json

from archloom.dashboard.growing_file import GrowingFile, Growth, RecordFile


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def test_only_what_was_appended_is_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = GrowingFile(path)
    assert file.read() == Growth()
    append(path, "one\ntwo\n")
    assert file.read() == Growth((b"one", b"two"))
    append(path, "three\n")
    before = file.offset
    assert file.read() == Growth((b"three",))
    assert (before, file.offset) == (8, 14)
    assert not file.read()


def test_a_line_without_its_end_waits_for_the_rest_and_is_not_read_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = GrowingFile(path)
    append(path, "one\ntw")
    assert file.read().lines == (b"one",)
    assert (file.offset, file.bytes_of_whole_lines) == (6, 4)
    append(path, "o\n")
    assert file.read().lines == (b"two",)
    assert file.bytes_of_whole_lines == 8


def test_a_file_that_is_replaced_or_shortened_begins_again(tmp_path):
    path, other = tmp_path / "metrics.jsonl", tmp_path / "new"
    append(path, "one\ntwo\n")
    file = GrowingFile(path)
    file.read()
    other.write_text("three\nfour\nfive\n")
    other.replace(path)
    assert file.read() == Growth((b"three", b"four", b"five"), restarted=True)
    path.write_text("six\n")
    assert file.read() == Growth((b"six",), restarted=True)
    path.unlink()
    assert file.read() == Growth(restarted=True)
    assert not file.read()


def test_what_is_there_can_be_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append(path, "one\n")
    file = GrowingFile(path)
    file.skip_to_end()
    append(path, "two\n")
    assert file.read() == Growth((b"two",))


def test_damaged_lines_are_counted_and_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    records = RecordFile(path, lambda value: value["number"])
    append(path, json.dumps({"number": 1}) + '\nnot json\n[1]\n{"other": 2}\n' + json.dumps({"number": 3}) + "\n")
    assert records.update()
    assert (records.records, records.damaged) == ([1, 3], 3)
    assert not records.update()
    append(path, "[" * 100_000 + "\n")
    records.update()
    assert records.damaged == 4
