"""Code that looks harmless and breaks a careless rewrite: names bound twice, kept imports, odd layouts."""

from __future__ import annotations

import pytest

NAMES = {
    "an import whose name other code also binds keeps it": (
        "from torch import cuda\ncuda.synchronize()\ncuda = cuda.is_available()\n",
        "from torch_npu import npu as cuda\ncuda.synchronize()\ncuda = cuda.is_available()\n",
    ),
    "a flag that takes the module's name is no module": (
        "from torch import cuda\ncuda = cuda.is_available() and True\nif cuda:\n    x = x.cuda()\n",
        "from torch_npu import npu as cuda\ncuda = cuda.is_available() and True\nif cuda:\n    x = x.npu()\n",
    ),
    "an alias that spells the module's name is not renamed": (
        "import torch.cuda as cuda\n\n\ndef f():\n    cuda = 1\n    return cuda\n\n\ncuda.synchronize()\n",
        "import torch_npu.npu as cuda\n\n\ndef f():\n    cuda = 1\n    return cuda\n\n\ncuda.synchronize()\n",
    ),
    "what an except clause imports only stands in": (
        "try:\n    from torch.cuda import amp\nexcept ImportError:\n    from other import amp\n"
        "s = amp.GradScaler(1.0, 2.0, 0.5, 100, on)\n",
        "try:\n    from torch_npu.npu import amp\nexcept ImportError:\n    from other import amp\n"
        "s = amp.GradScaler(1.0, 2.0, 0.5, 100, enabled=on)\n",
    ),
    "torch.amp with torch.cuda.amp to fall back on": (
        "try:\n    from torch.amp import autocast, GradScaler\nexcept ImportError:\n"
        "    from torch.cuda.amp import autocast, GradScaler\nwith autocast('cuda'):\n    s = GradScaler()\n",
        "try:\n    from torch.amp import autocast, GradScaler\nexcept ImportError:\n"
        "    from torch_npu.npu.amp import autocast, GradScaler\nimport torch_npu\n"
        "with autocast('npu'):\n    s = GradScaler('npu')\n",
    ),
    "one name from either of two packages": (
        "try:\n    from torch import cuda\nexcept ImportError:\n    from other import cuda\n"
        "cuda.synchronize()\n",
        "try:\n    from torch_npu import npu as cuda\nexcept ImportError:\n"
        "    from other import cuda\ncuda.synchronize()\n",
    ),
    "a global name that a function imports": (
        "def f():\n    global cuda\n    from torch import cuda\n\n\ndef g():\n    cuda.synchronize()\n",
        "def f():\n    global cuda\n    from torch_npu import npu as cuda\n\n\ndef g():\n"
        "    cuda.synchronize()\n",
    ),
    "a global statement at module level": (
        "global cuda\nfrom torch import cuda\ncuda.synchronize()\n",
        "global cuda\nfrom torch_npu import npu\nnpu.synchronize()\n",
    ),
    "a nonlocal name": (
        "import torch\n\n\ndef f():\n    c = None\n\n    def g():\n        nonlocal c\n"
        "        c = torch.cuda\n\n    c.CUDAGraph()\n",
        "import torch\nimport torch_npu\n\n\ndef f():\n    c = None\n\n    def g():\n"
        "        nonlocal c\n        c = torch.npu\n\n    c.NPUGraph()\n",
    ),
    "a name in __all__": (
        "from torch import cuda\n\n__all__ = ['f']\n"
        "__all__ += ['cuda']  # npu-migrate: ignore[NPU101] a name\n",
        "from torch_npu import npu as cuda\n\n__all__ = ['f']\n"
        "__all__ += ['cuda']  # npu-migrate: ignore[NPU101] a name\n",
    ),
    "an attribute of a class": (
        "class A:\n    from torch import cuda\n\n    def f(self):\n        self.cuda.synchronize()\n",
        "class A:\n    from torch_npu import npu as cuda\n\n    def f(self):\n"
        "        self.cuda.synchronize()\n",
    ),
    "a deleted name": (
        "from torch import cuda\ncuda.synchronize()\ndel cuda\n",
        "from torch_npu import npu\nnpu.synchronize()\ndel npu\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), NAMES.values(), ids=NAMES)
def test_names(migrated, before, after):
    outcome = migrated(before, select=("core",))
    assert outcome.text == after
    assert migrated(after, select=("core",)).result.after is None


KEPT = {
    "an import that a comment keeps": (
        "from torch import cuda  # npu-migrate: ignore[cuda-import] kept\ncuda.synchronize()\n",
        "torch_npu.npu.synchronize()",
    ),
    "a use that a comment keeps": (
        "from torch import cuda\ncuda.synchronize()\n"
        "cuda.empty_cache()  # npu-migrate: ignore[cuda-api] kept\n",
        "torch_npu.npu.synchronize()\ncuda.empty_cache()",
    ),
    "a use beside code for the NPU": (
        "from torch import cuda\nif device == 'npu':\n    f()\nelse:\n    cuda.empty_cache()\n",
        "    cuda.empty_cache()",
    ),
    "a guard of CUDA-only code": (
        "import triton\nfrom torch import cuda\nif cuda.is_available():\n    triton.cdiv(1, 2)\n"
        "cuda.synchronize()\n",
        "if cuda.is_available():\n    triton.cdiv(1, 2)\ntorch_npu.npu.synchronize()\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("code", "expected"), KEPT.values(), ids=KEPT)
def test_an_import_stays_with_a_use_that_stays(migrated, code, expected):
    outcome = migrated(code, select=("core",))
    assert "from torch import cuda" in outcome.text
    assert expected in outcome.text


def test_rules_that_run_alone_leave_working_code(migrated):
    code = "from torch import cuda\nfrom torch.cuda import amp\ncuda.CUDAGraph()\n"
    code += "s = amp.GradScaler(1.0, 2.0, 0.5, 9, on)\n"
    api = migrated(code, select=("cuda-api", "import-torch-npu"))
    assert "from torch import cuda\n" in api.text and "torch_npu.npu.NPUGraph()" in api.text
    scaler = migrated(code, select=("grad-scaler", "import-torch-npu"))
    assert "torch_npu.npu.amp.GradScaler(1.0, 2.0, 0.5, 9, enabled=on)" in scaler.text
    imports = migrated(code, select=("cuda-import",))
    assert imports.text == code and imports.left_on(1) and imports.left_on(2)


PLACES = {
    "behind an import on the same line as what needs it": (
        "import os; import torch; torch.cuda.set_device(0)\nx = 1\n",
        "import os; import torch; import torch_npu; torch.npu.set_device(0)\nx = 1\n",
    ),
    "in every branch that imports torch": (
        "if new:\n    import torch\nelse:\n    import torch.nn as nn\n    import torch\ntorch.cuda.init()\n",
        "if new:\n    import torch\n    import torch_npu\nelse:\n    import torch.nn as nn\n    import torch_npu\n"
        "    import torch\ntorch.npu.init()\n",
    ),
    "again where torch is imported without the condition": (
        "if early:\n    import torch\nimport torch\ntorch.cuda.init()\n",
        "if early:\n    import torch\n    import torch_npu\nimport torch\nimport torch_npu\ntorch.npu.init()\n",
    ),
    "once under one condition": (
        "if has_torch():\n    import torch\nif has_torch():\n    from torch import nn\ntorch.cuda.init()\n",
        "if has_torch():\n    import torch\n    import torch_npu\nif has_torch():\n    from torch import nn\n"
        "torch.npu.init()\n",
    ),
    "where no type checker looks": (
        "if not TYPE_CHECKING:\n    import torch\nx = torch.zeros(2).cuda()\n",
        "if not TYPE_CHECKING:\n    import torch\n    import torch_npu\nx = torch.zeros(2).npu()\n",
    ),
    "not behind imports that all move": (
        "from torch.cuda.amp import autocast\nfrom torch.cuda import Stream\n",
        "from torch_npu.npu.amp import autocast\nfrom torch_npu.npu import Stream\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), PLACES.values(), ids=PLACES)
def test_place_of_the_import(migrated, before, after):
    outcome = migrated(before, select=("core",))
    assert outcome.text == after
    assert migrated(after, select=("core",)).result.after is None


COMPAT = "import torch\nfrom torch import cuda\nfrom torch.cuda.amp import GradScaler\ntc = torch.cuda\n"
PASSED_ON = {
    "below src": ("src/pkg/compat.py", "src/pkg/train.py", "from pkg.compat import cuda, GradScaler, tc\n"),
    "beside the script": ("tools/compat.py", "tools/train.py", "from compat import cuda, GradScaler, tc\n"),
    "with a star": ("pkg/compat.py", "pkg/train.py", "from .compat import *\n"),
    "with a star over two files": ("pkg/compat.py", "train.py", "from pkg.common import *\n"),
}  # fmt: skip


@pytest.mark.parametrize(("home", "path", "statement"), PASSED_ON.values(), ids=PASSED_ON)
def test_names_that_another_file_passes_on(migrated, home, path, statement):
    code = statement + "cuda.synchronize()\ns = GradScaler(1.0, 2.0, 0.5, 9, on)\ntc.CUDAGraph()\ntc.nccl.version()\n"
    files = {home: COMPAT, path: code, "src/pkg/__init__.py": "", "pkg/__init__.py": ""}
    files["pkg/common.py"] = "from .compat import *\n"
    source = migrated(COMPAT, path=home, files=files, select=("core",)).text
    assert "from torch_npu import npu as cuda\n" in source and "tc = torch.npu\n" in source
    outcome = migrated(code, path=path, files=files, select=("core",))
    expected = "cuda.synchronize()\ns = GradScaler(1.0, 2.0, 0.5, 9, enabled=on)\ntc.NPUGraph()\ntc.nccl.version()\n"
    assert outcome.text.endswith(f"{statement}import torch_npu\n{expected}")
    assert outcome.left_on(code.count("\n"))


def test_torch_that_another_file_passes_on(migrated):
    outcome = migrated("from compat import *\ntorch.cuda.init()\n", files={"compat.py": "import torch\n"})
    assert outcome.text == "from compat import *\nimport torch_npu\ntorch.npu.init()\n"


STATEMENTS = {
    "comments go with their names": (
        "from torch.cuda import (  # all\n    Stream,  # a stream\n    nccl,    # none\n    Event as Ev,  # event\n)\n"
        "nccl.version()\n",
        "from torch.cuda import (  # all\n    nccl,    # none\n)\nfrom torch_npu.npu import Stream, Event as Ev\n"
        "nccl.version()\n",
    ),
    "the last name beside the bracket": (
        "from torch.cuda import (nccl,  # none\n    Stream)\nnccl.version()\n",
        "from torch.cuda import (nccl,  # none\n    )\nfrom torch_npu.npu import Stream\nnccl.version()\n",
    ),
    "continued with backslashes": (
        "from torch.cuda import Stream, \\\n    nccl, \\\n    Event\nnccl.version()\n",
        "from torch.cuda import nccl\nfrom torch_npu.npu import Stream, Event\nnccl.version()\n",
    ),
    "a comment stays on its line": (
        "from torch import nn, cuda  # noqa: F401\n",
        "from torch import nn  # noqa: F401\nfrom torch_npu import npu\n",
    ),
    "torch imported before": (
        "import torch\nimport torch_npu\nimport torch.cuda\nimport os, torch.cuda.amp\ntorch.cuda.init()\n",
        "import torch\nimport torch_npu\nimport os\ntorch.npu.init()\n",
    ),
    "torch imported before, elsewhere": (
        "if a:\n    import torch\nelse:\n    import torch.cuda\n",
        "if a:\n    import torch\n    import torch_npu\nelse:\n    import torch\n    import torch_npu\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), STATEMENTS.values(), ids=STATEMENTS)
def test_import_statements(migrated, before, after):
    outcome = migrated(before, select=("core",))
    assert outcome.text == after
    assert migrated(after, select=("core",)).result.after is None


DEVICES = {
    "beside an alternative of alternatives": "d = 'cuda' if a else 'mps' if b else 'cpu'",
    "an entry beside others": "d = {True: 'cuda', False: 'cpu'}[ok]",
    "set by name": "setattr(self, 'device', 'cuda')",
    "set by name on a frozen object": "object.__setattr__(self, 'device', 'cuda:0')",
    "an argument bound early": "f = functools.partial(torch.device, 'cuda')",
    "an argument of a method bound early": "f = functools.partial(x.to, 'cuda')",
    "a field's default": "class C(BaseModel):\n    device: str = Field('cuda', description='where')",
    "an attrs field": "@attr.s\nclass C:\n    device = attr.ib('cuda')",
    "one of several values": "def f(device: Literal['cuda', 'cpu'] = 'cuda'):\n    pass",
    "the only value": "def f(device: Optional[Literal['cuda']] = None):\n    pass",
    "a case": "match x.device.type:\n    case 'cuda' | 'cuda:0':\n        pass",
    "inside an f-string": "x = t.to(f\"{'cuda'}:{i!r}\")",
}  # fmt: skip


@pytest.mark.parametrize("code", DEVICES.values(), ids=DEVICES)
def test_device_strings(migrated, code):
    head = "import torch\nimport torch_npu\n"
    outcome = migrated(f"{head}{code}\n", select=("core",))
    assert outcome.text == f"{head}{code}\n".replace("cuda", "npu")
    assert not outcome.left


NO_DEVICES = {
    "a message bound early": "f = functools.partial(print, 'cuda')",
    "a name set by name": "setattr(self, 'name', 'cuda')  # npu-migrate: ignore[NPU101] a name",
    "a help text": "class C(BaseModel):\n    a: str = Field('x', description='cuda or cpu')",
    "values of an enumeration": (
        "class Dev(Enum):\n    CUDA = 'cuda'  # npu-migrate: ignore[NPU101] kept\n\n\n"
        "x = Dev('cuda')  # npu-migrate: ignore[NPU101] kept"
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", NO_DEVICES.values(), ids=NO_DEVICES)
def test_no_device_strings(migrated, code):
    assert migrated(f"{code}\n", select=("core",)).text == f"{code}\n"


def test_an_enumeration_and_its_values_change_together_or_not_at_all(migrated):
    code = "class Dev(Enum):\n    CUDA = 'cuda'\n\n\nx = Dev('cuda')\n"
    assert migrated(code).text == code and migrated(code).left_on(2) and migrated(code).left_on(5)
    assert migrated(code, unsafe=True).text == code.replace("'cuda'", "'npu'")


TEXTS = {
    "types in quotes": (
        "from torch import cuda\nimport torch.cuda as tc\n\n\n"
        "def f(a: 'tc.CUDAGraph | None', b: List['cuda.Stream']) -> 'Optional[tc.Event]':\n    pass\n",
        "from torch_npu import npu as cuda\nimport torch_npu.npu as tc\n\n\n"
        "def f(a: 'tc.NPUGraph | None', b: List['cuda.Stream']) -> 'Optional[tc.Event]':\n    pass\n",
    ),
    "types in quotes where the import stays": (
        "import torch.cuda as tc\na: 'tc.CUDAGraph' = tc.nccl.version()\n",
        "import torch.cuda as tc\nimport torch_npu\na: 'torch_npu.npu.NPUGraph' = tc.nccl.version()\n",
    ),
    "modules by name": (
        "import sys\nm = sys.modules['torch.cuda']\nold['torch.cuda'] = m\n",
        "import sys\nm = sys.modules['torch.npu']\nold['torch.cuda'] = m\n",
    ),
    "a patch where torch is not imported": (
        "with mock.patch('torch.cuda.is_available'):\n    pass\n",
        "with mock.patch('torch_npu.npu.is_available'):\n    pass\n",
    ),
    "attributes by name": (
        "import torch\nimport torch_npu\n"
        "g = getattr(torch.cuda, 'CUDAGraph', None)\nok = hasattr(torch.cuda, 'nccl')\n",
        "import torch\nimport torch_npu\ng = getattr(torch.npu, 'NPUGraph', None)\nok = hasattr(torch.npu, 'nccl')\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), TEXTS.values(), ids=TEXTS)
def test_code_in_strings(migrated, before, after):
    outcome = migrated(before, select=("core",))
    assert outcome.text == after
    assert migrated(after, select=("core",)).result.after is None


REPORTED = {
    "code for exec": "exec('torch.cuda.synchronize()')",
    "code for timeit": "t = timeit('x.cuda()')",
    "code for another process": "run(['python', '-c', 'import torch; print(torch.cuda.is_available())'])",
    "an attribute that another module has": "import torch\nok = hasattr(torch.cuda, 'OutOfMemoryError')",
    "an attribute without counterpart": "import torch\nn = getattr(torch.cuda, 'nccl')",
}  # fmt: skip


@pytest.mark.parametrize("code", REPORTED.values(), ids=REPORTED)
def test_reported(migrated, code):
    outcome = migrated(f"{code}\n", target="2.10.0", select=("core",))
    assert outcome.text == f"{code}\n"
    assert outcome.left_on(len(code.splitlines()))


def test_messages_that_speak_of_code_are_no_code(migrated):
    code = "log.info('torch.cuda.synchronize()')\nmsg = 'torch.cuda is not there'\nprint('use x.cuda() here')\n"
    assert not migrated(code).result.diagnostics


OWNERS = {
    "an annotated variable": "b: Batch = load()\nb.cuda()\n",
    "what a function returns": "def load() -> Batch:\n    return read()\n\n\nload().cuda()\n",
}  # fmt: skip


@pytest.mark.parametrize("uses", OWNERS.values(), ids=OWNERS)
def test_your_own_method(migrated, uses):
    code = f"class Batch:\n    def cuda(self):\n        return self\n\n\n{uses}"
    assert migrated(code, select=("core",)).text == code


def test_a_module_that_answers_is_cuda_is_renamed_with_its_users(migrated):
    code = (
        "import torch\nimport torch_npu\n\n\nclass Net(torch.nn.Module):\n    @property\n    def is_cuda(self):\n"
        "        return self.w.is_cuda\n\n    @is_cuda.setter\n    def is_cuda(self, value):\n        pass\n\n\n"
        "def f(net):\n    return net.is_cuda\n"
    )
    assert migrated(code, select=("core",)).text == code.replace("is_cuda", "is_npu")


def test_keyword_arguments_of_partial_and_behind_stars(migrated) -> None:
    code = "import torch\nfrom functools import partial\nf = partial(torch.cuda.get_device_name, device=d)\n"
    assert "partial(torch.npu.get_device_name, device_name=d)" in migrated(code).text
    outcome = migrated("import torch\nn = torch.cuda.get_device_name(**options)\n")
    assert "torch.cuda" in outcome.text and "all that ** may bring" in outcome.left[0].message


def test_tensors_of_other_frameworks_keep_their_cuda(migrated) -> None:
    for head in ("", "import torch\n"):
        outcome = migrated(f"{head}import paddle\nx = paddle.to_tensor([1.0])\ny = x.cuda()\n")
        assert "x.cuda()" in outcome.text and "import torch_npu" not in outcome.text
        assert "another library" in outcome.left[-1].message
    assert "x.npu()" in migrated("import torch\nimport paddle\nx = torch.ones(2)\nx.cuda()\n").text


def test_a_decorated_first_statement(migrated) -> None:
    assert migrated("@property\ndef f(m):\n    m.cuda()\n").text == "import torch_npu\n\n@property\ndef f(m):\n    m.npu()\n"
    assert migrated("import os \\\n\nm.cuda()\n").text == "import os \\\n\nimport torch_npu\nm.npu()\n"


def test_an_ordinary_function_that_makes_a_kernel_is_no_extension(migrated) -> None:
    code = (
        "import torch\nfrom utils import make_kernel\nclass Blur(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, x):\n        return x * make_kernel(x)\nif x.is_cuda:\n    y = Blur.apply(x)\n"
    )
    assert "if x.is_npu:" in migrated(code).text
