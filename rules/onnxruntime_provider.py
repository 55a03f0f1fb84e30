"""Run ONNX models on the NPU.

onnxruntime reaches an NPU through its CANN execution provider, which is part of the package onnxruntime-cann; the
package onnxruntime-gpu is built for CUDA and has none.  A provider that is not there is passed over with a warning,
and the model runs on the CPU: many times slower, without an error.

The provider's name changes, and so do the device type of an IOBinding or OrtValue ("cann") and the option
`gpu_mem_limit`.  Other options of the CUDA provider are refused by this one and are left for a person.
"""

import re

import libcst as cst

from migrator.rule import (
    INFO,
    SAFE,
    UNSAFE,
    Call,
    Example,
    Fix,
    Match,
    Method,
    Name,
    Report,
    Role,
    Rule,
    Text,
)

CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"

rule = Rule(
    id="NPU811",
    name="onnxruntime-provider",
    title="onnxruntime has another provider and another package for NPUs",
    applicability=SAFE,
    tags=("third-party",),
    docs="https://onnxruntime.ai/docs/execution-providers/community-maintained/CANN-ExecutionProvider.html",
    examples=[
        Example(
            'import onnxruntime\ns = onnxruntime.InferenceSession(f, providers=["CUDAExecutionProvider"])\n',
            'import onnxruntime\ns = onnxruntime.InferenceSession(f, providers=["CANNExecutionProvider"])\n',
        ),
        Example(
            'p = [("CUDAExecutionProvider", {"device_id": 0, "gpu_mem_limit": 2 << 30}), "CPUExecutionProvider"]\n',
            'p = [("CANNExecutionProvider", {"device_id": 0, "npu_mem_limit": 2 << 30}), "CPUExecutionProvider"]\n',
        ),
        Example(
            'import onnxruntime\nio.bind_input("x", "cuda", 0, t, s, p)\nio.bind_output("y", device_type="cuda")\n',
            'import onnxruntime\nio.bind_input("x", "cann", 0, t, s, p)\nio.bind_output("y", device_type="cann")\n',
        ),
        Example.reported('need("onnxruntime-gpu" if cuda else "onnxruntime")\n', "is built for CUDA"),
        Example('need("onnxruntime-gpu")\n', 'need("onnxruntime-cann")\n', unsafe=True),
        Example.reported('need("onnxruntime-gpu==1.18.0")\n', "is built for CUDA"),
        Example.reported(
            'p = [("CUDAExecutionProvider", {"cudnn_conv_algo_search": "DEFAULT"})]\n', "cudnn_conv_algo_search"
        ),
        Example.reported('p = ["TensorrtExecutionProvider", "CPUExecutionProvider"]\n', "TensorrtExecutionProvider"),
        Example.unchanged('print("CUDAExecutionProvider")\np = ["CPUExecutionProvider"]\n'),
    ],
)

# Options of the CUDA provider → what CANN's calls them; it refuses all others.
OPTIONS = {"device_id": "device_id", "arena_extend_strategy": "arena_extend_strategy", "gpu_mem_limit": "npu_mem_limit"}
PACKAGE = re.compile(r"onnxruntime[-_]gpu\s*([\[=<>!~;@].*)?")
CANN = "cann"  # the device type, where torch says npu
BINDINGS = {"bind_input": 1, "bind_output": 1}  # method → where the device type stands among its arguments
VALUES = {"ortvalue_from_numpy": 1, "ortvalue_from_shape_and_type": 2}


@rule.on_string(CUDA)
def use_cann(match: Text) -> Fix | Report | None:
    row = match.file.target.mapping(f"pkg:onnxruntime {CUDA}")
    if row is None or row.npu is None or match.value != CUDA or match.role().role is Role.WORDS:
        return None
    options = _options(match)
    refused = ["options that are not written out here"] if options is None else sorted(options.keys() - OPTIONS)
    if options is None or refused:
        message = f"{match.text} is not there on an NPU, and {row.npu} may not take {', '.join(refused)}"
        return Report(message, row.remedy or "")
    renamed = [
        edit
        for name, key in options.items()
        if OPTIONS[name] != name
        for edit in Text(match.file, key, name).replace_words(name, OPTIONS[name])
    ]
    edits = match.replace_words(CUDA, row.npu)
    return Fix([*edits, *renamed], match.change(edits), row.remedy, needs=None)


def _options(match: Text) -> dict[str, cst.SimpleString] | None:
    """The options beside a provider, name → its literal; None: they cannot be seen."""
    element = match.parent()
    pair = match.file.tree.parents[element] if isinstance(element, cst.Element) else None
    if not isinstance(pair, cst.Tuple) or pair.elements[0] is not element or len(pair.elements) != 2:
        call = match.file.tree.enclosing(match.node, cst.Call, cst.BaseStatement)
        apart = isinstance(call, cst.Call) and "provider_options" in Call(match.file, call).keywords
        return None if apart else {}
    options = pair.elements[1].value
    if isinstance(options, cst.SimpleString):
        return {}  # two providers
    keys = [getattr(item, "key", None) for item in options.elements] if isinstance(options, cst.Dict) else [None]
    written = [key for key in keys if isinstance(key, cst.SimpleString)]
    return {str(key.evaluated_value): key for key in written} if len(written) == len(keys) else None


@rule.on_string(TENSORRT)
def without_tensorrt(match: Text) -> Report | None:
    row = match.file.target.mapping(f"pkg:onnxruntime {TENSORRT}")
    if row is None or match.value != TENSORRT or match.role().role is Role.WORDS:
        return None
    return Report(f"{match.text} is not there on an NPU", row.remedy or "", INFO)


@rule.on_string("onnxruntime-gpu", "onnxruntime_gpu")
def other_package(match: Text) -> Fix | Report | None:
    """The package in a list of requirements that the program checks or installs itself."""
    found = PACKAGE.fullmatch(match.value)
    if found is None or match.role().role is Role.WORDS:
        return None
    message = f"{match.text} is built for CUDA: NPUs have the package onnxruntime-cann"
    remedy = "Write onnxruntime-cann in a version that it has (1.20 and later), and install it in the other's place."
    if found[1]:
        return Report(message, remedy)
    return Fix(match.replace_words(re.escape(match.value), "onnxruntime-cann"), message, remedy, UNSAFE, needs=None)


@rule.on_method(*BINDINGS)
def bind(match: Method) -> Fix | Report | None:
    return _device_type(match, match.call, BINDINGS[match.attribute])


@rule.on_name(*(f"onnxruntime.OrtValue.{name}" for name in VALUES), words=tuple(VALUES))
def value(match: Name) -> Fix | Report | None:
    return _device_type(match, match.call, VALUES[match.qualified.rpartition(".")[2]])


def _device_type(match: Match, call: Call | None, place: int) -> Fix | Report | None:
    """`"cuda"` in the place of the device type; what is computed from a torch device says npu."""
    given = call.argument(place, "device_type") if call is not None else None
    if given is None or "onnxruntime" not in match.file.source.text:
        return None
    node = given.value
    if isinstance(node, cst.SimpleString):
        edits = Text(match.file, node, str(node.evaluated_value)).replace_words("^cuda$", CANN)
        if not edits:
            return None
        return Fix(
            edits, f"{Match(match.file, node).change(edits)}: onnxruntime calls the NPU so", needs=None, again=True
        )
    text = match.file.tree.text(node)
    if "device" not in text:
        return None
    return Report(f"onnxruntime calls the NPU {CANN}, torch npu: {text} must give the former", f'Pass "{CANN}".')
