"""Where set_compile_mode goes, and that each process of a migrated program has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from migrator import registry
from migrator.emulator import EmulatorError, check, environment
from migrator.engine import Settings, migrate
from migrator.project import Project
from migrator.target import Target

RULES = registry.load().select(["core", "NPU701"])
CALL = "torch_npu.npu.set_compile_mode(jit_compile=False)"
NET = "import torch\n\n\nclass Net(torch.nn.Module):\n    def where(self):\n        return torch.device('cuda')\n"
MAIN = "if __name__ == '__main__':\n    main()\n"


def migrated(path: str, text: str, soc: str | None = None, **files: str) -> str:
    """The file at `path` after the migration, in a repository with some others (named by their stems)."""
    others = [(f"{name.replace('__', '/')}.py", other.encode()) for name, other in files.items()]
    project = Project.scan([(path, text.encode()), *others])
    result = migrate(text.encode(), path, Settings(Target("2.7.1", soc, "test"), RULES), project)
    assert result.error is None
    after = (result.after or text.encode()).decode()
    again = migrate(after.encode(), path, Settings(Target("2.7.1", soc, "test"), RULES), project)
    assert again.after is None, "a second run changes nothing, whatever was known of the file before"
    return after


@pytest.mark.parametrize(
    ("text", "line_before"),
    [
        (f"import torch\nx = torch.ones(2).cuda()\n{MAIN}", "if __name__ == '__main__':"),
        (f"import torch\ndef main():\n    f().cuda()\n{MAIN}", "if __name__ == '__main__':"),
        ('import torch\ndef main():\n    """Doc."""\n    f().cuda()\nmain()\n', '    """Doc."""'),
        ("import torch\n\nnet = f().cuda()\nwhile net.step():\n    pass\n", "import torch_npu"),
        ("import torch\nx.cuda()\nif __name__ == '__main__':\n\n    # Start.\n    f()\n", "if __name__ == '__main__':"),
        ("import torch\nnet = f().cuda()\nfor x in data:\n    net(x)\nimport csv\n", "import torch_npu"),
        ('import torch\nx.cuda()\nif "__main__" == __name__:\n\tmain()\n', 'if "__main__" == __name__:'),
        (
            f"import torch\ndef main():\n    for x in DataLoader(d, pin_memory=True):\n        x.to(0)\n{MAIN}",
            "if __name__ == '__main__':",
        ),
        (
            "import torch\nfrom torch.multiprocessing import Process\ndef run(rank):\n    f().cuda(rank)\n"
            "if __name__ == '__main__':\n    for r in range(2):\n        Process(target=run, args=(r,)).start()\n",
            "def run(rank):",
        ),
        (
            "import torch\nfrom lib import launch\n@catch\ndef main(args):\n    f().cuda()\n"
            "if __name__ == '__main__':\n    launch(main, 8)\n",
            "def main(args):",
        ),
    ],
)
def test_one_line_where_the_program_starts(text: str, line_before: str) -> None:
    lines = migrated("train.py", text).splitlines()
    assert [line.strip() for line in lines].count(CALL) == 1
    assert lines[[line.strip() for line in lines].index(CALL) - 1] == line_before


def test_a_block_on_one_line() -> None:
    text = "import torch\nx.cuda()\nif __name__ == '__main__': main()\n"
    assert f"if __name__ == '__main__': {CALL}; main()\n" in migrated("train.py", text)


def test_windows_line_ends_stay() -> None:
    after = migrated("train.py", f"import torch\nx.cuda()\n{MAIN}".replace("\n", "\r\n"))
    assert f"    {CALL}\r\n    main()\r\n" in after and "\n" not in after.replace("\r\n", "")


def test_a_program_that_uses_the_device_through_an_import() -> None:
    text = f"from net import Net\n\ndef main():\n    Net().fit()\n\n{MAIN}"
    assert CALL in migrated("train.py", text, net=NET)
    assert CALL not in migrated("train.py", text, net=NET.replace("cuda", "cpu"))
    assert CALL not in migrated("convert.py", text.replace("fit", "save"), net=NET)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tests/train.py", f"import torch\nx.cuda()\n{MAIN}"),
        ("test_train.py", f"import torch\nimport pytest\nx.cuda()\n{MAIN}"),
        ("setup.py", f"import torch\nx.cuda()\n{MAIN}"),
        ("train.py", f"import torch\n{MAIN}"),
        ("web.py", f"import ast\nimport torch_npu\nast.literal_eval('1')\n{MAIN}"),
        ("train.py", "import torch\ndevice = torch.device('cuda')\ndef f():\n    return x.to(device)\n"),
        (
            "data.py",
            "import torch\nfor tag in tags:\n    names[tag] = 1\ndef f(x):\n    with torch.cuda.stream(s):\n        return x.cuda()\n",
        ),
        ("train.py", f"import torch\nimport torch_npu\nx.cuda()\ntorch.npu.set_compile_mode()\n{MAIN}"),
        ("train.py", f"import torch\ntry:\n    import torch_npu\nexcept ImportError:\n    pass\nx.cuda()\n{MAIN}"),
    ],
)
def test_no_line_elsewhere(path: str, text: str) -> None:
    before = text.count("set_compile_mode")
    assert migrated(path, text).count("set_compile_mode") == before


def test_a_module_with_a_demonstration_is_no_program() -> None:
    text = f"{NET}\n\nif __name__ == '__main__':\n    print(Net().cuda())\n"
    assert CALL not in migrated("net.py", text, train="from net import Net\n")
    assert CALL in migrated("net.py", text.replace("print(", "main("), train="from net import Net\n")


@pytest.mark.parametrize(
    ("text", "works"),
    [
        ("from common import scan\n\ndef generate_list():\n    scan()\n\nif __name__ == '__main__':\n    generate_list()\n", False),
        ("from fabric import Trainer\nimport common\n\nif __name__ == '__main__':\n    t = Trainer(common.Net())\n    t.fit()\n", True),
        ("import common\n\nif __name__ == '__main__':\n    common.train_all()\n", True),
        ("import tensorflow as tf\nimport torch\nfrom common import scan\n\nif __name__ == '__main__':\n    tf.predict(scan())\n", False),
    ],
)
def test_a_program_without_the_device_imports_the_work(text: str, works: bool) -> None:
    assert (CALL in migrated("prepare.py", text, common=f"{NET}\ndef train_all(): ...\ndef scan(): ...\n")) is works


def test_a_module_below_may_have_called_it() -> None:
    text = f"from common import start\nimport torch\nx.cuda()\n{MAIN}"
    assert CALL not in migrated("train.py", text, common=f"import torch_npu\n{CALL}\n")


@pytest.mark.parametrize("soc", ["Ascend910B1", "Ascend910B4-1", "ascend910_9391", "Ascend310B1", "Ascend950PR"])
def test_newer_chips_do_not_need_it(soc: str) -> None:
    assert CALL not in migrated("train.py", f"import torch\nx.cuda()\n{MAIN}", soc)


@pytest.mark.parametrize("soc", [None, "Ascend910A", "Ascend910B", "Ascend910PremiumA", "Ascend310P3"])
def test_older_chips_need_it(soc: str | None) -> None:
    assert CALL in migrated("train.py", f"import torch\nx.cuda()\n{MAIN}", soc)


SPAWNING = """
import torch
import torch.multiprocessing as mp


def worker(rank):
    print("in", rank, torch.cuda.is_initialized(), torch_npu.npu.is_jit_compile_false())
    net = torch.nn.Linear(2, 2).cuda(rank)
    print("device", net.weight.device)


if __name__ == "__main__":
    mp.spawn(worker, nprocs=2)
"""


def test_each_spawned_process_has_it_and_no_device_is_started(tmp_path: Path) -> None:
    try:
        check()
    except EmulatorError as error:
        pytest.skip(str(error))
    script = tmp_path / "program.py"
    script.write_text(migrated("program.py", SPAWNING), encoding="utf-8")
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**inherited, "OMP_NUM_THREADS": "1", **environment(devices=2, soc="Ascend310P3")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said = {line for line in done.stdout.splitlines() if line.startswith(("in ", "device "))}
    assert said == {"in 0 False True", "in 1 False True", "device npu:0", "device npu:1"}
