from __future__ import annotations

from collections.abc import Callable

import pytest

from migrator.smoke.imports import Outcome
from migrator.smoke.report import render
from migrator.smoke.request import Report

Check = Callable[..., Report]

FILES = {
    "good.py": "import torch, torch_npu\nx = torch.ones(2, device='npu')\nif __name__ == '__main__':\n    exit(3)\n",
    "hidden.py": "import torch\nstream = torch.npu.Stream()\n",
    "missing.py": "import torch_npu\nimport no_such_package.part\n",
    "wrong_name.py": "import helpers\n\nhelpers.nothing()\n",
    "helpers.py": "def something(): pass\n",
    "package/__init__.py": "from .inner import VALUE\n",
    "package/inner.py": "VALUE = 1\n",
    "script.py": "import argparse, helpers\nargs = argparse.ArgumentParser().parse_args()\nopen('touched', 'w')\n",
    "broken_script.py": "from helpers import nothing\n\ndef main(): pass\n\nmain()\n",
    "syntax.py": "x = (\n",
    "exits.py": "import sys\nif True:\n    sys.exit(3)\n",
}


@pytest.fixture(scope="module")
def report(smoke: Check, tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("tree")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    found = smoke(folder)
    assert not (folder / "touched").exists()
    assert not list(folder.rglob("__pycache__"))
    return found


def test_outcomes(report: Report) -> None:
    outcomes = {module.path: (module.outcome, module.place, module.line) for module in report.imports}
    assert outcomes == {
        "good.py": (Outcome.OK, None, None),
        "hidden.py": (Outcome.FAILED, "hidden.py", 2),
        "missing.py": (Outcome.NEEDS, None, None),
        "wrong_name.py": (Outcome.FAILED, "wrong_name.py", 3),
        "helpers.py": (Outcome.OK, None, None),
        "package/__init__.py": (Outcome.OK, None, None),
        "package/inner.py": (Outcome.OK, None, None),
        "script.py": (Outcome.SCRIPT, None, None),
        "broken_script.py": (Outcome.FAILED, "broken_script.py", 1),
        "syntax.py": (Outcome.FAILED, "syntax.py", 1),
        "exits.py": (Outcome.FAILED, "exits.py", 3),
    }
    assert report.verdict.exit_code == 1


def test_a_line_for_each(report: Report) -> None:
    lines = render(report).splitlines()
    assert "good.py              ok" in lines
    assert "missing.py           needs package no_such_package" in lines
    assert "hidden.py            failed: hidden.py:2: AttributeError: module 'torch' has no" in lines
    assert all(len(line) <= 80 for line in lines)
