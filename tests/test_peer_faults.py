"""What mechanical renaming gets wrong, one test each: every line here broke real code somewhere."""

from __future__ import annotations

import pytest

UNTOUCHED = [
    pytest.param("y = x.to(*args, **kw)\n", id="star arguments"),
    pytest.param("import torch\ny = x.to(copy=True, dtype=torch.float16)\n", id="to without a device"),
    pytest.param("y = x.to(devs.pop())\n", id="argument with a side effect"),
    pytest.param("def cuda(n):\n    return n + 1\n\n\nprint(cuda(3))\n", id="a function of that name"),
    pytest.param("if args.is_cuda:\n    run()\n", id="an option called is_cuda"),
    pytest.param("state = ckpt['cuda']\nckpt['cuda'] = state\n", id="a dictionary key"),
    pytest.param("log.info('see barracuda: a fish')\n", id="a word that contains it"),
    pytest.param("URL = 'https://example.org/whl/cu121/cuda.html'\n", id="a URL"),
    pytest.param("path = os.path.join('csrc', 'cuda', 'nms.cu')\n", id="a path"),
    pytest.param("print('running on cuda')\nlogger.warning('cuda')\n", id="log lines"),
    pytest.param('"""Trains on cuda."""\n\n\ndef f():\n    """cuda"""\n', id="docstrings"),
    pytest.param("parser.add_argument('--use-cuda', action='store_true', help='use cuda')\n", id="an option's name"),
]


@pytest.mark.parametrize("code", UNTOUCHED)
def test_left_alone(migrated, code):
    outcome = migrated(code)
    assert outcome.text == code
    assert outcome.result.after is None


CHANGED = [
    pytest.param(
        "import torch.distributed as dist\ndist.init_process_group('cpu:gloo,cuda:nccl')\n",
        ["'cpu:gloo,npu:hccl'"],
        id="backend map",
    ),
    pytest.param(
        "import torch.distributed as dist\nif dist.is_nccl_available():\n    b = dist.Backend.NCCL\n",
        ["dist.is_hccl_available()", "dist.Backend.HCCL"],
        id="distributed names",
    ),
    pytest.param(
        "from torch import cuda\n\ncuda.set_device(0)\ns = cuda.Stream()\n",
        ["from torch_npu import npu", "npu.set_device(0)", "s = npu.Stream()"],
        id="from torch import cuda",
    ),
    pytest.param("import torch\ng = torch.cuda.CUDAGraph()\n", ["torch.npu.NPUGraph()"], id="a name that differs"),
    pytest.param("import torch\nfn = x.cuda\ny = fn()\n", ["fn = x.npu"], id="a bound method"),
    pytest.param(
        "import torch\n\n\ndef f(self):\n    return hasattr(self.model.module, 'head') and self.x.cuda()\n",
        ["self.x.npu()"],
        id="hasattr of a long expression",
    ),
]


@pytest.mark.parametrize(("code", "expected"), CHANGED)
def test_changed(migrated, code, expected):
    outcome = migrated(code)
    assert "cuda" not in outcome.text and "nccl" not in outcome.text.lower()
    for piece in expected:
        assert piece in outcome.text
    assert migrated(outcome.text).result.after is None


def test_own_class_keeps_definition_and_calls(migrated):
    code = (
        "class Batch:\n    def cuda(self):\n        self.x = self.x.cuda()\n        return self\n\n\n"
        "batch = Batch()\nbatch = batch.cuda()\n"
    )
    outcome = migrated(code)
    assert "def cuda(self):\n        self.x = self.x.npu()" in outcome.text
    assert "batch = batch.cuda()" in outcome.text
    assert outcome.left_on(8)


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("import torch\ntorch.cuda.nccl.version()\n", 2),
        ("import torch\ntorch.cuda.nvtx.range_push('a')\n", 2),
        ("import torch\ntorch.cuda.comm.broadcast(x, [0, 1])\n", 2),
        ("from numba import cuda\n", 1),
        ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '1,0'\n", 2),
        ("import os\nos.environ['NCCL_ALGO'] = 'ring'\n", 2),
        ("from apex import amp\n", 1),
        ("from flash_attn import flash_attn_func\n", 1),
        ("import xformers.ops\n", 1),
        ("from torch.utils.cpp_extension import CUDAExtension\ne = CUDAExtension('e', ['a.cu'])\n", 2),
        ("import torch\nt = prof.key_averages().table(sort_by='cuda_time_total')\n", 2),
        ("import torch\nwith torch.autograd.profiler.profile(use_cuda=True) as p:\n    f()\n", 2),
    ],
)
def test_not_missed_without_a_word(migrated, code, line):
    outcome = migrated(code)
    assert outcome.left_on(line) or code.splitlines()[line - 1] not in outcome.text, outcome.result
    assert all(found.remedy for found in outcome.left)


def test_profiler_activity_is_never_an_npu_member_of_torchs_class(migrated):
    code = "from torch.profiler import ProfilerActivity, profile\nwith profile(activities=[ProfilerActivity.CUDA]) as p:\n    f()\n"
    outcome = migrated(code)
    assert (
        "from torch.profiler import ProfilerActivity" not in outcome.text or "ProfilerActivity.NPU" not in outcome.text
    )
    assert outcome.fixed or outcome.left


def test_type_checking_import_does_not_count(migrated):
    code = (
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import torch\n\n\n"
        "def f(x: 'torch.Tensor'):\n    return x.cuda()\n"
    )
    text = migrated(code).text
    assert "    import torch_npu" not in text
    assert "\nimport torch_npu\n" in "\n" + text


def test_gbk_file_stays_gbk(migrated):
    raw = "# -*- coding: gbk -*-\nimport torch\nname = '模型'\nx = x.cuda()\n".encode("gbk")
    result = migrated(raw).result
    assert result.after == raw.replace(b"import torch\n", b"import torch\nimport torch_npu\n").replace(b"cuda", b"npu")


def test_second_run_adds_no_second_import(migrated):
    once = migrated("import torch\nx = x.cuda()\n").text
    assert once.count("import torch_npu") == 1
    assert migrated(once).text == once
