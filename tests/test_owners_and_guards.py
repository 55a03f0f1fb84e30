"""Whose `.cuda` it is, and which tests must keep their `cuda`."""

from __future__ import annotations

import pytest

HEAD = "import torch\nimport torch_npu\n"

TENSORS = {
    "parameter": "def f(x):\n    return x.cuda()",
    "attribute": "y = self.x.cuda()",
    "call": "y = make().cuda()",
    "subscript": "y = batch[0].cuda(non_blocking=True)",
    "chain": "y = x.float().cuda().half()",
    "module": "net = Net().cuda(args.gpu)",
    "storage": "y = storage.cuda(1)",
    "bound": "fn = x.cuda",
    "in a map": "ys = map(lambda t: t.cuda(), xs)",
    "in a comprehension": "ys = [t.cuda() for t in xs]",
    "unbound": "ys = map(torch.Tensor.cuda, xs)",
    "passed on": "apply(model.cuda)",
    "super": "class N(torch.nn.Module):\n    def cuda(self, device=None):\n        return super().cuda(device)",
    "starred arguments": "y = x.cuda(*a, **k)",
}
OWN = {
    "option": "if args.cuda:\n    f()",
    "nested option": "if self.cfg.train.cuda:\n    f()",
    "option passed on": "f(opt.cuda)",
    "parsed": "a = parser.parse_args()\nf(a.cuda)",
    "negated flag": "if not thing.cuda:\n    f()",
    "stored": "state.cuda = True\nf(state.cuda)",
    "own field": "class A:\n    def __init__(self):\n        self.cuda = 1\n\n    def f(self):\n        return g(self.cuda)",
    "declared field": "class A:\n    cuda: bool = False\n\n    def f(self):\n        return g(self.cuda)",
    "enumeration": "class B(Enum):\n    CUDA = 'x'\nb = B.CUDA",
    "function": "def cuda(n):\n    return n\ncuda(1)",
    "namespace": "v = cfg2.cuda.version",
}


@pytest.mark.parametrize("code", TENSORS.values(), ids=TENSORS)
def test_tensors_and_modules(migrated, code):
    assert "cuda" not in migrated(HEAD + code + "\n").text


@pytest.mark.parametrize("code", OWN.values(), ids=OWN)
def test_the_users_own(migrated, code):
    outcome = migrated(HEAD + code + "\n")
    assert outcome.text == HEAD + code + "\n"


BATCH = "class Batch:\n    def cuda(self):\n        return self\n\n    @property\n    def is_cuda(self):\n        return True\n\n\n"


@pytest.mark.parametrize(
    "use",
    [
        "b = Batch()\nb.cuda()",
        "Batch().cuda()",
        "def f(b: Batch):\n    b.cuda()",
        "class T:\n    def __init__(self):\n        self.b = Batch()\n\n    def f(self):\n        self.b.cuda()",
        "def f(batch):\n    batch.cuda()",
        "class Big(Batch):\n    pass\n\n\nBig().cuda()",
    ],
)
def test_own_class_keeps_its_method(migrated, use):
    outcome = migrated(HEAD + BATCH + use + "\n")
    assert outcome.text == HEAD + BATCH + use + "\n"
    assert any("Batch" in found.message or "Big" in found.message for found in outcome.left)


def test_own_class_of_another_file(migrated):
    files = {"lib.py": BATCH}
    assert "Batch().cuda()" in migrated(HEAD + "from lib import Batch\nBatch().cuda()\n", files=files).text


def test_own_class_does_not_hold_up_the_others(migrated):
    assert "x.npu()" in migrated(HEAD + BATCH + "def f(x):\n    return x.cuda()\n").text


GUARDS = {
    "triton kernel": "import triton\nif x.is_cuda:\n    y = triton.cdiv(a, b)",
    "compiled extension": "from . import deform_ext\nif x.is_cuda:\n    y = deform_ext.forward(x)",
    "loaded extension": "my_ext = load_ext('_ext')\nif x.device.type == 'cuda':\n    y = my_ext.f(x)",
    "own kernel": "if x.is_cuda:\n    y = _bias_act_cuda(x)",
    "early return": "from . import nms_ext\n\n\ndef f(x):\n    if not x.is_cuda:\n        raise ValueError\n    return nms_ext.f(x)",
    "else branch": "from . import nms_ext\nif not x.is_cuda:\n    y = slow(x)\nelse:\n    y = nms_ext.f(x)",
    "assertion": "from . import nms_ext\n\n\ndef f(x):\n    assert x.is_cuda\n    return nms_ext.f(x)",
    "kernel in an autograd function": (
        "from . import _C\n\n\nclass Attend(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return _C.attend(x)\n\n\n"
        "attend = Attend.apply\n\n\ndef f(x):\n    if x.is_cuda:\n        return attend(x)\n    return slow(x)"
    ),
    "same test": "if torch.cuda.is_available() and version(torch.version.cuda) > 11:\n    f()",
    "capability in the test": "if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8:\n    f()",
    "bitsandbytes": "import bitsandbytes as bnb\nif device == 'cuda':\n    o = bnb.optim.AdamW8bit(p)",
    "only DataParallel": "if device == 'cuda':\n    net = torch.nn.DataParallel(net)",
    "extension build": "from torch.utils.cpp_extension import CUDAExtension\nif torch.cuda.is_available():\n    e = CUDAExtension('e', s)",
}


@pytest.mark.parametrize("code", GUARDS.values(), ids=GUARDS)
def test_guard_of_cuda_only_machinery_stays_and_is_reported(migrated, code):
    outcome = migrated(HEAD + code + "\n")
    line = next(i for i, text in enumerate(outcome.text.splitlines(), 1) if re_guard(text))
    assert "npu" not in outcome.text.splitlines()[line - 1]
    assert outcome.left_on(line)


def re_guard(text: str) -> bool:
    return text.lstrip().startswith(("if ", "assert "))


KERNEL = (
    "import torch\nimport triton\n@triton.jit\ndef _kernel(p): ...\n"
    "class Norm(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        {}_kernel[(1,)](x)\n        return x\n"
)


@pytest.mark.parametrize(("condition", "guards"), [("", True), ("if torch.cuda.is_available(): ", False)])
def test_guard_of_a_kernel_in_another_file(migrated, condition, guards):
    code = "from kernels import Norm\nif torch.cuda.is_available():\n    y = Norm.apply(x)\n"
    outcome = migrated(HEAD + code, files={"kernels.py": KERNEL.format(condition)})
    assert ("if torch.cuda.is_available()" in outcome.text) is guards
    assert bool(outcome.left) is guards


PLAIN = {
    "moves data": "if torch.cuda.is_available():\n    model = torch.nn.DataParallel(model).cuda()",
    "seeds": "if torch.cuda.is_available():\n    torch.cuda.manual_seed_all(0)",
    "helper called to_cuda": "if torch.cuda.is_available():\n    batch = to_cuda(batch)",
    "tensor called x_cuda": "if torch.cuda.is_available():\n    x_cuda = x.cuda()\n    x_cuda.sum()",
    "count": "if torch.cuda.device_count() > 1:\n    n = 2",
}


@pytest.mark.parametrize("code", PLAIN.values(), ids=PLAIN)
def test_plain_guard_changes(migrated, code):
    assert "if torch.npu." in migrated(HEAD + code + "\n").text


PORTED = {
    "elif": "if x.device.type == 'npu':\n    y = x.npu()\nelif x.is_cuda:\n    y = x.cuda()",
    "before": "if torch.cuda.is_available():\n    d = 'cuda'\nelif is_npu_available():\n    d = 'npu'",
    "or": "ok = torch.cuda.is_available() or torch.npu.is_available()",
    "list": "devices = ['cpu', 'cuda', 'npu']",
    "conditional": "d = 'cuda' if torch.cuda.is_available() else 'npu' if npu_ok else 'cpu'",
    "choices": "p.add_argument('--device', choices=['cuda', 'npu'])",
}


@pytest.mark.parametrize("code", PORTED.values(), ids=PORTED)
def test_code_that_was_ported_before_stays(migrated, code):
    outcome = migrated(HEAD + code + "\n")
    assert outcome.text == HEAD + code + "\n"
    assert outcome.left and all(found.severity == "info" for found in outcome.left)


def test_the_word_input_is_no_npu(migrated):
    assert "x.npu()" in migrated(HEAD + "if inputs is None:\n    y = 1\nelif ok:\n    y = x.cuda()\n").text
