"""Find the lines whose tensor shapes vary, by watching the training and evaluation loops.

On an NPU a new shape can mean a new kernel to compile.  `npu-migrate --select shape-detector` wraps what such loops
run over in `shapes.watch(...)`; run the program as usual, on any device, and read the report that it writes:
which lines see how many shapes, and what to do about each.  `npu-migrate --select shape-detector --remove` takes
the hooks out again, byte for byte.

Loops are found by what they run over, a DataLoader or a name that holds one, also inside enumerate, tqdm and zip, and
by what they do: backward() or the step of an optimizer.
"""

import re

import libcst as cst

from migrator.names import Reference, dotted
from migrator.rule import INFO, SAFE, Edit, Example, FileMatch, Fix, Report, Rule
from migrator.statements import drop_imported

rule = Rule(
    id="NPU702",
    name="shape-detector",
    title="loops whose shapes vary make an NPU compile again and again",
    applicability=SAFE,
    tags=("diagnose",),
    severity=INFO,
    default=False,
    docs="https://github.com/Ascend/pytorch",
    examples=[
        Example(
            "import torch\nfor i, (x, y) in enumerate(tqdm(train_loader)):\n    net(x)\n",
            "from migrator import shapes\nimport torch\n"
            "for i, (x, y) in enumerate(tqdm(shapes.watch(train_loader))):\n    net(x)\n",
        ),
        Example(
            "import torch\ndata = DataLoader(ds)\nfor a, b in zip(data, other):\n    net(a, b)\n",
            "from migrator import shapes\nimport torch\ndata = DataLoader(ds)\n"
            "for a, b in zip(shapes.watch(data), other):\n    net(a, b)\n",
        ),
        Example(
            "import torch\nfor epoch in range(9):\n    for i in range(0, n, 32):\n        f(x[i]).backward()\n",
            "from migrator import shapes\nimport torch\nfor epoch in range(9):\n"
            "    for i in shapes.watch(range(0, n, 32)):\n        f(x[i]).backward()\n",
        ),
        Example(
            "import torch\nshapes = []\nfor x in self.loader():\n    shapes.append(x.shape)\n",
            "from migrator import shapes as npu_shapes\nimport torch\nshapes = []\n"
            "for x in npu_shapes.watch(self.loader()):\n    shapes.append(x.shape)\n",
        ),
        Example.reported("import torch\nwhile go():\n    net(next(it)).backward()\n", "a while loop"),
        Example.unchanged("import torch\nfor loader in loaders:\n    for i in range(len(loader)):\n        pass\n"),
    ],
)  # fmt: skip

WATCH = "migrator.shapes.watch"
LOADER = re.compile(r"loader(?!s$)", re.IGNORECASE)
NOT_INSIDE = frozenset({"len", "range", "next", "list", "sorted", "isinstance", "print"})
AROUND = frozenset({"enumerate", "tqdm", "trange", "zip", "iter", "islice", "track"})


# No identifiers: `train_loader` and `DataLoader` count as well.
ENDINGS = ("oader(", "oader)", "oader:", "oader,", "oader ", "oader\n", "oader\r", "oaders[")


@rule.on_file(*ENDINGS, ".backward(", ".step(")
def put_in(match: FileMatch) -> list[Fix | Report]:
    if "torch" not in match.file.source.text:
        return []
    name, imported = _module_name(match)
    found: list[Fix | Report] = []
    watched: set[cst.CSTNode] = set()
    for loop in match.file.tree.all(cst.For):
        if loop.asynchronous is not None or _is_watched(match, loop):
            watched.add(loop)
        elif (iterable := _loader_in(match, loop.iter)) is not None:
            watched.add(loop)
            found.append(_hook(match, loop, iterable, name, imported))
    for loop in dict.fromkeys(_training_loops(match)):
        if isinstance(loop, cst.While):
            found.append(_reported(loop))
        elif loop not in watched and not watched.intersection(_loops_around(match, loop)):
            watched.add(loop)
            iterable = _innermost(loop.iter)
            if not isinstance(iterable, cst.Tuple) or iterable.lpar:
                found.append(_hook(match, loop, iterable, name, imported))
    return found


@rule.on_remove("migrator")
def take_out(match: FileMatch) -> list[Fix | Report]:
    file, text = match.file, match.file.source.text
    found: list[Fix | Report] = []
    aliases: dict[cst.CSTNode, list[Reference]] = {}
    for reference in file.names.references:
        if reference.qualified.startswith("migrator.shapes") and reference.binding is not None:
            aliases.setdefault(reference.binding.node, []).append(reference)
    for alias, references in aliases.items():
        calls = [file.tree.parents[reference.node] for reference in references if reference.qualified == WATCH]
        edits = []
        for call in calls:
            if isinstance(call, cst.Call) and len(call.args) == 1:
                start, end = file.tree.span(call)
                inside = text.index("(", file.tree.span(call.func)[1]) + 1
                edits += [Edit(start, inside, ""), Edit(end - 1, end, "")]
        if len(edits) < 2 * len(references):
            found.append(Report("the import of migrator.shapes stays: it is used for more", "Take it out by hand."))
        else:
            edits += drop_imported(file, [alias])
        found.append(Fix(edits, "shapes.watch(…) taken out", needs=None, node=alias))
    return found


def _hook(match: FileMatch, loop: cst.For, iterable: cst.BaseExpression, name: str, imported: list[Edit]) -> Fix:
    edits = [match.insert_before(iterable, f"{name}.watch("), match.insert_after(iterable, ")"), *imported]
    return Fix(
        edits, f"watches the shapes in the loop over {match.file.tree.text(iterable)}", needs=None, node=loop.iter
    )


def _reported(loop: cst.While) -> Report:
    return Report(
        "a while loop trains here: it runs over nothing that could be watched",
        "For the diagnosis, write it as `for _ in shapes.watch(itertools.count()):` with a break.",
        node=loop.test,
    )


def _module_name(match: FileMatch) -> tuple[str, list[Edit]]:
    """The name of the shapes module in this file, and the edit that imports it where it is not yet."""
    for binding in match.file.names.import_bindings:
        if binding.qualified == "migrator.shapes":
            return binding.name, []
    taken = any(node.value == "shapes" for node in match.file.tree.all(cst.Name))
    name, newline = ("npu_shapes" if taken else "shapes"), match.file.source.newline
    body = list(match.node.body)
    first = body[1] if match.node.get_docstring() is not None and len(body) > 1 else body[0]
    statement = next((s for s in body if _is_import(s)), first)
    start, _ = match.file.tree.span((getattr(statement, "decorators", None) or [statement])[0])
    text = f"from migrator import shapes{' as npu_shapes' if taken else ''}{newline}"
    # Not a plain insertion: an import of torch_npu may go to the same place.
    return name, [Edit(start, start + 1, text + match.file.source.text[start])]


def _is_import(statement: cst.CSTNode) -> bool:
    first = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    future = isinstance(first, cst.ImportFrom) and dotted(first.module) == "__future__"
    return isinstance(first, (cst.Import, cst.ImportFrom)) and not future


def _is_watched(match: FileMatch, loop: cst.For) -> bool:
    calls = [call for call in match.file.tree.all(cst.Call) if match.file.names.resolve(call.func) == WATCH]
    return any(call is loop.iter or loop.iter in match.file.tree.ancestors(call) for call in calls)


def _loader_in(match: FileMatch, node: cst.BaseExpression, depth: int = 0) -> cst.BaseExpression | None:
    """The part of an expression that is a data loader."""
    if depth > 4:
        return None
    if LOADER.search(_last_name(node)):
        return node
    if isinstance(node, cst.Subscript) and "loader" in _last_name(node.value).lower():
        return node
    if isinstance(node, cst.Call) and _last_name(node) not in NOT_INSIDE:
        arguments = (arg.value for arg in node.args if not arg.star)
        return next((found for arg in arguments if (found := _loader_in(match, arg, depth + 1)) is not None), None)
    if isinstance(node, cst.Name):
        values = [binding.value for binding in match.file.names.bindings_of(node)]
        if len(values) == 1 and values[0] is not None and _loader_in(match, values[0], depth + 1) is not None:
            return node
    return None


def _last_name(node: cst.CSTNode) -> str:
    if isinstance(node, cst.Call):
        return _last_name(node.func)
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


def _innermost(node: cst.BaseExpression) -> cst.BaseExpression:
    """What `enumerate(tqdm(x))` runs over."""
    while isinstance(node, cst.Call) and node.args and not node.args[0].star and _last_name(node) in AROUND:
        node = node.args[0].value
    return node


def _training_loops(match: FileMatch) -> list[cst.For | cst.While]:
    """The innermost loop around each backward() and each step() of an optimizer."""
    found = []
    for call in match.file.tree.all(cst.Call):
        if isinstance(call.func, cst.Attribute) and _trains(call.func):
            found += _loops_around(match, call)[:1]
    return found


def _trains(method: cst.Attribute) -> bool:
    receiver = _last_name(method.value).lower()
    return method.attr.value == "backward" or (method.attr.value == "step" and receiver.startswith("opt"))


def _loops_around(match: FileMatch, node: cst.CSTNode) -> list[cst.For | cst.While]:
    """The loops around a node in its function, innermost first."""
    found: list[cst.For | cst.While] = []
    for parent in match.file.tree.ancestors(node):
        if isinstance(parent, (cst.FunctionDef, cst.Lambda)):
            break
        if isinstance(parent, (cst.For, cst.While)):
            found.append(parent)
    return found
