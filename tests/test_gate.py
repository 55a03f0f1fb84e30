"""No name that does not exist ever reaches the user's code, whatever a rule says."""

from __future__ import annotations

import pytest

from migrator import registry
from migrator.engine import Settings, migrate
from migrator.project import Project
from migrator.target import Target

RULE = '''"""Writes {new}."""

from migrator.rule import SAFE, Example, Fix, Rule

rule = Rule(id="OWN201", name="own-rule", title="writes a name", applicability=SAFE, tags=("own",), examples=[])


@rule.on_name("torch.optim.AdamW")
def handle(match):
    return Fix([match.replace(match.node, "{new}")], "{new}"{needs})
'''


@pytest.fixture
def own_rule(tmp_path):
    def run(new: str, code: str, target: str = "2.7.1", needs: str = ""):
        folder = tmp_path / new.replace(".", "_")
        folder.mkdir()
        (folder / "own_rule.py").write_text(RULE.format(new=new, needs=needs))
        rules = registry.load((str(folder),))
        settings = Settings(Target(target, None, "test"), rules.select(), rules_dirs=(str(folder),))
        return migrate(code.encode(), "a.py", settings, Project.empty())

    return run


CODE = "import torch\no = torch.optim.AdamW(p)\nx = y.cuda()\n"


@pytest.mark.parametrize(
    "new", ["torch_npu.optim.NpuMagicAdam", "torch_npu.contrib.module.NpuFastAttention", "torch.npu.nvtx.mark"]
)
def test_invented_name_is_withdrawn_and_the_rest_goes_on(own_rule, new):
    result = own_rule(new, CODE)
    assert result.after == b"import torch\nimport torch_npu\no = torch.optim.AdamW(p)\nx = y.npu()\n"
    fault = next(d for d in result.diagnostics if d.rule == "NPU011")
    assert fault.line == 2 and new in fault.message and "OWN201" in fault.message


def test_real_name_passes(own_rule):
    result = own_rule("torch_npu.optim.NpuFusedAdamW", CODE)
    assert b"o = torch_npu.optim.NpuFusedAdamW(p)" in result.after
    assert not any(d.rule == "NPU011" for d in result.diagnostics)


def test_name_that_came_later(own_rule):
    assert own_rule("torch.npu.ExternalStream", CODE, "2.12.0.post3").after.count(b"ExternalStream") == 1
    assert any(d.rule == "NPU011" for d in own_rule("torch_npu.npu.ExternalStream", CODE, "2.11.0").diagnostics)


def test_nothing_else_to_do_leaves_the_file_as_it_was(own_rule):
    result = own_rule("torch_npu.optim.NpuMagicAdam", "import torch\no = torch.optim.AdamW(p)\n")
    assert result.after is None


@pytest.mark.parametrize(
    ("code", "bad"),
    [
        ("import torch as th\nx = th.cuda.nvtx.range_push('a')\n", "nvtx"),
        ("from torch import cuda\nx = cuda.cudart()\n", "cudart"),
        ("import torch.cuda as tc\nx = tc.jiterator\n", "jiterator"),
    ],
)
def test_missing_counterparts_are_never_written(migrated, code, bad):
    outcome = migrated(code)
    assert f"npu.{bad}" not in outcome.text
    assert outcome.left_on(2)
