"""Ray's GPUs.

Ray counts NPUs as a resource of their own: a task with `num_gpus=1` waits for ever on a node that has only NPUs.
`resources={"NPU": 1}` asks for one, and `get_accelerator_ids()["NPU"]` tells which.  The fix waits for `--unsafe`,
since other code may count the same resource.  A fraction of a GPU is reported: processes that share an NPU get all
of its memory each.
"""

from migrator.rule import UNSAFE, Example, Fix, Keyword, Name, Report, Rule

rule = Rule(
    id="NPU808",
    name="ray-resources",
    title="Ray counts NPUs as another resource",
    applicability=UNSAFE,
    tags=("third-party", "ray"),
    docs="https://docs.ray.io/en/latest/ray-core/scheduling/accelerators.html",
    examples=[
        Example.reported("import ray\n\n\n@ray.remote(num_gpus=1)\nclass A:\n    pass\n", "num_gpus"),
        Example(
            "import ray\nw = A.options(num_gpus=n).remote()\ni = ray.get_gpu_ids()[0]\n",
            "import ray\nw = A.options(resources={\"NPU\": n}).remote()\n"
            "i = ray.get_runtime_context().get_accelerator_ids()[\"NPU\"][0]\n",
            unsafe=True,
        ),
        Example.reported("import ray\nw = A.options(num_gpus=0.5).remote()\n", "a part of an NPU"),
        Example.reported("import ray\nf = ray.remote(num_gpus=1, resources=r)(f)\n", "num_gpus"),
        Example.reported("from ray.train import ScalingConfig\nc = ScalingConfig(use_gpu=True)\n", "use_gpu"),
        Example.unchanged("import ray\nray.init(num_gpus=0)\n"),
        Example.unchanged("p.add_argument('--num-gpus')\nmodel = load(num_gpus=2)\n"),
    ],
)  # fmt: skip

REMEDY = 'Ask for resources={"NPU": n}; ray.get_runtime_context().get_accelerator_ids()["NPU"] tells which ones.'


@rule.on_keyword("num_gpus", words=("num_gpus",))
def resources(match: Keyword) -> Fix | Report | None:
    value = match.file.tree.text(match.node.value)
    if value in {"0", "None"} or not _is_ray(match):
        return None
    if value.replace(".", "", 1).isdigit() and "." in value:
        remedy = "Processes that share an NPU do not share its memory fairly: give each a whole one."
        return Report(f"num_gpus={value}: a part of an NPU", f"{remedy} {REMEDY}")
    if "resources" in match.call.keywords or match.node.keyword is None:
        return Report("num_gpus waits for GPUs that an NPU node does not have", REMEDY)
    text = f"resources={{{match.literal('NPU')}: {value}}}"
    return Fix([match.replace(match.node, text)], f"num_gpus={value} → {text}", REMEDY, needs=())


@rule.on_name("ray.get_gpu_ids", words=("get_gpu_ids",))
def ids(match: Name) -> Fix | Report | None:
    if match.call is None or match.call.node.args or match.reference.parts != ("get_gpu_ids",):
        return Report("ray.get_gpu_ids() is empty on an NPU node", REMEDY)
    root = match.reference.root.value
    text = f"{root}.get_runtime_context().get_accelerator_ids()[{match.literal('NPU')}]"
    return Fix([match.replace(match.call.node, text)], f"{match.text}() → {text}", REMEDY, needs=())


@rule.on_keyword("use_gpu", words=("ScalingConfig", "use_gpu"))
def use_gpu(match: Keyword) -> Report | None:
    if not (match.function or "").startswith("ray.") or match.file.tree.text(match.node.value) == "False":
        return None
    remedy = 'Write use_gpu=False and resources_per_worker={"NPU": 1}, and set up torch.distributed with "hccl".'
    return Report("use_gpu=True waits for GPUs that an NPU node does not have", remedy)


def _is_ray(match: Keyword) -> bool:
    """Whether the call is Ray's: `ray.remote`, or `.options` of something in a file that imports Ray."""
    if (match.function or "").startswith("ray."):
        return True
    imported = any((b.qualified or "").partition(".")[0] == "ray" for b in match.file.names.import_bindings)
    return imported and match.function_name in {"options", "remote", "init"}
