from __future__ import annotations

import re

import pytest

from migrator import faults
from migrator.records import Applicability, Severity
from migrator.source import decode


def test_ids_and_names_are_unique_and_in_order() -> None:
    ids = [fault.id for fault in faults.ALL]
    assert ids == sorted(set(ids))
    assert all(re.fullmatch(r"NPU0\d\d", id) for id in ids)
    assert len({fault.name for fault in faults.ALL}) == len(faults.ALL)


def test_every_fault_of_the_module_is_listed() -> None:
    defined = {value.id for value in vars(faults).values() if isinstance(value, faults.Fault)}
    assert defined == {fault.id for fault in faults.ALL}


def test_a_fault_at_a_place_is_a_finding_for_a_person() -> None:
    found = faults.UNPARSABLE.at("cannot parse", 3, 7, "convert it")
    assert (found.rule, found.name, found.severity) == ("NPU001", "unparsable-file", Severity.ERROR)
    assert (found.line, found.column, found.end_line, found.end_column) == (3, 7, 3, 7)
    assert (found.applicability, found.fixed, found.remedy) == (Applicability.MANUAL, False, "convert it")


PYTHON_2 = [
    'print "cuda"', "print x, y", 'exec "x = 1"', "n = 0777", "n = 10L", "y = `x`",
    'if a <> b: pass', 'raise E, "x"', 'x = ur"a"',
]  # fmt: skip


@pytest.mark.parametrize("line", PYTHON_2)
def test_python_2_is_called_so(line: str) -> None:
    found = faults.unparsable(decode(f"import torch\n{line}\n".encode()), 1, 1)
    assert found.message == f"cannot parse: this is Python 2: {line}"
    assert found.line == 2
    assert found.remedy is not None and "2to3" in found.remedy


BROKEN = {"x = (\ny = 3\n": 1, "if x:\n    a = 1\n  b = 2\n": 3, "x = 1\n%matplotlib inline\n": 2, "x = 0.05 y\n": 1}


@pytest.mark.parametrize("code", BROKEN)
def test_a_broken_file_is_described_in_pythons_words(code: str) -> None:
    found = faults.unparsable(decode(code.encode()), 7, 7)
    assert found.line == BROKEN[code]
    assert "\n" not in found.message
    assert "Python 2" not in found.message and "expected one of" not in found.message


def test_what_python_takes_is_said_to_be_beyond_libcst() -> None:
    found = faults.unparsable(decode(b"x = 1\n"), 1, 3)
    assert (found.line, found.column) == (1, 3)
    assert "LibCST" in found.message
