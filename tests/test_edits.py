from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.edits import Edit, OffsetMap, apply, select_non_overlapping, write_atomically

TEXT = "0123456789"


def test_apply_replaces_inserts_and_deletes() -> None:
    edits = [Edit(8, 10, "end"), Edit(0, 0, ">"), Edit(2, 4, ""), Edit(5, 6, "FIVE")]
    assert apply(TEXT, edits) == ">014FIVE67end"


def test_apply_makes_identical_edits_once() -> None:
    assert apply("ab", [Edit(1, 1, "-"), Edit(1, 1, "-")]) == "a-b"


def test_touching_edits_do_not_overlap() -> None:
    assert apply(TEXT, [Edit(2, 4, "x"), Edit(4, 4, "|"), Edit(4, 6, "y")]) == "01x|y6789"


@pytest.mark.parametrize(
    "edits",
    [
        [Edit(0, 3, "a"), Edit(2, 4, "b")],
        [Edit(0, 3, "a"), Edit(1, 1, "b")],
        [Edit(1, 1, "a"), Edit(1, 1, "b")],
        [Edit(0, 3, "a"), Edit(0, 3, "b")],
        [Edit(9, 11, "")],
        [Edit(-1, 0, "")],
        [Edit(3, 2, "")],
    ],
)
def test_apply_refuses_overlaps_and_edits_outside(edits: list[Edit]) -> None:
    with pytest.raises(ValueError, match="edit"):
        apply(TEXT, edits)


def test_a_group_is_taken_whole_or_not_at_all() -> None:
    first = [Edit(0, 2, "x")]
    overlapping = [Edit(5, 6, "y"), Edit(1, 3, "z")]
    last = [Edit(5, 7, "w")]
    assert select_non_overlapping([first, overlapping, last]) == (
        [Edit(0, 2, "x"), Edit(5, 7, "w")],
        [True, False, True],
    )


def test_groups_share_an_edit() -> None:
    shared = Edit(0, 0, "import torch_npu\n")
    taken, flags = select_non_overlapping([[shared, Edit(3, 4, "a")], [shared, Edit(5, 6, "b")]])
    assert taken == [shared, Edit(3, 4, "a"), Edit(5, 6, "b")]
    assert flags == [True, True]


def test_a_group_that_overlaps_itself_is_never_taken() -> None:
    assert select_non_overlapping([[Edit(0, 2, "x"), Edit(1, 3, "y")]]) == ([], [False])


spans = st.tuples(st.integers(0, 10), st.integers(0, 4), st.text("ab", max_size=3)).map(
    lambda t: Edit(t[0], min(t[0] + t[1], 10), t[2])
)


@given(st.lists(st.lists(spans, max_size=3), max_size=8))
def test_what_is_selected_can_be_applied(groups: list[list[Edit]]) -> None:
    taken, flags = select_non_overlapping(groups)
    apply(TEXT, taken)
    assert set(taken) == {edit for group, flag in zip(groups, flags, strict=True) if flag for edit in group}


@given(st.lists(st.lists(spans, max_size=3), max_size=5), st.lists(st.lists(spans, max_size=3), max_size=5))
def test_offsets_of_untouched_characters_map_back(one: list[list[Edit]], two: list[list[Edit]]) -> None:
    text = "".join(chr(0x4E00 + number) for number in range(10))  # characters that no edit writes
    first, _ = select_non_overlapping(one)
    middle = apply(text, first)
    second, _ = select_non_overlapping([[edit for edit in group if edit.end <= len(middle)] for group in two])
    after = apply(middle, second)
    offsets = OffsetMap().then(first).then(second)
    for offset, character in enumerate(after):
        if character in text:
            assert text[offsets.back(offset)] == character


def test_an_offset_inside_a_replacement_maps_to_its_start() -> None:
    offsets = OffsetMap().then([Edit(2, 4, "long text")])
    assert [offsets.back(offset) for offset in (1, 2, 5, 10, 11, 12)] == [1, 2, 2, 2, 4, 5]


def test_write_keeps_the_mode_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "run me.py"
    path.write_bytes(b"old")
    path.chmod(0o750)
    write_atomically(path, b"new\r\n")
    assert path.read_bytes() == b"new\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert list(tmp_path.iterdir()) == [path]


def test_write_goes_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target.py"
    target.write_bytes(b"old")
    link = tmp_path / "link.py"
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_write_makes_a_new_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "new.json", b"{}")
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "new.json").read_bytes() == b"{}"
    assert stat.S_IMODE((tmp_path / "new.json").stat().st_mode) == 0o666 & ~umask


def test_a_read_only_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(PermissionError, match="read-only"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("disk full")])
def test_an_interrupted_write_leaves_the_old_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")

    def fail(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((KeyboardInterrupt, OSError)):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
