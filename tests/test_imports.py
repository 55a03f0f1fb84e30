"""Where `import torch_npu` goes."""

from __future__ import annotations

import pytest

PLACES = {
    "behind the first torch import": (
        "import os\nimport torch\nimport torch.nn as nn\nx = y.cuda()\n",
        "import os\nimport torch\nimport torch_npu\nimport torch.nn as nn\nx = y.npu()\n",
    ),
    "behind a from-import": (
        "from torch import nn  # layers\nx = y.cuda()\n",
        "from torch import nn  # layers\nimport torch_npu\nx = y.npu()\n",
    ),
    "behind several lines": (
        "from torch import (\n    nn,\n    optim,\n)\nx = y.cuda()\n",
        "from torch import (\n    nn,\n    optim,\n)\nimport torch_npu\nx = y.npu()\n",
    ),
    "behind the whole try": (
        "try:\n    import torch\nexcept ImportError:\n    torch = None\nelse:\n    ok = True\n# note\nx = y.cuda()\n",
        "try:\n    import torch\nexcept ImportError:\n    torch = None\nelse:\n    ok = True\nimport torch_npu\n# note\nx = y.npu()\n",
    ),
    "inside an if": (
        "if has_torch():\n    import torch\nx = y.cuda()\n",
        "if has_torch():\n    import torch\n    import torch_npu\nx = y.npu()\n",
    ),
    "never inside TYPE_CHECKING": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nx = y.cuda()\n",
        "from typing import TYPE_CHECKING\nimport torch_npu\nif TYPE_CHECKING:\n    import torch\nx = y.npu()\n",
    ),
    "inside the function that imports torch": (
        "def f():\n    import torch\n    return torch.cuda.device_count()\n\n\ndef g():\n    return 1\n",
        "def f():\n    import torch\n    import torch_npu\n    return torch.npu.device_count()\n\n\ndef g():\n    return 1\n",
    ),
    "below the docstring and __future__": (
        '#!/usr/bin/env python\n# Licence.\n"""Doc."""\nfrom __future__ import annotations\nx = y.cuda()\n',
        '#!/usr/bin/env python\n# Licence.\n"""Doc."""\nfrom __future__ import annotations\nimport torch_npu\nx = y.npu()\n',
    ),
    "at the top": ("x = y.cuda()\n", "import torch_npu\n\nx = y.npu()\n"),
    "below a licence": ("# Licence.\n\nx = y.cuda()\n", "# Licence.\n\nimport torch_npu\n\nx = y.npu()\n"),
    "below a licence that touches the code": (
        "#!/usr/bin/env python\n# Licence.\nx = y.cuda()\n",
        "#!/usr/bin/env python\n# Licence.\n\nimport torch_npu\n\nx = y.npu()\n",
    ),
    "above the first statement's comment": (
        "# Licence.\n\n# The input.\n# It is large.\nx = y.cuda()\n",
        "# Licence.\n\nimport torch_npu\n\n# The input.\n# It is large.\nx = y.npu()\n",
    ),
    "below a docstring, away from what follows": (
        '"""Doc."""\n# The input.\nx = y.cuda()\n',
        '"""Doc."""\n\nimport torch_npu\n\n# The input.\nx = y.npu()\n',
    ),
    "below a docstring with blank lines behind it": (
        '"""Doc."""\n\n\ndef f(x):\n    return x.cuda()\n',
        '"""Doc."""\n\nimport torch_npu\n\n\ndef f(x):\n    return x.npu()\n',
    ),
    "below a docstring, with other newlines": (
        '"""Doc."""\r\nx = y.cuda()\r\n',
        '"""Doc."""\r\n\r\nimport torch_npu\r\n\r\nx = y.npu()\r\n',
    ),
    "behind the imports that a file begins with": (
        '"""Doc."""\n\nimport cv2\nfrom nets import (\n    net,\n)\n\n# Late on purpose.\npatch()\nimport late\nx = y.cuda()\n',
        '"""Doc."""\n\nimport cv2\nfrom nets import (\n    net,\n)\nimport torch_npu\n\n'
        "# Late on purpose.\npatch()\nimport late\nx = y.npu()\n",
    ),
    "nothing where it is imported": (
        "import torch_npu\nimport torch\nx = y.cuda()\n",
        "import torch_npu\nimport torch\nx = y.npu()\n",
    ),
    "nothing where a submodule is imported": (
        "import torch\nimport torch_npu.optim\nx = y.cuda()\n",
        "import torch\nimport torch_npu.optim\nx = y.npu()\n",
    ),
    "nothing where it is imported in a try": (
        "import torch\ntry:\n    import torch_npu\nexcept ImportError:\n    pass\nx = y.cuda()\n",
        "import torch\ntry:\n    import torch_npu\nexcept ImportError:\n    pass\nx = y.npu()\n",
    ),
    "a string alone needs none": ("device = 'cuda:0'\n", "device = 'npu:0'\n"),
    "on a line with others": (
        "import os; import torch; import sys\nx = y.cuda()\n",
        "import os; import torch; import sys\nimport torch_npu\nx = y.npu()\n",
    ),
    "in a suite on one line": (
        "if a: import torch\nx = y.cuda()\n",
        "if a: import torch; import torch_npu\nx = y.npu()\n",
    ),
    "at the end of a file without newline": ("y.cuda\nimport torch", "y.npu\nimport torch\nimport torch_npu"),
    "with the file's own newlines": (
        "import torch\r\nx = y.cuda()\r\n",
        "import torch\r\nimport torch_npu\r\nx = y.npu()\r\n",
    ),
    "with tabs": (
        "def f():\n\tif a:\n\t\timport torch\n\t\treturn torch.cuda.device_count()\n",
        "def f():\n\tif a:\n\t\timport torch\n\t\timport torch_npu\n\t\treturn torch.npu.device_count()\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), PLACES.values(), ids=PLACES)
def test_place(migrated, before, after):
    outcome = migrated(before, select=("core",))
    assert outcome.text == after
    assert migrated(after, select=("core",)).result.after is None


STATEMENTS = {
    "alias": ("import torch.cuda as tc\ntc.init()\n", "import torch_npu.npu as tc\ntc.init()\n"),
    "submodule alias": (
        "import torch\nimport torch.cuda.amp as amp\nwith amp.autocast():\n    pass\n",
        "import torch\nimport torch_npu\nimport torch_npu.npu.amp as amp\nwith amp.autocast():\n    pass\n",
    ),
    "name that differs": (
        "from torch.cuda import CUDAGraph\ng = CUDAGraph()\n",
        "from torch_npu.npu import NPUGraph\ng = NPUGraph()\n",
    ),
    "kept alias": (
        "from torch.cuda import CUDAGraph as G\ng = G()\n",
        "from torch_npu.npu import NPUGraph as G\ng = G()\n",
    ),
    "name that is taken": (
        "from torch import cuda\nnpu = 1\ncuda.init()\n",
        "from torch_npu import npu as cuda\nnpu = 1\ncuda.init()\n",
    ),
    "split off": (
        "from torch import nn, cuda, optim\ncuda.init()\n",
        "from torch import nn, optim\nfrom torch_npu import npu\nnpu.init()\n",
    ),
    "split off the last": (
        "from torch import (\n    nn,\n    cuda,\n)\ncuda.init()\n",
        "from torch import (\n    nn,\n)\nfrom torch_npu import npu\nnpu.init()\n",
    ),
    "inside a function": (
        "def f():\n    from torch.cuda import Stream, nccl\n    return Stream(), nccl.version()\n",
        "def f():\n    from torch.cuda import nccl\n    from torch_npu.npu import Stream\n"
        "    return Stream(), nccl.version()\n",
    ),
    "guarded": (
        "try:\n    from torch.cuda.amp import autocast\nexcept ImportError:\n    autocast = None\nx = autocast()\n",
        "try:\n    from torch_npu.npu.amp import autocast\nexcept ImportError:\n    autocast = None\nx = autocast()\n",
    ),
    "alias by assignment": (
        "import torch\ntc = torch.cuda\ntc.synchronize()\ng = tc.CUDAGraph()\n",
        "import torch\nimport torch_npu\ntc = torch.npu\ntc.synchronize()\ng = tc.NPUGraph()\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), STATEMENTS.values(), ids=STATEMENTS)
def test_import_statement(migrated, before, after):
    outcome = migrated(before, select=("core",))
    assert outcome.text == after
    assert migrated(after, select=("core",)).result.after is None


def test_uses_that_can_move_are_spelled_out_where_the_import_stays(migrated):
    code = "import torch.cuda as tc\ntc.nccl.version()\ntc.synchronize()\n"
    outcome = migrated(code)
    assert "import torch.cuda as tc\n" in outcome.text
    assert "tc.nccl.version()\ntorch_npu.npu.synchronize()\n" in outcome.text
    assert outcome.left_on(1) and outcome.left_on(2)


def test_name_that_another_file_imports_keeps_its_local_name(migrated):
    files = {"b.py": "from a import CUDAGraph\ng = CUDAGraph()\n"}
    text = migrated("from torch.cuda import CUDAGraph\n", path="a.py", files=files).text
    assert text.startswith("from torch_npu.npu import NPUGraph as CUDAGraph\n")


def test_re_exported_scaler_is_recognised(migrated):
    files = {"pkg/amp.py": "from torch.cuda.amp import GradScaler\n"}
    code = "from .amp import GradScaler\ns = GradScaler(1.0, 2.0, 0.5, 2000, use)\n"
    assert "GradScaler(1.0, 2.0, 0.5, 2000, enabled=use)" in migrated(code, path="pkg/train.py", files=files).text
