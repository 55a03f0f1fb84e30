"""Other frameworks in the same repository: PaddlePaddle and TensorFlow where they choose a GPU.

Both run on NPUs with a plug-in of their own, and know nothing of torch_npu.  Without it they find no GPU and run
on the CPU, or raise.  Code that imports them and names no GPU is left alone.
"""

import re

from migrator.rule import MANUAL, Example, Match, Method, Name, Report, Role, Rule, Text

rule = Rule(
    id="NPU812",
    name="other-frameworks",
    title="PaddlePaddle and TensorFlow need their own plug-ins for NPUs",
    applicability=MANUAL,
    tags=("third-party",),
    docs="https://github.com/PaddlePaddle/PaddleCustomDevice",
    examples=[
        Example.reported("import paddle\npaddle.device.set_device('gpu:0')\n", "paddle.device.set_device asks for"),
        Example.reported(
            "import paddle.inference as pdi\nconfig = pdi.Config(a, b)\nconfig.enable_use_gpu(2048, 0)\n",
            "config.enable_use_gpu asks",
        ),
        Example.reported("import paddle\nplace = paddle.CUDAPlace(0) if gpu else paddle.CPUPlace()\n", "CUDAPlace"),
        Example.reported("import paddle\npaddle.device.cuda.empty_cache()\n", "paddle.device.cuda.empty_cache"),
        Example.reported(
            "import tensorflow as tf\nfor gpu in tf.config.list_physical_devices('GPU'):\n    pass\n",
            "tensorflow.config.list_physical_devices",
        ),
        Example.reported("import tensorflow as tf\nwith tf.device('/GPU:0'):\n    pass\n", "tensorflow.device"),
        Example.reported("need('paddlepaddle-gpu' if cuda else 'paddlepaddle>=3.0.0')\n", "is built for CUDA"),
        Example.unchanged(
            "import paddle, tensorflow as tf\npaddle.set_device('cpu')\ntf.config.set_visible_devices([], 'GPU')\n"
        ),
    ],
)

# Names that are about a GPU, and those that are where an argument says so.
PADDLE = ("CUDAPlace", "CUDAPinnedPlace", "is_compiled_with_cuda", "device.is_compiled_with_cuda", "device.cuda.*")
PADDLE_TOLD = ("set_device", "device.set_device")
TENSORFLOW = ("test.is_gpu_available", "test.gpu_device_name", "test.is_built_with_cuda", "GPUOptions",
              "compat.v1.GPUOptions", "config.experimental.set_memory_growth")  # fmt: skip
TENSORFLOW_TOLD = ("device", "compat.v1.device", *(f"config.{part}{what}" for part in ("", "experimental.") for what in (
    "list_physical_devices", "list_logical_devices", "get_visible_devices", "set_visible_devices")))  # fmt: skip
PACKAGE = re.compile(r"(paddlepaddle|tensorflow)-gpu\s*([\[=<>!~;@].*)?")
GPU = re.compile(r"""["'/:](gpu|GPU)\b""")


@rule.on_name(*(f"paddle.{name}" for name in PADDLE), *(f"tensorflow.{name}" for name in TENSORFLOW))
def about_a_gpu(match: Name) -> Report | None:
    return _report(match, match.qualified)


@rule.on_name(*(f"paddle.{name}" for name in PADDLE_TOLD), *(f"tensorflow.{name}" for name in TENSORFLOW_TOLD))
def told_so(match: Name) -> Report | None:
    """A GPU among the arguments; an empty list before it hides all of them, which is right without one."""
    arguments = [match.file.tree.text(arg.value) for arg in match.call.node.args] if match.call is not None else []
    hidden = arguments[:1] == ["[]"]
    return _report(match, match.qualified) if not hidden and any(map(GPU.search, arguments)) else None


@rule.on_method("enable_use_gpu")
def inference(match: Method) -> Report | None:
    return _report(match, f"paddle: {match.text}") if match.call is not None else None


@rule.on_string("paddlepaddle-gpu", "tensorflow-gpu")
def package(match: Text) -> Report | None:
    """In a list of requirements that the program checks or installs itself."""
    if PACKAGE.fullmatch(match.value) is None or match.role().role is Role.WORDS:
        return None
    return _report(match, match.value, "is built for CUDA")


def _report(match: Match, name: str, why: str = "asks for a GPU") -> Report | None:
    row = match.file.target.mapping("pkg:tensorflow GPU" if name.startswith("tensorflow") else "pkg:paddle GPU")
    return Report(f"{name} {why}", row.remedy) if row is not None and row.remedy else None
