"""The corpus benchmark judges the tool, so here are sources and tools whose verdict is known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import checks
import corpus
import oracle


def found(source: str) -> list[tuple[str, str, int]]:
    return [(r.kind, r.text, r.start[0]) for r in oracle.references(source)]


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        ("import torch\ntorch.cuda.empty_cache()\n", "torch-name", "torch.cuda.empty_cache"),
        ("import torch as th\nth.version.cuda\n", "torch-name", "torch.version.cuda"),
        (
            "from torch import backends\nbackends.cudnn.benchmark = True\n",
            "torch-name",
            "torch.backends.cudnn.benchmark",
        ),
        (
            "import torch.distributed as dist\ndist.Backend.NCCL\n",
            "torch-name",
            "torch.distributed.Backend.NCCL",
        ),
        (
            "from torch.distributed import is_nccl_available as f\nf()\n",
            "torch-name",
            "torch.distributed.is_nccl_available",
        ),
        ("def f():\n    import torch\n    return torch.cuda\n", "torch-name", "torch.cuda"),
        ("import torch.cuda.amp as amp\n", "import", "torch.cuda.amp"),
        ("from torch import cuda\n", "import", "torch.cuda"),
        ("x.cuda()\n", "attribute", ".cuda"),
        ("move = x.cuda\n", "attribute", ".cuda"),
        ("f(x)[0].is_cuda\n", "attribute", ".is_cuda"),
        ("args.cuda()\n", "attribute", ".cuda"),
        ("import numba\nnumba.cuda.jit\n", "attribute", ".cuda"),
        ("import ours\nours.model.cuda()\n", "attribute", ".cuda"),
        ("class A:\n    def f(self):\n        self.net.cuda()\n", "attribute", ".cuda"),
        ("x.to('cuda')\n", "string", "'cuda'"),
        ("x.to(f'cuda:{i}')\n", "string", "'cuda:{…}'"),
        ("'cuda:' + str(i)\n", "string", "'cuda:'"),
        ("'cuda:%d' % i\n", "string", "'cuda:%d'"),
        ("device = ('cu' 'da:0')\n", "string", "'cuda:0'"),
        ("f(backend='cpu:gloo,cuda:nccl')\n", "string", "'cpu:gloo,cuda:nccl'"),
        ("f(backend='nccl')\n", "string", "'nccl'"),
        ("device = getattr(args, 'device', 'cuda')\n", "string", "'cuda'"),
        ("getattr(model, 'cuda')()\n", "string", "'cuda'"),
        ("print(f\"{x.to('cuda')}\")\n", "string", "'cuda'"),
        ("import os\nos.environ['NCCL_DEBUG'] = 'INFO'\n", "environment", "NCCL_DEBUG"),
        ("import os\nos.environ.get('CUDA_VISIBLE_DEVICES')\n", "environment", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_reference(source: str, kind: str, text: str) -> None:
    assert (kind, text) in [(k, t) for k, t, _ in found(source)]


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.npu.empty_cache()\n",
        "import torch.backends.cudnn as cudnn\n",  # its uses are what matters
        "import mylib as torch\ntorch.cudnn\n",
        "from mylib import cuda\ncuda.f()\n",
        "from mylib import devices\ndevices.cuda.f()\n",
        "from .torch import cuda\ncuda.f()\n",
        "import torch\ndef f(torch):\n    torch.backends.cudnn.enabled\n",
        "args.cuda = True\nif self.opt.is_cuda: pass\nif args.cuda: pass\n",
        "self.cuda = use_gpu\nif self.cuda: pass\n",
        "class A:\n    cuda: bool = False\n    def f(self):\n        return self.cuda\n",
        "def cuda(n): pass\ncuda(3)\n",
        "def f():\n    '''cuda'''\n",
        "'cuda'\n",
        "print('cuda')\nlogger.info('nccl')\nwarnings.warn('cuda')\n",
        "raise ValueError('cuda')\n",
        "assert ok, 'cuda'\n",
        "parser.add_argument('--gpu', help='cuda')\n",
        "parser.add_argument('--gpu', dest='cuda')\n",
        "state = {'cuda': rng}\nstate['cuda']\nstate.get('cuda')\nhasattr(args, 'cuda')\n",
        "name = 'barracuda'\nurl = 'https://example.org/cuda'\n# x.cuda()\n",
        "config['CUDA_HOME']\n",
    ],
)
def test_no_reference(source: str) -> None:
    assert found(source) == []


def test_a_miss_has_its_line_in_the_old_file_and_a_diagnostic_there_covers_it() -> None:
    old = "import torch\nx = 1\ny.cuda()\nz.cuda()\n"
    new = "import torch\nimport torch_npu\nx = 1\ny.npu()\nz.cuda()\n"
    assert [(line, r.text) for line, r in oracle.silent_misses(old, new, [])] == [(4, ".cuda")]
    assert [line for line, _ in oracle.silent_misses(old, new, [(3, 3)])] == [4]
    assert oracle.silent_misses(old, new, [(4, 4)]) == []
    assert oracle.silent_misses(old, new, [(2, 5)]) == []


def test_a_diagnostic_over_a_whole_function_covers_nothing_but_its_first_line() -> None:
    source = "def f(x):\n" + "    pass\n" * 20 + "    x.cuda()\n"
    assert [line for line, _ in oracle.silent_misses(source, source, [(1, 22)])] == [22]


def test_a_reference_that_the_migration_introduced_is_a_miss_where_it_was_put() -> None:
    old = "a = 1\nx.npu()\n"
    assert [line for line, _ in oracle.silent_misses(old, "a = 1\nx.to('cuda')\n", [])] == [2]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_newlines_and_byte_order_marks_do_not_shift_lines(newline: str) -> None:
    source = newline.join(["\ufeff# ä", "s = 'ä'; x.cuda()", ""])
    assert [line for line, _ in oracle.silent_misses(source, source, [])] == [2]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("x = 1  # use cuda\n", "comment"),
        ("def f():\n    '''Runs on cuda.'''\n", "docstring"),
        ("print('on cuda', x)\n", "message"),
        ("print('on cuda %d' % x)\n", "message"),
        ("print('on ' f'cuda {x}' ' now')\n", "message"),
        ("print(f'{x} on cuda {x.cuda()}')\n", "message"),
        ("print('on cuda {}'.format(x))\n", "message"),
        ("logging.info(f'on cuda {x}')\n", "message"),
        ("raise ValueError('no ' + 'cuda')\n", "message"),
        ("assert x, 'no cuda'\n", "message"),
        ("parser.add_argument('--gpu', help='cuda id')\n", "message"),
        ("u = 'see https://example.org/cuda for more'\n", "url"),
        ("p = 'ops/cuda/box.cpp'\n", "path"),
        ("p = f'{root}/cuda'\n", "path"),
        ("p = 'box_cuda.cu'\n", "path"),
        ("s['cuda']\n", "key"),
        ("s = {'cuda_rng': 1}\n", "key"),
        ("s.pop('cuda')\n", "key"),
    ],
)
def test_protected_text(source: str, kind: str) -> None:
    assert [e.kind for e in oracle.protected_edits(source, source.replace("cuda", "npu"))] == [kind]
    assert oracle.protected_edits(source, "import torch_npu\n" + source) == []


@pytest.mark.parametrize(
    "source",
    [
        "x.to('cuda')  # now\n",
        "f(device=f'cuda:{i}')\n",
        "print(f'on {x.cuda()} there')\n",
        "print(f'here {x.cuda()=}')\n",
        "print(f\"on {x.to('cuda')} there\")\n",
        "f(device=f\"cuda:{ranks['a']}\")\n",
        "print(x.to('cuda'))\n",
        "os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n",
        "T = Literal['cuda']\n",
    ],
)
def test_free_text(source: str) -> None:
    new = source.replace("cuda", "npu").replace("CUDA_", "ASCEND_")
    assert new != source
    assert oracle.protected_edits(source, new) == []


def test_a_comment_that_is_lost_with_its_line_counts() -> None:
    assert [e.kind for e in oracle.protected_edits("a()\nb()  # why\n", "a()\n")] == ["comment"]


# -------------------------------------------------------------------------------------------- whole trees

TOOL = """
import difflib, json, re, sys
from pathlib import Path

root, fault = Path(sys.argv[2]), sys.argv[1]
dry, as_json = "--dry-run" in sys.argv, "json" in sys.argv
files, diffs = [], []
for path in sorted(root.rglob("*.py")):
    old = path.read_bytes()
    new = re.sub(rb"[.]cuda[(]", b".npu(", old)
    if fault == "edits-comment":
        new = new.replace(b"# cuda", b"# npu")
    if fault == "not-idempotent":
        new = new + b"# again, cuda\\n"
    if fault == "breaks-syntax":
        new = new.replace(b".npu(", b".npu((")
    if fault == "newlines":
        new = new.replace(b"\\r\\n", b"\\n")
    if fault == "touches-others" and b"cuda" not in old:
        new = new + b"x = 1\\n"
    name = path.relative_to(root).as_posix()
    left = [n for n, line in enumerate(old.split(b"\\n"), 1) if b"'cuda'" in line and fault != "silent"]
    failed = fault == "fails" or b"print 1" in old
    if failed:
        new = old
    status = "failed" if failed else "changed" if new != old else "unchanged"
    files.append({
        "path": name, "status": status, "error": None,
        "diagnostics": [{"line": n, "end_line": n, "fixed": False} for n in left],
    })
    if new != old:
        lines = [text.decode().split("\\n") for text in (old, new)]
        lines = [[line + "\\n" for line in text[:-1]] for text in lines]
        diffs += [f"diff --git a/{name} b/{name}\\n"]
        diffs += difflib.unified_diff(*lines, f"a/{name}", f"b/{name}" if fault != "bad-patch" else "b/no.py")
        if not dry or fault == "dry-writes":
            path.write_bytes(new)
            if fault == "mode":
                path.chmod(0o755)
remaining = sum(len(f["diagnostics"]) for f in files)
if as_json:
    print(json.dumps({"version": 1, "files": files, "summary": {"fixed": 0, "remaining": remaining}}))
elif dry and fault != "empty-diff":
    sys.stdout.buffer.write("".join(diffs).encode())
if fault == "crashes":
    raise RuntimeError("boom")
sys.exit(2 if any(f["status"] == "failed" for f in files) else 1 if remaining or diffs else 0)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "train.py").write_bytes(b"# cuda\r\nx.cuda()\r\ny.to('cuda')\r\n")
    (root / "plain.py").write_bytes(b"x = 1\n")
    return root


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        ("none", set()),
        ("silent", {"silent:string"}),
        ("edits-comment", {"edit:comment"}),
        ("not-idempotent", {"second-run", "unrelated", "bytes"}),
        ("breaks-syntax", {"syntax", "second-run"}),
        ("newlines", {"bytes"}),
        ("touches-others", {"unrelated", "second-run"}),
        ("fails", {"failed", "silent:attribute"}),
        ("bad-patch", {"patch"}),
        ("empty-diff", {"patch"}),
        ("dry-writes", {"dry-run", "patch"}),
        ("mode", {"bytes", "patch"}),
        ("crashes", {"run"}),
    ],
)
def test_each_fault_of_a_tool_is_told_apart(tmp_path: Path, tree: Path, fault: str, kinds: set[str]) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text(TOOL)
    result = checks.check_tree("tree", tree, [sys.executable, str(tool), fault])
    assert {v.kind for v in result.violations} == kinds
    assert (result.files, result.candidates) == (2, 1)
    assert (tree / "train.py").read_bytes() == b"# cuda\r\nx.cuda()\r\ny.to('cuda')\r\n"


def test_a_file_of_broken_python_may_fail(tmp_path: Path, tree: Path) -> None:
    (tree / "old.py").write_text("print 1, 'cuda'\n")
    tool = tmp_path / "tool.py"
    tool.write_text(TOOL)
    result = checks.check_tree("tree", tree, [sys.executable, str(tool), "none"])
    assert (result.failed, result.violations) == (1, [])


def test_exit_codes(tmp_path: Path, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text(TOOL)
    run = ["--dir", str(tree.parent), "--tool"]
    assert corpus.main([*run, f"{sys.executable} {tool} none"]) == 0
    assert corpus.main([*run, f"{sys.executable} {tool} silent", "-v"]) == 1
    assert "tree/train.py:3: 'cuda'" in capsys.readouterr().out
    assert corpus.main([*run, "no-such-tool"]) == 2
    assert corpus.main(["no-such-package"]) == 2
    assert "no such package in the corpus: no-such-package" in capsys.readouterr().err
