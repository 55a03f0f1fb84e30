"""Device and backend strings in every form and position: by where the value goes, not by its spelling."""

from __future__ import annotations

import pytest

HEAD = "import torch\nimport torch_npu\n"

DEVICES = {
    "literal": "x = torch.device('cuda')",
    "with index": "x = t.to('cuda:1')",
    "f-string": "x = t.to(f'cuda:{rank}')",
    "percent": "x = t.to('cuda:%d' % rank)",
    "format": "x = t.to('cuda:{}'.format(rank))",
    "format with a name": "x = t.to('cuda:{r}'.format(r=rank))",
    "sum": "x = t.to('cuda:' + str(rank))",
    "join": "x = ':'.join(['cuda', str(rank)])",
    "conditional": "device = 'cuda' if torch.npu.is_available() else 'cpu'",
    "nested conditional": "d = ('cuda:0' if one else 'cuda') if gpu else 'cpu'",
    "or": "device = args.device or 'cuda'",
    "comparison": "if x.device.type == 'cuda':\n    y = 1",
    "not equal": "if str(device) != 'cuda':\n    y = 1",
    "in a tuple": "if device in ('cuda', 'mps'):\n    y = 1",
    "in a text": "if 'cuda' in str(device):\n    y = 1",
    "startswith": "if device.startswith('cuda'):\n    y = 1",
    "split": "i = int(device.split('cuda:')[1])",
    "parameter default": "def f(device='cuda'):\n    pass",
    "parameter that reaches one": "def f(where='cuda'):\n    return t.to(where)",
    "lambda default": "f = lambda device='cuda': device",
    "dataclass field": "class C:\n    device: str = 'cuda'",
    "class attribute": "class C:\n    default_device = 'cuda'",
    "self attribute": "class C:\n    def __init__(self):\n        self.device = 'cuda'",
    "attribute that reaches one": "class C:\n    def f(self):\n        self.where = 'cuda'\n        t.to(self.where)",
    "variable that reaches one": "where = 'cuda'\nt.to(where)",
    "variable through another": "a = 'cuda'\nb = a\nt.to(b)",
    "list of devices": "devices = ['cpu', 'cuda']",
    "loop over devices": "for dev in ['cuda:0', 'cuda:1']:\n    t.to(dev)",
    "argparse": "p.add_argument('--device', default='cuda', choices=('cuda', 'cpu'))",
    "argparse dest": "p.add_argument('-d', dest='device', default='cuda')",
    "argparse by use": "p.add_argument('--accel', default='cuda')\nt.to(args.accel)",
    "click": "@click.option('--device', default='cuda')\ndef f(device):\n    pass",
    "click choice": "@click.option('--device', type=click.Choice(['cuda', 'cpu']))\ndef f(device):\n    pass",
    "absl": "flags.DEFINE_string('device', 'cuda', 'where to run')",
    "typer": "def f(device: str = typer.Option('cuda')):\n    pass",
    "map_location": "s = torch.load(p, map_location='cuda:0')",
    "map_location positional": "s = torch.load(p, 'cuda:0')",
    "map_location lambda": "s = torch.load(p, map_location=lambda storage, loc: storage.cuda(1))",
    "map_location dictionary": "s = torch.load(p, map_location={'cuda:0': 'cuda:1'})",
    "map_location percent dictionary": "m = {'cuda:%d' % 0: 'cuda:%d' % rank}\ns = torch.load(p, map_location=m)",
    "device_map": "m = load(device_map='cuda:0')",
    "device_map dictionary": "m = load(device_map={'': 'cuda:0'})",
    "pin_memory_device": "l = DataLoader(d, pin_memory_device='cuda')",
    "torch.device keyword": "x = torch.device(type='cuda', index=i)",
    "set_default_device": "torch.set_default_device('cuda')",
    "default device compared": "if torch.get_default_device().type == 'cuda':\n    y = 1",
    "autocast": "with torch.autocast('cuda'):\n    y = 1",
    "autocast keyword": "with torch.autocast(device_type='cuda', dtype=d):\n    y = 1",
    "scaler": "s = torch.amp.GradScaler('cuda')",
    "custom_fwd": "@torch.amp.custom_fwd(device_type='cuda')\ndef f(c):\n    pass",
    "generator": "g = torch.Generator(device='cuda')",
    "generator positional": "g = torch.Generator('cuda')",
    "stream": "s = torch.Stream('cuda')",
    "mesh": "m = torch.distributed.device_mesh.init_device_mesh('cuda', (2,))",
    "get default": "d = cfg.get('device', 'cuda')",
    "getattr default": "d = getattr(args, 'device', 'cuda')",
    "environment default": "d = os.environ.get('DEVICE', 'cuda')",
    "keyword of a user's function": "m = load_model(path, device='cuda')",
    "dictionary entry": "cfg = {'device': 'cuda'}",
    "subscript target": "cfg['device'] = 'cuda'",
    "dict call": "cfg = dict(device='cuda')",
    "returned by get_device": "def get_device():\n    return 'cuda'",
    "returned and used": "def pick():\n    return 'cuda'\nt.to(pick())",
    "adjacent literals": "x = torch.device('cuda' ':0')",
    "match": "match device:\n    case 'cuda':\n        y = 1",
    "parametrized test": "@pytest.mark.parametrize('device', ['cuda'])\ndef test_f(device):\n    pass",
    "walrus": "if (device := 'cuda'):\n    pass",
    "default_factory": "class C:\n    device: str = field(default_factory=lambda: 'cuda')",
    "double quotes": 'x = t.to("cuda")',
    "triple quotes": 'x = t.to("""cuda""")',
    "raw": "x = t.to(r'cuda')",
}

KEPT = {
    "print": "print('cuda')",
    "logging": "logging.info('cuda')",
    "exception": "raise ValueError('cuda')",
    "assert message": "assert ok, 'cuda'",
    "warning": "warnings.warn('cuda')",
    "docstring": "def f():\n    'cuda'",
    "help": "p.add_argument('--n', help='cuda')",
    "option name": "p.add_argument('cuda')",
    "dictionary key": "d = {'cuda': 1}",
    "subscript": "d['cuda'] += 1",
    "get": "d.get('cuda')",
    "path": "p = os.path.join('ops', 'cuda')",
    "pathlib": "p = Path('cuda')",
    "setattr": "setattr(obj, 'cuda', 1)",
    "bytes": "x = b'cuda'",
    "message in a comparison": "if 'cuda' == what_the_user_said:\n    y = 1",
    "another word": "x = t.to('cudagraph')",
    "keyword of print": "print(x, end='cuda')",
    "part of a longer word": "key = f\"{'cuda' if gpu else 'cpu'}_time_total\"",
    "unknown call": "start('cuda')",
}


@pytest.mark.parametrize("code", DEVICES.values(), ids=DEVICES)
def test_device_is_changed(migrated, code):
    outcome = migrated(HEAD + code + "\n")
    assert "cuda" not in outcome.text, outcome.left
    assert migrated(outcome.text).result.after is None


@pytest.mark.parametrize("code", KEPT.values(), ids=KEPT)
def test_other_text_stays(migrated, code):
    outcome = migrated(HEAD + code + "\n")
    assert outcome.text == HEAD + code + "\n"


def test_only_the_word_changes(migrated):
    code = HEAD + "x = t.to( f\"cuda:{ f(a, 'b') }\"  ,  non_blocking = True )  # to cuda\n"
    assert migrated(code).text == code.replace('f"cuda:', 'f"npu:')


def test_split_word_is_reported(migrated):
    outcome = migrated(HEAD + "x = t.to('cu' 'da')\n")
    assert outcome.left_on(3)


def test_unsure_device_changes_on_request(migrated):
    code = HEAD + "start('cuda')\n"
    assert migrated(code).left[0].applicability == "unsafe"
    assert "start('npu')" in migrated(code, unsafe=True).text


def test_positional_argument_by_the_parameter_of_the_repository(migrated):
    files = {"lib.py": "def load(path, target_device, fast=False):\n    import torch\n    pass\n"}
    assert "load(p, 'npu')" in migrated("from lib import load\nload(p, 'cuda')\n", files=files).text


def test_option_that_another_file_uses_as_a_device(migrated):
    files = {"use.py": "import torch\n\n\ndef go(hp):\n    return torch.zeros(1, device=hp.where)\n"}
    assert "where='npu'" in migrated("hp = HP(where='cuda', n=1)\n", files=files).text


BACKENDS = {
    "positional": "dist.init_process_group('nccl')",
    "keyword": "dist.init_process_group(backend='nccl', rank=0)",
    "new_group": "g = dist.new_group([0], backend='nccl')",
    "map": "dist.init_process_group('cpu:gloo,cuda:nccl')",
    "upper case": "b = dist.Backend('NCCL')",
    "conditional": "backend = 'nccl' if gpu else 'gloo'",
    "compared": "if dist.get_backend() == 'nccl':\n    y = 1",
    "argparse": "p.add_argument('--dist-backend', default='nccl', choices=['nccl', 'gloo'])",
    "parameter": "def setup(rank, backend='nccl'):\n    pass",
    "field": "class C:\n    dist_backend: str = 'nccl'",
    "any name": "comm = 'nccl'",
}


@pytest.mark.parametrize("code", BACKENDS.values(), ids=BACKENDS)
def test_backend_is_changed(migrated, code):
    text = migrated("import torch.distributed as dist\n" + code + "\n").text
    assert "nccl" not in text.lower()
    assert "hccl" in text.lower()
