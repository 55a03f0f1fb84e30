from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.discover import PathError, discover

MakeTree = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> MakeTree:
    """`tree("a.py", "b/c.py", **{"x": "content"})`: makes the files, returns the root."""
    root = tmp_path / "root"
    root.mkdir()

    def make(*names: str, **contents: str) -> Path:
        for name, content in [*((name, "") for name in names), *contents.items()]:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return root

    return make


def found(*paths: Path | str, exclude: tuple[str, ...] = (), base: Path | None = None) -> list[str]:
    return [file.display for file in discover(paths, exclude, base).files]


def skipped(root: Path) -> dict[str, str]:
    return dict(discover([root]).skipped)


def test_python_files_in_a_stable_order(tree: MakeTree) -> None:
    root = tree("b.py", "a/z.py", "a.py", "a/b.pyi", "README.md", "A.PY", "data.json")
    assert found(root) == ["A.PY", "a/b.pyi", "a/z.py", "a.py", "b.py"]


def test_what_a_found_file_knows(tree: MakeTree) -> None:
    root = tree("pkg/a.py")
    (file,) = discover([root]).files
    assert (file.path, file.display, file.root) == (root / "pkg/a.py", "pkg/a.py", root)
    (file,) = discover([root / "pkg/a.py"]).files
    assert (file.path, file.display, file.root) == (root / "pkg/a.py", "a.py", root / "pkg")


def test_scripts_are_known_by_their_first_line(tree: MakeTree) -> None:
    root = tree(
        train="#!/usr/bin/env python3\n",
        old="#!/usr/bin/python2.7\n",
        shell="#!/bin/sh\npython\n",
        data="#!/usr/bin/env python\n",
        ipython="#!/usr/bin/env ipython\n",
    )
    for name in ("train", "old", "shell", "ipython"):
        (root / name).chmod(0o755)
    assert found(root) == ["old", "train"]


def test_a_file_argument_always_wins(tree: MakeTree) -> None:
    root = tree("build/a.py", "script", **{".gitignore": "*.py\n"})
    assert found(root / "build/a.py", root / "script", exclude=("*.py",)) == ["a.py", "script"]


def test_a_file_is_found_once(tree: MakeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree("a/b.py", "a/c.py")
    monkeypatch.chdir(root)
    assert found("a/c.py", ".", "a") == ["c.py", "a/b.py"]


def test_environments_caches_and_build_output_are_left_out(tree: MakeTree) -> None:
    root = tree(
        ".venv/a.py", "venv/a.py", "node_modules/a.py", "__pycache__/a.py", "build/lib/a.py", "dist/a.py",
        "x.egg-info/a.py", "lib/site-packages/a.py", ".git/hooks/a.py", "my-env/pyvenv.cfg", "my-env/lib/a.py", "a.py",
    )  # fmt: skip
    assert found(root) == ["a.py"]
    assert skipped(root)["build"] == "excluded by default"


def test_a_package_called_build_is_no_build_output(tree: MakeTree) -> None:
    assert found(tree("pkg/build/__init__.py", "pkg/build/a.py")) == ["pkg/build/__init__.py", "pkg/build/a.py"]


def test_a_folder_argument_is_looked_at_whatever_its_name(tree: MakeTree) -> None:
    root = tree("build/a.py", ".git/HEAD", **{".gitignore": "build/\n*.gen.py\n", "build/b.gen.py": ""})
    assert found(root / "build") == ["a.py", "b.gen.py"], "what the repository ignores is ignored as a whole"


def test_gitignore_as_git_reads_it(tree: MakeTree) -> None:
    root = tree(
        "a.py", "gen/a.py", "gen/keep.py", "sub/b.py", "sub/secret.py", "deep/gen/c.py", "sub/own/secret.py",
        **{
            ".gitignore": "# comment\n\ngen/*\n!gen/keep.py\nsecret.py\n",
            "sub/.gitignore": "/b.py\n!secret.py\n",
            "sub/own/.gitignore": "*\n",
        },
    )  # fmt: skip
    assert found(root) == ["a.py", "deep/gen/c.py", "gen/keep.py", "sub/secret.py"]
    assert skipped(root)["gen/a.py"] == "ignored by .gitignore"


def test_gitignore_files_above_the_argument_count(tree: MakeTree) -> None:
    root = tree(".git/HEAD", "src/a.py", "src/gen.py", **{".gitignore": "gen.py\n"})
    assert found(root / "src") == ["a.py"]


def test_gitignore_files_above_the_repository_do_not(tree: MakeTree) -> None:
    root = tree("repo/.git/HEAD", "repo/a.py", **{".gitignore": "a.py\n"})
    assert found(root / "repo") == ["a.py"]
    assert found(root) == ["repo/a.py"], "a repository inside the argument starts anew"


def test_git_info_exclude(tree: MakeTree) -> None:
    root = tree("a.py", "b.py", **{".git/info/exclude": "b.py\n"})
    assert found(root) == ["a.py"]


def test_git_info_exclude_of_a_worktree(tree: MakeTree) -> None:
    root = tree(
        "work/a.py",
        "work/b.py",
        **{
            "work/.git": "gitdir: ../main/.git/worktrees/work\n",
            "main/.git/worktrees/work/commondir": "../..\n",
            "main/.git/info/exclude": "b.py\n",
        },
    )
    assert found(root / "work") == ["a.py"]


def test_a_broken_gitignore_does_no_harm(tree: MakeTree) -> None:
    root = tree("a.py", "b.py")
    (root / ".gitignore").write_bytes(b"!\n\\\nb.py\n\xff\xfe\n")
    assert found(root) == ["a.py"]


def test_excludes(tree: MakeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree("a.py", "gen/a.py", "src/gen/a.py", "src/b.py")
    assert found(root, exclude=("gen",)) == ["a.py", "src/b.py"]
    assert found(root, exclude=("/gen", "b.py")) == ["a.py", "src/gen/a.py"]
    assert found(root / "src", exclude=("src/gen",), base=root) == ["b.py"], "counted from the configuration"
    monkeypatch.chdir(root)
    assert found("src", exclude=("src/gen",)) == ["b.py"], "counted from the current folder"


def test_an_exclude_that_is_no_glob(tree: MakeTree) -> None:
    with pytest.raises(PathError, match="not a glob: '!'"):
        found(tree("a.py"), exclude=("!",))


def test_links_inside_the_tree_are_duplicates(tree: MakeTree) -> None:
    root = tree("a.py", "pkg/b.py")
    (root / "link.py").symlink_to("a.py")
    (root / "folder").symlink_to("pkg")
    assert found(root) == ["a.py", "pkg/b.py"]
    assert skipped(root)["link.py"] == "a link to a.py, which is looked at in its own place"


def test_links_out_of_the_tree_are_not_followed(tree: MakeTree, tmp_path: Path) -> None:
    root = tree("a.py")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/b.py").write_text("")
    (root / "b.py").symlink_to(tmp_path / "outside/b.py")
    (root / "folder").symlink_to(tmp_path / "outside")
    assert found(root) == ["a.py"]
    assert skipped(root)["b.py"] == "a link that leaves the tree"


def test_loops_of_links_end(tree: MakeTree) -> None:
    root = tree("a/b.py")
    (root / "a/loop").symlink_to(root)
    (root / "self.py").symlink_to("self.py")
    (root / "gone.py").symlink_to("nowhere.py")
    assert found(root) == ["a/b.py"]
    with pytest.raises(PathError, match=r"self\.py"):
        found(root / "self.py")


def test_a_link_as_argument_stands_for_its_target(tree: MakeTree, tmp_path: Path) -> None:
    root = tree("a.py")
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "link.py").symlink_to(root / "a.py")
    assert found(tmp_path / "link") == ["a.py"]
    (file,) = discover([tmp_path / "link.py", root]).files
    assert (file.display, file.path) == ("link.py", root / "a.py")


def test_only_regular_files(tree: MakeTree) -> None:
    root = tree("a.py", "folder.py/b.py")
    os.mkfifo(root / "pipe.py")
    assert found(root) == ["a.py", "folder.py/b.py"]
    with pytest.raises(PathError, match="neither a file nor a folder"):
        found(root / "pipe.py")


def test_odd_names(tree: MakeTree) -> None:
    undecodable = os.fsdecode(b"caf\xe9.py")
    root = tree("with space.py", "new\nline.py", "设备.py", undecodable)
    assert set(found(root)) == {"with space.py", "new\nline.py", "设备.py", undecodable}
    assert all(file.path.exists() for file in discover([root]).files)


def test_a_deep_tree(tree: MakeTree) -> None:
    name = "/".join(["d"] * 600) + "/a.py"
    assert found(tree(name)) == [name]


def test_a_folder_that_cannot_be_read(tree: MakeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree("a.py", "secret/b.py")
    scandir = os.scandir

    def refuse(path: Path) -> object:
        if Path(path).name == "secret":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    discovery = discover([root])
    assert [file.display for file in discovery.files] == ["a.py"]
    assert discovery.unreadable == [("secret", "Permission denied")]


@pytest.mark.parametrize(("given", "meant"), [("trian.py", "train.py"), ("scr", "src")])
def test_a_missing_path_is_refused_with_a_suggestion(tree: MakeTree, given: str, meant: str) -> None:
    root = tree("train.py", "src/a.py")
    with pytest.raises(PathError, match=f"no such file or folder: .*{given}.*did you mean .*{meant}"):
        found(root / given)


def test_a_missing_path_in_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(PathError, match="no such file or folder"):
        found(tmp_path / "no/such/file.py")
