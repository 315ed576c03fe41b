"""Texts: words, vocabularies and limits of them, and one clear line for every kind of bad input."""

from __future__ import annotations

from pathlib import Path

import pytest

from archloom.core.errors import DataError, SettingError
from archloom.data import load
from archloom.data.text import TextData


def write(folder: Path, **parts: str | bytes) -> Path:
    for part, content in parts.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / f"{part}.txt").write_bytes(data)
    return folder


def read(folder: Path, **settings: object) -> TextData:
    found = load("text", directory=folder, **settings)
    assert isinstance(found, TextData)
    return found


def words(data: TextData, part: str = "train") -> list[str]:
    return [data.words[number] for number in data.parts[part].tolist()]


GOOD = {"train": "The cat, the dog.\nthe end\n", "valid": "the cat\n", "test": "the dog\n"}


def test_words_are_numbered_as_they_occur_and_lines_end(tmp_path: Path) -> None:
    data = read(write(tmp_path, **GOOD))
    assert words(data) == ["The", "cat", ",", "the", "dog", ".", "<eos>", "the", "end", "<eos>"]
    assert data.words == ("The", "cat", ",", "the", "dog", ".", "<eos>", "end")
    assert words(data, "valid") == ["the", "cat", "<eos>"]


def test_a_text_that_is_split_already_keeps_its_words(tmp_path: Path) -> None:
    parts = {"train": "a b, c\n", "valid": "b, a\n"}
    data = read(write(tmp_path, **parts), tokens="spaces")
    assert words(data) == ["a", "b,", "c", "<eos>"] and data.test is None


def test_a_limit_keeps_the_most_frequent_words_and_ties_go_to_the_first(tmp_path: Path) -> None:
    data = read(write(tmp_path, train="b a a c c\nd\n", valid="a d e\n"), vocabulary=4)
    assert data.words == ("a", "c", "<eos>", "<unk>")
    assert words(data) == ["<unk>", "a", "a", "c", "c", "<eos>", "<unk>", "<eos>"]
    assert words(data, "valid") == ["a", "<unk>", "<unk>", "<eos>"]
    whole = read(tmp_path, vocabulary=100)  # a limit above all words adds the unknown one
    assert whole.words == ("b", "a", "c", "<eos>", "d", "<unk>")


@pytest.mark.parametrize(
    ("parts", "settings", "message"),
    [
        ({"train": ""}, {}, r"the train text .*train.txt is empty; it needs at least one line of words"),
        ({"valid": "\n \n"}, {}, r"the valid text .*valid.txt is empty"),
        ({"train": b"a\0b"}, {}, r"the train text .* must be text in UTF-8, but it is a binary file; name a text file"),
        ({"train": b"a \xff b"}, {}, r"must be text in UTF-8, got byte 0xff at 2; convert it"),
        (
            {"test": "the unicorn\n"},
            {},
            r"the test text of data set 'text' has 1 words that the training text lacks, such as 'unicorn'; set "
            r"data.vocabulary to 8 or less, and they become <unk>",
        ),
        ({"train": "a a a\n"}, {}, r"must have at least 2 different words, got 1"),
    ],
)
def test_bad_texts_get_one_line(
    parts: dict[str, str | bytes], settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    write(tmp_path, **{**GOOD, **parts})
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, **settings)
    assert "\n" not in str(caught.value)


def test_a_vocabulary_of_one_word_is_refused(tmp_path: Path) -> None:
    write(tmp_path, **GOOD)
    with pytest.raises(SettingError, match=r"data.vocabulary must be 0 \(all words\) or at least 2, got 1"):
        read(tmp_path, vocabulary=1)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data set 'text' needs train.txt in .*; add it"):
        read(tmp_path)
    with pytest.raises(DataError, match=r"data set 'ptb' needs ptb.train.txt in .*ptb or .*; check --data-dir"):
        load("ptb", directory=tmp_path)
    with pytest.raises(DataError, match=r"data set 'text' needs a folder with train.txt"):
        read(tmp_path, path="nowhere")


def test_the_documentation_of_python_needs_no_download() -> None:
    data = load("pydoc", directory=None)
    assert isinstance(data, TextData)
    assert len(data.words) == 2000 and {"<unk>", "<eos>", "the"} <= set(data.words)
    assert len(data.train) > 50_000 and len(data.valid) > 3_000 and data.test is not None


def test_penn_treebank_has_the_published_number_of_words(text_dir: Path) -> None:
    data = load("ptb", directory=text_dir)
    assert isinstance(data, TextData) and data.test is not None
    assert (len(data.train), len(data.valid), len(data.test), len(data.words)) == (929_589, 73_760, 82_430, 10_000)
    cut = load("ptb", directory=text_dir, vocabulary=2000)
    assert isinstance(cut, TextData) and len(cut.words) == 2000
    unknown = float((cut.train == cut.words.index("<unk>")).double().mean())
    assert unknown == pytest.approx(0.179, abs=5e-4)


def test_wikitext_2_has_the_published_number_of_words(text_dir: Path) -> None:
    data = load("wikitext2", directory=text_dir)
    assert isinstance(data, TextData) and data.test is not None
    counts = (len(data.train), len(data.valid), len(data.test), len(data.words))
    assert counts == (2_088_628, 217_646, 245_569, 33_278)
