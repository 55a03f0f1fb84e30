"""Optimizers: ten steps of migrated loops on the emulated NPU, and what speaks against a fused optimizer."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from migrator import registry
from migrator.emulator import EmulatorError, check, environment
from migrator.engine import Settings, migrate
from migrator.fused import objections
from migrator.project import Project
from migrator.target import Target

HERE = Path(__file__).parent
RULES = registry.load().select(["core", "NPU201"])
NO_KERNEL = "2.4.0"  # fused=True has no NPU kernel here, so that --unsafe writes torch_npu's classes

# Runs the programs of a folder; prints for each the distance of its parameters from those of the original on the CPU.
DRIVER = """
import json, pathlib, runpy, sys, warnings
import torch, torch_npu
warnings.filterwarnings("ignore")

def trained(path, *arguments):
    return torch.cat([p.detach().cpu().flatten() for p in runpy.run_path(str(path))["train"](*arguments)])

results = {}
for original in sorted(pathlib.Path(sys.argv[1]).glob("*.original.py")):
    name = original.name.removesuffix(".original.py")
    right = trained(original, "cpu", *(["gloo"] if name in sys.argv[2:] else []))
    found = results[name] = {}
    for kind in ("safe", "forced"):
        try:
            found[kind] = (trained(original.with_name(f"{name}.{kind}.py")) - right).abs().max().item()
        except Exception as error:
            found[kind] = type(error).__name__
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
print("RESULTS" + json.dumps(results))
"""


def module(name: str) -> ModuleType:
    """A helper file beside the tests."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


loops = module("optimizer_loops")
PROGRAMS: dict[str, str] = {**loops.PROVEN, **{name: text for name, (_, text) in loops.REFUSED.items()}}


def emulated(script: str, *arguments: str, folder: Path) -> str:
    """What a script prints on an emulated NPU."""
    try:
        check()
    except EmulatorError as error:
        pytest.skip(str(error))
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**inherited, "OMP_NUM_THREADS": "1", **environment()},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def migrated(text: str, *, unsafe: bool) -> tuple[str, list[str]]:
    """A program after the migration, and what is said of its optimizers."""
    raw = text.encode()
    settings = Settings(Target(NO_KERNEL, None, "test"), RULES, unsafe)
    result = migrate(raw, "program.py", settings, Project.scan([("program.py", raw)]))
    assert result.error is None
    said = [d.message for d in result.diagnostics if d.rule == "NPU201"]
    return (result.after or raw).decode(), said


def port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("loops")
    for name, body in PROGRAMS.items():
        text = loops.HEAD + body
        for kind, program in (
            ("original", text),
            ("safe", migrated(text, unsafe=False)[0]),
            ("forced", migrated(text, unsafe=True)[0]),
        ):
            (folder / f"{name}.{kind}.py").write_text(program.replace("PORT", port()), encoding="utf-8")
    out = emulated(DRIVER, str(folder), *loops.DISTRIBUTED, folder=folder)
    found: dict[str, dict[str, Any]] = json.loads(out.partition("RESULTS")[2].splitlines()[0])
    return found


@pytest.mark.parametrize("name", loops.PROVEN)
def test_a_proven_loop_is_rewritten(name: str) -> None:
    text, said = migrated(loops.HEAD + PROGRAMS[name], unsafe=False)
    assert "torch_npu.optim.NpuFused" in text and all("does the same" in message for message in said)


@pytest.mark.parametrize("name", loops.PROVEN)
def test_a_proven_loop_trains_the_same(name: str, results: dict[str, dict[str, Any]]) -> None:
    assert results[name]["safe"] < 1e-6


@pytest.mark.parametrize("name", loops.REFUSED)
def test_a_refused_loop_keeps_its_optimizer_and_says_why(name: str) -> None:
    text, said = migrated(loops.HEAD + PROGRAMS[name], unsafe=False)
    assert "NpuFused" not in text
    assert said and all(loops.REFUSED[name][0] in message and "program.py:" in message for message in said)


@pytest.mark.parametrize("name", loops.REFUSED)
def test_a_refused_loop_trains_the_same(name: str, results: dict[str, dict[str, Any]]) -> None:
    assert results[name]["safe"] < 1e-5


@pytest.mark.parametrize("name", loops.REFUSED)
def test_a_forced_loop_fails_or_diverges(name: str, results: dict[str, dict[str, Any]]) -> None:
    assert "torch_npu.optim.NpuFused" in migrated(loops.HEAD + PROGRAMS[name], unsafe=True)[0]
    forced = results[name]["forced"]
    assert forced in ("KeyError", "RuntimeError", "TypeError", "ValueError") or forced > 1e-2


# --- facts about programs ---------------------------------------------------------------------------------

LOOP = "for x in data:\n    optimizer.zero_grad()\n    f(x).backward()\n    optimizer.step()\n"
MADE = "import torch\noptimizer = torch.optim.Adam(net.parameters())\n"


def reasons(**files: str) -> list[str]:
    """What speaks against the optimizer of train.py; files are named by their stems."""
    named = [(f"{name.replace('__', '/')}.py", text.encode()) for name, text in files.items()]
    return [str(objection) for objection in objections(Project.scan(named), "train.py", "optimizer")]


def test_nothing_speaks_against_a_plain_loop() -> None:
    assert reasons(train=MADE + LOOP) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("net.zero_grad()", "net.zero_grad()"),
        ("del p.grad", "p.grad is given"),
        ("optimizer.zero_grad(set_to_none=flag)", "set_to_none"),
        ("optimizer.step(closure)", "closure"),
        ("optimizer.load_state_dict(state)", "load_state_dict"),
        ("optimizer.add_param_group(group)", "add_param_group"),
        ("optimizer.state[p]", "optimizer.state is used"),
        ("fn = optimizer.step", "step is called by someone else"),
        ("scaler = torch.amp.GradScaler()", "GradScaler"),
        ("from torch.amp import GradScaler as Scaler", "GradScaler"),
        ("from accelerate import Accelerator", "accelerate may drive"),
        ("from transformers import Trainer", "a Trainer drives"),
        ("net = FSDP(net)", "FSDP"),
        ("net = torch.compile(net)", "torch.compile"),
        ("e = torch.nn.Embedding(9, 9, sparse=True)", "sparse"),
        ("net.load_state_dict(state, assign=True)", "assign=True"),
        ("net.half()", "net.half() gives"),
        ("net.to('cpu')", "new memory"),
        ("torch.set_default_dtype(torch.float64)", "float64"),
        ("register(optimizer)", "goes to register()"),
        ("everything = [optimizer]", "container"),
        ("def f():\n    return net, optimizer", "is returned"),
        ("other = torch.optim.SGD(head.parameters(), 0.1)", "the losses of other"),
        ("module = __import__(name)", "by name"),
        ("torch.save(net.eval().cpu().state_dict(), 'a.pt')", "net.eval().cpu() gives"),
        ("torch.set_default_tensor_type(torch.DoubleTensor)", "float64"),
        ("for name in names:\n    getattr(self, name).load_state_dict(state[name])", "may be an optimizer"),
        ("optimizer.step()", "several places"),
        ("net.cuda(args.gpu)", "another device"),
        ("device = torch.device(f'cuda:{rank}')", "another device"),
    ],
)
def test_a_line_speaks_against_it(line: str, reason: str) -> None:
    found = reasons(train=f"{MADE}{LOOP}{line}\n")
    assert any(reason in text for text in found), found


@pytest.mark.parametrize(
    "line",
    [
        "net.to(device)",
        "optimizer.zero_grad(set_to_none=False)",
        "for group in optimizer.param_groups:\n    group['lr'] = 0.1",
        "torch.save({'o': optimizer.state_dict()}, 'a.pt')",
        "schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)",
        "print(optimizer)",
        "x.data.clamp_(0, 1)",
        "with torch.autocast('cuda', dtype=torch.bfloat16):\n    pass",
        "config.optimizer = 'adam'\nsetup(config.optimizer)",
        "e = torch.nn.Embedding(9, 9, sparse=False)",
        "from .apex import thing",
        "device = torch.device('cuda:0')",
        "torch.cuda.set_device(rank)\nnet.cuda(rank)",
        "x.cpu().numpy()",
    ],
)
def test_a_line_does_not_matter(line: str) -> None:
    assert reasons(train=f"{MADE}{LOOP}{line}\n") == []


def test_the_whole_program_counts() -> None:
    main = "from train import fit\nfrom helpers import reset\nreset(net)\n"
    helpers = "def reset(net):\n    net.zero_grad()\n"
    assert reasons(train=MADE + LOOP, helpers=helpers) == []
    assert "net.zero_grad() drops the gradients' memory (helpers.py:2)" in reasons(
        train=MADE + LOOP, main=main, helpers=helpers
    )


def test_a_test_is_no_part_of_the_program() -> None:
    assert reasons(train=MADE + LOOP, tests__train="import train\nnet.zero_grad()\n") == []


def test_an_optimizer_is_followed_into_functions() -> None:
    engine = "def fit(net, opt):\n    opt.zero_grad()\n    opt.step()\n"
    call = f"from engine import fit\n{MADE}fit(net, optimizer)\n"
    assert reasons(train=call, engine=engine) == []
    assert any(
        "opt.load_state_dict()" in r for r in reasons(train=call, engine=engine + "    opt.load_state_dict(s)\n")
    )
    assert any("goes to fit()" in r for r in reasons(train=call, engine=engine.replace("opt", "thing")))


def test_an_optimizer_that_nobody_steps_is_not_proven() -> None:
    assert any("no call of its step()" in reason for reason in reasons(train=MADE))


# --- optimizers of other packages -------------------------------------------------------------------------

FORMULAS = """
import json, math, sys
import torch, torch_npu

def adamp(p, g, s, t, wd=0.01, delta=0.1, wd_ratio=0.1):
    m, v = average(s, "m", g, 0.9), average(s, "v", g * g, 0.999)
    move, ratio = m / (1 - 0.9**t) / ((v / (1 - 0.999**t)).sqrt() + 1e-8), 1
    if p.dim() > 1:
        for shape in ((p.shape[0], -1), (1, -1)):
            flat, grad = p.reshape(shape), g.reshape(shape)
            if torch.cosine_similarity(grad, flat, dim=1, eps=1e-8).abs().max() < delta / math.sqrt(flat.shape[1]):
                unit = flat / (flat.norm(dim=1, keepdim=True) + 1e-8)
                move = (move.reshape(shape) - unit * (unit * move.reshape(shape)).sum(1, keepdim=True)).reshape(p.shape)
                ratio = wd_ratio
                break
    return p * (1 - LR * wd * ratio) - LR * move

def lamb(p, g, s, t, wd=0.01):
    m, v = average(s, "m", g, 0.9), average(s, "v", g * g, 0.999)
    move = m / (v.sqrt() + 1e-6) + wd * p
    norm = p.norm().clamp(0, 10)
    return p - LR * move * (norm / move.norm() if norm > 0 and move.norm() > 0 else 1)

def rmsprop_tf(p, g, s, t, wd=0.01):
    g = g + wd * p
    v = average(s, "v", g * g, 0.9, torch.ones_like(p))
    s["b"] = 0.9 * s.get("b", 0) + LR * g / (v + 1e-10).sqrt()
    return p - s["b"]

def bert_adam(p, g, s, t, wd=0.01):
    m, v = average(s, "m", g, 0.9), average(s, "v", g * g, 0.999)
    share = (t - 1) / 20
    rate = LR * (share / 0.1 if share < 0.1 else max((share - 1) / (0.1 - 1), 0))
    return p - rate * (m / (v.sqrt() + 1e-6) + wd * p)

def apex_adam(p, g, s, t, wd=0.01, adam_w_mode=True):
    g = g if adam_w_mode else g + wd * p
    m, v = average(s, "m", g, 0.9) / (1 - 0.9**t), average(s, "v", g * g, 0.999) / (1 - 0.999**t)
    return p - LR * (m / (v.sqrt() + 1e-8) + (wd * p if adam_w_mode else 0))

def average(s, key, new, rate, start=0):
    s[key] = rate * s.get(key, start) + (1 - rate) * new
    return s[key]

LR = 0.01
npu = torch_npu.optim
PAIRS = {
    "AdamP": (adamp, lambda p: npu.NpuFusedAdamP(p, LR, weight_decay=0.01)),
    "Lamb": (lamb, lambda p: npu.NpuFusedLamb(p, LR, weight_decay=0.01)),
    "RMSpropTF": (rmsprop_tf, lambda p: npu.NpuFusedRMSpropTF(p, LR, momentum=0.9, weight_decay=0.01)),
    "FusedAdam": (apex_adam, lambda p: torch.optim.AdamW(p, LR, weight_decay=0.01)),
    "FusedAdam L2": (lambda *a: apex_adam(*a, adam_w_mode=False), lambda p: torch.optim.Adam(p, LR, weight_decay=0.01)),
    "BertAdam": (bert_adam, lambda p: npu.NpuFusedBertAdam(p, LR, warmup=0.1, t_total=20, max_grad_norm=-1)),
}

def network(device):
    torch.manual_seed(0)
    conv, head = torch.nn.Conv2d(1, 4, 3), torch.nn.Linear(64, 5)
    return torch.nn.Sequential(conv, torch.nn.ReLU(), torch.nn.Flatten(), head).to(device)

def gradients(net, device):
    generator = torch.Generator().manual_seed(3)
    for t in range(1, 11):
        net(torch.randn(8, 1, 6, 6, generator=generator).to(device)).pow(2).mean().backward()
        yield t

results = {}
for name, (formula, make) in PAIRS.items():
    ours, theirs = network("cpu"), network("npu")
    states = [{} for _ in ours.parameters()]
    for t in gradients(ours, "cpu"):
        with torch.no_grad():
            for p, s in zip(ours.parameters(), states):
                p.copy_(formula(p, p.grad, s, t))
                p.grad = None
    optimizer = make(theirs.parameters())
    for t in gradients(theirs, "npu"):
        optimizer.step()
        optimizer.zero_grad()
    results[name] = max((a - b.cpu()).abs().max().item() for a, b in zip(ours.parameters(), theirs.parameters()))
# clip_grad_norm_ and the fused optimizers' own clip the same.
nets = network("npu"), network("npu")
for net in nets:
    next(gradients(net, "npu"))
norms = [
    torch.nn.utils.clip_grad_norm_(nets[0].parameters(), 0.01),
    npu.NpuFusedSGD(nets[1].parameters(), LR).clip_grad_norm_fused_(0.01),
]
pairs = [norms, *([p.grad, q.grad] for p, q in zip(nets[0].parameters(), nets[1].parameters()))]
results["clip"] = max((a - b).abs().max().item() for a, b in pairs)
assert norms[0] > 0.02
print("RESULTS" + json.dumps(results))
"""


def test_other_packages_step_by_the_same_formulas(tmp_path: Path) -> None:
    distances = json.loads(emulated(FORMULAS, folder=tmp_path).partition("RESULTS")[2])
    assert len(distances) == 7
    assert all(distance < 1e-6 for distance in distances.values()), distances


def test_apex_becomes_a_fused_optimizer_in_one_run() -> None:
    program = loops.HEAD + PROGRAMS["plain"].replace("torch.optim.Adam(", "FusedAdam(")
    settings = Settings(Target("2.13.0", None, "test"), registry.load().select(["core", "NPU201", "NPU203"]))
    raw = f"from apex.optimizers import FusedAdam\n{program}".encode()
    result = migrate(raw, "program.py", settings, Project.scan([("program.py", raw)]))
    assert result.after is not None
    assert b"torch_npu.optim.NpuFusedAdamW(model.parameters(), lr=1e-2, weight_decay=0.0)" in result.after
    assert b"apex" not in result.after and b"from torch.optim" not in result.after
