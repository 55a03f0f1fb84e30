from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from migrator import gitrepo


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "t")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "t@example.org")
    repo = tmp_path / "repo"
    (repo / "src").mkdir(parents=True)
    (repo / "a.py").write_text("a\n")
    (repo / "src/b.py").write_text("b\n")
    git(repo, "init", "-q")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "start")
    return repo


def test_a_clean_repository(repo: Path) -> None:
    assert gitrepo.uncommitted([repo], [repo / "a.py"]) == []


@pytest.mark.parametrize("staged", [True, False])
def test_changed_files_under_the_paths_count(repo: Path, staged: bool) -> None:
    (repo / "a.py").write_text("changed\n")
    if staged:
        git(repo, "add", "a.py")
    assert gitrepo.uncommitted([repo], [repo / "src/b.py"]) == [repo / "a.py"]
    assert gitrepo.uncommitted([repo / "src"], [repo / "src/b.py"]) == []


def test_untracked_files_count_only_if_they_would_be_written(repo: Path) -> None:
    (repo / "new.py").write_text("")
    (repo / ".gitignore").write_text("ignored.py\n")
    (repo / "ignored.py").write_text("")
    git(repo, "add", ".gitignore")
    git(repo, "commit", "-qm", "ignore")
    assert gitrepo.uncommitted([repo], [repo / "a.py"]) == []
    assert gitrepo.uncommitted([repo], [repo / "new.py"]) == [repo / "new.py"]
    assert gitrepo.uncommitted([repo / "ignored.py"], [repo / "ignored.py"]) == [repo / "ignored.py"]


def test_nothing_to_write_nothing_to_guard(repo: Path) -> None:
    (repo / "a.py").write_text("changed\n")
    assert gitrepo.uncommitted([repo], []) == []


def test_repositories_below_the_path_are_their_own(repo: Path) -> None:
    assert gitrepo.uncommitted([repo.parent], [repo / "a.py"]) == []
    (repo / "src/b.py").write_text("changed\n")
    assert gitrepo.uncommitted([repo.parent], [repo / "a.py"]) == [repo / "src/b.py"]


def test_odd_names(repo: Path) -> None:
    names = ["with space.py", "new\nline.py", "设备.py", ":(top)a.py", "*.py", os.fsdecode(b"caf\xe9.py")]
    for name in names:
        (repo / name).write_text("")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "odd")
    assert gitrepo.uncommitted([repo / name for name in names], [repo / name for name in names]) == []
    for name in names:
        (repo / name).write_text("changed\n")
    assert set(gitrepo.uncommitted([repo], [repo / "a.py"])) == {repo / name for name in names}
    gitrepo.commit(repo, [repo / name for name in names], "odd names\n\nbody")
    assert gitrepo.uncommitted([repo], [repo / "a.py"]) == []


def test_a_commit_holds_its_files_only(repo: Path) -> None:
    (repo / "a.py").write_text("ours\n")
    (repo / "src/b.py").write_text("theirs\n")
    git(repo, "add", "src/b.py")
    gitrepo.commit(repo, [repo / "a.py"], "NPU101 device-string: why")
    assert git(repo, "show", "--format=%s", "--name-only").split() == ["NPU101", "device-string:", "why", "a.py"]
    assert git(repo, "diff", "--cached", "--name-only").strip() == "src/b.py"


def test_a_failed_commit_says_why(repo: Path) -> None:
    hook = repo / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho 'not today' >&2\nexit 1\n")
    hook.chmod(0o755)
    (repo / "a.py").write_text("changed\n")
    with pytest.raises(gitrepo.GitError, match="git commit: not today"):
        gitrepo.commit(repo, [repo / "a.py"], "message")


def test_a_hook_s_environment_does_not_lead_astray(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(repo / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repo / "nowhere/index"))
    assert gitrepo.uncommitted([repo], [repo / "a.py"]) == []


def test_no_repository_no_guard(tmp_path: Path) -> None:
    assert gitrepo.uncommitted([tmp_path], [tmp_path / "a.py"]) == []
    (tmp_path / ".git").mkdir()
    assert gitrepo.uncommitted([tmp_path], [tmp_path / "a.py"]) == [], "an empty folder is no repository"


def test_no_git_no_guard(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo / "a.py").write_text("changed\n")
    monkeypatch.setenv("PATH", "")
    assert gitrepo.uncommitted([repo], [repo / "a.py"]) == []


def test_a_repository_that_git_refuses_gives_no_facts_and_runs_nothing(repo: Path) -> None:
    (repo / "new.py").write_text("")
    (repo / ".gitignore").write_text("ignored.py\n")
    (repo / "ignored.py").write_text("")
    git(repo, "config", "core.fsmonitor", f"touch {repo}/ran; false")
    [names] = gitrepo.files_around([repo / "a.py", repo / "src/b.py"]).values()
    assert sorted(names) == [".gitignore", "a.py", "new.py", "src/b.py"]
    assert not (repo / "ran").exists()
    (repo / ".git/config").write_text("[core\n")
    assert gitrepo.files_around([repo / "a.py"]) == {}
