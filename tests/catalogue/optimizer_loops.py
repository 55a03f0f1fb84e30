"""Small training programs, as people write them for CUDA.  Each defines train(…) → the trained parameters.

PROVEN: nothing speaks against a fused optimizer.  REFUSED: name → (what the finding says, the program).
DISTRIBUTED programs take the backend beside the device.
"""

from __future__ import annotations

HEAD = """
import pickle

import torch
from torch import nn


def data(steps=10):
    generator = torch.Generator().manual_seed(7)
    for _ in range(steps):
        yield torch.randn(8, 6, generator=generator), torch.randn(8, 3, generator=generator)


def network(device):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).to(device)

"""

PLAIN = """
def train(device="cuda"):
    model = network(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, y in data():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
    return model.parameters()
"""

SCHEDULED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).flatten(1))


def train(device="cuda"):
    torch.manual_seed(1)
    net = Net().to(device)
    optim = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2, nesterov=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optim, step_size=3, gamma=0.5)
    generator = torch.Generator().manual_seed(3)
    for _ in range(10):
        x = torch.randn(4, 1, 4, 4, generator=generator).to(device)
        loss = net(x).pow(2).mean()
        loss.backward()
        optim.step()
        scheduler.step()
        optim.zero_grad()
    return net.parameters()
"""

ACCUMULATED = """
def train(device="cuda"):
    model = network(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1, amsgrad=True)
    for step, (x, y) in enumerate(data(20)):
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device)) / 2
        loss.backward()
        if step % 2:
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            optimizer.step()
            optimizer.zero_grad()
    return model.parameters()
"""

GROUPS = """
def one_epoch(model, optimizer, device):
    for x, y in data():
        optimizer.zero_grad()
        nn.functional.l1_loss(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
    for group in optimizer.param_groups:
        group["lr"] *= 0.5


def train(device="cuda"):
    model = network(device)
    groups = [{"params": model[0].parameters(), "lr": 1e-3}, {"params": model[2].parameters(), "weight_decay": 0.1}]
    optimizer = torch.optim.RMSprop(groups, lr=1e-2, momentum=0.9, centered=True)
    one_epoch(model, optimizer, device)
    one_epoch(model, optimizer, device)
    return model.parameters()
"""

TEXT = """
def train(device="cuda"):
    torch.manual_seed(1)
    embedding, rnn, head = nn.Embedding(20, 8), nn.LSTM(8, 12, batch_first=True), nn.Linear(12, 20)
    model = nn.ModuleList([embedding, rnn, head]).to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.5, rho=0.8, weight_decay=1e-3)
    generator = torch.Generator().manual_seed(5)
    for step in range(10):
        tokens = torch.randint(0, 20, (4, 5 + step % 3), generator=generator).to(device)
        optimizer.zero_grad()
        out, _ = rnn(embedding(tokens))
        loss = nn.functional.cross_entropy(head(out[:, -1]), tokens[:, 0])
        loss.backward()
        optimizer.step()
    return model.parameters()
"""

TRAINER = """
class Trainer:
    def __init__(self, device):
        self.device = device
        self.model = network(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05)

    def fit(self):
        for x, y in data():
            self.model.train()
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x.to(self.device)), y.to(self.device)).backward()
            self.optimizer.step()
            self.model.eval()
            with torch.no_grad():
                self.model(x.to(self.device))
            saved = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        return saved


def train(device="cuda"):
    trainer = Trainer(device)
    trainer.fit()
    return trainer.model.parameters()
"""

PARALLEL = """
def train(device="cuda", backend="nccl"):
    torch.distributed.init_process_group(backend, init_method="tcp://127.0.0.1:PORT", rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(network(device)OPTIONS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for x, y in data():
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
    torch.distributed.destroy_process_group()
    return model.parameters()
"""

PROVEN = {
    "parallel": PARALLEL.replace("OPTIONS", ""),
    "plain": PLAIN,
    "scheduled": SCHEDULED,
    "accumulated": ACCUMULATED,
    "groups": GROUPS,
    "text": TEXT,
    "trainer": TRAINER,
}

LATE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.head, self.late = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x, step):
        hidden = torch.tanh(self.trunk(x))
        return self.late(hidden) if step > 4 else self.head(hidden)


def train(device="cuda"):
    torch.manual_seed(1)
    model = Net().to(device)
    optimizer = torch.optim.OPTIMIZER(model.parameters(), lr=0.05)
    for step, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x.to(device), step), y.to(device)).backward()
        optimizer.step()
    return model.parameters()
"""

SPARSE = """
def train(device="cuda"):
    torch.manual_seed(1)
    table = nn.Embedding(20, 4, sparse=True).to(device)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    for step in range(10):
        optimizer.zero_grad()
        table(torch.arange(step, step + 4).to(device)).pow(2).sum().backward()
        optimizer.step()
    return table.parameters()
"""

TWO = """
def train(device="cuda"):
    model = network(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    other = torch.optim.Adam(model[2].parameters(), lr=1e-3)
    for x, y in data():
        for opt in (optimizer, other):
            opt.zero_grad()
            nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
            opt.step()
    return model.parameters()
"""


def changed(old: str, new: str) -> str:
    """The plain program with one piece replaced."""
    assert old in PLAIN, old
    return PLAIN.replace(old, new)


ZERO, BACK, STEP = "        optimizer.zero_grad()\n", "        loss.backward()\n", "        optimizer.step()\n"
MADE = "    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)\n"

REFUSED = {
    "model zero_grad": ("model.zero_grad()", changed(ZERO, "        model.zero_grad()\n")),
    "no gradient": ("p.grad", changed(ZERO, "        for p in model.parameters():\n            p.grad = None\n")),
    "set_to_none": ("set_to_none", changed(ZERO, "        optimizer.zero_grad(set_to_none=True)\n")),
    "closure": (
        "closure",
        changed(
            f"        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))\n{BACK}{STEP}",
            "        def closure():\n            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))\n"
            "            loss.backward()\n            return loss\n\n        optimizer.step(closure)\n",
        ),
    ),
    "load_state_dict": (
        "load_state_dict()",
        changed(MADE, f"{MADE}    first = None\n").replace(
            STEP,
            f"{STEP}        first = first or pickle.dumps(optimizer.state_dict())\n"
            "        optimizer.load_state_dict(pickle.loads(first))\n",
        ),
    ),
    "add_param_group": (
        "add_param_group()",
        changed("model.parameters(), lr", "model[0].parameters(), lr").replace(
            STEP, f"{STEP}        if len(optimizer.param_groups) == 1:\n"
            "            optimizer.add_param_group({'params': model[2].parameters()})\n",
        ),
    ),
    "bfloat16": (
        "bfloat16",
        changed("model = network(device)", "model = network(device).to(torch.bfloat16)")
        .replace("x.to(device)", "x.to(device, torch.bfloat16)")
        .replace("y.to(device)", "y.to(device, torch.bfloat16)"),
    ),
    "sparse": ("sparse", SPARSE),
    "late": ("only if step > 4", LATE.replace("OPTIMIZER", "Adam")),
    "late sgd": ("only if step > 4", LATE.replace("OPTIMIZER", "SGD")),
    "create_graph": ("create_graph", changed(BACK, "        loss.backward(create_graph=True)\n")),
    "parameter data": (
        "p.data", changed(STEP, f"{STEP}        for p in model.parameters():\n            p.data = p.data * 0.99\n"),
    ),
    "cpu and back": (
        "model.cpu()", changed(STEP, f"{STEP}        model.cpu()\n        model.to(device)\n"),
    ),
    "skipped backward": (
        "backward() runs only if",
        changed(BACK, "        if x[0, 0] > 0:\n            loss.backward()\n"),
    ),
    "two optimizers": ("is put in a container", TWO),
    "bucket view": ("gradient_as_bucket_view", PARALLEL.replace("OPTIONS", ", gradient_as_bucket_view=True")),
    "unfrozen": (
        "requires_grad",
        changed(MADE, f"{MADE}    model[0].weight.requires_grad = False\n").replace(
            STEP, f"{STEP}        model[0].weight.requires_grad = True\n"
        ),
    ),
}  # fmt: skip

DISTRIBUTED = {"parallel", "bucket view"}
