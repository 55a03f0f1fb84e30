"""Bytes and text: what is read is written back as it was."""

from __future__ import annotations

import pytest

from migrator.source import SourceError, decode

ENCODED = {
    "utf-8": "x = 'é模'\n".encode(),
    "byte-order mark": "x = 'é'\n".encode("utf-8-sig"),
    "latin-1": "# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"),
    "gbk": "# vim: set fileencoding=gbk :\nx = '模型'\n".encode("gbk"),
    "cookie in the second line": "#!/usr/bin/python\n# coding: cp1252\nx = '€'\n".encode("cp1252"),
    "all kinds of newlines": b"a = 1\r\nb = 2\rc = 3\n\x0cd = 4",
    "empty": b"",
}


@pytest.mark.parametrize("raw", ENCODED.values(), ids=ENCODED)
def test_round_trip(raw):
    source = decode(raw)
    assert source.encode(source.text) == raw
    assert len(source.parse_text) == len(source.text)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"x = '\xe9'\n", "byte 0xe9 is not utf-8"),
        (b"# coding: nonsense\n", "unknown encoding"),
        (b"a = 1\nb = 2\nc = '\xff'\n", "line 3"),
    ],
)
def test_refused_with_a_way_out(raw, words):
    with pytest.raises(SourceError, match=words):
        decode(raw)


def test_positions_count_characters_and_lines_of_every_kind():
    source = decode("é = 1\r\nb = 2\rc = 'ü' + x\n".encode())
    assert source.position(source.text.index("b")) == (2, 1)
    assert source.position(source.text.index("x")) == (3, 11)
    assert source.line_text(3) == "c = 'ü' + x\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("\fx = 1\n", "\nx = 1\n"), ("x = 1 \f\n", "x = 1  \n"), ("a\rb\r\nc", "a\nb\r\nc"), ("plain\n", "plain\n")],
)
def test_what_the_parser_sees(text, expected):
    assert decode(text.encode()).parse_text == expected


def test_result_that_the_encoding_lacks():
    source = decode("# coding: latin-1\nx = 1\n".encode("latin-1"))
    with pytest.raises(SourceError, match=r"latin-1|iso-8859-1"):
        source.encode("x = '模'\n")
