"""Programs and their child processes on emulated NPUs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from migrator.emulator import environment

ROOT = Path(__file__).parents[2]


def launch(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from migrator.emulator.__main__ import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine:/other")
    variables = environment(devices=3, shared_rng=True, soc="Ascend310P3")
    assert variables["PYTHONPATH"].endswith("/emulator/site:/mine:/other")
    assert variables["NPU_MIGRATE_EMULATOR_DEVICES"] == "3"
    assert variables["NPU_MIGRATE_EMULATOR_SOC"] == "Ascend310P3"
    monkeypatch.setenv("PYTHONPATH", variables["PYTHONPATH"])
    assert environment()["PYTHONPATH"] == variables["PYTHONPATH"]
    with pytest.raises(ValueError, match="1 to 64, not 0"):
        environment(devices=0)


def test_script_with_arguments(emulator: None, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("NAME = 'helper'\n")
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, torch, helper\n"
        "print(sys.argv[1:], helper.NAME, torch.npu.device_count(), torch.npu.get_device_name(0))\n"
        "sys.exit(7)\n"
    )
    options = ["--devices", "2", "--soc", "Ascend910B4"]
    done = launch(*options, str(script), "-m", "--devices", "5", cwd=tmp_path)
    assert done.stdout == "['-m', '--devices', '5'] helper 2 Ascend910B4\n"
    assert done.returncode == 7


def test_module_and_code(emulator: None, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys; print(__name__, sys.argv[1:])\n")
    assert launch("-m", "program", "-x", cwd=tmp_path).stdout == "__main__ ['-x']\n"
    assert launch("-c", "import sys; print(sys.argv)", "-y", cwd=tmp_path).stdout == "['-c', '-y']\n"


def test_wrong_usage(tmp_path: Path) -> None:
    nothing = launch(cwd=tmp_path)
    assert nothing.returncode == 2
    assert "say what to run" in nothing.stderr
    assert launch("--devices", "65", "x.py", cwd=tmp_path).returncode == 2


def test_launcher_without_compiler(emulator: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPU_MIGRATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    done = launch("-c", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the emulated NPU builds a small C library")
    assert "Traceback" not in done.stderr
    doctor = launch("--doctor", cwd=tmp_path)
    assert doctor.returncode == 1
    assert "C compiler  none" in doctor.stdout
    assert "cannot run here: the emulated NPU builds" in doctor.stdout


def test_doctor(emulator: None, tmp_path: Path) -> None:
    done = launch("--doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The emulated NPU can run here." in done.stdout
    for word in ("torch ", "torch_npu ", "C compiler ", "cache "):
        assert word in done.stdout


def test_output_is_the_programs_own(run) -> None:
    assert run("-c", "import torch, torch_npu; print(torch.ones(2).npu().sum().item())").stdout == "2.0\n"


@pytest.mark.parametrize("name", ["ASCEND_HOME_PATH", "ASCEND_OPP_PATH"])
def test_settings_of_a_real_toolkit_do_not_matter(run, name: str) -> None:
    assert run("-c", "import torch; print(torch.npu.is_available())", **{name: "/nowhere"}).stdout == "True\n"


def test_own_sitecustomize_still_runs(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.MINE = __file__\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import sitecustomize, sys; print(MINE == sitecustomize.__file__, '_npu_emulator' in sys.modules)"
    assert run("-c", code).stdout == "True True\n"


def test_looking_for_the_wheel_before_importing_it(run) -> None:
    code = "import importlib.util as u; u.find_spec('torch_npu'); import torch; print(torch.npu.is_available())"
    assert run("-c", code).stdout == "True\n"


def test_name_of_the_package_stays_free(run, tmp_path: Path) -> None:
    (tmp_path / "migrator.py").write_text("NAME = 'mine'\n")
    assert run("-c", "import migrator, torch; print(migrator.NAME, torch.npu.is_available())").stdout == "mine True\n"


def test_spawned_process(run, tmp_path: Path) -> None:
    script = tmp_path / "spawn.py"
    script.write_text(
        "import torch, torch.multiprocessing as mp\n"
        "def work(rank, queue):\n"
        "    queue.put(torch.full((2,), rank + 1.0).npu().sum().item())\n"
        "if __name__ == '__main__':\n"
        "    queue = mp.get_context('spawn').SimpleQueue()\n"
        "    mp.spawn(work, (queue,), nprocs=2)\n"
        "    print(sorted([queue.get(), queue.get()]))\n"
    )
    assert run(str(script)).stdout == "[2.0, 4.0]\n"


def test_exit_handler_that_runs_last(run) -> None:
    code = (
        "from multiprocessing import util\n"
        "import torch\n"
        "image = torch.arange(8.0).view(1, 2, 2, 2).to(memory_format=torch.channels_last).npu()\n"
        "util.Finalize(None, lambda: print(image.float().contiguous().sum().item()), exitpriority=100)\n"
    )
    assert run("-c", code).stdout == "28.0\n"


def test_shared_random_numbers_are_those_of_the_cpu(run, tmp_path: Path) -> None:
    script = tmp_path / "draw.py"
    script.write_text(
        "import sys, torch, torch.nn.functional as F\n"
        "device = sys.argv[1]\n"
        "torch.manual_seed(3)\n"
        "drawn = [torch.randn(3, device=device), F.dropout(torch.ones(9, device=device), 0.4)]\n"
        "drawn += [torch.randint(9, (4,), device=device), torch.randperm(5, device=device), torch.rand(2)]\n"
        "drawn += [torch.empty(3, device=device).exponential_(), torch.full((6,), 0.5, device=device).bernoulli()]\n"
        "print([values.tolist() for values in drawn])\n"
    )
    cpu = run(str(script), "cpu").stdout
    assert run(str(script), "npu", shared_rng=True).stdout == cpu
    assert run(str(script), "npu").stdout != cpu


def test_shared_numbers_of_a_generator_are_those_of_a_cpu_generator(run, tmp_path: Path) -> None:
    script = tmp_path / "draw.py"
    script.write_text(
        "import sys, torch\n"
        "device = sys.argv[1]\n"
        "generator = torch.Generator(device=device).manual_seed(3)\n"
        "options = {'device': device, 'generator': generator}\n"
        "drawn = [torch.randn(3, **options), torch.rand(20, **options), torch.randperm(5, **options)]\n"
        "state = generator.get_state()\n"
        "drawn += [torch.randn(5, **options), torch.empty(3, device=device).exponential_(generator=generator)]\n"
        "generator.set_state(state)\n"
        "assert torch.equal(torch.randn(5, **options), drawn[-2])\n"
        "again = torch.Generator(device=device)\n"
        "again.set_state(state)\n"
        "drawn += [torch.multinomial(torch.ones(9, device=device), 4, generator=again)]\n"
        "drawn += [torch.randint(9, (4,), **options), torch.rand(2, device=device, generator=torch.Generator(device))]\n"
        "torch.nn.init.kaiming_normal_(torch.empty(4, 4, device=device), generator=generator.manual_seed(4))\n"
        "drawn += [torch.normal(torch.zeros(2, device=device), 1.0, generator=generator)]\n"
        "print([values.tolist() for values in drawn])\n"
    )
    cpu = run(str(script), "cpu").stdout
    assert run(str(script), "npu", shared_rng=True).stdout == cpu
    assert run(str(script), "npu").stdout != cpu


def test_data_parallel_training_over_hccl(run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(DISTRIBUTED)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run(*torchrun, str(script), "npu", "hccl", devices=2)
    run(*torchrun, str(script), "cpu", "gloo")
    for rank in range(2):
        npu, cpu = ((tmp_path / f"{device}-{rank}").read_text() for device in ("npu", "cpu"))
        assert npu == cpu


DISTRIBUTED = """
import sys
import torch
import torch.distributed as dist
from torch import nn

kind, backend = sys.argv[1:]
dist.init_process_group(backend)
rank = dist.get_rank()
device = kind
if kind == "npu":
    torch.npu.set_device(rank)
    device = f"npu:{rank}"
    assert dist.get_backend() == "hccl"
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).to(device)
parallel = nn.parallel.DistributedDataParallel(model, device_ids=[rank] if device != "cpu" else None)
optimizer = torch.optim.SGD(parallel.parameters(), 0.1)
torch.manual_seed(rank)
for _ in range(3):
    loss = parallel(torch.randn(4, 4).to(device)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

total = torch.full((2,), rank + 1.0, device=device)
work = dist.all_reduce(total, async_op=True)
work.wait()
dist.broadcast(total, 1)
parts = [torch.zeros(2, device=device) for _ in range(2)]
dist.all_gather(parts, torch.full((2,), float(rank), device=device))
joined = torch.zeros(4, device=device)
dist.all_gather_into_tensor(joined, torch.full((2,), rank + 5.0, device=device))
scattered = torch.zeros(2, device=device)
dist.reduce_scatter_tensor(scattered, torch.arange(4.0, device=device))
if rank == 0:
    dist.send(torch.ones(2, device=device) * 9, 1)
else:
    dist.recv(total, 0)
exchanged = torch.zeros(2, device=device)
operations = [dist.P2POp(dist.isend, parts[rank] + 7, 1 - rank), dist.P2POp(dist.irecv, exchanged, 1 - rank)]
for work in dist.batch_isend_irecv(operations):
    work.wait()
objects = [None, None]
dist.all_gather_object(objects, {"rank": rank})
dist.barrier()
for tensor in (total, joined, scattered, exchanged, *parts):
    assert str(tensor.device) == device
values = [tensor.tolist() for tensor in (total, joined, scattered, exchanged, *parts)]
sums = [round(parameter.sum().item(), 5) for parameter in model.parameters()]
with open(f"{kind}-{rank}", "w") as file:
    print(values, objects, sums, file=file)
dist.destroy_process_group()
"""


def test_sharded_training_and_synchronized_batch_normalization(run, tmp_path: Path) -> None:
    script = tmp_path / "shard.py"
    script.write_text(SHARDED)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run(*torchrun, str(script), devices=2)
    assert (tmp_path / "done-0").exists()
    assert (tmp_path / "done-1").exists()


SHARDED = """
import copy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

dist.init_process_group("hccl")
rank = dist.get_rank()
torch.npu.set_device(rank)
torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
inputs = torch.randn(4, 8)


def loss_after_a_step(model, device):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(inputs.to(device)).pow(2).sum().backward()
    optimizer.step()
    return model(inputs.to(device)).pow(2).sum().item()


expected = loss_after_a_step(copy.deepcopy(plain), "cpu")
first = FullyShardedDataParallel(copy.deepcopy(plain).npu(), device_id=rank, use_orig_params=True)
second = copy.deepcopy(plain).npu()
fully_shard(second, mesh=init_device_mesh("npu", (2,)))
for model in (first, second):
    assert abs(loss_after_a_step(model, "npu") - expected) < 1e-4 * abs(expected)

images = torch.randn(4, 3, 2, 2) * 2 + 1
alone = nn.BatchNorm2d(3)
leaf = images.clone().requires_grad_()
outputs = alone(leaf)
outputs.pow(3).sum().backward()
together = nn.parallel.DistributedDataParallel(
    nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(3)).npu(), device_ids=[rank]
)
half = slice(2 * rank, 2 * rank + 2)
part = images[half].npu().requires_grad_()
found = together(part)
found.pow(3).sum().backward()
torch.testing.assert_close(found.detach().cpu(), outputs[half].detach(), rtol=1e-4, atol=1e-4)
torch.testing.assert_close(part.grad.cpu(), leaf.grad[half], rtol=1e-3, atol=1e-3)
torch.testing.assert_close(together.module.running_var.cpu(), alone.running_var, rtol=1e-4, atol=1e-4)
torch.testing.assert_close(together.module.weight.grad.cpu() * 2, alone.weight.grad, rtol=1e-3, atol=1e-3)
dist.barrier()
open(f"done-{rank}", "w").close()
dist.destroy_process_group()
"""


def test_profiler_says_what_is_missing_and_lets_the_program_go_on(run, tmp_path: Path) -> None:
    script = tmp_path / "profiled.py"
    script.write_text(
        "import torch, torch_npu\n"
        "with torch_npu.profiler.profile() as profiler:\n"
        "    total = torch.ones(3).npu().sum()\n"
        "    profiler.step()\n"
        "print('total', total.item())\n"
    )
    done = run(str(script))
    assert "total 3.0" in done.stdout
    assert "aclprofInit" in done.stdout + done.stderr


@pytest.mark.parametrize("configuration", ["expandable_segments:False", "expandable_segments:True"])
def test_memory_is_given_back(run, configuration: str) -> None:
    code = """
import torch
free = torch.npu.mem_get_info()[0]
tensors = [torch.ones(1 << 20, device="npu"), torch.ones(1 << 23, device="npu")]
assert sum(int(tensor.sum()) for tensor in tensors) == (1 << 20) + (1 << 23)
assert torch.npu.memory_reserved() >= 36 << 20
assert torch.npu.mem_get_info()[0] <= free - (36 << 20)
del tensors
torch.npu.empty_cache()
assert torch.npu.memory_reserved() == 0
assert torch.npu.mem_get_info()[0] >= free
assert torch.ones(1 << 23, device="npu").sum() == 1 << 23
"""
    run("-c", code, PYTORCH_NPU_ALLOC_CONF=configuration)
