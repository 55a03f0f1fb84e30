"""Options of transformers that ask for CUDA.

`attn_implementation="flash_attention_2"` needs flash-attn, or a recent transformers with its own NPU integration;
"sdpa" works with every version (fix with `--unsafe`: models that pack sequences rely on the former).
`load_in_8bit` and `load_in_4bit` need bitsandbytes, `tf32=True` raises without CUDA, apex and 8-bit optimizers need
their packages.
"""

from migrator.rule import UNSAFE, Example, Fix, Keyword, Report, Role, Rule, Text

rule = Rule(
    id="NPU806",
    name="transformers-options",
    title="some options of transformers need CUDA packages",
    applicability=UNSAFE,
    tags=("third-party", "transformers"),
    docs="https://huggingface.co/docs/transformers/main/en/attention_interface",
    examples=[
        Example.reported("m = AutoModel.from_pretrained(p, attn_implementation='flash_attention_2')\n", "flash-attn"),
        Example(
            "m = AutoModel.from_pretrained(p, attn_implementation='flash_attention_2')\n",
            "m = AutoModel.from_pretrained(p, attn_implementation='sdpa')\n",
            unsafe=True,
        ),
        Example.reported("m = load(use_flash_attention_2=True, load_in_8bit=q)\n", "flash-attn", "bitsandbytes"),
        Example.reported("a = TrainingArguments(d, tf32=True, optim='adamw_apex_fused')\n", "tf32", "adamw_apex_fused"),
        Example.unchanged("m = load(p, load_in_4bit=False)\nif m.impl == 'flash_attention_2':\n    pass\n"),
        Example.unchanged("CLASSES = {'flash_attention_2': Flash}\nlog.info('flash_attention_2 is used')\n"),
    ],
)  # fmt: skip

OFF = {"False", "None", "0"}
QUANTIZED = ("load_in_8bit", "load_in_4bit")
APEX = {"apex", "cuda_amp"}


@rule.on_string("flash_attention_2")
def attention(match: Text) -> Fix | None:
    if match.value != "flash_attention_2":
        return None
    verdict = match.role("device")
    if verdict.role in (Role.KEY, Role.WORDS, Role.COMPARED, Role.NAME):
        return None
    message = "flash_attention_2 needs flash-attn, which has no NPU version: sdpa takes its place"
    return Fix(match.replace_words("flash_attention_2", "sdpa"), message, _remedy(match, ATTENTION), needs=())


@rule.on_keyword("use_flash_attention_2")
def old_attention(match: Keyword) -> Report | None:
    if match.file.tree.text(match.node.value) in OFF:
        return None
    return Report("use_flash_attention_2 needs flash-attn, which has no NPU version", _remedy(match, ATTENTION))


@rule.on_keyword(*QUANTIZED)
def quantized(match: Keyword) -> Report | None:
    if match.file.tree.text(match.node.value) in OFF:
        return None
    return Report(f"{match.name} needs bitsandbytes, which does not run on an NPU", _remedy(match, "bitsandbytes"))


@rule.on_keyword("tf32", "half_precision_backend", "fp16_backend", "optim", words=("TrainingArguments", "TrainingArgs"))
def training(match: Keyword) -> Report | None:
    """Arguments of TrainingArguments and of classes made from it."""
    value = match.file.tree.text(match.node.value).strip("\"'")
    if "Arguments" not in match.function_name and "Config" not in match.function_name:
        return None
    if match.name == "tf32":
        return None if value in OFF else Report("tf32=True raises without CUDA", _remedy(match, TRAINING))
    if match.name == "optim" and ("apex" in value or "bnb" in value or "8bit" in value):
        remedy = 'Write optim="adamw_torch", or "adamw_torch_npu_fused" once you have read what NPU201 says of it.'
        return Report(f"optim={value!r} needs a package that does not run on an NPU", remedy)
    if match.name != "optim" and value in APEX:
        return Report(f"{match.name}={value!r} needs CUDA", "Leave it out: fp16=True uses torch's own autocast.")
    return None


ATTENTION = 'transformers attn_implementation="flash_attention_2"'
TRAINING = "transformers TrainingArguments(use_cpu/no_cuda/fp16/bf16/tf32)"


def _remedy(match: Text | Keyword, name: str) -> str:
    row = match.file.target.mapping(f"pkg:{name}")
    return (row.remedy if row else None) or ""
