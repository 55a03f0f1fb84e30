"""Native handles of streams and events.

torch.npu.Stream has `npu_stream` where torch.cuda.Stream has `cuda_stream`, and Event `npu_event` for
`cuda_event`.  The handle is an ACL object: code that passes it to a CUDA library does not work with it, which
is why each place is worth a look.
"""

from migrator.rule import SAFE, Example, Fix, Method, Rule
from migrator.statements import is_stored

rule = Rule(
    id="NPU401",
    name="stream-handle",
    title="streams and events have other handle names",
    applicability=SAFE,
    tags=("core", "streams"),
    examples=[
        Example(
            "import torch\nimport torch_npu\nh = torch.cuda.current_stream().cuda_stream\n",
            "import torch\nimport torch_npu\nh = torch.npu.current_stream().npu_stream\n",
        ),
    ],
)


@rule.on_method("cuda_stream", "cuda_event")
def rename_handle(match: Method) -> Fix | None:
    if is_stored(match) or match.file.tree.text(match.receiver) in ("self", "cls", "args"):
        return None
    new = match.attribute.replace("cuda", match.file.target.device)
    return Fix(match.rename(new), f".{match.attribute} → .{new}", "It is an ACL handle: only CANN can use it.")
