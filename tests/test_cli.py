from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator import __version__, cli, run
from migrator.cli import main

CUDA = b"import torch\nx = torch.device('cuda')\n"
NPU = b"import torch\nimport torch_npu\nx = torch.device('npu')\n"
LEFT = b"import numba\nnumba.cuda.synchronize()\n"


@dataclass(frozen=True)
class Done:
    code: int
    out: bytes
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def npu_migrate(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`npu_migrate(*arguments, stdin=b"")`, in this process."""

    def start(*arguments: str | Path, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsysbinary.readouterr()
        code = main([os.fspath(argument) for argument in arguments])
        captured = capsysbinary.readouterr()
        return Done(code, captured.out, captured.err.decode())

    return start


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: two files to change, one with a finding that is left, one to leave alone."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "t")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "t@example.org")
    repo = tmp_path / "repo"
    (repo / "src").mkdir(parents=True)
    (repo / "a.py").write_bytes(CUDA)
    (repo / "src/b.py").write_bytes(CUDA)
    (repo / "left.py").write_bytes(LEFT)
    (repo / "plain.py").write_bytes(b"x = 1\n")
    monkeypatch.chdir(repo)
    return repo


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def committed(repo: Path) -> Path:
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "start")
    return repo


def contents(repo: Path) -> dict[str, bytes]:
    return {path.relative_to(repo).as_posix(): path.read_bytes() for path in repo.rglob("*.py")}


# --- modes ------------------------------------------------------------------------------------------------


def test_in_place(repo: Path, npu_migrate: Run) -> None:
    done = npu_migrate(".")
    assert (done.code, done.out) == (1, b"")
    assert "left.py:2:1" in done.err
    assert contents(repo) == {"a.py": NPU, "src/b.py": NPU, "left.py": LEFT, "plain.py": b"x = 1\n"}


@pytest.mark.parametrize("option", ["--dry-run", "--diff"])
def test_a_dry_run_prints_what_git_applies(committed: Path, npu_migrate: Run, option: str) -> None:
    done = npu_migrate(".", option)
    assert done.code == 1
    assert contents(committed)["a.py"] == CUDA
    assert "left.py:2:1" in done.err
    subprocess.run(["git", "apply"], input=done.out, check=True)
    applied = contents(committed)
    git("checkout", ".")
    npu_migrate(".")
    assert contents(committed) == applied
    assert applied["src/b.py"] == NPU


def test_check_is_quiet(repo: Path, npu_migrate: Run) -> None:
    assert npu_migrate(".", "--check") == Done(1, b"", "")
    assert npu_migrate("plain.py", "--check") == Done(0, b"", "")
    assert contents(repo)["a.py"] == CUDA


def test_exit_codes(repo: Path, npu_migrate: Run) -> None:
    assert npu_migrate("plain.py").code == 0
    assert npu_migrate("left.py").code == 1, "a finding is left"
    assert npu_migrate("a.py", "-q").code == 1, "a file was changed"
    assert npu_migrate("a.py").code == 0, "nothing is left to do"
    (repo / "broken.py").write_bytes(b"def cuda(:\n")
    assert npu_migrate(".").code == 2, "2 wins over 1"


def test_quiet_reports_failures_only(repo: Path, npu_migrate: Run) -> None:
    (repo / "broken.py").write_bytes(b"def cuda(:\n")
    done = npu_migrate(".", "-q")
    assert done.err.startswith("broken.py: NPU001 cannot parse")
    assert done.err.count("\n") == 1


def test_the_diff_of_a_file_argument_applies_where_the_user_stands(committed: Path, npu_migrate: Run) -> None:
    done = npu_migrate("src/b.py", "--dry-run")
    assert done.out.startswith(b"diff --git a/src/b.py b/src/b.py\n")
    assert "`npu-migrate src/b.py` makes these changes" in done.err
    subprocess.run(["git", "apply"], input=done.out, check=True)
    assert contents(committed)["src/b.py"] == NPU
    files = npu_migrate("src/b.py", "--dry-run", "--format", "json").json["files"]
    assert [file["path"] for file in files] == ["b.py"]


def test_a_file_elsewhere_is_shown_by_its_name(repo: Path, npu_migrate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo / "src")
    assert npu_migrate("../a.py", "--dry-run").out.startswith(b"diff --git a/a.py b/a.py\n")


def test_several_paths_are_shown_from_the_current_folder(repo: Path, npu_migrate: Run) -> None:
    done = npu_migrate("src", "a.py", "--dry-run")
    assert [line for line in done.out.splitlines() if line.startswith(b"+++")] == [b"+++ b/src/b.py", b"+++ b/a.py"]
    files = npu_migrate("src", "a.py", "--dry-run", "--format", "json").json["files"]
    assert [file["path"] for file in files] == ["b.py", "a.py"]


# --- formats and output -----------------------------------------------------------------------------------


def test_json_is_all_that_is_on_stdout(repo: Path, npu_migrate: Run) -> None:
    done = npu_migrate(".", "--dry-run", "--format", "json")
    assert done.err == ""
    report = done.json
    assert report["version"] == 1
    assert report["tool"] == {"name": "npu-migrate", "version": __version__}
    assert report["summary"]["changed"] == 2
    assert [(file["path"], file["status"]) for file in report["files"]] == [
        ("a.py", "changed"),
        ("left.py", "unchanged"),
        ("plain.py", "unchanged"),
        ("src/b.py", "changed"),
    ]
    assert contents(repo)["a.py"] == CUDA


@pytest.mark.parametrize("format", ["sarif", "junit", "csv", "html"])
def test_other_formats(repo: Path, npu_migrate: Run, format: str) -> None:
    done = npu_migrate(".", "--check", "--format", format)
    assert done.code == 1
    assert b"left.py" in done.out


def test_output_to_a_file_leaves_stdout_to_the_diff(repo: Path, npu_migrate: Run) -> None:
    done = npu_migrate(".", "--dry-run", "--format", "json", "--output", "report.json")
    assert json.loads((repo / "report.json").read_bytes())["summary"]["changed"] == 2
    assert done.out.startswith(b"diff --git a/a.py b/a.py\n")
    assert done.err == ""


def test_output_that_cannot_be_written(repo: Path, npu_migrate: Run) -> None:
    before = contents(repo)
    for option in ("--output", "--write-baseline"):
        done = npu_migrate(".", option, "no/such/folder/report.txt")
        assert done.code == 2
        assert f"{option} no/such/folder/report.txt: there is no folder no/such/folder" in done.err
    assert "this is a folder" in npu_migrate(".", "--output", "src").err
    assert npu_migrate("analyze", ".", "--output", "src").code == 2
    assert contents(repo) == before


def test_verbose_says_what_was_passed_over(repo: Path, npu_migrate: Run) -> None:
    (repo / "link.py").symlink_to("a.py")
    done = npu_migrate(".", "--dry-run", "-v")
    assert "not looked at: link.py (a link to a.py" in done.err
    assert "a.py:2:18: NPU101 [safe, would be fixed]" in done.err.replace("\n    ", " ")


def test_files_that_are_not_python(repo: Path, npu_migrate: Run) -> None:
    (repo / "notes.ipynb").write_text('{"source": "x.cuda()"}')
    (repo / "train.yaml").write_text("backend: nccl\n")
    (repo / "plain.yaml").write_text("lr: 0.1\n")
    done = npu_migrate("notes.ipynb", "a.py", "--dry-run")
    assert "not looked at: notes.ipynb (no Python file)" in done.err
    assert "1 file: 1 would change" in done.err
    done = npu_migrate(".", "--dry-run")
    assert "Not read: 2 files of other kinds name CUDA or NCCL." in done.err
    assert "    notes.ipynb\n    train.yaml\n" in done.err
    assert "plain.yaml" not in done.err


def test_a_folder_without_python(tmp_path: Path, npu_migrate: Run) -> None:
    (tmp_path / "empty").mkdir()
    done = npu_migrate(tmp_path / "empty")
    assert done.code == 0
    assert "no Python files in" in done.err


# --- selection and configuration --------------------------------------------------------------------------


def rules_found(done: Done) -> set[str]:
    return {found["rule"] for file in done.json["files"] for found in file["diagnostics"]}


def test_select_and_ignore(repo: Path, npu_migrate: Run) -> None:
    (repo / "left.py").write_bytes(b"import torch\nx.cuda()\n")
    arguments = (".", "--check", "--format", "json")
    assert rules_found(npu_migrate(*arguments)) == {"NPU100", "NPU101", "NPU104"}
    assert rules_found(npu_migrate(*arguments, "--select", "NPU104,nccl-api,NPU100")) == {"NPU100", "NPU104"}
    assert rules_found(npu_migrate(*arguments, "--select", "nccl-api", "--select", "cuda-method")) >= {"NPU104"}
    assert rules_found(npu_migrate(*arguments, "--ignore", "cuda-method")) == {"NPU100", "NPU101"}


def test_an_unknown_rule(repo: Path, npu_migrate: Run) -> None:
    done = npu_migrate(".", "--select", "device-strng")
    assert done.code == 2
    assert "device-string" in done.err


def test_exclude(repo: Path, npu_migrate: Run) -> None:
    files = npu_migrate(".", "--check", "--format", "json", "--exclude", "src/", "--exclude", "[lp]*.py").json["files"]
    assert [file["path"] for file in files] == ["a.py"]


def test_the_target(repo: Path, npu_migrate: Run) -> None:
    done = npu_migrate(".", "--check", "--format", "json", "--torch-npu", "2.7.1", "--soc", "Ascend910B1")
    assert done.json["target"] == {"torch_npu": "2.7.1", "soc": "Ascend910B1"}


def test_an_unknown_chip_is_told_and_used(repo: Path, npu_migrate: Run) -> None:
    done = npu_migrate(".", "--check", "--format", "json", "--soc", "Ascend910B8")
    assert done.json["target"]["soc"] == "Ascend910B8"
    assert done.err == (
        "--soc: Ascend910B8 is no chip that npu-migrate knows, and is taken as written; "
        "did you mean Ascend910B?\n"
    )
    assert npu_migrate(".", "--check", "--quiet", "--soc", "Ascend910B8").err == ""
    done = npu_migrate(".", "--check", "--torch-npu", "latest")
    assert done.code == 2
    assert "'latest' is not a version number" in done.err
    assert "--torch-npu" in done.err


def test_configuration(repo: Path, npu_migrate: Run) -> None:
    (repo / "pyproject.toml").write_text(
        '[tool.npu-migrate]\nexclude = ["left.py"]\ntorch-npu = "2.6.0"\nformat = "json"\n'
        '[tool.npu-migrate.per-file-ignores]\n"src/" = ["device-string"]\n'
    )
    done = npu_migrate("src", "a.py", "--check")
    assert done.json["target"]["torch_npu"] == "2.6.0"
    assert [(file["path"], file["status"]) for file in done.json["files"]] == [
        ("b.py", "unchanged"),
        ("a.py", "changed"),
    ]


def test_configuration_that_is_wrong(repo: Path, npu_migrate: Run) -> None:
    (repo / "pyproject.toml").write_text("[tool.npu-migrate]\nselekt = ['core']\n")
    done = npu_migrate(".", "--check")
    assert done.code == 2
    assert "pyproject.toml:2: unknown key 'selekt'" in done.err
    assert "did you mean 'select'?" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Usage: npu-migrate PATH... [OPTIONS]"),
        (("--dry-run",), "name a file or a folder"),
        (("nowhere.py",), "no such file or folder: nowhere.py"),
        (("-",), "--stdin-filename FILE"),
        ((".", "--stdin-filename", "a.py"), "leave out the PATH"),
        (("--stdin-filename", "src"), "must name a file"),
        ((".", "--format", "xml"), "xml"),
        ((".", "--jobs", "0"), "jobs"),
        ((".", "--no-such-option"), "no-such-option"),
        ((".", "--no-such-option"), "Usage: npu-migrate [OPTIONS] PATH..."),
        (("analyse", "."), "did you mean analyze?"),
        ((".", "--baseline", "missing.json"), "missing.json: cannot be read"),
        ((".", "--rules-dir", "nowhere"), "nowhere"),
        ((".", "--commit-per-rule", "--dry-run"), "--commit-per-rule goes with none of"),
        ((".", "--commit-per-rule", "--allow-dirty"), "--commit-per-rule goes with none of"),
    ],
)
def test_wrong_usage(repo: Path, npu_migrate: Run, arguments: tuple[str, ...], message: str) -> None:
    before = contents(repo)
    done = npu_migrate(*arguments)
    assert (done.code, done.out) == (2, b"")
    assert message in done.err
    assert "Traceback" not in done.err
    assert contents(repo) == before


def test_a_bug_is_exit_code_2(repo: Path, npu_migrate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(*_: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(run, "read_files", buggy)
    done = npu_migrate(".")
    assert done.code == 2
    assert "AssertionError: a bug" in done.err
    assert "please report it" in done.err


# --- standard input ---------------------------------------------------------------------------------------


def test_stdin(repo: Path, npu_migrate: Run) -> None:
    done = npu_migrate("--stdin-filename", "src/new.py", stdin=CUDA)
    assert (done.code, done.out) == (1, NPU)
    assert "1 file: 1 changed." in done.err
    assert "Nothing was written" not in done.err
    done = npu_migrate("-", "--stdin-filename", "new.py", "-q", stdin=b"\xef\xbb\xbfx = 1\r\n")
    assert done == Done(0, b"\xef\xbb\xbfx = 1\r\n", "")
    assert not (repo / "new.py").exists()


def test_stdin_as_a_diff(repo: Path, npu_migrate: Run) -> None:
    done = npu_migrate("--stdin-filename", "src/new.py", "--diff", stdin=CUDA)
    assert done.out.startswith(b"diff --git a/src/new.py b/src/new.py\n")
    assert npu_migrate("--stdin-filename", "new.py", "--check", stdin=CUDA) == Done(1, b"", "")


def test_stdin_that_does_not_parse_comes_back(repo: Path, npu_migrate: Run) -> None:
    done = npu_migrate("--stdin-filename", "new.py", stdin=b"def cuda(:\n")
    assert (done.code, done.out) == (2, b"def cuda(:\n")
    assert "NPU001" in done.err


def test_stdin_uses_the_configuration_of_its_file(repo: Path, npu_migrate: Run) -> None:
    (repo / "src/pyproject.toml").write_text("[tool.npu-migrate.per-file-ignores]\n'new.py' = ['NPU101']\n")
    assert npu_migrate("--stdin-filename", "src/new.py", stdin=CUDA).out == CUDA
    assert npu_migrate("--stdin-filename", "new.py", stdin=CUDA).out == NPU


# --- the dirty-tree guard and commits ---------------------------------------------------------------------


def test_a_clean_tree_is_written(committed: Path, npu_migrate: Run) -> None:
    assert npu_migrate(".").code == 1
    assert contents(committed)["a.py"] == NPU


def test_a_dirty_tree_is_refused(committed: Path, npu_migrate: Run) -> None:
    (committed / "plain.py").write_bytes(b"x = 2\n")
    before = contents(committed)
    done = npu_migrate(".")
    assert done.code == 2
    assert "  plain.py\n" in done.err
    assert "--allow-dirty" in done.err
    assert "--dry-run" in done.err
    assert contents(committed) == before
    assert npu_migrate("src").code == 1, "only what is under the PATHs counts"
    assert npu_migrate(".", "--allow-dirty").code == 1
    assert contents(committed)["a.py"] == NPU


def test_a_dirty_tree_may_be_looked_at(committed: Path, npu_migrate: Run) -> None:
    (committed / "plain.py").write_bytes(b"x = 2\n")
    assert npu_migrate(".", "--dry-run").code == 1
    assert npu_migrate(".", "--check").code == 1


def test_untracked_files_are_not_written(committed: Path, npu_migrate: Run) -> None:
    (committed / "new.py").write_bytes(CUDA)
    done = npu_migrate(".")
    assert done.code == 2
    assert "  new.py\n" in done.err


def test_many_dirty_files_are_not_all_named(committed: Path, npu_migrate: Run) -> None:
    for number in range(9):
        (committed / f"n{number}.py").write_bytes(CUDA)
    done = npu_migrate(".")
    assert "n4.py" in done.err
    assert "n5.py" not in done.err
    assert "… and 4 more" in done.err


def test_a_second_run_has_nothing_to_refuse(committed: Path, npu_migrate: Run) -> None:
    assert npu_migrate("a.py").code == 1
    assert npu_migrate("a.py").code == 0


def test_a_commit_per_rule(committed: Path, npu_migrate: Run) -> None:
    (committed / "a.py").write_bytes(b"import torch\nx = torch.device('cuda')\ntorch.cuda.synchronize()\n")
    git("commit", "-qam", "more")
    whole = npu_migrate(".", "--dry-run").out
    done = npu_migrate(".", "--commit-per-rule")
    assert done.code == 1
    subjects = git("log", "--format=%s", "-n2").splitlines()
    assert [subject.split(":")[0] for subject in subjects] == ["NPU102 cuda-api", "NPU101 device-string"]
    assert git("show", "--name-only", "--format=", "HEAD~1").split() == ["a.py", "src/b.py"]
    assert git("show", "--name-only", "--format=", "HEAD").split() == ["a.py"]
    assert git("status", "--porcelain") == ""
    migrated = contents(committed)
    git("checkout", "-q", "HEAD~2")
    subprocess.run(["git", "apply"], input=whole, check=True)
    assert contents(committed) == migrated, "the commits together are the dry run"


def test_commits_need_a_repository(repo: Path, npu_migrate: Run) -> None:
    done = npu_migrate(".", "--commit-per-rule")
    assert done.code == 2
    assert "in no git repository" in done.err
    assert contents(repo)["a.py"] == CUDA


# --- baseline ---------------------------------------------------------------------------------------------


def test_a_baseline_silences_what_was_there(repo: Path, npu_migrate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert npu_migrate("left.py", "--check").code == 1
    assert npu_migrate("left.py", "--check", "--write-baseline", "npu.json").code == 0
    assert npu_migrate("left.py", "--check", "--baseline", "npu.json").code == 0
    assert npu_migrate(".", "--check", "--baseline", "npu.json", "--exclude", "a.py", "--exclude", "src").code == 0
    monkeypatch.chdir(repo / "src")
    assert npu_migrate("../left.py", "--check", "--baseline", "../npu.json").code == 0
    (repo / "left.py").write_bytes(b"# one more line\n" + LEFT + b"numba.cuda.jit\n")
    done = npu_migrate(repo, "--check", "--format", "json", "--baseline", "../npu.json")
    (left,) = (file for file in done.json["files"] if file["path"] == "left.py")
    assert [found["line"] for found in left["diagnostics"]] == [4]


def test_a_baseline_does_not_keep_anything_from_being_fixed(repo: Path, npu_migrate: Run) -> None:
    assert npu_migrate(".", "--dry-run", "--write-baseline", "npu.json").code == 1, "files would be changed"
    assert npu_migrate(".", "--baseline", "npu.json").code == 1
    assert contents(repo)["a.py"] == NPU
    assert npu_migrate(".", "--baseline", "npu.json").code == 0


# --- other commands ---------------------------------------------------------------------------------------


def test_version(npu_migrate: Run) -> None:
    assert npu_migrate("--version") == Done(0, f"npu-migrate {__version__}\n".encode(), "")


def test_version_loads_little() -> None:
    code = "import sys; from migrator.cli import main; main(['--version']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"libcst", "rich", "jinja2", "migrator.api", "torch"} & set(loaded)


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], [".", "--help"], ["rules", "--help"], ["analyze", "-h"]])
def test_help_fits_80_columns(npu_migrate: Run, arguments: list[str]) -> None:
    done = npu_migrate(*arguments)
    assert done.code == 0
    assert all(len(line) <= 80 for line in done.out.decode().splitlines())
    assert b"--format" in done.out


def test_help_names_every_option(npu_migrate: Run) -> None:
    text = npu_migrate("--help").out.decode()
    for parameter in cli.main_job.params:
        assert all(option in text for option in parameter.opts if option.startswith("-")), parameter.name
    for command in cli.cli.commands:
        assert f"\n  {command} " in text


def test_rules(npu_migrate: Run) -> None:
    text = npu_migrate("rules").out.decode()
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "NPU101  device-string" in text
    rows = json.loads(npu_migrate("rules", "--format", "json").out)["rules"]
    assert {"id", "name", "title", "applicability", "tags", "torch_npu", "docs"} <= set(rows[0])
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)


@pytest.mark.parametrize("word", ["NPU101", "npu101", "device-string"])
def test_rule(npu_migrate: Run, word: str) -> None:
    done = npu_migrate("rule", word)
    assert done.code == 0
    text = done.out.decode()
    assert text.startswith("NPU101 device-string\n")
    assert "# npu-migrate: ignore[NPU101]" in text
    assert "Example 1\n" in text


def test_every_rule_and_fault_has_a_page(npu_migrate: Run) -> None:
    rows = json.loads(npu_migrate("rules", "--format", "json").out)["rules"]
    for id in [*(row["id"] for row in rows), "NPU001", "NPU008"]:
        assert npu_migrate("rule", id).out.decode().startswith(f"{id} ")


def test_an_unknown_rule_page(npu_migrate: Run) -> None:
    done = npu_migrate("rule", "device-strin")
    assert done.code == 2
    assert "did you mean NPU101 (device-string)?" in done.err


def test_api(repo: Path, npu_migrate: Run) -> None:
    done = npu_migrate("api", "torch.cuda.synchronize", "--torch-npu", "2.7.1")
    assert done.code == 0
    assert b"torch.npu.synchronize" in done.out
    answer = npu_migrate("api", "torch.cuda.synchronize", "--torch-npu", "2.7.1", "--format", "json").json
    assert (answer["torch_npu"], answer["replacement"]) == ("2.7.1", "torch.npu.synchronize")
    (repo / "requirements.txt").write_text("torch-npu==2.6.0\n")
    assert npu_migrate("api", "torch.cuda.Stream", "--format", "json").json["torch_npu"] == "2.6.0"


def test_an_unknown_api_name(repo: Path, npu_migrate: Run) -> None:
    done = npu_migrate("api", "torch.cuda.syncronize")
    assert done.code == 1
    assert b"torch.cuda.synchronize" in done.out


def test_the_project_s_own_pin_is_the_target(repo: Path, npu_migrate: Run) -> None:
    (repo / "requirements.txt").write_text("torch-npu==2.6.0\n")
    done = npu_migrate(".", "--dry-run")
    assert "torch_npu 2.6.0 (requirements.txt line 1 pins torch-npu==2.6.0)" in " ".join(done.err.split())


def test_a_sub_command_wins_over_a_folder_of_its_name(repo: Path, npu_migrate: Run) -> None:
    (repo / "rules").mkdir()
    (repo / "rules/c.py").write_bytes(CUDA)
    assert npu_migrate("rules").out.startswith(b"NPU100")
    assert b"c.py" in npu_migrate("./rules", "--dry-run").out
    assert b"c.py" in npu_migrate("--dry-run", "rules").out, "only the first word names a sub-command"


def test_analyze_reports_and_changes_nothing(repo: Path, npu_migrate: Run) -> None:
    before = contents(repo)
    done = npu_migrate("analyze", ".")
    assert done.code == 1
    assert b"left.py:2:1" in done.out
    assert b"diff --git" not in done.out
    assert npu_migrate("analyze", ".", "--format", "json").json["summary"]["changed"] == 2
    assert contents(repo) == before


# --- the terminal -----------------------------------------------------------------------------------------


def in_terminal(*arguments: str, cwd: Path, **environment: str) -> bytes:
    """What a terminal gets to see of stdout and stderr."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "migrator", *arguments],
        cwd=cwd,
        env={**os.environ, "TERM": "xterm", "PYTHONPATH": str(Path(cli.__file__).parents[1]), **environment},
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the other end was closed
            break
        if not chunk:
            break
        seen += chunk
    process.wait()
    os.close(master)
    return seen


def test_colours_and_progress_on_a_terminal_only(repo: Path) -> None:
    seen = in_terminal(".", "--dry-run", cwd=repo)
    assert b"\x1b[32m+import torch_npu\x1b[0m" in seen
    assert b"Migrating" in seen


@pytest.mark.parametrize(("option", "environment"), [("--no-color", {}), ("--dry-run", {"NO_COLOR": "1"})])
def test_no_colours_if_not_wanted(repo: Path, option: str, environment: dict[str, str]) -> None:
    seen = in_terminal(".", "--dry-run", option, cwd=repo, **environment)
    assert b"+import torch_npu" in seen
    assert b"\x1b[3" not in seen


def test_a_closed_pipe_is_no_error(repo: Path) -> None:
    for number in range(400):
        (repo / f"n{number}.py").write_bytes(CUDA)
    command = f"{sys.executable} -m migrator . --dry-run 2>err | head -n 1"
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])}
    shown = subprocess.run(command, shell=True, cwd=repo, env=environment, capture_output=True, check=True).stdout
    assert shown == b"diff --git a/a.py b/a.py\n"
    err = (repo / "err").read_text()
    assert "Traceback" not in err
    assert "Broken" not in err
    assert "403 files" in err.replace(",", "") or "404 files" in err


@pytest.mark.parametrize("from_stdin", [False, True])
def test_a_single_file_is_read_as_part_of_its_repository(npu_migrate: Run, repo: Path, from_stdin: bool) -> None:
    """A hook passes the files that changed; what they mean is said elsewhere."""
    (repo / "batch.py").write_text("class Batch:\n    def cuda(self):\n        return self\n")
    use = b"import torch\nfrom batch import Batch\nbatch = Batch().cuda()\nx = torch.ones(2).cuda()\nlinear = Linear()\nlinear.cuda()\n"
    (repo / "use.py").write_bytes(use)
    (repo / "venv/lib").mkdir(parents=True)
    (repo / "venv/lib/torch_like.py").write_text("class Linear:\n    def cuda(self):\n        return self\n")
    git("init", "-q")
    git("add", "batch.py", "use.py", "a.py")
    git("commit", "-qm", "start")
    if from_stdin:
        after = npu_migrate("--stdin-filename", "use.py", stdin=use).out.decode()
    else:
        npu_migrate("use.py", "a.py", "--torch-npu", "2.7.1")
        after = (repo / "use.py").read_text()
    assert "Batch().cuda()" in after and "torch.ones(2).npu()" in after and "linear.npu()" in after
    assert (repo / "left.py").read_bytes() == LEFT and (repo / "src/b.py").read_bytes() == CUDA


def test_the_requirements_that_lack_torch_npu_are_named_once(repo: Path, npu_migrate: Run) -> None:
    (repo / "requirements.txt").write_text("torch\n")
    said = "nothing installs it: add `torch-npu==2.7.1`\nto requirements.txt."
    done = npu_migrate("a.py", "src", "--torch-npu", "2.7.1", "--allow-dirty")
    assert done.err.count(said) == 1
    assert "Nothing is left" not in done.err
    assert said not in npu_migrate("a.py", "src", "--torch-npu", "2.7.1").err


LINTERS = {
    "pyproject.toml": "[tool.ruff.lint]\nselect = ['F']\n",
    "setup.cfg": "[flake8]\nmax-line-length = 100\n",
    ".pre-commit-config.yaml": "repos:\n- repo: local\n  hooks:\n  - id: autoflake\n",
}


@pytest.mark.parametrize("settings", [*LINTERS, "setup.py"])
def test_linters_leave_the_import(npu_migrate: Run, committed: Path, settings: str) -> None:
    (committed / settings).write_text(LINTERS.get(settings, "x = 1\n"))
    (committed / "src/named.py").write_text("import torch\nx = torch.ones(2)\nif __name__ == '__main__':\n    x.cuda()\n")
    npu_migrate("src", "--torch-npu", "2.7.1", "--allow-dirty")
    assert ("import torch_npu  # noqa: F401\n" in (committed / "src/b.py").read_text()) is (settings in LINTERS)
    named = (committed / "src/named.py").read_text()
    assert "import torch_npu\n" in named and "torch_npu.npu.set_compile_mode" in named
