"""Code that hard-codes CUDA runs on the CPU, and takes the branches that it takes on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.emulator.requirements import find_torch
from migrator.smoke.hook.settings import Settings

SITE = Path(__file__).parents[2] / "migrator" / "smoke" / "hook" / "site"
PARTS = {
    "devices": """
        assert torch.cuda.is_available() and torch.cuda.device_count() == 2
        torch.cuda.set_device(1); torch.cuda.synchronize(); torch.cuda.empty_cache(); torch.cuda.manual_seed_all(1)
        assert torch.cuda.get_device_capability() == (8, 0)
        assert torch.cuda.get_device_properties(0).total_memory > 0
        assert torch.cuda.memory_stats()["anything"] == 0 and torch.cuda.max_memory_allocated() == 0
        with torch.cuda.device(1):
            torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
    """,
    "tensors": """
        device = torch.device("cuda", 1)
        for x in (torch.ones(2, device="cuda"), torch.ones(2).to("cuda:1"), torch.ones(2).cuda(0), torch.ones(2).to(0),
                  torch.zeros(2).to(device), torch.tensor([1.0], device=device), torch.ones(2).to(device=device)):
            assert x.is_cuda and x.device.type == "cuda" and x.get_device() == 0
            assert torch.zeros_like(x, device=x.device).numpy() is not None
        assert x.type() == "torch.FloatTensor"
        assert torch.ones(2).type("torch.cuda.HalfTensor").dtype == torch.float16
        assert isinstance(torch.cuda.FloatTensor(2), torch.cuda.FloatTensor)
        generator = torch.Generator(device="cuda").manual_seed(3)
        x = torch.rand(2, generator=generator, device="cuda")
        assert x.equal(torch.rand(2, generator=generator.manual_seed(3)))
        net = torch.nn.Linear(2, 2, device="cuda").cuda().to(device)
        assert next(net.parameters()).is_cuda
        torch.save(net.state_dict(), "net.pt")
        for location in ("cuda:1", {"cuda:0": "cuda:1"}, lambda storage, place: storage.cuda(1)):
            net.load_state_dict(torch.load("net.pt", map_location=location))
        loader = torch.utils.data.DataLoader([1.0, 2.0], pin_memory=True)
        assert len(list(loader)) == 2
    """,
    "streams": """
        stream, start, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event()
        with torch.cuda.stream(stream):
            start.record()
            torch.ones(2).pin_memory().cuda(non_blocking=True).record_stream(stream)
            end.record()
        torch.cuda.current_stream().wait_stream(stream)
        assert start.elapsed_time(end) >= 0 and end.query() and stream.query()
        torch.cuda.nvtx.range_push("a"); torch.cuda.nvtx.range_pop()
    """,
    "mixed precision": """
        import warnings; warnings.simplefilter("ignore")
        net, x = torch.nn.Linear(4, 4).cuda(), torch.ones(2, 4).cuda()
        for region in (torch.cuda.amp.autocast(), torch.autocast("cuda"), torch.amp.autocast(device_type="cuda")):
            with region:
                y = net(x)
                assert y.dtype == torch.float16
                # In float32 on CUDA and on the NPU:
                for wide in (y.pow(2), y ** 2, y.softmax(-1), torch.nn.functional.layer_norm(y, (4,))):
                    assert wide.dtype == torch.float32
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert net(x).dtype == torch.bfloat16
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for scaler in (torch.cuda.amp.GradScaler(1024.0), torch.amp.GradScaler("cuda", init_scale=1024.0)):
            loss = net(x).sum()
            assert scaler.scale(loss).item() == 1024 * loss.item()
            scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
    """,
    "parallel": """
        import torch.distributed as dist
        dist.init_process_group("nccl", init_method="file://" + str(__import__("pathlib").Path("store").absolute()),
                                rank=0, world_size=1)
        assert dist.get_backend() == "nccl" and dist.is_nccl_available()
        dist.barrier(device_ids=[0])
        net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(torch.nn.Linear(2, 2))).cuda()
        net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0], output_device=0)
        net(torch.ones(2, 2).cuda()).sum().backward()
        net = torch.nn.DataParallel(torch.nn.Linear(2, 2), device_ids=[0, 1]).cuda()
        assert net(torch.ones(3, 2).cuda()).shape == (3, 2)
        dist.destroy_process_group()
    """,
    "what only a GPU can do": """
        try:
            torch.cuda.CUDAGraph()
        except RuntimeError:
            pass
        else:
            raise AssertionError("a graph was captured")
    """,
}


@pytest.mark.parametrize("part", PARTS)
def test_cuda_on_cpu(part: str, tmp_path: Path) -> None:
    if find_torch() is None:
        pytest.skip("torch is not installed")
    lines = PARTS[part].strip("\n").splitlines()
    (tmp_path / "program.py").write_text("import torch\n" + "\n".join(line[8:] for line in lines) + "\n")
    settings = Settings(folder=str(tmp_path), root=str(tmp_path), seed=0, cuda_devices=2)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, **settings.variables(), "PYTHONPATH": str(SITE), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
