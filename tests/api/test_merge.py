"""Folding facts of many wheels into stretches of versions, and back."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from migrator.api import _merge
from migrator.api._extract import WheelFacts

VERSIONS = ["2.1.0.post8", "2.4.0", "2.5.1", "2.10.0", "2.14.0"]


def facts(version, *names, signatures=None):
    return WheelFacts(version, names=set(names), signatures=signatures or {}, kernels={"add"})


def merged(*wheels):
    data = _merge.empty()
    for wheel in wheels:
        data = _merge.merge(data, wheel)
    return data


@given(st.sets(st.sampled_from(VERSIONS), min_size=1))
def test_spans_fold_and_unfold(have):
    assert _merge.unfold_spans(_merge.fold_spans(have, VERSIONS), VERSIONS) == have


@given(st.lists(st.sampled_from(["a", "b, c=1", None]), min_size=5, max_size=5))
def test_histories_fold_and_unfold(values):
    per_version = dict(zip(VERSIONS, values, strict=True))
    folded = _merge.fold_history(per_version, VERSIONS)
    assert _merge.unfold_history(folded, VERSIONS) == per_version
    assert len(folded) <= len(values)


def test_a_span_says_least():
    assert _merge.fold_spans({"2.1.0.post8", "2.4.0", "2.10.0", "2.14.0"}, VERSIONS) == "2.1.0.post8-2.4.0,2.10.0"


@given(st.permutations(["2.4.0", "2.5.1", "2.10.0"]))
def test_the_order_of_merging_does_not_matter(order):
    wheels = {
        "2.4.0": facts("2.4.0", "always", "gone", signatures={"always": "a"}),
        "2.5.1": facts("2.5.1", "always", signatures={"always": "a, b=1"}),
        "2.10.0": facts("2.10.0", "always", "new", signatures={"always": "a, b=1"}),
    }
    data = merged(*(wheels[version] for version in order))
    assert data["names.json"]["versions"] == ["2.4.0", "2.5.1", "2.10.0"]
    assert data["names.json"]["names"] == {"always": "2.4.0", "gone": "2.4.0-2.4.0", "new": "2.10.0"}
    assert data["signatures.json"]["signatures"] == {"always": {"2.4.0": "a", "2.5.1": "a, b=1"}}
    assert data["kernels.json"]["kernels"] == {"add": "2.4.0"}


def test_merging_a_known_version_again_changes_nothing():
    wheel = facts("2.5.1", "one", "two", signatures={"one": "x"})
    data = merged(facts("2.4.0", "one"), wheel)
    assert _merge.merge(data, wheel) == data


def test_a_name_that_a_corrected_wheel_lost_goes():
    data = merged(facts("2.4.0", "one", "mistake"), facts("2.5.1", "one"))
    assert "mistake" not in _merge.merge(data, facts("2.4.0", "one"))["names.json"]["names"]


def test_files_have_one_entry_a_line(tmp_path):
    data = merged(facts("2.4.0", "b", "a", signatures={"a": "x=1"}))
    _merge.write(tmp_path, data)
    lines = (tmp_path / "names.json").read_text().splitlines()
    assert '"a":"2.4.0",' in lines
    assert '"b":"2.4.0"' in lines
    assert _merge.read(tmp_path) == data
    assert json.loads((tmp_path / "signatures.json").read_text())["signatures"]["a"] == {"2.4.0": "x=1"}
