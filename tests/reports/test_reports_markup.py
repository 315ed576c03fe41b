"""Text that comes from anywhere."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st

from archloom.reports.markup import escape, make_printable, shorten


@given(st.text(st.characters()))
def test_any_text_makes_well_formed_markup(text: str) -> None:
    read = ElementTree.fromstring(f'<a b="{escape(text)}">{escape(text)}</a>')
    plain = make_printable(text).replace("\r\n", "\n").replace("\r", "\n")
    assert (read.text or "") == plain


def test_lone_surrogates_and_control_characters_are_replaced() -> None:
    assert make_printable("a\x00b\ud800c\x1b") == "a\ufffdb\ufffdc\ufffd"
    assert make_printable("täglich ∑ 😀\n") == "täglich ∑ 😀\n"


def test_long_text_is_cut_with_an_ellipsis() -> None:
    assert shorten("abcdef", longest=6) == "abcdef"
    assert shorten("abcdefg", longest=6) == "abcde…"


def test_text_that_would_turn_around_is_marked() -> None:
    assert make_printable("a\u202eb\u2066c\x9bd\u200e") == "a\ufffdb\ufffdc\ufffdd\ufffd"
