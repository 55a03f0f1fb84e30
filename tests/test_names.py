"""Which qualified name a name stands for; libcst's QualifiedNameProvider is the oracle on real files."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, QualifiedNameProvider, QualifiedNameSource

from migrator.names import Names, module_name
from migrator.source import decode
from migrator.tree import Tree

ROOT = Path(__file__).parent.parent
FILES = sorted([*(ROOT / "migrator").glob("*.py"), *(ROOT / "fixtures").glob("*/before/*.py")])[::3]

RESOLVED = {
    "plain": ("import torch\nX = torch.cuda.amp\n", "torch.cuda.amp"),
    "alias": ("import torch.cuda as tc\nX = tc.amp\n", "torch.cuda.amp"),
    "from": ("from torch import cuda\nX = cuda.amp\n", "torch.cuda.amp"),
    "from with alias": ("from torch.cuda import amp as a\nX = a.autocast\n", "torch.cuda.amp.autocast"),
    "assigned": ("import torch\ntc = torch.cuda\nX = tc.init\n", "torch.cuda.init"),
    "assigned twice over": ("import torch as t\na = t\nb = a.cuda\nX = b.init\n", "torch.cuda.init"),
    "tuple": ("import torch\na, b = torch.cuda, 1\nX = a.init\n", "torch.cuda.init"),
    "getattr": ("import torch\nc = getattr(torch, 'cuda')\nX = c.init\n", "torch.cuda.init"),
    "device module": ("import torch\nc = torch.get_device_module('cuda')\nX = c.init\n", "torch.cuda.init"),
    "import_module": ("import importlib\nc = importlib.import_module('torch.cuda')\nX = c.init\n", "torch.cuda.init"),
    "local import": ("def f():\n    import torch\n    X = torch.cuda\n", "torch.cuda"),
    "guarded": ("try:\n    import torch\nexcept ImportError:\n    torch = None\nX = torch.cuda\n", "torch.cuda"),
    "guarded stub": (
        "try:\n    from torch.cuda.amp import autocast\nexcept ImportError:\n    def autocast(): ...\nX = autocast\n",
        "torch.cuda.amp.autocast",
    ),
    "star": ("from torch.cuda import *\nX = synchronize\n", "torch.cuda.synchronize"),
    "nested function sees the module": ("import torch\ndef f():\n    def g():\n        X = torch.cuda\n", "torch.cuda"),
    "method skips the class": (
        "import torch\nclass C:\n    torch = 1\n    def f(self):\n        X = torch.cuda\n",
        "torch.cuda",
    ),
    "global": ("import torch\ndef f():\n    global torch\n    X = torch.cuda\n", "torch.cuda"),
    "default argument": ("import torch\ndef f(torch=torch.cuda):\n    pass\nX = torch.cuda\n", "torch.cuda"),
}
UNRESOLVED = {
    "parameter": "import torch\ndef f(torch):\n    X = torch.cuda\n",
    "local variable": "import torch\ndef f():\n    torch = g()\n    X = torch.cuda\n",
    "rebound": "import torch\ntorch = g()\nX = torch.cuda\n",
    "loop variable": "import torch\nfor torch in y:\n    X = torch.cuda\n",
    "lambda": "import torch\nX = lambda torch: torch.cuda\n",
    "comprehension": "import torch\nX = [torch.cuda for torch in y]\n",
    "with": "import torch\nwith a as torch:\n    X = torch.cuda\n",
    "class": "class torch:\n    pass\nX = torch.cuda\n",
    "two packages": "if a:\n    from apex import amp\nelse:\n    from torch.cuda import amp\nX = amp\n",
    "not imported": "X = torch.cuda\n",
    "circle": "a = b\nb = a\nX = a.cuda\n",
    "star of the unknown": "from somewhere import *\nX = synchronize\n",
}


def value_of_x(code: str, **kw) -> tuple[Names, cst.BaseExpression]:
    from migrator.context import star_names

    tree = Tree(decode(code.encode()))
    assigned = [a.value for a in tree.all(cst.Assign) if getattr(a.targets[0].target, "value", None) == "X"]
    value = assigned[-1]
    if isinstance(value, cst.Lambda):
        value = value.body
    if isinstance(value, cst.ListComp):
        value = value.elt
    return Names(tree, star_names=star_names, **kw), value


@pytest.mark.parametrize(("code", "expected"), RESOLVED.values(), ids=RESOLVED)
def test_resolved(code, expected):
    names, value = value_of_x(code)
    assert names.resolve(value) == expected
    assert expected in [reference.qualified for reference in names.references] or "getattr" in code or "(" in code


@pytest.mark.parametrize("code", UNRESOLVED.values(), ids=UNRESOLVED)
def test_unresolved(code):
    names, value = value_of_x(code)
    assert names.resolve(value) is None


@pytest.mark.parametrize(
    ("path", "code", "expected"),
    [
        ("pkg/sub/mod.py", "from . import amp\nX = amp\n", "pkg.sub.amp"),
        ("pkg/sub/mod.py", "from ..amp import autocast\nX = autocast\n", "pkg.amp.autocast"),
        ("pkg/sub/__init__.py", "from .amp import autocast\nX = autocast\n", "pkg.sub.amp.autocast"),
        ("mod.py", "from .amp import autocast\nX = autocast\n", "amp.autocast"),
    ],
)
def test_relative_imports(path, code, expected):
    names, value = value_of_x(code, path=path)
    assert names.resolve(value) == expected


def test_module_name():
    assert module_name("a/b.py") == "a.b"
    assert module_name("a/__init__.py") == "a"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.name}")
def test_agrees_with_the_oracle(path):
    tree = Tree(decode(path.read_bytes()))
    oracle = MetadataWrapper(tree.module, unsafe_skip_copy=True).resolve(QualifiedNameProvider)
    names = Names(tree)
    for reference in names.references:
        if reference.binding is None or not reference.binding.is_import:
            continue  # aliases by assignment: the oracle does not follow them
        found = oracle.get(reference.node, set())
        found = found() if callable(found) else found
        imported = {q.name for q in found if q.source is QualifiedNameSource.IMPORT}
        if imported:
            assert reference.qualified.lstrip(".") in {name.lstrip(".") for name in imported}
    ours = {reference.root for reference in names.references}
    for node in tree.all(cst.Name):
        found = oracle.get(node, set())
        found = found() if callable(found) else found
        sources = {q.source for q in found}
        if (
            names.is_use(node)
            and sources == {QualifiedNameSource.IMPORT}
            and len(found) == 1
            and names.bindings_of(node)
        ):
            assert node in ours, tree.source.position(tree.span(node)[0])


def test_uses_of_a_binding():
    tree = Tree(decode(b"from torch import cuda\ncuda.init()\n\n\ndef f(cuda):\n    cuda.x()\n\n\ncuda.seed()\n"))
    names = Names(tree)
    binding = names.module_scope.bindings["cuda"][0]
    assert [use.qualified for use in names.uses(binding)] == ["torch.cuda.init", "torch.cuda.seed"]
