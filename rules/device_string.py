"""Name the NPU in device strings.

`"cuda"`, `"cuda:0"`, `f"cuda:{rank}"`, `"cuda:%d" % i`, `"cuda:" + str(i)` …: literals, f-strings, defaults,
choices, comparisons.  A string counts as a device by where its value goes (an argument that torch types as a
device, a variable or option that reaches one, a comparison with `device.type`), not by its spelling: log
messages, docstrings, paths, dictionary keys and option names stay.

A comparison that guards CUDA-only machinery (a Triton kernel, a compiled CUDA plugin, cuDNN) keeps its
`cuda`, since the NPU must not go down that path, and is reported.  A plain "cuda" whose use cannot be followed
is reported, and changed with `--unsafe`.
"""

import re

import libcst as cst

from migrator.rule import INFO, SAFE, UNSAFE, Example, Fix, Report, Role, Rule, Text

rule = Rule(
    id="NPU101",
    name="device-string",
    title="the NPU's device strings are npu, npu:0, …",
    applicability=SAFE,
    tags=("core", "device"),
    examples=[
        Example(
            'import torch\nimport torch_npu\nx = torch.ones(2, device=f"cuda:{i}")\n',
            'import torch\nimport torch_npu\nx = torch.ones(2, device=f"npu:{i}")\n',
        ),
        Example(
            'device = "cuda" if ok else "cpu"\nif device == "cuda":\n    pass\n',
            'device = "npu" if ok else "cpu"\nif device == "npu":\n    pass\n',
        ),
        Example("p.add_argument('--device', default='cuda:0', choices=['cpu', 'cuda:0'], help='cuda or cpu')\n",
                "p.add_argument('--device', default='npu:0', choices=['cpu', 'npu:0'], help='cuda or cpu')\n"),
        Example("model.load(map_location='cuda:%d' % rank)\n", "model.load(map_location='npu:%d' % rank)\n"),
        Example("dev = ':'.join(['cuda', str(i)])\n", "dev = ':'.join(['npu', str(i)])\n"),
        Example("if str(x.device).startswith('cuda'):\n    pass\n", "if str(x.device).startswith('npu'):\n    pass\n"),
        Example(
            "def f(where='cuda'):\n    return t.to(where)\n", "def f(where='npu'):\n    return t.to(where)\n"
        ),
        Example.unchanged("log.info('running on cuda')\ncounts['cuda'] = open('cuda.bin')\nprint('cuda')\n"),
        Example.reported("backends = {'cpu': 'gloo', 'cuda': 'own'}\n", "a key beside 'cpu'"),
        Example.reported("start('cuda')\n", "'cuda' may be a device"),
        Example.reported(
            "import triton\nif x.device.type == 'cuda':\n    y = triton.cdiv(n, 2)\n", "guards triton"
        ),
    ],
)  # fmt: skip

DEVICE = re.compile(r"cuda(:[\w{}%\[\].,()$ -]*)?")


@rule.on_string("cuda")
def name_the_npu(match: Text) -> Fix | Report | None:
    if match.is_bytes or not DEVICE.fullmatch(match.value):
        return None
    verdict = match.role("device")
    npu = match.file.target.device
    if verdict.role is Role.KEY:
        return _key(match, npu)
    if verdict.role in (Role.WORDS, Role.NAME):
        return None
    if verdict.test is not None and match.guarded:
        return Report(
            f"{match.text} stays: {match.guarded}",
            f"The NPU must not take this path. Write a branch for {npu!r}, or let it fall through to the plain one.",
        )
    edits = match.replace_words(r"cuda(?=:|$)", npu) if match.value != "cuda" else match.replace_words("cuda", npu)
    if not edits:
        return Report("the device string is put together from pieces", f"Write {npu!r} in one piece.")
    sure = verdict.is_sink or (match.value.startswith("cuda:") and verdict.role is Role.UNKNOWN)
    if sure:
        return Fix(edits, f"{match.change(edits)}: {verdict.why}", needs=())
    return Fix(
        edits[:1],
        f"{match.text} may be a device: {verdict.why}",
        f"If it is one, write {npu!r}, or run again with --unsafe; else say so with an ignore comment.",
        UNSAFE,
        severity=INFO if verdict.role is Role.COMPARED else None,
        needs=(),
    )


def _key(match: Text, npu: str) -> Report | None:
    """A key of a dictionary by types of devices: what is looked up by that of an NPU is not there."""
    parent = match.parent()
    whole = match.file.tree.parents[parent] if isinstance(parent, cst.DictElement) and parent.key is match.node else None
    keys = [e.key for e in whole.elements if isinstance(e, cst.DictElement)] if isinstance(whole, cst.Dict) else []
    names = {key.evaluated_value for key in keys if isinstance(key, cst.SimpleString)}
    if "cpu" not in names or npu in names:
        return None
    return Report(
        f"{match.text} is a key beside 'cpu' and stays: a look-up by the type of a device finds nothing for {npu!r}",
        f"Where the keys are types of devices, add an entry {npu!r}.",
    )
