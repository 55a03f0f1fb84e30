"""Reads from a shared library (64-bit, little-endian ELF) what it needs from others."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")
_SHT_DYNAMIC, _SHT_DYNSYM = 6, 11
_DT_NEEDED = 1


@dataclass(frozen=True)
class SharedLibrary:
    """The names of the libraries that it needs, and of the symbols that it defines or leaves undefined."""

    needed: frozenset[str]
    defined: frozenset[str]
    undefined: frozenset[str]


def read_library(path: Path) -> SharedLibrary:
    """Parse the dynamic section and the dynamic symbol table.

    Raises ValueError when the file is not a 64-bit little-endian ELF file.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
        header = _HEADER.unpack_from(data)
        offset, size, count = header[6], header[11], header[12]
        sections = [_SECTION.unpack_from(data, offset + size * index) for index in range(count)]
        needed: set[str] = set()
        defined: set[str] = set()
        undefined: set[str] = set()
        for section in sections:
            kind, strings = section[1], sections[section[6]]
            if kind == _SHT_DYNAMIC:
                needed.update(
                    _text(data, strings, value) for tag, value in _entries(_DYNAMIC, data, section) if tag == _DT_NEEDED
                )
            elif kind == _SHT_DYNSYM:
                for name, _, _, index, _, _ in _entries(_SYMBOL, data, section):
                    (defined if index else undefined).add(_text(data, strings, name))
    return SharedLibrary(frozenset(needed), frozenset(defined), frozenset(undefined))


def _entries(layout: struct.Struct, data: mmap.mmap, section: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    start, size = section[4], section[5]
    return layout.iter_unpack(data[start : start + size])


def _text(data: mmap.mmap, strings: tuple[int, ...], offset: int) -> str:
    start = strings[4] + offset
    return data[start : data.find(b"\0", start)].decode()
