"""Environment variables and builds: every row of the map is answered, values are checked, words for people stay."""

from __future__ import annotations

import re

import pytest

from migrator import api

NEWEST = api.versions()[-1]
ROWS = {
    name: row
    for row in api.mappings()
    if row.cuda.startswith("env:")
    for name in row.cuda.removeprefix("env:").split(" / ")
    if " " not in name
}
PLACES = {
    "subscript": "import os\nos.environ['{}'] = value\n",
    "read": "import os\nx = os.getenv('{}', None)\n",
    "default": "import os\nos.environ.setdefault('{}', value)\n",
    "removed": "import os\nos.environ.pop('{}', None)\n",
    "tested": "import os\nok = '{}' in os.environ\n",
    "subprocess": "subprocess.run(command, env={{**env, '{}': value}})\n",
    "keyword": "env = dict(env, {}=value)\n",
    "fixture": "def test(monkeypatch):\n    monkeypatch.setenv('{}', '1')\n",
    "command": "import os\nos.system('{}=1 python train.py')\n",
    "script": "script = '''#!/bin/sh\nexport {}=1\npython train.py\n'''\n",
}


@pytest.mark.parametrize("target", ["2.1", "2.7.1", NEWEST])
@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_row_in_every_place(migrated, name: str, target: str) -> None:
    variable = name.replace("*", "SETTING")
    for place, code in PLACES.items():
        if name.endswith("*") and place in ("keyword", "command", "script"):
            continue
        code = code.format(variable)
        outcome = migrated(code, target=target, select=("NPU901",))
        written = set(re.findall(r"\b(?:ASCEND|HCCL|TORCH_HCCL|PYTORCH_NO_NPU|PYTORCH_NPU)_\w+", outcome.text))
        assert outcome.left or (variable not in outcome.text and written), (place, outcome.text)
        assert all(found.remedy for found in outcome.left)
        if written:
            assert ROWS[name].kind is api.Kind.RENAME
            assert written <= {ROWS[name].npu, (ROWS[name].npu or "").removeprefix("TORCH_")}


@pytest.mark.parametrize(
    ("name", "target", "new"),
    [
        ("NCCL_BLOCKING_WAIT", "2.7.1", "HCCL_BLOCKING_WAIT"),
        ("NCCL_BLOCKING_WAIT", NEWEST, "TORCH_HCCL_BLOCKING_WAIT"),
        ("TORCH_NCCL_ENABLE_MONITORING", "2.7.1", "TORCH_HCCL_ENABLE_MONITORING"),
        ("TORCH_NCCL_ENABLE_MONITORING", "2.5.1", None),
    ],
)
def test_names_by_version(migrated, name: str, target: str, new: str | None) -> None:
    outcome = migrated(f"import os\nos.environ['{name}'] = '1'\n", target=target, select=("NPU901",))
    assert f"os.environ['{new or name}']" in outcome.text
    assert bool(outcome.left) == (new is None)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("CUDA_VISIBLE_DEVICES", "0", None),
        ("CUDA_VISIBLE_DEVICES", "0,1,10", None),
        ("CUDA_VISIBLE_DEVICES", "", None),
        ("CUDA_VISIBLE_DEVICES", "-1", None),
        ("CUDA_VISIBLE_DEVICES", "2,1", "ascending"),
        ("CUDA_VISIBLE_DEVICES", "1,1", "ascending"),
        ("CUDA_VISIBLE_DEVICES", "GPU-5ebe9c43", "only indices"),
        ("CUDA_LAUNCH_BLOCKING", "1", None),
        ("CUDA_LAUNCH_BLOCKING", "true", "only 0 and 1"),
        ("NCCL_ASYNC_ERROR_HANDLING", "3", "only 0 and 1"),
        ("NCCL_SOCKET_IFNAME", "eth0", None),
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128,garbage_collection_threshold:0.8", None),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", None),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:64", "together"),
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:20", "more than 20"),
        ("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync", "backend"),
        ("PYTORCH_CUDA_ALLOC_CONF", "roundup_power2_divisions:4", "roundup_power2_divisions"),
    ],
)
@pytest.mark.parametrize(
    "place", ["import os\nos.environ['{}'] = '{}'\n", "import os\nos.system('{}={} python x.py')\n"]
)
def test_values(migrated, name: str, value: str, why: str | None, place: str) -> None:
    code = place.format(name, value)
    outcome = migrated(code, select=("NPU901",))
    if why is None:
        assert not outcome.left and outcome.text == code.replace(name, outcome_name(outcome.text))
    else:
        assert outcome.text == code
        assert [why in found.message for found in outcome.left] == [True]


def outcome_name(text: str) -> str:
    """The variable that the migrated code names."""
    found = re.search(r"\b(?:ASCEND|HCCL|PYTORCH_NPU)_\w+", text)
    assert found is not None, text
    return found.group()


@pytest.mark.parametrize(
    "code",
    [
        '"""CUDA_VISIBLE_DEVICES=0 python train.py"""\n',
        "raise RuntimeError('set CUDA_VISIBLE_DEVICES first')\n",
        "log.info('CUDA_VISIBLE_DEVICES=%s', n)\n",
        "p.add_argument('--gpus', help='overrides CUDA_VISIBLE_DEVICES')\n",
        "# CUDA_VISIBLE_DEVICES=0 python train.py\nx = 1\n",
        "facts = {}\nfacts['CUDA_HOME'] = path\n",
        "import os\nforced = os.getenv('FORCE_CUDA', '0') == '1'\n",
        "import os\nos.environ['MY_CUDA_BUILD'] = '0'\n",
    ],
)
def test_words_and_switches_of_the_user_stay(migrated, code: str) -> None:
    outcome = migrated(code, unsafe=True, select=("NPU901",))
    assert outcome.text == code and not outcome.left


def test_a_build_of_cuda_sources_is_an_inventory(migrated) -> None:
    code = (
        "from torch.utils.cpp_extension import load\n"
        "ops = load('ops', sources=['src/a.cpp', 'src/a_cuda.cu', 'src/b.cu'], extra_cuda_cflags=['-O3'])\n"
        "y = ops.forward(x)\nz = ops.backward(y)\n"
    )
    (found,) = migrated(code, select=("NPU902",)).left
    assert "src/a_cuda.cu, src/b.cu" in found.message and "backward, forward" in found.message


def test_half_of_the_extensions_being_cpp_changes_none(migrated) -> None:
    code = (
        "from torch.utils.cpp_extension import CUDAExtension\n"
        "e = [CUDAExtension('a', ['a.cpp']), CUDAExtension('b', ['b.cpp', 'b.cu'])]\n"
    )
    outcome = migrated(code, unsafe=True, select=("NPU902",))
    assert outcome.text == code
    assert outcome.left_on(1) and outcome.left_on(2)
