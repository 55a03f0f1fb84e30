from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from migrator.smoke.launcher import LaunchError, Run, run

CHILD_IN_ITS_OWN_SESSION = """\
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep({seconds})
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ended(pid: int) -> bool:
    for _ in range(100):
        if not is_running(pid):
            return True
        time.sleep(0.05)
    return False


def test_output_and_exit_status(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), os.environ['X']); print('bad', file=sys.stderr); sys.exit(7)"
    done = run(["python", "-c", code], cwd=tmp_path, variables={"X": "y"}, timeout=60)
    assert (done.exit_code, done.stdout, done.stderr) == (7, f"{tmp_path} y\n", "bad\n")
    assert not done.succeeded


def test_signal_as_the_shell_says_it(tmp_path: Path) -> None:
    done = run(["python", "-c", "import os; os.kill(os.getpid(), 11)"], cwd=tmp_path, variables={}, timeout=60)
    assert (done.exit_code, done.signal) == (139, "SIGSEGV")


@pytest.mark.parametrize("exit_code", [None, 0, 1, 128, 255])
def test_no_signal(exit_code: int | None) -> None:
    assert Run(("true",), exit_code, 1.0, "", "").signal is None


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(("seconds", "timeout", "exit_code"), [(600, 1.5, None), (0, 60, 0)])
def test_nothing_is_left_running(tmp_path: Path, seconds: int, timeout: float, exit_code: int | None) -> None:
    code = CHILD_IN_ITS_OWN_SESSION.format(seconds=seconds)
    done = run(["python", "-c", code], cwd=tmp_path, variables={}, timeout=timeout)
    assert done.exit_code == exit_code
    assert ended(int(done.stdout))


def test_scripts_beside_this_interpreter_are_found(tmp_path: Path) -> None:
    done = run(["pytest", "--version"], cwd=tmp_path, variables={}, timeout=60)
    assert done.exit_code == 0
    assert "pytest" in done.stdout + done.stderr


def test_command_not_found(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="command not found: no-such-command: is it installed"):
        run(["no-such-command"], cwd=tmp_path, variables={}, timeout=60)
    (tmp_path / "train.py").touch()
    with pytest.raises(LaunchError, match=r"to run the file of that name: -- python train\.py"):
        run(["train.py"], cwd=tmp_path, variables={}, timeout=60)
    with pytest.raises(LaunchError, match=r"cannot run \./train\.py: Permission denied"):
        run(["./train.py"], cwd=tmp_path, variables={}, timeout=60)


def test_interrupt_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    wait = subprocess.Popen.wait

    def interrupted(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if not started:
            started.append(process.pid)
            raise KeyboardInterrupt
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(["python", "-c", "import time; time.sleep(600)"], cwd=tmp_path, variables={}, timeout=60)
    assert ended(started[0])
