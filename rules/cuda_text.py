"""Names of torch.cuda inside strings.

`x.type("torch.cuda.FloatTensor")`, `x.type() == "torch.cuda.HalfTensor"`, `mock.patch("torch.cuda.is_available")`,
`getattr(torch, "cuda")`, `getattr(x, "is_cuda", False)`, a type in quotes: the string is code, and changes like
the name that it spells.  Longer pieces of code in a string, for `exec` or `timeit`, are reported.
"""

import ast
import re
import textwrap
import warnings

import libcst as cst

from migrator.moves import destination, importable, move_of
from migrator.rule import SAFE, Example, Fix, Report, Role, Rule, Text
from migrator.statements import attribute_lookup
from migrator.texts import is_annotation

rule = Rule(
    id="NPU107",
    name="cuda-text",
    title="strings that spell torch.cuda names are code too",
    applicability=SAFE,
    tags=("core",),
    examples=[
        Example(
            "import torch\nimport torch_npu\nx = x.type('torch.cuda.FloatTensor')\n",
            "import torch\nimport torch_npu\nx = x.type('torch.npu.FloatTensor')\n",
        ),
        Example(
            "import torch\nimport torch_npu\nm = getattr(torch, 'cuda')\nok = getattr(x, 'is_cuda', False)\n",
            "import torch\nimport torch_npu\nm = getattr(torch, 'npu')\nok = getattr(x, 'is_npu', False)\n",
        ),
        Example(
            "import torch\nimport torch_npu\ndef f(s: 'torch.cuda.Stream | None'): ...\n",
            "import torch\nimport torch_npu\ndef f(s: 'torch.npu.Stream | None'): ...\n",
        ),
        Example.reported("x = 'torch.cuda.nccl.version'\n", "torch.cuda.nccl.version"),
        Example.reported("exec('import torch; torch.cuda.synchronize()')\n", "holds code"),
        Example.unchanged("print('torch.cuda.FloatTensor')\nstates['torch.cuda'] = 1\n"),
    ],
)

DOTTED = re.compile(r"torch\.cuda(\.\w+)*")
NAME = re.compile(r"(?<![\w.])([^\W\d]\w*)((?:\.\w+)+)")


@rule.on_string("cuda")
def rename_in_text(match: Text) -> Fix | list[Report] | Report | None:
    if match.is_bytes:
        return None
    if is_annotation(match.file, match.node):
        return _annotation(match)
    if DOTTED.fullmatch(match.value):
        return _dotted(match)
    npu, target = match.file.target.device, match.file.target
    receiver = attribute_lookup(match)
    if receiver == "torch" and match.value == "cuda":
        return Fix(match.replace_words("cuda", npu), f"torch.cuda → {target.module}")
    if receiver == "" and match.value in ("cuda", "is_cuda"):
        return Fix(match.replace_words("cuda", npu), f"{match.value} → {match.value.replace('cuda', npu)}")
    if _is_code(match.value) and match.role("device").role is not Role.WORDS:
        return Report("a string holds code that uses CUDA", "Change the code in the string by hand.")
    return None


def _dotted(match: Text) -> Fix | Report | None:
    role = match.role("device").role
    if role is Role.WORDS or (role is Role.KEY and not match.value.endswith("Tensor") and not _is_module_key(match)):
        return None
    new = destination(match.value, match.file.target)
    if new is None:
        return _no_counterpart(match, match.value)
    new = new if "Tensor" in new else importable(new) if match.value.count(".") > 1 else new
    return Fix(match.replace_words(re.escape(match.value), new), f"{match.value} → {new}", needs=())


def _no_counterpart(match: Text, qualified: str) -> Report:
    row = match.file.target.mapping_for(qualified)
    remedy = row.remedy if row and row.remedy else "Name something else here."
    return Report(f"{qualified} has no counterpart in torch_npu {match.file.target.torch_npu}", remedy)


def _is_module_key(match: Text) -> bool:
    """Whether the string is looked up in sys.modules."""
    subscript = match.file.tree.enclosing(match.node, cst.Subscript)
    return subscript is not None and match.file.names.resolve(subscript.value) == "sys.modules"


def _annotation(match: Text) -> Fix | list[Report] | None:
    """A type in quotes: each name in it means what it means in the module."""
    names, edits, reports = match.file.names, [], []
    for root, rest in dict.fromkeys(NAME.findall(match.value)):
        bound = names.spelled(root)
        meaning = bound[0] if bound else root
        qualified = names.canonical(meaning + rest)
        if not DOTTED.fullmatch(qualified):
            continue
        new = destination(qualified, match.file.target)
        if new is None:
            reports.append(_no_counterpart(match, qualified))
            continue
        move = move_of(match.file, bound[1]) if bound else None
        moved = move.qualified if move else meaning
        spelled = root + new[len(moved) :] if new.startswith(moved + ".") else importable(new)
        if spelled != root + rest:
            edits += match.replace_words(rf"(?<![\w.]){re.escape(root + rest)}(?![\w.])", spelled)
    return Fix(edits, match.change(edits), needs=()) if edits else reports or None


def _is_code(text: str) -> bool:
    """Whether a text is Python that reads torch.cuda or calls `.cuda()`."""
    if "torch.cuda" not in text and ".cuda(" not in text:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    first = tree.body[0] if tree.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Compare):
        return False  # English: "torch.cuda is not available"
    nodes = list(ast.walk(tree))
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "cuda"
        and (node in called or (isinstance(node.value, ast.Name) and node.value.id == "torch"))
        for node in nodes
    )
