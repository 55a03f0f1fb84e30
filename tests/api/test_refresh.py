"""`python -m migrator.api.refresh`: what it writes, and what it says when something is in the way."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from migrator import api
from migrator.api import _merge, refresh

NETWORK_VERSION = "2.4.0"
"""A known version whose wheel is small."""


@pytest.fixture
def data(tmp_path):
    """A copy of the shipped data to write into."""
    return shutil.copytree(refresh.DATA, tmp_path / "data")


@pytest.fixture
def run(data, fake_wheel, capsys):
    """Function: arguments → (exit code, what was printed), with wheels from the folder of the fake ones."""

    def call(*arguments):
        wheels = fake_wheel().parent
        code = refresh.main([*arguments, "--data", str(data), "--wheel-dir", str(wheels)])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call


def snapshot(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def pip(monkeypatch, output="", code=1, effect=None):
    """Let pip end like this instead of being run; gives the list of commands that were asked for."""
    commands = []

    def fake(command, **_):
        commands.append(command)
        if effect:
            effect(command)
        return subprocess.CompletedProcess(command, code, "", output)

    monkeypatch.setattr(refresh.subprocess, "run", fake)
    return commands


def test_a_new_version_is_added_and_the_others_stay(run, data):
    before = _merge.read(data)
    assert run("2.15.0")[0] == 0
    after = _merge.read(data)
    assert after["names.json"]["versions"] == [*before["names.json"]["versions"], "2.15.0"]
    assert after["names.json"]["names"]["torch_npu.npu.synchronize"] == "2.1.0.post8"
    assert after["names.json"]["names"]["torch_npu.npu.graph"] == "2.5.1-2.14.0"
    assert after["names.json"]["names"]["torch_npu.npu.matmul.allow_hf32"] == "2.1.0.post8"
    for name, text in before["names.json"]["names"].items():
        old = _merge.unfold_spans(text, before["names.json"]["versions"])
        new = _merge.unfold_spans(after["names.json"]["names"][name], after["names.json"]["versions"])
        assert new - {"2.15.0"} == old


def test_the_same_version_twice_changes_nothing(run, data):
    run("2.15.0")
    once = snapshot(data)
    code, said = run("2.15.0")
    assert (code, snapshot(data)) == (0, once)
    assert "changed: nothing" in said


def test_rows_whose_replacement_is_lost_are_pointed_at(run):
    assert "review mapping.json: torch.cuda.graph -> torch.npu.graph is not in 2.15.0" in run("2.15.0")[1]


def test_check_writes_nothing(run, data):
    before = snapshot(data)
    code, said = run("2.15.0", "--check")
    assert (code, snapshot(data)) == (1, before)
    assert "changed: names.json, signatures.json, operators.json, kernels.json" in said


def test_shipped_files_are_what_refresh_writes(data):
    before = snapshot(data)
    _merge.write(data, _merge.read(data))
    assert snapshot(data) == before


def test_no_version(run):
    code, said = run()
    assert code == 2
    assert "name at least one version" in said


def test_text_that_is_no_version(run):
    code, said = run("latest")
    assert code == 2
    assert said == "refresh: 'latest' is not a version number; expected something like 2.7.1\n"


def test_a_version_may_be_shortened(run):
    assert "2.15.0: " in run("2.15")[1]


def test_a_version_that_the_index_does_not_have(run, data, monkeypatch):
    before = snapshot(data)
    pip(
        monkeypatch,
        "ERROR: Could not find a version that satisfies the requirement torch-npu==9.9 (from versions: 2.6.0, 2.7.1)\n"
        "ERROR: No matching distribution found for torch-npu==9.9\n",
    )
    code, said = run("9.9")
    assert (code, snapshot(data)) == (2, before)
    assert "the package index has no torch-npu 9.9; it offers 2.6.0, 2.7.1" in said


def test_an_index_that_cannot_be_reached(run, monkeypatch):
    commands = pip(
        monkeypatch,
        "ERROR: Could not find a version that satisfies the requirement torch-npu==2.15.1 (from versions: none)\n"
        "ERROR: No matching distribution found for torch-npu==2.15.1\n",
    )
    code, said = run("2.15.1")
    assert code == 2
    assert "cannot be reached" in said
    assert "--wheel-dir" in said
    assert len(commands) == 1  # waiting for the same network once is enough


def test_every_python_is_tried_before_giving_up(run, monkeypatch):
    commands = pip(monkeypatch, "ERROR: No matching distribution found (from versions: 2.6.0)\n")
    assert run("2.15.1")[0] == 2
    assert [c[c.index("--python-version") + 1] for c in commands] == list(refresh.PYTHONS)


def test_a_downloaded_wheel_is_read_and_thrown_away(data, fake_wheel, monkeypatch, capsys):
    downloads = []

    def effect(command):
        downloads.append(Path(command[command.index("--dest") + 1]))
        shutil.copy(fake_wheel(), downloads[-1])

    pip(monkeypatch, code=0, effect=effect)
    assert refresh.main(["2.15.0", "--data", str(data)]) == 0
    assert "2.15.0: " in capsys.readouterr().out
    assert len(downloads) == 1
    assert not downloads[0].exists()


def test_a_download_that_breaks_off(run, data, monkeypatch):
    before = snapshot(data)
    pip(monkeypatch, "ERROR: Could not install packages due to an OSError: Connection broken: IncompleteRead\n")
    code, said = run("2.15.1")
    assert (code, snapshot(data)) == (2, before)
    assert "the download of torch-npu 2.15.1 failed and left nothing behind" in said


def test_a_disk_that_is_full_while_downloading(run, monkeypatch):
    pip(monkeypatch, "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n")
    code, said = run("2.15.1")
    assert code == 2
    assert "the disk is full" in said


def test_a_python_without_pip(run, monkeypatch):
    pip(monkeypatch, "/usr/bin/python3: No module named pip\n")
    code, said = run("2.15.1")
    assert code == 2
    assert "pip is missing" in said


def test_a_disk_that_is_full_while_writing(run, data, monkeypatch):
    before = snapshot(data)
    written = []

    def fsync(descriptor):
        written.append(descriptor)
        if len(written) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_merge.os, "fsync", fsync)
    code, said = run("2.15.0")
    assert (code, snapshot(data)) == (2, before)
    assert "the disk is full; the data files are as they were" in said


def test_an_interrupt(run, data, monkeypatch):
    before = snapshot(data)

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_merge.os, "fsync", interrupt)
    code, said = run("2.15.0")
    assert (code, snapshot(data)) == (2, before)
    assert "interrupted; the data files are as they were" in said


def test_a_wheel_cut_short(run, data, fake_wheel):
    before = snapshot(data)
    wheel = fake_wheel("2.17.0")
    wheel.write_bytes(wheel.read_bytes()[:2000])
    code, said = run("2.17.0")
    assert (code, snapshot(data)) == (2, before)
    assert "torch_npu-2.17.0" in said
    assert "not a readable wheel" in said


def test_damaged_data(run, data):
    (data / "names.json").write_text("{")
    code, said = run("2.15.0")
    assert code == 2
    assert "restore it from version control" in said


@pytest.mark.network
def test_the_real_wheel_says_what_the_data_says(data, monkeypatch, capsys):
    """Reads a wheel from the package index; skipped where that cannot be reached."""
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "15")
    code = refresh.main([NETWORK_VERSION, "--check", "--data", str(data)])
    captured = capsys.readouterr()
    if code == 2 and ("cannot be reached" in captured.err or "download" in captured.err):
        pytest.skip(f"no wheel to compare with: {captured.err.strip()}")
    assert captured.err == ""
    assert "changed: nothing" in captured.out
    assert code == 0
    assert NETWORK_VERSION in api.versions()
