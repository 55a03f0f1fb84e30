"""Every row of the CUDA map ends in a rewrite or in a report with a remedy, for old and new targets."""

from __future__ import annotations

import re

import pytest

from migrator import api

TARGETS = ("2.1", "2.6.0", "2.9.0", "2.13.0")
NAMES = sorted(row.cuda for row in api.mappings() if re.fullmatch(r"torch(\.\w+)+", row.cuda))
# Advice speaks of names that work on an NPU as they are: silence about them is right.
NEUTRAL = {row.cuda for row in api.mappings() if row.kind is api.Kind.ADVICE and "cud" not in row.cuda}


@pytest.mark.parametrize("target", TARGETS)
def test_every_name(migrated, target):
    silent, invented, mute = [], [], []
    for name in NAMES:
        if name in NEUTRAL:
            continue
        code = f"import torch\nimport {name.rpartition('.')[0]}\nprint({name})\n"
        outcome = migrated(code, target=target)
        line = outcome.text.splitlines()[-1]
        if f"print({name})" in line and not outcome.left_on(3):
            silent.append(name)
        mute += [name for found in outcome.left if not found.remedy]
        for written in re.findall(r"torch(?:_npu|\.npu)(?:\.\w+)+", line):
            parent = written.rpartition(".")[0]
            if not api.exists(written, target) and not parent.rpartition(".")[2][:1].isupper():
                invented.append(written)
    assert not silent
    assert not invented
    assert not mute
