"""torch.jit.trace in programs that are recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from migrator.smoke.request import Report

TRACED = """\
import torch


class Halves(torch.nn.Module):
    def forward(self, image):
        return image.reshape(2, -1) * 0.5 + 1


net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), Halves()).cuda()
image = torch.ones(1, 1, 4, 4).cuda()
traced = torch.jit.trace(net, image)
assert traced(image).equal(net(image))
traced.save("traced.pt")
assert torch.jit.load("traced.pt", map_location="cuda")(image).equal(net(image))
assert "aten::_convolution" in str(traced.inlined_graph)
"""


def test_traced_convolution(smoke: Callable[..., Report], tmp_path: Path) -> None:
    (tmp_path / "trace.py").write_text(TRACED)
    report = smoke(tmp_path, "python", "trace.py", migrate=True)
    assert report.run.run.succeeded, report.run.run.stderr
