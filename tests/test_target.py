"""Finding out which torch_npu a repository is migrated for."""

from __future__ import annotations

import importlib.util
import pickle
import sys
from importlib import metadata
from pathlib import Path

import pytest

from migrator import api, target
from migrator.chips import CHIPS, doubt_about
from migrator.target import Target, TargetError, detect, lacking_torch_npu

NEWEST = api.versions()[-1]


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """Function: version → that torch_npu is installed; none is, unless a test says so."""

    def install(version):
        def answer(name):
            assert name == "torch-npu"
            if version is None:
                raise metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(target.metadata, "version", answer)

    install(None)
    return install


@pytest.fixture
def repo(tmp_path):
    """Function: {file: text} → root of a repository with those files."""

    def write(files):
        (tmp_path / ".git").mkdir(exist_ok=True)
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write


def found(root, cli=None, config=None, soc=None):
    return detect(root, cli=cli, config=config, soc=soc)


# --- the target itself


def test_a_target_answers_for_its_version():
    old, new = Target("2.5.1", None, ""), Target("2.11.0", "Ascend910B1", "")
    assert not old.has("torch.npu.mstx.range_push")
    assert new.has("torch.npu.mstx.range_push")
    assert old.at_least("2.5.1")
    assert not old.at_least("2.6")
    row = new.mapping("torch.cuda.nvtx.range_push")
    assert new.can(row)
    assert not old.can(row)
    assert old.mapping("torch.cuda.nccl.foo") is None
    assert old.mapping_for("torch.cuda.nccl.foo").cuda == "torch.cuda.nccl"
    assert old.signature("torch.npu.amp.GradScaler").accepts("dynamic")


def test_a_target_pickles():
    before = Target("2.7.1", "Ascend910B1", "asked for")
    assert pickle.loads(pickle.dumps(before)) == before


# --- what wins


def test_the_command_line_wins(repo, installed):
    installed("2.9.0")
    root = repo({"requirements.txt": "torch-npu==2.6.0\n"})
    assert found(root, cli="2.7.1", config="2.8.0") == Target("2.7.1", None, "--torch-npu 2.7.1")


def test_the_configuration_comes_next(repo, installed):
    installed("2.9.0")
    root = repo({"requirements.txt": "torch-npu==2.6.0\n"})
    assert found(root, config="2.8.0", soc="Ascend910B1") == Target(
        "2.8.0", "Ascend910B1", "the configuration asks for torch_npu 2.8.0"
    )


def test_then_the_pins_of_the_repository(repo, installed):
    installed("2.9.0")
    root = repo({"requirements.txt": "numpy\n# the NPU\ntorch-npu==2.6.0\n"})
    assert found(root) == Target("2.6.0", None, "requirements.txt line 3 pins torch-npu==2.6.0")


def test_then_what_is_installed(repo, installed):
    installed("2.9.0")
    assert found(repo({"train.py": "import torch\n"})) == Target("2.9.0", None, "torch_npu 2.9.0 is installed")


def test_then_the_newest(repo):
    assert found(repo({"requirements.txt": "numpy\n"})) == Target(
        NEWEST, None, "nothing pins torch_npu: the newest known wheel is assumed"
    )


def test_torch_npu_is_not_imported_to_find_out(repo, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_npu", None)  # importing it would raise
    assert found(repo({})).torch_npu == NEWEST


# --- where pins are


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        ("requirements.txt", "torch_npu == 2.6.0\n", 1),
        ("requirements-npu.txt", "-r base.txt\ntorch-npu==2.6.0  # the vendor's\n", 2),
        ("requirements/train.txt", "\ntorch-npu==2.6.0 \\\n  --hash=sha256:00\n", 2),
        ("requirements.in", "torch-npu==2.6.0\n", 1),
        ("constraints.txt", "torch-npu==2.6.0\n", 1),
        ("requirements.txt", "\ufefftorch-npu==2.6.0\n", 1),
        ("requirements.txt", "torch-npu==2.6.0 ; platform_machine == 'aarch64'\n", 1),
        ("requirements.txt", "numpy\nhttps://host/torch_npu-2.6.0-cp310-cp310-linux_aarch64.whl\n", 2),
        ("requirements.txt", "./wheels/torch_npu-2.6.0-cp310-cp310-linux_aarch64.whl\n", 1),
        ("requirements.txt", "torch-npu @ https://host/torch_npu-2.6.0-cp310-cp310-linux_aarch64.whl\n", 1),
        ("pyproject.toml", '[project]\nname = "x"\ndependencies = [\n  "numpy",\n  "torch-npu==2.6.0",\n]\n', 5),
        ("pyproject.toml", '[project.optional-dependencies]\nnpu = ["torch-npu==2.6.0"]\n', 2),
        ("pyproject.toml", '[dependency-groups]\nnpu = ["torch-npu==2.6.0", {include-group = "x"}]\n', 2),
        ("pyproject.toml", '[tool.poetry.dependencies]\npython = "^3.10"\ntorch-npu = "2.6.0"\n', 3),
        ("pyproject.toml", '[tool.poetry.group.npu.dependencies]\ntorch-npu = {version = "2.6.0"}\n', 2),
        ("setup.cfg", "[options]\ninstall_requires =\n    numpy\n    torch-npu==2.6.0\n", 4),
        ("setup.cfg", "[options.extras_require]\nnpu =\n    torch-npu==2.6.0\n", 3),
        ("setup.py", "from setuptools import setup\nsetup(install_requires=['numpy', 'torch-npu==2.6.0'])\n", 2),
        ("setup.py", "NEEDS = '''\nnumpy\ntorch-npu==2.6.0\n'''.split()\n", 3),
        ("environment.yml", "dependencies:\n  - python=3.10\n  - pip:\n    - torch-npu==2.6.0\n", 4),
        ("Dockerfile", "FROM ascend\n# pip install torch-npu==2.1.0\nRUN pip install torch-npu==2.6.0 && true\n", 3),
        ("docker/Dockerfile.npu", "RUN pip install \\\n    'torch_npu==2.6.0'\n", 2),
        ("npu.dockerfile", "RUN pip install ./torch_npu-2.6.0-cp310-cp310-linux_x86_64.whl\n", 1),
    ],
)
def test_files(repo, file, text, line):
    result = found(repo({file: text}))
    assert result.torch_npu == "2.6.0"
    assert result.reason == f"{file} line {line} pins torch-npu==2.6.0"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("requirements.txt", "torch-npu\ntorchvision==2.6.0\nmy-torch-npu==2.6.0\n#torch-npu==2.6.0\n"),
        ("requirements.txt", "torch>=1.8\n"),
        ("requirements.txt", "torch==2.1.0; sys_platform == 'darwin'\n"),
        ("notes.txt", "torch-npu==2.6.0\n"),
        ("Dockerfile", "ARG V=2.6.0\nRUN pip install torch-npu==$V torch-npu==${V}\n"),
        ("pyproject.toml", "[project\ntorch-npu==2.6.0\n"),
        ("pyproject.toml", "project = 3\n"),
        ("setup.cfg", "torch-npu==2.6.0\n"),
        ("setup.py", "this is not Python: torch-npu==2.6.0\n"),
        (".venv/requirements.txt", "torch-npu==2.6.0\n"),
        ("node_modules/requirements.txt", "torch-npu==2.6.0\n"),
        ("a/b/c/d/requirements.txt", "torch-npu==2.6.0\n"),
    ],
)
def test_what_pins_nothing(repo, file, text):
    assert found(repo({file: text})).torch_npu == NEWEST


def test_a_file_or_folder_of_a_repository_is_enough(repo):
    root = repo({"requirements.txt": "torch-npu==2.6.0\n", "src/train.py": ""})
    assert found(root / "src" / "train.py").torch_npu == found(root / "src").torch_npu == "2.6.0"


def test_without_a_repository_the_folder_itself_counts(tmp_path):
    (tmp_path / "requirements.txt").write_text("torch-npu==2.6.0\n")
    (tmp_path / "src").mkdir()
    assert found(tmp_path).torch_npu == "2.6.0"
    assert found(tmp_path / "src").torch_npu == NEWEST


# --- what pins mean


@pytest.mark.parametrize(
    ("pin", "version"),
    [
        ("torch-npu==2.1.0", "2.1.0.post8"),
        ("torch-npu==2.1.0.post8", "2.1.0.post8"),
        ("torch-npu==2.6.*", "2.6.0"),
        ("torch-npu~=2.6.0", "2.6.0"),
        ("torch-npu>=2.1,<2.7", "2.6.0"),
        ("torch-npu<=2.5.1", "2.5.1"),
        ("torch-npu<2.1", "2.1.0.post8"),
        ("torch-npu>=2.5", NEWEST),
        ("torch==2.6.0+cu124", "2.6.0"),
        ("torch<2.5,>=2.0", "2.4.0"),
        ("torch<3", NEWEST),
        ("torch @ https://host/torch-2.6.0%2Bcpu-cp310-cp310-linux_x86_64.whl", "2.6.0"),
    ],
)
def test_specifiers(repo, pin, version):
    assert found(repo({"requirements.txt": pin + "\n"})).torch_npu == version


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("pytorch=2.6.0", "2.6.0"),
        ("pytorch=2.6.0=py3.10_cuda12.4_cudnn9_0", "2.6.0"),
        ("conda-forge::pytorch==2.6.0", "2.6.0"),
        ("pytorch<2.5", "2.4.0"),
        ("'torch-npu==2.6.0'", "2.6.0"),
    ],
)
def test_conda_specifiers(repo, line, version):
    assert found(repo({"environment.yaml": f"dependencies:\n  - {line}\n"})).torch_npu == version


@pytest.mark.parametrize(
    ("constraint", "version"), [("2.6.0", "2.6.0"), ("~2.6", "2.6.0"), ("<2.7", "2.6.0"), ("^2.6", NEWEST)]
)
def test_poetry_constraints(repo, constraint, version):
    text = f'[tool.poetry.dependencies]\ntorch = "{constraint}"\n'
    assert found(repo({"pyproject.toml": text})).torch_npu == version


def test_a_pin_of_torch_implies_the_wheel_that_goes_with_it(repo):
    result = found(repo({"requirements.txt": "torch==2.6.0\n"}))
    assert result == Target("2.6.0", None, "requirements.txt line 1 pins torch==2.6.0; torch_npu 2.6.0 goes with it")


def test_a_pin_of_torch_npu_counts_more_than_one_of_torch(repo):
    result = found(
        repo({"requirements.txt": "torch==2.9.0\n", "docker/Dockerfile": "RUN pip install torch-npu==2.6.0\n"})
    )
    assert result.reason == "docker/Dockerfile line 1 pins torch-npu==2.6.0"


def test_an_unknown_version_is_answered_by_the_nearest(repo):
    assert found(repo({}), cli="2.99") == Target(
        NEWEST, None, f"--torch-npu 2.99; torch_npu 2.99 is not a known wheel; {NEWEST} is the nearest"
    )
    pinned = found(repo({"requirements.txt": "torch-npu==2.2.0\n"}))
    assert pinned.torch_npu == "2.1.0.post8"
    assert "torch_npu 2.2.0 is not a known wheel; 2.1.0.post8 is the nearest" in pinned.reason


def test_of_conflicting_pins_the_nearest_to_the_root_wins(repo):
    files = {"docker/Dockerfile": "RUN pip install torch-npu==2.5.1\n", "requirements.txt": "torch-npu==2.6.0\n"}
    assert found(repo(files)) == Target(
        "2.6.0",
        None,
        "requirements.txt line 1 pins torch-npu==2.6.0 "
        "(but docker/Dockerfile line 1 pins torch-npu==2.5.1; the nearest file wins)",
    )


def test_of_two_projects_in_a_repository_each_has_its_own_pins(repo):
    root = repo(
        {
            "a/requirements.txt": "torch-npu==2.5.1\n",
            "b/requirements.txt": "torch-npu==2.6.0\n",
            "a/src/x.py": "",
            "b/src/x.py": "",
        }
    )
    assert found(root / "a").torch_npu == found(root / "a" / "src").torch_npu == "2.5.1"
    assert found(root / "b").torch_npu == found(root / "b" / "src").torch_npu == "2.6.0"
    assert found(root / "b" / "src" / "x.py").torch_npu == "2.6.0"


def test_beside_a_file_of_no_repository_other_folders_do_not_count(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "requirements.txt").write_text("torch-npu==2.6.0\n")
    assert found(tmp_path / "train.py").torch_npu == NEWEST
    (tmp_path / "requirements.txt").write_text("torch-npu==2.5.1\n")
    assert found(tmp_path / "train.py").torch_npu == "2.5.1"


def test_pins_that_agree_are_no_conflict(repo):
    files = {"docker/Dockerfile": "RUN pip install torch-npu==2.6.0.post2\n", "requirements.txt": "torch-npu==2.6.0\n"}
    assert found(repo(files)).reason == "requirements.txt line 1 pins torch-npu==2.6.0"


# --- what cannot be read


@pytest.mark.parametrize("origin", ["cli", "config"])
def test_a_version_that_is_none(repo, origin):
    with pytest.raises(TargetError, match=r"'latest' is not a version number; expected something like 2\.7\.1"):
        found(repo({}), **{origin: "latest"})


@pytest.mark.parametrize("file", ["requirements.txt", "Dockerfile"])
def test_a_pin_that_is_none(repo, file):
    before = "RUN pip install " if file == "Dockerfile" else ""
    with pytest.raises(TargetError, match=rf"{file} line 1 pins torch-npu==two.*pass --torch-npu"):
        found(repo({file: f"{before}torch-npu==two\n"}))


def test_files_that_cannot_be_read_or_decoded(repo, monkeypatch):
    root = repo({"requirements.txt": ""})
    (root / "requirements.txt").write_bytes(b"\xff\xfe\x00torch-npu\n")
    assert found(root).torch_npu == NEWEST
    (root / "requirements-locked.txt").symlink_to(root / "nowhere")
    assert found(root).torch_npu == NEWEST


@pytest.mark.parametrize("chip", [*CHIPS, "Ascend910_9399", "Ascend950DT_9571", "ascend310p3", "Ascend910C"])
def test_known_chips_raise_no_doubt(chip: str) -> None:
    assert doubt_about(chip) is None


@pytest.mark.parametrize(
    ("chip", "hint"),
    [("910B1", "did you mean Ascend910B1?"), ("Foo", "Ascend910B1, ")],
)
def test_an_unknown_chip_is_doubted(chip: str, hint: str) -> None:
    doubt = doubt_about(chip)
    assert doubt is not None and doubt.startswith(f"{chip} is no chip") and hint in doubt


def test_torch_npu_knows_the_same_chips() -> None:
    wheel = importlib.util.find_spec("torch_npu")
    if wheel is None or wheel.origin is None:
        pytest.skip("torch_npu is not installed")
    library = Path(wheel.origin).parent.joinpath("lib", "libtorch_npu.so").read_bytes()
    assert [chip for chip in CHIPS if b"\0" + chip.encode() not in library] == []


TORCH = {
    "requirements.txt": "numpy\ntorch>=1.8\n",
    "requirements/base.txt": "torch\n",
    "environment.yaml": "dependencies:\n  - pytorch\n  - pip:\n    - tqdm\n",
    "pyproject.toml": '[project]\nname = "a"\nversion = "1"\ndependencies = ["torch>=2"]\n',
    "setup.py": 'setup(install_requires=["torch>=1.7"])\n',
}
NOT_TORCH = {
    "requirements.txt": "torchvision\ntorch-lightning\n# torch\n",
    "environment.yaml": "dependencies:\n  - pytorch-cuda=12.1\n  - pytorch-lightning\n",
    "setup.py": 'import torch\nsetup(keywords=["torch"])\n',
    "Dockerfile": "RUN pip install torch==2.1.0\n",
    "other/requirements.txt": "torch\n",
}


def _repository(folder: Path, name: str, text: str) -> Path:
    for path, content in (("code/train.py", ""), (name, text)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    return folder / "code/train.py"


@pytest.mark.parametrize("name", TORCH)
def test_requirements_that_name_torch_lack_torch_npu(tmp_path: Path, name: str) -> None:
    program = _repository(tmp_path, name, TORCH[name])
    assert lacking_torch_npu(tmp_path, [program]) == [tmp_path / name]
    assert lacking_torch_npu(tmp_path, []) == []
    (tmp_path / "requirements-npu.txt").write_text("torch_npu\n")
    assert lacking_torch_npu(tmp_path, [program]) == []


@pytest.mark.parametrize("name", NOT_TORCH)
def test_requirements_that_are_not_about_torch_lack_nothing(tmp_path: Path, name: str) -> None:
    program = _repository(tmp_path, name, NOT_TORCH[name])
    assert lacking_torch_npu(tmp_path, [program]) == []
