"""Texts to learn a language from: Penn Treebank, WikiText-2, a folder of text files, and Python's own documentation.

A line is its words and a mark of its end. Words are numbered in the order in which they first occur, in the training
text first. With a limit, the most frequent words of the training text are kept and all others become `<unk>`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import DataError, require
from archloom.data.source import locate
from archloom.data.text import FEWEST_WORDS, TextData

END, UNKNOWN = "<eos>", "<unk>"
PARTS = ("train", "valid", "test")
ENDINGS = (".txt", ".tokens", ".text", "")  # of a part's file, tried in this order
PYDOC_WORDS = 2000
TENTH = 10  # of ten topics, eight train, one validates, one tests

Words = Iterable[list[str]]  # line by line
Split = Callable[[str], list[str]]

Vocabulary = Annotated[int, Doc("the most frequent words that are kept, `<unk>` among them; 0: all")]
Place = Annotated[str, Doc("the folder of the text, within the data folder or by itself")]


def ptb(directory: Path | None, *, vocabulary: Vocabulary = 0, path: Place = "ptb") -> TextData:
    """Load Penn Treebank: ptb.train.txt, ptb.valid.txt and ptb.test.txt, 0.93 million words to train on."""
    return _load("ptb", _find("ptb", directory, path, "ptb.{}.txt"), split_spaces, vocabulary)


def wikitext2(directory: Path | None, *, vocabulary: Vocabulary = 0, path: Place = "wikitext-2") -> TextData:
    """Load WikiText-2: wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens, 2.1 million words to train on."""
    return _load("wikitext2", _find("wikitext2", directory, path, "wiki.{}.tokens"), split_spaces, vocabulary)


def text(
    directory: Path | None,
    *,
    path: Place = "",
    vocabulary: Vocabulary = 0,
    tokens: Annotated[
        Literal["words", "spaces"], Doc("words: punctuation is apart; spaces: the text is split already")
    ] = "words",
) -> TextData:
    """Load a folder with train.txt, valid.txt and, if there is one, test.txt."""
    root = locate("text", directory, path)
    if not root.is_dir():
        raise DataError(f"data set 'text' needs a folder with train.txt and valid.txt, got {root}; check data.path")
    found: dict[str, Path] = {}
    for part in PARTS:
        files = [root / f"{part}{ending}" for ending in ENDINGS]
        file = next((one for one in files if one.is_file()), None)
        if file is not None:
            found[part] = file
        elif part != "test":
            raise DataError(f"data set 'text' needs {part}.txt in {root}; add it")
    return _load("text", found, split_words if tokens == "words" else split_spaces, vocabulary)


def pydoc(directory: Path | None = None, *, vocabulary: Vocabulary = PYDOC_WORDS) -> TextData:
    """Load the language reference of this Python, about 120,000 words; `directory` is not used."""
    from pydoc_data.topics import topics  # late: half a megabyte that other data sets should not wait for

    texts = [topics[name] for name in sorted(topics)]
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    for number, one in enumerate(texts):
        place = number % TENTH
        parts["test" if place == TENTH - 1 else "valid" if place == TENTH - 2 else "train"].append(one)
    lines = {part: [split_words(line) for one in own for line in one.splitlines()] for part, own in parts.items()}
    return _number_words(
        "pydoc", {part: [line for line in own if line] for part, own in lines.items()}, vocabulary, tokens="words"
    )


# --- words


def split_spaces(line: str) -> list[str]:
    """Return the words of a line that is split already."""
    return line.split()


def split_words(line: str) -> list[str]:
    """Return words and marks of punctuation; nothing is put into lower case."""
    return re.findall(r"\w+|[^\w\s]", line)


def _find(name: str, directory: Path | None, path: str, pattern: str) -> Mapping[str, Path]:
    """Return the file of every part, in the folder of the data set or in the data folder itself."""
    root = locate(name, directory)
    files = {part: pattern.format(part) for part in PARTS}
    for place in (root / path, root):
        if (place / files["train"]).is_file():
            missing = [file for file in files.values() if not (place / file).is_file()]
            if missing:
                raise DataError(f"data set '{name}' needs {missing[0]} in {place}; add it")
            return {part: place / file for part, file in files.items()}
    raise DataError(f"data set '{name}' needs {files['train']} in {root / path} or {root}; check --data-dir")


def _load(name: str, files: Mapping[str, Path], split: Split, vocabulary: int) -> TextData:
    lines = {part: [split(line) for line in read_text(file, what=f"{part} text")] for part, file in files.items()}
    return _number_words(name, lines, vocabulary, tokens="words" if split is split_words else "spaces")


def read_text(file: Path, *, what: str = "text") -> list[str]:
    """Return the lines of a text file; a DataError says what is wrong with it."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"the {what} {file} cannot be read: {error.strerror or error}") from error
    if b"\0" in content:
        raise DataError(f"the {what} {file} must be text in UTF-8, but it is a binary file; name a text file")
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(
            f"the {what} {file} must be text in UTF-8, got byte 0x{content[error.start]:02x} at {error.start}; "
            "convert it"
        ) from error
    if not any(line.strip() for line in lines):
        raise DataError(f"the {what} {file} is empty; it needs at least one line of words")
    return lines


def _number_words(name: str, lines: Mapping[str, Words], vocabulary: int, *, tokens: str) -> TextData:
    """Return a text as numbers of words."""
    require(
        {
            f"data.vocabulary must be 0 (all words) or at least {FEWEST_WORDS}, got {vocabulary}": (
                vocabulary == 0 or vocabulary >= FEWEST_WORDS
            )
        }
    )
    parts = {part: list(_mark_ends(own)) for part, own in lines.items()}
    known = _choose_words(name, parts, vocabulary)
    numbers = {word: number for number, word in enumerate(known)}
    found = {part: _to_numbers(name, part, words, numbers) for part, words in parts.items()}
    return TextData(
        name=name, words=known, train=found["train"], valid=found["valid"], test=found.get("test"), tokens=tokens
    ).check()


def _mark_ends(lines: Words) -> Iterator[str]:
    for line in lines:
        yield from line
        yield END


def _choose_words(name: str, parts: Mapping[str, list[str]], vocabulary: int) -> tuple[str, ...]:
    """Return the vocabulary in the order in which words first occur in the training text."""
    counts = Counter(parts["train"])  # keeps the order of first occurrence, also among equally frequent words
    different = sum(word not in (END, UNKNOWN) for word in counts)
    if different < FEWEST_WORDS:
        raise DataError(
            f"the training text of data set '{name}' must have at least {FEWEST_WORDS} different words, got {different}"
        )
    if vocabulary == 0 or vocabulary >= len(counts):
        return tuple(counts) if vocabulary == 0 or UNKNOWN in counts else (*counts, UNKNOWN)
    kept = {word for word, _ in counts.most_common(vocabulary)}
    if UNKNOWN not in kept:
        kept = {word for word, _ in counts.most_common(vocabulary - 1)} | {UNKNOWN}
    ordered = [word for word in counts if word in kept]
    return tuple(ordered if UNKNOWN in counts else [*ordered, UNKNOWN])


def _to_numbers(name: str, part: str, words: list[str], numbers: Mapping[str, int]) -> Tensor:
    unknown = numbers.get(UNKNOWN)
    if unknown is None:
        strange = dict.fromkeys(word for word in words if word not in numbers)
        if strange:
            raise DataError(
                f"the {part} text of data set '{name}' has {len(strange):,} words that the training text lacks, such "
                f"as '{next(iter(strange))[:40]}'; set data.vocabulary to {len(numbers)} or less, and they become "
                f"{UNKNOWN}"
            )
        return torch.tensor([numbers[word] for word in words])
    return torch.tensor([numbers.get(word, unknown) for word in words])
