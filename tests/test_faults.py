from __future__ import annotations

import re

from migrator import faults
from migrator.records import Applicability, Severity


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
