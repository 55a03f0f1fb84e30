"""The hooks of the shape detector: where they go, that they run, and that they come out again byte for byte."""

from __future__ import annotations

import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import migrator
from migrator import registry
from migrator.cli import main
from migrator.engine import Settings, migrate
from migrator.project import Project
from migrator.records import FileResult
from migrator.target import Target

ROOT = Path(migrator.__file__).parent.parent
RULES = registry.load().select(["shape-detector"])
FIXTURES = sorted((ROOT / "fixtures").glob("*/before/**/*.py"))


def run(raw: bytes, *, remove: bool = False) -> FileResult:
    settings = Settings(Target("2.7.1", None, "test"), RULES, remove=remove)
    result = migrate(raw, "train.py", settings, Project.empty())
    assert result.error is None
    return result


def hooked(raw: bytes) -> bytes:
    """The file with hooks, after the checks that hold for every file."""
    after = run(raw).after
    assert after is not None
    assert run(after).after is None, "a second run changes nothing"
    assert run(after, remove=True).after == raw, "the way back is exact"
    return after


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("for x in loader:", "for x in shapes.watch(loader):"),
        ("for x in self.val_loader:", "for x in shapes.watch(self.val_loader):"),
        ("for x in loaders['val']:", "for x in shapes.watch(loaders['val']):"),
        ("for x in (loader):", "for x in (shapes.watch(loader)):"),
        ("for x in DataLoader(data, shuffle=True):", "for x in shapes.watch(DataLoader(data, shuffle=True)):"),
        ("for x in self.train_dataloader():", "for x in shapes.watch(self.train_dataloader()):"),
        ("for i, x in enumerate(loader, 1):", "for i, x in enumerate(shapes.watch(loader), 1):"),
        ("for i, x in enumerate(tqdm(loader)):", "for i, x in enumerate(tqdm(shapes.watch(loader))):"),
        ("for x in tqdm(total=9, iterable=loader):", "for x in tqdm(total=9, iterable=shapes.watch(loader)):"),
        ("for a, b in zip(loader, labels):", "for a, b in zip(shapes.watch(loader), labels):"),
        ("for x in log.every(loader, 10, 'Epoch'):", "for x in log.every(shapes.watch(loader), 10, 'Epoch'):"),
        ("for x in bar:", "for x in shapes.watch(bar):"),
    ],
)
def test_loops_over_loaders(loop: str, expected: str) -> None:
    text = f"import torch\nbar = tqdm(loader)\n{loop}\n    net(x)\n"
    assert hooked(text.encode()).decode() == f"from migrator import shapes\n{text.replace(loop, expected)}"


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("for i in range(9):\n    f(i).backward()\n", "for i in shapes.watch(range(9)):\n    f(i).backward()\n"),
        (
            "for e in range(9):\n    for x in enumerate(data):\n        optimizer.step()\n",
            "for e in range(9):\n    for x in enumerate(shapes.watch(data)):\n        optimizer.step()\n",
        ),
        (
            "for x in loader:\n    for i in range(2):\n        f(x).backward()\n",
            "for x in shapes.watch(loader):\n    for i in range(2):\n        f(x).backward()\n",
        ),
    ],
)
def test_loops_that_train(loop: str, expected: str) -> None:
    after = hooked(f"import torch\n{loop}".encode()).decode()
    assert after == f"from migrator import shapes\nimport torch\n{expected}"


@pytest.mark.parametrize(
    "loop",
    [
        "for loader in loaders:\n    pass\n",
        "for i in range(len(loader)):\n    pass\n",
        "for e in range(9):\n    scheduler.step()\n",
        "for name, loader in loaders.items():\n    pass\n",
        "for x in a, b:\n    f(x).backward()\n",
        "for p in parameters:\n    def hook():\n        loss.backward()\n",
        "async def f():\n    async for x in loader:\n        net(x)\n",
        "xs = [net(x) for x in loader]\n",
    ],
)
def test_loops_that_are_left_alone(loop: str) -> None:
    assert run(f"import torch\n{loop}".encode()).after is None


def test_code_without_torch_is_left_alone() -> None:
    assert run(b"import jinja2\nfor name in loader:\n    print(name)\n").after is None


def test_a_while_loop_is_reported() -> None:
    (found,) = run(b"import torch\nwhile True:\n    net(next(batches)).backward()\n").diagnostics
    assert "while" in found.message and found.line == 2 and not found.fixed


@pytest.mark.parametrize(
    "raw",
    [
        b"import torch\r\nfor x in loader:\r\n\tnet(x)\r\n",
        b"\xef\xbb\xbfimport torch\nfor x in loader:\n    net(x)",
        b'#!/usr/bin/python\n"""Doc."""\nfrom __future__ import annotations\n\nimport torch\nfor x in loader: net(x)\n',
        b"# Head.\n\n# About torch.\nimport os, torch\nfor x in ( # why\n    loader\n):\n    net(x)\n",
        b"def f(loader):\n    import torch\n    for x in loader:\n        net(x)\n",
        b"@torch.no_grad()\ndef f(loader):\n    for x in loader:\n        net(x)\n",
        b"try:\n    import torch\nexcept ImportError:\n    torch = None\nfor x in loader:\n    net(x)\n",
        b"import torch; shapes = 1\nfor x in loader:\n    net(x, shapes)\n",
        b"import torch\nfor x in loader:  # \xc3\xa4\xe2\x82\xac\n    for y in other_loader:\n        net(x, y)\n",
    ],
)
def test_every_kind_of_file_comes_back_as_it_was(raw: bytes) -> None:
    compile(hooked(raw), "train.py", "exec")


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.relative_to(ROOT / "fixtures").as_posix())
def test_realistic_files_come_back_as_they_were(path: Path) -> None:
    raw = path.read_bytes()
    if run(raw).after is not None:
        compile(hooked(raw), str(path), "exec")


def test_more_than_hooks_stays_and_is_told() -> None:
    code = b"from migrator import shapes\nfor x in shapes.watch(loader):\n    net(x)\nprint(shapes.summary())\n"
    result = run(code, remove=True)
    assert result.after == code.replace(b"shapes.watch(loader)", b"loader")
    assert any("used for more" in found.message and not found.fixed for found in result.diagnostics)


def test_the_command_line_puts_hooks_in_and_takes_them_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(b"import torch\nfor x in loader:\n    net(x)\n")
    assert main([str(path), "--select", "shape-detector", "--allow-dirty"]) == 1
    assert b"shapes.watch(loader)" in path.read_bytes()
    assert main([str(path), "--select", "shape-detector", "--remove", "--allow-dirty"]) == 1
    assert path.read_bytes() == b"import torch\nfor x in loader:\n    net(x)\n"
    assert main([str(path), "--remove"]) == 2
    assert "--select shape-detector" in capfd.readouterr().err


PROGRAM = """\
import sys

import torch


def batches(varying):
    for length in [5, 9, 7, 12, 6] if varying else [8] * 5:
        yield torch.ones(2, length, 4)


def train(loader):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        optimizer.zero_grad()
        loss = model(batch).tanh().mean()
        loss.backward()
        optimizer.step()


train(batches(sys.argv[1] == "varying"))
"""


@pytest.mark.parametrize("kind", ["varying", "fixed"])
def test_a_hooked_program_names_the_line(kind: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    script = tmp_path / "train.py"
    script.write_bytes(hooked(PROGRAM.encode()))
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("NPU_MIGRATE")}
    done = subprocess.run(
        [sys.executable, str(script), kind],
        env={**inherited, "PYTHONPATH": str(ROOT), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "npu_shapes" / "rank0.csv").open(encoding="utf-8", newline="") as file:
        lines = {int(row["line_number"]) for row in csv.DictReader(file)}
    text = script.read_text(encoding="utf-8").splitlines()
    line = next(number for number, code in enumerate(text, 1) if "loss = model(batch)" in code)
    assert lines == ({line} if kind == "varying" else set())
