from __future__ import annotations

from pathlib import Path

import pytest

from migrator.config import Config, ConfigError, load

FORMATS = ("text", "json")


def configured(folder: Path, text: str | bytes, **overrides: object) -> Config:
    raw = text.encode() if isinstance(text, str) else text
    (folder / "pyproject.toml").write_bytes(raw)
    return load(folder, overrides, FORMATS)


FULL = """
[tool.npu-migrate]
select = ["core", "NPU7"]
ignore = ["NPU106"]
unsafe = true
torch-npu = "2.7.1"
soc = "Ascend910B1"
exclude = ["third_party/"]
jobs = 4
rules-dir = "tools/rules"
baseline = "npu.json"
format = "json"

[tool.npu-migrate.per-file-ignores]
"tests/*" = ["NPU101", "cuda-api"]
"""


def test_every_key(tmp_path: Path) -> None:
    assert configured(tmp_path, FULL) == Config(
        select=("core", "NPU7"),
        ignore=("NPU106",),
        unsafe=True,
        torch_npu="2.7.1",
        soc="Ascend910B1",
        exclude=("third_party/",),
        jobs=4,
        rules_dir=(str(tmp_path / "tools/rules"),),
        baseline=str(tmp_path / "npu.json"),
        format="json",
        per_file_ignores=(("tests/*", ("NPU101", "cuda-api")),),
        file=tmp_path / "pyproject.toml",
    )


def test_the_command_line_wins_or_adds(tmp_path: Path) -> None:
    config = configured(
        tmp_path,
        FULL,
        select=("amp",),
        ignore=("NPU301",),
        exclude=("gen/",),
        torch_npu="2.9.0",
        jobs=None,
        unsafe=False,
    )
    assert config.select == ("amp",)
    assert config.ignore == ("NPU106", "NPU301")
    assert config.exclude == ("third_party/", "gen/")
    assert (config.torch_npu, config.jobs, config.unsafe) == ("2.9.0", 4, True)


def test_no_file_no_harm(tmp_path: Path) -> None:
    assert load(tmp_path / "missing.py", {"select": ("a",), "jobs": None}, FORMATS) == Config(select=("a",))


def test_the_nearest_table_above_the_first_path(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.npu-migrate]\njobs = 1\n")
    deep = tmp_path / "a/b"
    deep.mkdir(parents=True)
    (tmp_path / "a/pyproject.toml").write_text("[tool.other]\nx = 1\n")
    (deep / "x.py").write_text("")
    assert load(deep / "x.py", {}, FORMATS).jobs == 1
    (tmp_path / "a/pyproject.toml").write_text("[tool.npu-migrate]\njobs = 2\n")
    assert load(deep / "x.py", {}, FORMATS).jobs == 2


def test_the_search_ends_at_the_repository(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.npu-migrate]\njobs = 1\n")
    (tmp_path / "repo/.git").mkdir(parents=True)
    assert load(tmp_path / "repo", {}, FORMATS).jobs is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("slect = ['a']", r"pyproject\.toml:3: unknown key 'slect' in \[tool\.npu-migrate\]; did you mean 'select'\?"),
        ("torch_npu = '2.7'", "did you mean 'torch-npu'"),
        ("xyzzy = 1", "the keys are baseline, exclude, format, "),
        ("unsafe = 'yes'", r"pyproject\.toml:3: 'unsafe' must be true or false, not 'yes'"),
        ("jobs = 0", "'jobs' must be a whole number above 0, not 0"),
        ("jobs = true", "'jobs' must be a whole number above 0, not True"),
        ("select = 3", "'select' must be a list of strings, not 3"),
        ("select = ['a', 3]", "'select' must be a list of strings"),
        ("torch-npu = 2.7", "'torch-npu' must be a string, not 2.7"),
        ("format = 'xml'", "'format' must be one of text, json, not 'xml'"),
        ("per-file-ignores = ['a']", "'per-file-ignores' must be a table"),
        ("per-file-ignores = {'a' = 1}", "'per-file-ignores' must be a table"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, table: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(tmp_path, f"\n[tool.npu-migrate]\n{table}\n")


def test_the_line_is_that_of_our_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pyproject\.toml:5: 'jobs'"):
        configured(tmp_path, "[tool.other]\njobs = 3\n[tool.npu-migrate]\n# jobs = 1\njobs = 'x'\n")


def test_a_sub_table_has_a_line_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pyproject\.toml:2: unknown key 'per-file-ignore'"):
        configured(tmp_path, "\n[tool.npu-migrate.per-file-ignore]\n'a' = ['b']\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[tool\n", r"pyproject\.toml:1:6: not valid TOML"),
        (b"x = 1\ny = [1,\n", r"pyproject\.toml:\d+:\d+: not valid TOML"),
        (b"x = '\xff'\n", "not UTF-8"),
        (b"[tool]\nnpu-migrate = 3\n", r"pyproject\.toml:2: \[tool\.npu-migrate\] must be a table"),
    ],
)
def test_a_file_that_is_no_toml(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(tmp_path, content)


@pytest.mark.parametrize("content", ["tool = 3\n", "[project]\nname = 'x'\n", "[tool.npu-migrate]\n"])
def test_a_file_without_settings(tmp_path: Path, content: str) -> None:
    assert configured(tmp_path, content).select == ()
