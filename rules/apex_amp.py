"""Mixed precision with apex.

apex.amp cannot be installed without CUDA; torch's own autocast and GradScaler take its place.  One shape is
rewritten, with `--unsafe`: `amp.initialize(model, optimizer, opt_level="O1")`, `amp.scale_loss` around one
`backward()`, and `optimizer.step()`, all in one function, with nothing else of amp in the file.  The forward pass
then runs under autocast and the steps go through a GradScaler.  O2 keeps its weights in float16, clipping needs
`scaler.unscale_(optimizer)` first, and checkpoints hold another scaler state: those are reported.
"""

from collections.abc import Iterator

import libcst as cst

from migrator.names import Reference
from migrator.rule import ERROR, INFO, UNSAFE, Call, Edit, Example, FileMatch, Fix, Report, Rule, call_of
from migrator.statements import drop_imported, falls_back

LOOP = """import torch
from apex import amp
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in data:
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
"""

rule = Rule(
    id="NPU805",
    name="apex-amp",
    title="torch's autocast and GradScaler take the place of apex.amp",
    applicability=UNSAFE,
    tags=("third-party", "apex", "amp"),
    severity=ERROR,
    docs="https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    examples=[
        Example(
            LOOP,
            'import torch\nimport torch_npu\nscaler = torch.amp.GradScaler("npu")\n'
            'model.forward = torch.autocast("npu", dtype=torch.float16)(model.forward)\nfor x, y in data:\n'
            "    loss = criterion(model(x), y)\n    scaler.scale(loss).backward()\n"
            "    scaler.step(optimizer)\n    scaler.update()\n",
            unsafe=True,
        ),
        Example.reported(LOOP, "apex.amp → torch.autocast and GradScaler"),
        Example.reported(LOOP.replace("O1", "O2"), "apex.amp does not", "apex.amp.initialize", "apex.amp.scale_loss"),
        Example.reported("import apex\nm, o = apex.amp.initialize(m, o)\n", "apex.amp.initialize"),
        Example.reported("try:\n    from apex import amp\nexcept ImportError:\n    amp = None\n", "falls back"),
    ],
)  # fmt: skip

REVIEW = (
    "Review it: compute the loss under autocast too, unscale before you clip gradients, and save scaler.state_dict() "
    "with your checkpoints."
)
ROWS = ("apex.amp.initialize", "apex.amp.scale_loss")


class Refused(Exception):
    """The code does not have the shape that can be rewritten."""


@rule.on_file("apex")
def torch_amp(match: FileMatch) -> list[Fix | Report]:
    names = match.file.names
    uses = [use for use in names.references if (use.qualified + ".").startswith("apex.amp.")]
    imports = [b for b in names.import_bindings if (names.imported_name(b) + ".").startswith("apex.amp.")]
    try:
        edits = list(_rewritten(match, uses))
        if len(imports) != 1 or falls_back(match.file, imports[0].node):
            raise Refused
    except Refused:
        found = [_report(match, "apex.amp", binding.node) for binding in imports]
        needed = [use for use in uses if use.binding is not None and not falls_back(match.file, use.binding.node)]
        return [*found, *(_report(match, use.qualified, use.node) for use in needed if use.qualified in ROWS)]
    edits += drop_imported(match.file, [imports[0].node])
    return [Fix(edits, "apex.amp → torch.autocast and GradScaler", REVIEW, node=imports[0].node)]


def _report(match: FileMatch, name: str, node: cst.CSTNode) -> Report:
    row = match.file.target.mapping(f"pkg:{name}")
    remedy = (row.remedy if row else None) or ""
    if falls_back(match.file, node):
        return Report(f"{name} does not run on an NPU: the code falls back", remedy, INFO, node)
    return Report(f"{name} does not run on an NPU", remedy, node=node)


def _rewritten(match: FileMatch, uses: list[Reference]) -> Iterator[Edit]:
    """All edits of the one shape that is rewritten; raises Refused for any other."""
    tree = match.file.tree
    starts = [use for use in uses if use.qualified == ROWS[0]]
    scales = [use for use in uses if use.qualified == ROWS[1]]
    if len(starts) != 1 or not scales or len(uses) != len(scales) + 1:
        raise Refused
    scaler = match.file.names.unused("scaler")
    call = call_of(match.file, starts[0].node)
    line = _line_of(match, call.node) if call is not None else None
    if call is None or line is None:
        raise Refused
    model, optimizer = _initialized(match, call)
    npu, target = match.literal(match.file.target.device), match.file.target
    scalers = f"torch.amp.GradScaler({npu})" if target.at_least("2.3") else f"{target.module}.amp.GradScaler()"
    forward = f"{model}.forward = torch.autocast({npu}, dtype=torch.float16)({model}.forward)"
    yield match.replace(line, match.lines_like(line, [f"{scaler} = {scalers}", forward]))
    scope = tree.enclosing(line, cst.FunctionDef)
    for scale in scales:
        block, loss = _backward(match, scale, optimizer)
        if tree.enclosing(block, cst.FunctionDef) is not scope:
            raise Refused
        yield match.replace(block, f"{scaler}.scale({loss}).backward()")
    steps = [c for c in tree.all(cst.Call) if tree.text(c.func) == f"{optimizer}.step"]
    for step in steps:
        statement = _line_of(match, step)
        if statement is None or step.args or tree.enclosing(step, cst.FunctionDef) is not scope:
            raise Refused
        yield match.replace(
            statement, match.lines_like(statement, [f"{scaler}.step({optimizer})", f"{scaler}.update()"])
        )
    if not steps:
        raise Refused


def _initialized(match: FileMatch, call: Call) -> tuple[str, str]:
    """The names in `model, optimizer = amp.initialize(model, optimizer, opt_level="O1")`."""
    tree = match.file.tree
    assign = tree.parents.get(call.node)
    targets = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
    given = [tree.text(arg.value) for arg in call.positional]
    taken = [tree.text(e.value) for e in targets.elements] if isinstance(targets, cst.Tuple) else []
    level = call.keywords.get("opt_level")
    plain = len(given) == 2 and given == taken and all(name.isidentifier() for name in given)
    if not plain or set(call.keywords) - {"opt_level", "verbosity"} or call.has_star:
        raise Refused
    if level is not None and tree.text(level.value).strip("\"'") != "O1":
        raise Refused
    if not any(b.qualified == "torch" for b in match.file.names.module_scope.bindings.get("torch", [])):
        raise Refused
    return given[0], given[1]


def _backward(match: FileMatch, scale: Reference, optimizer: str) -> tuple[cst.With, str]:
    """`with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()`: the block and the loss."""
    tree, call = match.file.tree, call_of(match.file, scale.node)
    block = tree.enclosing(scale.node, cst.With)
    if call is None or block is None or len(block.items) != 1 or block.items[0].item is not call.node:
        raise Refused
    name = tree.text(block.items[0].asname.name) if block.items[0].asname else ""
    lines = [tree.text(line).strip() for line in block.body.body]
    given = [tree.text(arg.value) for arg in call.node.args]
    if len(given) != 2 or given[1] != optimizer or lines != [f"{name}.backward()"]:
        raise Refused
    return block, given[0]


def _line_of(match: FileMatch, call: cst.CSTNode) -> cst.CSTNode | None:
    """The statement that is this call, or assigns it, where it has a line of its own."""
    small = match.file.tree.parents.get(call)
    line = match.file.tree.parents.get(small) if isinstance(small, (cst.Expr, cst.Assign)) else None
    return small if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
