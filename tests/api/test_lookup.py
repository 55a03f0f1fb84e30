"""Versions, names, signatures, variables and support, as rules ask for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from migrator import api
from migrator.api import ParameterKind, SupportStatus, _store
from migrator.api._signature import _python_parameters, _schema_parameters, _split_schema

EVERY = api.versions()


# --- versions


def test_known_wheels_are_sorted():
    assert EVERY[0] == "2.1.0.post8"
    assert list(EVERY) == sorted(EVERY, key=lambda v: [int(n) for n in v.replace("post", "").split(".")])
    assert {"2.6.0", "2.7.1", "2.13.0"} <= set(EVERY)


@pytest.mark.parametrize(
    ("asked", "found", "exact"),
    [
        ("2.7.1", "2.7.1", True),
        (" 2.7.1 ", "2.7.1", True),
        ("2.13.0+cpu", "2.13.0", True),
        ("2.1.0.post8", "2.1.0.post8", True),
        ("2.7", "2.7.1", False),
        ("2.7.0", "2.7.1", False),
        ("2.6.0.post5", "2.6.0", False),
        ("2.1.0", "2.1.0.post8", False),
        ("2.12", "2.12.0.post3", False),
        ("2.2", "2.1.0.post8", False),
        ("1.11.0", "2.1.0.post8", False),
        ("2.99", EVERY[-1], False),
        ("3.0", EVERY[-1], False),
    ],
)
def test_nearest_wheel(asked, found, exact):
    resolved = api.resolve(asked)
    assert (resolved.version, resolved.exact) == (found, exact)
    assert found in resolved.reason


@pytest.mark.parametrize("text", ["", "latest", "2.x", "two"])
def test_text_that_is_no_version(text):
    with pytest.raises(ValueError, match="is not a version number"):
        api.resolve(text)


@pytest.mark.parametrize(
    ("version", "minimum", "answer"),
    [("2.10.0", "2.9", True), ("2.1.0.post8", "2.1", True), ("2.5.1", "2.5.1", True), ("2.5.1", "2.6", False)],
)
def test_at_least(version, minimum, answer):
    assert api.at_least(version, minimum) is answer


# --- names


@pytest.mark.parametrize(
    ("name", "since"),
    [
        ("torch.npu.synchronize", "2.1.0.post8"),
        ("torch_npu.npu.synchronize", "2.1.0.post8"),
        ("torch.npu.FloatTensor", "2.1.0.post8"),
        ("torch.npu.amp.common.amp_definitely_not_available", "2.1.0.post8"),
        ("torch.npu.memory.memory_allocated", "2.1.0.post8"),
        ("torch.npu.random.seed", "2.1.0.post8"),
        ("torch.npu.streams.Event.elapsed_time", "2.1.0.post8"),
        ("torch.npu.Stream.npu_stream", "2.1.0.post8"),
        ("torch.npu.Event.npu_event", "2.1.0.post8"),
        ("torch.npu._lazy_init", "2.1.0.post8"),
        ("torch.npu.memory._record_memory_history", "2.1.0.post8"),
        ("torch.npu.matmul.allow_hf32", "2.1.0.post8"),
        ("torch.npu.conv.allow_hf32", "2.1.0.post8"),
        ("torch.npu.mstx.mark", "2.1.0.post8"),
        ("torch.npu.mstx.range_start", "2.1.0.post8"),
        ("torch.npu.mstx.range_push", "2.11.0"),
        ("torch.npu.mstx.annotate", "2.11.0"),
        ("torch.npu.graphs", "2.5.1"),
        ("torch.npu.graph", "2.5.1"),
        ("torch.npu.NPUGraph.replay", "2.5.1"),
        ("torch.npu.graphs.NPUGraph.replay", "2.5.1"),
        ("torch.npu.make_graphed_callables", "2.5.1"),
        ("torch.npu.MemPool", "2.5.1"),
        ("torch.npu.use_mem_pool", "2.5.1"),
        ("torch.npu.backends.fft_plan_cache.max_size", "2.5.1"),
        ("torch.npu.StreamContext", "2.6.0"),
        ("torch.npu.ipc_collect", "2.7.1"),
        ("torch.npu.matmul.cube_math_type", "2.9.0"),
        ("torch.npu.get_per_process_memory_fraction", "2.10.0"),
        ("torch.npu.host_memory_stats", "2.10.0"),
        ("torch.npu.host_memory_stats_as_nested_dict", "2.10.0"),
        ("torch.npu.ExternalStream", "2.12.0.post3"),
        ("torch.npu._sleep", "2.12.0.post3"),
        ("torch_npu.optim.NpuFusedAdamW", "2.1.0.post8"),
        ("torch_npu.profiler.ProfilerActivity.NPU", "2.1.0.post8"),
        ("torch.profiler.ProfilerActivity.NPU", "2.12.0.post3"),
        ("torch_npu.contrib.module.ROIAlign", "2.1.0.post8"),
        ("torch_npu.contrib.transfer_to_npu", "2.1.0.post8"),
        ("torch_npu.utils.cpp_extension.NpuExtension", "2.1.0.post8"),
        ("torch_npu.utils.get_cann_version", "2.7.1"),
        ("torch_npu.npu_fusion_attention", "2.1.0.post8"),
        ("torch_npu.npu_rms_norm", "2.1.0.post8"),
        ("torch.Tensor.npu", "2.1.0.post8"),
        ("torch.Tensor.is_npu", "2.1.0.post8"),
        ("torch.nn.Module.npu", "2.1.0.post8"),
        ("torch.nn.utils.rnn.PackedSequence.npu", "2.4.0"),
        ("torch.distributed.Backend.HCCL", "2.1.0.post8"),
        ("torch.distributed.is_hccl_available", "2.1.0.post8"),
    ],
)
def test_since(name, since):
    assert api.since(name) == since
    assert api.until(name) is None
    for version in EVERY:
        assert api.exists(name, version) is api.at_least(version, since)


@pytest.mark.parametrize(
    "name",
    [
        "torch.npu.nvtx",
        "torch.npu.nccl",
        "torch.npu.comm",
        "torch.npu.profiler",
        "torch.npu.sparse",
        "torch.npu.tunable",
        "torch.npu.jiterator",
        "torch.npu.gds",
        "torch.npu.green_contexts",
        "torch.npu.cudart",
        "torch.npu.OutOfMemoryError",
        "torch.npu.AcceleratorError",
        "torch.npu.get_arch_list",
        "torch.npu.get_gencode_flags",
        "torch.npu.is_tf32_supported",
        "torch.npu.list_gpu_processes",
        "torch.npu.memory_usage",
        "torch.npu.power_draw",
        "torch.npu.temperature",
        "torch.npu.clock_rate",
        "torch.npu.caching_allocator_enable",
        "torch.npu.ComplexFloatStorage",
        "torch.npu.ComplexDoubleStorage",
        "torch.npu.CUDAGraph",
        "torch.npu.CUDAPluggableAllocator",
        "torch.npu.Stream.cuda_stream",
        "torch.npu.Event.cuda_event",
        "torch.npu._sanitizer.enable_cuda_sanitizer",
        "torch.npu.memory.mem_get_info",
        "torch.npu.set_debug_level",
        "torch.npu.mstx.mstx",
        "torch.npu.contextlib",
        "torch.npu_rms_norm",
        "torch_npu.contrib.fuse_add_softmax_dropout",
        "torch_npu.contrib.module.NpuFastAttention",
        "torch_npu.contrib.transfer_to_npu.detector",
        "torch_npu.utils.benchmarks.NpuBenchmark",
        "torch_npu.profiler.profile.key_averages",
        "torch_npu.profiler.profile.events",
    ],
)
def test_names_of_no_wheel(name):
    assert api.since(name) is None
    assert not any(api.exists(name, version) for version in EVERY)


def test_a_name_that_went_away():
    assert (api.since("torch_npu.selu_backward"), api.until("torch_npu.selu_backward")) == ("2.1.0.post8", "2.4.0")
    assert api.exists("torch_npu.selu_backward", "2.3.1")
    assert not api.exists("torch_npu.selu_backward", "2.5.1")


def test_a_name_that_was_away_for_a_while():
    name = "torch_npu.npu_fused_linear_online_max_sum"
    assert [v for v in EVERY if api.exists(name, v)] == ["2.7.1", "2.8.0", "2.12.0.post3", "2.13.0", "2.14.0"]
    assert api.since(name) == "2.12.0.post3"


def test_names_below_a_prefix():
    found = api.names("torch.npu.mstx")
    assert "torch_npu.npu.mstx.mark" in found
    assert found == sorted(found)
    assert all(name.startswith("torch_npu.npu.mstx") for name in found)


# --- signatures


def names_of(signature):
    return [p.name for p in signature.parameters]


@pytest.mark.parametrize("version", EVERY)
def test_grad_scaler_has_dynamic_before_enabled(version):
    scaler = api.signature("torch.npu.amp.GradScaler", version)
    assert scaler.positional[4:] == ("dynamic", "enabled")
    assert not scaler.accepts("device")


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        ("torch.npu.amp.autocast", "2.1", "(enabled=True, dtype=torch.float16, cache_enabled=True)"),
        ("torch.npu.amp.custom_fwd", "2.13", "(fwd=None, *, cast_inputs=None)"),
        ("torch.npu.Event", "2.1", "(enable_timing=False, blocking=False, interprocess=False)"),
        ("torch.npu.Stream", "2.13", "(device=None, priority=0, **kwargs)"),
        ("torch.npu.NPUGraph", "2.5.1", "()"),
        ("torch.npu.set_compile_mode", "2.1", "(jit_compile=False)"),
        ("torch.npu.memory_snapshot", "2.12", "()"),
        ("torch.npu.memory_snapshot", "2.13", "(mempool_id=None)"),
        ("torch.npu.is_bf16_supported", "2.10", "()"),
        ("torch.npu.is_bf16_supported", "2.11", "(including_emulation=False)"),
        ("torch.npu.mstx.mark", "2.1", "(message='')"),
        ("torch.npu.mstx.mark", "2.6", "(message, stream=None, domain='default')"),
        ("torch.npu.get_rng_state", "2.1", "(device='npu')"),
        ("torch.nn.Module.npu", "2.1", "(device=None)"),
        ("torch_npu.npu_rms_norm", "2.6", "(input, gamma, epsilon=1e-06) -> (Tensor, Tensor)"),
        ("torch_npu.profiler.schedule", "2.10", "(wait, active, warmup=0, repeat=0, skip_first=0)"),
        (
            "torch_npu.profiler.schedule",
            "2.11",
            "(wait, active, warmup=0, repeat=0, skip_first=0, skip_first_wait=0)",
        ),
    ],
)
def test_signature_text(name, version, text):
    assert str(api.signature(name, version)) == name + text


def test_tensorboard_trace_handler_third_is_not_use_gzip():
    assert api.signature("torch_npu.profiler.tensorboard_trace_handler", "2.6").positional[2] == "analyse_flag"


def test_profile_takes_keywords_only():
    profile = api.signature("torch_npu.profiler.profile", "2.6.0")
    assert profile.positional == ()
    assert profile.accepts("schedule")
    assert not profile.accepts("acc_events")


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop", "Adadelta", "Lamb"])
@pytest.mark.parametrize("version", ["2.1", "2.13"])
def test_fused_optimizers_reject_what_torch_takes(optimizer, version):
    signature = api.signature(f"torch_npu.optim.NpuFused{optimizer}", version)
    rejected = ("foreach", "fused", "capturable", "maximize", "differentiable", "decoupled_weight_decay")
    assert not any(signature.accepts(keyword) for keyword in rejected)
    assert signature.positional[0] == "params"


def test_no_signature_where_the_name_does_not_exist():
    assert api.signature("torch.npu.graph", "2.4") is None
    assert api.signature("torch.npu.graph", "2.5") is not None
    assert api.signature("torch.npu.OutOfMemoryError", "2.13") is None


def test_kinds_of_parameters():
    kinds = {p.name: p.kind for p in _python_parameters("a, /, b, *c, d=1, **e")}
    assert list(kinds.values()) == list(ParameterKind)
    keyword = dict.fromkeys(["c"], ParameterKind.KEYWORD_ONLY)
    assert {p.name: p.kind for p in _python_parameters("*, c")} == keyword


def test_every_recorded_signature_can_be_read():
    for history in _store.load("signatures.json")["signatures"].values():
        for text in history.values():
            assert text is None or all(p.name.isidentifier() for p in _python_parameters(text))
    for history in _store.load("operators.json")["operators"].values():
        for schema in (schema for schemas in history.values() for schema in schemas or ()):
            assert all(p.name.isidentifier() for p in _schema_parameters(_split_schema(schema)[0]))


# --- environment variables


@pytest.mark.parametrize(
    ("name", "status", "default"),
    [
        ("COMBINED_ENABLE", "real", "0"),
        ("TASK_QUEUE_ENABLE", "real", "1"),
        ("ASCEND_LAUNCH_BLOCKING", "real", "0"),
        ("INF_NAN_MODE_ENABLE", "real", "1"),
        ("PYTORCH_NPU_ALLOC_CONF", "real", None),
        ("MM_BMM_ND_ENABLE", "option", "enable"),
        ("ACL_OP_SELECT_IMPL_MODE", "option", None),
        ("ACL_DUMP_DATA", "deprecated", None),
        ("NPU_FORCE_FP32", "fake", None),
        ("ACL_OP_SELECT_IMPL", "fake", None),
        ("NPU_VISIBLE_DEVICES", "fake", None),
        ("HCCL_SOCKET_IFNAME", "cann", None),
    ],
)
def test_environment_variables(name, status, default):
    variable = api.env(name)
    assert (variable.status.value, variable.default) == (status, default)
    assert variable.meaning


def test_every_variable_has_a_meaning_and_a_known_wheel():
    for name in _store.load("env.json")["variables"]:
        variable = api.env(name)
        assert variable.meaning.endswith(".")
        assert variable.since is None or variable.since in EVERY
        assert (variable.since is None) == (variable.status.value in ("fake", "cann"))


def test_an_unknown_variable():
    assert api.env("HOME") is None


# --- support


@pytest.mark.parametrize(
    ("name", "version", "status"),
    [
        ("torch.erf", "2.13", SupportStatus.PARTIAL),
        ("torch.nn.DataParallel", "2.9", SupportStatus.NO),
        ("torch.digamma", "2.7.1", SupportStatus.CPU_FALLBACK),
        ("torch.lgamma", "2.13", SupportStatus.CPU_FALLBACK),
        ("torch.polygamma", "2.13", SupportStatus.CPU_FALLBACK),
        ("torch.linalg.eig", "2.13", SupportStatus.CPU_FALLBACK),
        ("torch.Tensor.lgamma", "2.13", SupportStatus.CPU_FALLBACK),
        ("torch.nn.functional.huber_loss", "2.13", SupportStatus.CPU_FALLBACK),
        ("torch.nothing_like_it", "2.13", SupportStatus.UNVERIFIED),
    ],
)
def test_support(name, version, status):
    assert api.support(name, version).status is status


def test_support_knows_dtypes_limits_and_hardware():
    found = api.support("torch.nn.functional.interpolate", "2.7.1")
    assert found.dtypes == (("", ("bfloat16", "float16", "float32", "float64")),)
    assert "no scale_factor: pass size" in found.limit
    assert dict(found.hardware) == {"A2": True, "A3": True, "950": False}
    assert found.on("Ascend910B1") is SupportStatus.PARTIAL
    assert found.on("Ascend950DT") is SupportStatus.NO
    assert found.on(None) is SupportStatus.PARTIAL


def test_an_older_torch_is_answered_by_the_oldest_list():
    assert "for torch 2.6.0" in api.support("torch.erf", "2.1").source


def test_an_unlisted_name_is_not_unsupported():
    known, unknown = api.support("torch.npu_nothing", "2.13"), api.support("numpy.array", "2.13")
    assert known.status is SupportStatus.UNVERIFIED
    assert not known.is_known
    assert unknown is None


def test_every_listed_api_can_be_read_for_every_version():
    statuses = set()
    for name in _store.load("support.json")["apis"]:
        statuses |= {api.support(name, version).status for version in ("2.6", "2.7.1", "2.9", "2.13", "2.14")}
    assert statuses == set(SupportStatus)


# --- the data files


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """An empty folder that stands in for the shipped data."""
    monkeypatch.setattr(_store, "_directory", lambda: tmp_path)
    _store.load.cache_clear()
    yield tmp_path
    _store.load.cache_clear()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read"),
        (b"", "is damaged"),
        (b'{"format": 1, "names"', "is damaged"),
        (b"\xff\xfe", "cannot be read"),
        (b'{"format": 2}', "has layout 2"),
        (b'{"names": {}}', "has layout None"),
        (b"[]", "has layout 'list'"),
    ],
)
def test_a_data_file_that_does_not_load(data_folder, content, problem):
    if content is not None:
        (data_folder / "names.json").write_bytes(content)
    with pytest.raises(api.ApiDataError, match=problem) as caught:
        _store.load("names.json")
    assert "migrator/api/data/names.json" in str(caught.value)
    assert "Reinstall npu-migrate" in str(caught.value)


def test_size_of_the_data():
    files = list(_store._directory().iterdir())
    assert sum(len(file.read_bytes()) for file in files) <= 1_000_000


def test_only_what_is_asked_for_is_loaded():
    code = (
        "import sys\n"
        "from migrator import api\n"
        "from migrator.api import _store\n"
        "assert _store.load.cache_info().currsize == 0\n"
        "api.exists('torch.npu.graph', '2.6.0')\n"
        "assert _store.load.cache_info().currsize == 1\n"
        "assert not {'torch', 'torch_npu', 'libcst', 'migrator.api._package'} & set(sys.modules), set(sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
