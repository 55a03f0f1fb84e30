"""Facts about the whole repository."""

from __future__ import annotations

import pickle

from migrator.project import Project


def scan(**files: str) -> Project:
    return Project.scan([(name + ".py", text.encode()) for name, text in files.items()])


def test_classes_that_own_cuda():
    project = scan(
        a="import torch.nn as nn\nclass Batch:\n    def cuda(self): ...\nclass Net(nn.Module):\n    def cuda(self): ...\n",
        b="from a import Batch, Net\nclass Big(Batch): ...\nclass Deep(Net): ...\n",
    )
    assert project.is_class_owner("Batch", "cuda") and project.is_class_owner("Big", "cuda")
    assert not project.is_class_owner("Net", "cuda") and not project.is_class_owner("Deep", "cuda")
    assert project.is_torch_class("Deep")
    assert project.class_owners("cuda") == ["Batch", "Big"]


def test_classes_in_a_circle_end():
    project = scan(a="class A(B): ...\nclass B(A): ...\n")
    assert not project.is_torch_class("A") and not project.is_class_owner("A", "cuda")


def test_fields():
    project = scan(a="class A:\n    cuda: bool\n    def f(self):\n        self.is_cuda = 1\nargs.cuda = 2\n")
    assert project.is_stored("A", "cuda") and project.is_stored("A", "is_cuda")
    assert project.fields == {("args", "cuda")}


def test_sinks():
    project = scan(
        a="t.to(args.where)\nf(device=cfg['place'])\ndist.init_process_group(hp.comm)\ng(backend=x.link)\nt.to(self.dtype)\n"
    )
    assert project.reaches("device", "where") and project.reaches("device", "place")
    assert project.reaches("backend", "comm") and project.reaches("backend", "link")
    assert not project.reaches("device", "dtype")


def test_re_exports():
    project = Project.scan(
        [
            ("pkg/__init__.py", b"from .amp import autocast\n"),
            (
                "pkg/amp.py",
                b"try:\n    from torch.cuda.amp import autocast\nexcept ImportError:\n    autocast = None\n",
            ),
        ]
    )
    assert project.canonical("pkg.autocast") == "torch.cuda.amp.autocast"
    assert project.canonical("pkg.amp.autocast") == "torch.cuda.amp.autocast"
    assert project.canonical("pkg.other") == "pkg.other"


def test_circular_re_exports_end():
    project = scan(a="from .b import x\n", b="from .a import x\n")
    assert project.canonical("a.x")


def test_broken_files_are_passed_over():
    project = Project.scan([("a.py", b"print 'x'\n"), ("b.py", b"\xff\xfe"), ("c.py", b"class C: ...\n")])
    assert project.is_class("C") and project.defines("a.anything")


def test_facts_travel_to_workers():
    project = scan(a="class A:\n    def cuda(self): ...\n")
    assert pickle.loads(pickle.dumps(project)) == project
