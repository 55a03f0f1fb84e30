"""What the CSV file and the summary say about loops of well-known kinds."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from migrator import shapes
from migrator.shapes import record, report
from migrator.shapes.record import journal

Rows = Callable[[], list[dict[str, str]]]
Line = Callable[[object, str], int]


def at(rows: list[dict[str, str]], number: int, name: str) -> dict[str, str]:
    """Return the forward row of an operator at a line of this file."""
    [row] = [
        row
        for row in rows
        if (row["function_name"], row["line_number"]) == (name, str(number))
        and not row["call_stack"].startswith("backward of ")
    ]
    assert row["file_location"] == __file__
    return row


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 1))
        self.head = nn.Linear(8, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.body(self.stem(images))
        scores = self.head(features.mean((2, 3)))
        return scores.sigmoid()


def train_detector(sizes: list[int]) -> None:
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for size in shapes.watch(sizes):
        images = torch.rand(2, 3, size, size)
        loss = model(images).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_images_of_varying_size(rows: Rows, line: Line) -> None:
    train_detector([16, 24, 32, 16, 24])
    found = rows()
    [stem, body] = [
        row
        for row in found
        if row["function_name"] == "aten::convolution" and row["line_number"] == str(line(Detector, "features ="))
    ]
    assert stem["input_shape_range"] == "[2, 3, 16..32, 16..32], [4, 3, 3, 3], [4]"
    assert stem["output_shape_range"] == "[2, 4, 16..32, 16..32]"
    assert (stem["calls"], stem["distinct"]) == ("5", "3")
    assert body["output_shape_range"] == "[2, 8, 8..16, 8..16]"  # both layers
    assert (body["calls"], body["distinct"]) == ("10", "6")
    frames = [
        f"{__file__}:{line(Detector, 'features =')} forward",
        f"{__file__}:{line(train_detector, 'loss =')} train_detector",
    ]
    assert stem["call_stack"].startswith(" <- ".join(frames))
    assert "/torch/" not in stem["call_stack"]
    backward = [row for row in found if row["function_name"] == "aten::convolution_backward"]
    assert {row["line_number"] for row in backward} == {str(line(Detector, "features ="))}
    assert all(row["call_stack"].startswith("backward of ") for row in backward)
    assert str(line(Detector, "return scores")) not in {row["line_number"] for row in found}
    assert "Image sizes vary" in shapes.summary()
    assert "drop_last" not in shapes.summary()


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        vectors = self.embedding(words)
        vectors = self.layer(vectors)
        kept = vectors[words > 3]
        return kept.sum() + (vectors.mean(1) * 2).sum()


def train_tagger(lengths: list[int]) -> None:
    torch.manual_seed(0)
    model = Tagger()
    for length in shapes.watch(lengths):
        words = torch.randint(0, 20, (3, length))
        loss = model(words)
        loss.backward()


def test_texts_of_varying_length(rows: Rows, line: Line) -> None:
    train_tagger([5, 9, 7, 6, 5])
    found = rows()
    embedding = at(found, line(Tagger, "vectors = self.embedding"), "aten::embedding")
    assert embedding["input_shape_range"] == "[20, 8], [3, 5..9]"
    assert embedding["output_shape_range"] == "[3, 5..9, 8]"
    assert embedding["distinct"] == "4"
    masked = at(found, line(Tagger, "kept = "), "aten::index.Tensor")
    assert masked["input_shape_range"] == "[3, 5..9, 8], [3, 5..9]"
    last = str(line(Tagger, "return kept"))
    assert "aten::mul.Tensor" not in {row["function_name"] for row in found if row["line_number"] == last}  # is [3, 8]
    text = shapes.summary()
    assert "Lengths vary" in text and "multiples of 64" in text
    data = text.index("depends on the data")
    where = f"{__file__}:{line(Tagger, 'kept = ')}"
    assert data < text.index(where) < text.index("Lengths vary")  # the mask's line stands below its own remedy
    assert "set_compile_mode(jit_compile=False)" in text


def test_a_mask_alone_is_told_from_varying_input(rows: Rows, line: Line) -> None:
    def select(values: torch.Tensor, limit: int) -> None:
        values[values > limit]  # boolean index
        values[values.clamp(max=1)]  # index of a fixed size
        torch.unique(values.clamp(max=limit))

    for limit in shapes.watch([1, 2, 3, 4]):
        select(torch.arange(8).reshape(2, 4), limit)
    assert [(row["function_name"], row["output_shape_range"]) for row in rows()] == [
        ("aten::index.Tensor", "[3..6]"),
        ("aten::_unique2", "[2..5], [0], [0]"),
    ]
    assert rows()[0]["line_number"] == str(line(select, "boolean index"))
    assert "depends on the data" in shapes.summary()
    assert "Lengths vary" not in shapes.summary() and "first dimension varies" not in shapes.summary()


def test_a_fixed_loop_gives_an_empty_report(rows: Rows, tmp_path: Path) -> None:
    train_detector([16] * 4)
    assert rows() == []
    assert (tmp_path / "npu_shapes" / "rank0.csv").read_text().strip() == ",".join(report.COLUMNS)
    assert "no shapes vary" in shapes.summary()


def test_fixed_layers_of_different_shapes_behind_one_line(rows: Rows) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 16), nn.Linear(16, 2))
    for _ in shapes.watch(range(4)):
        model(torch.ones(3, 4))
    assert rows() == []


def test_a_varying_number_of_equal_calls(rows: Rows) -> None:
    for count in shapes.watch([1, 3, 2, 4]):
        for _ in range(count):
            torch.ones(4).sin()
    assert rows() == []


def test_layers_in_random_order_need_no_new_kernels(rows: Rows) -> None:
    for order in shapes.watch([(2, 3), (3, 2), (2, 2), (3, 3)]):
        for size in order:
            torch.ones(size).sin()
    assert rows() == []


@pytest.mark.parametrize("epochs", [1, 3])
def test_only_the_last_batch_is_smaller(rows: Rows, line: Line, epochs: int) -> None:
    model = nn.Linear(4, 2)
    loader = DataLoader(TensorDataset(torch.rand(11, 4)), batch_size=4)

    def train() -> None:
        for _ in range(epochs):
            for (batch,) in shapes.watch(loader):
                model(batch).sum().backward()

    train()
    row = at(rows(), line(train, "model(batch)"), "aten::addmm")
    assert row["input_shape_range"] == "[2], [3..4, 4], [4, 2]"
    assert (row["calls"], row["distinct"]) == (str(3 * epochs), "2")
    text = shapes.summary()
    assert "drop_last=True" in text
    assert "first dimension varies" not in text


def test_a_smaller_batch_in_the_middle_is_not_the_last_one() -> None:
    for size in shapes.watch([4, 2, 4, 4]):
        torch.ones(size, 3).sin()
    assert "drop_last" not in shapes.summary()
    assert "first dimension varies" in shapes.summary()


def test_the_last_batch_is_seen_beyond_the_recorded_steps(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPU_MIGRATE_SHAPES_STEPS", "3")
    for size in shapes.watch([8] * 10 + [5]):
        torch.ones(size).sin()
    [_, sin] = rows()
    assert (sin["calls"], sin["input_shape_range"]) == ("4", "[5..8]")
    assert "drop_last=True" in shapes.summary()


def test_short_inner_loops_come_to_an_end_of_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPU_MIGRATE_SHAPES_STEPS", "6")
    for _ in range(50):
        for _ in shapes.watch(range(3)):
            torch.ones(2).sin()
    [loop] = journal.loops.values()
    assert loop.batch == 150
    assert {call.count for site in loop.sites.values() for call in site.calls} == {6 + record.MAX_EPOCHS - 2}


def test_recording_stops_after_some_steps(
    rows: Rows, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NPU_MIGRATE_SHAPES_STEPS", "3")
    for size in shapes.watch(iter([2, 4, 6, 8, 10])):
        if size == 8:
            assert [row["input_shape_range"] for row in rows()][1:] == ["[2..6]"]  # written by now
        torch.ones(size).sin()
    assert rows()[1]["input_shape_range"] == "[2..6]"
    assert "goes on unwatched after 3 batches" in capsys.readouterr().err


def test_a_wrong_number_of_steps_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NPU_MIGRATE_SHAPES_STEPS", "many")
    assert list(shapes.watch([1])) == [1]
    assert "NPU_MIGRATE_SHAPES_STEPS='many' is not a number" in capsys.readouterr().err


def test_a_warm_up_batch_is_forgiven_once_the_rest_agrees(rows: Rows) -> None:
    for size in shapes.watch([9, 4, 4, 4, 4]):
        torch.ones(size).sin()
    assert rows() == []
    for size in shapes.watch([9, 4, 4, 4, 6]):
        torch.ones(size).sin()
    assert {row["distinct"] for row in rows()} == {"3"}


def test_an_optimizer_step_ends_an_iteration(rows: Rows) -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in shapes.watch(range(1)):
        for size in (2, 5, 3):
            torch.ones(size).sin()
            optimizer.step()
    assert {row["input_shape_range"] for row in rows()} == {"", "[2..5]"}


def test_train_and_eval_share_code_but_not_shapes(rows: Rows) -> None:
    def run(sizes: list[int]) -> None:
        for size in shapes.watch(sizes):
            torch.ones(size).sin()

    for _ in range(2):
        run([8, 8, 8])
        run([3, 3])
    assert rows() == []
    assert shapes.summary().count("no shapes vary") == 2


def test_backward_operators_belong_to_the_forward_line(rows: Rows, line: Line) -> None:
    def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a = x @ w  # product
        b = a * a  # square
        b[0] = 0  # write to a view
        return b.cosh().sum()  # reduction

    w = torch.ones(3, 2, requires_grad=True)
    for size in shapes.watch([4, 5, 6]):
        model(torch.ones(size, 3), w).backward()
    found = [row for row in rows() if row["call_stack"].startswith("backward of ")]
    by_line: dict[int, set[str]] = {}
    for row in found:
        by_line.setdefault(int(row["line_number"]), set()).add(row["function_name"])
    assert by_line[line(model, "product")] == {"aten::mm"}
    assert by_line[line(model, "square")] == {"aten::mul.Tensor", "aten::add.Tensor"}
    assert by_line[line(model, "write to a view")] == {"aten::copy_"}
    assert by_line[line(model, "reduction")] == {"aten::sinh", "aten::mul.Tensor"}
    assert len(by_line) == 4


def test_python_code_within_backward_is_charged_itself(rows: Rows, line: Line) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad.cosh()

    for size in shapes.watch([4, 5, 6]):
        Double.apply(torch.ones(size, requires_grad=True)).sum().backward()
    row = at(rows(), line(Double, "grad.cosh"), "aten::cosh")
    assert row["input_shape_range"] == "[4..6]"


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_recomputed_code_within_backward(rows: Rows, line: Line, use_reentrant: bool) -> None:
    def block(x: torch.Tensor) -> torch.Tensor:
        y = x.sinh()
        return y * y

    for size in shapes.watch([4, 5, 6]):
        x = torch.ones(size, requires_grad=True)
        checkpoint(block, x, use_reentrant=use_reentrant).sum().backward()
    forward = [row for row in rows() if row["function_name"] == "aten::sinh"]
    assert {row["line_number"] for row in forward} == {str(line(block, "x.sinh()"))}
    assert len(forward) == 2  # at first, and again within backward
    gradient = [row for row in rows() if row["function_name"] == "aten::cosh"]
    assert {row["line_number"] for row in gradient} == {str(line(block, "x.sinh()"))}
    assert all(row["call_stack"].startswith("backward of ") for row in gradient)


def test_backward_of_backward(rows: Rows, line: Line) -> None:
    def penalty(x: torch.Tensor) -> torch.Tensor:
        score = x.sigmoid().sum()
        [gradient] = torch.autograd.grad(score, x, create_graph=True)
        return gradient.square().sum()

    for size in shapes.watch([4, 5, 6]):
        penalty(torch.ones(size, requires_grad=True)).backward()
    second = [row for row in rows() if row["call_stack"].startswith("backward of ")]
    assert str(line(penalty, "x.sigmoid()")) in {row["line_number"] for row in second}


def test_two_optimizers_share_the_nodes_of_one_forward(rows: Rows, line: Line) -> None:
    """A GAN steps one optimizer between the forward of the other loss and its backward."""
    w, v = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    first, second = torch.optim.SGD([w], lr=0.1), torch.optim.SGD([v], lr=0.1)

    def losses(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        one = (x * w).sum()
        two = (x * v).asinh().sum()
        return one, two

    for size in shapes.watch([4, 5, 6]):
        one, two = losses(torch.ones(size))
        one.backward()
        first.step()
        two.backward()
        second.step()
    lines = {row["line_number"] for row in rows() if row["call_stack"].startswith("backward of ")}
    assert lines == {str(line(losses, "one =")), str(line(losses, "two ="))}


def test_memory_is_bounded(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MAX_SHAPES", 8)
    monkeypatch.setattr(record, "MAX_CALLS_PER_SITE", 5)
    monkeypatch.setattr(record, "MAX_CALLS", 20)
    for size in shapes.watch(range(1, 101)):
        x = torch.ones(size)
        for _ in range(10):
            x.sin()
        torch.stack([torch.zeros(2)] * size)
    sites = [site for loop in journal.loops.values() for site in loop.sites.values()]
    calls = [call for site in sites for call in site.calls]
    assert len(calls) <= 20
    assert all(len(call.shapes) <= 8 for call in calls)
    assert all(len(call.inputs.bounds) <= record.MAX_RANKS for call in calls)
    sin = next(row for row in rows() if row["function_name"] == "aten::sin")
    assert sin["input_shape_range"] == "[1..100]"  # goes on beyond the shapes that are kept
    assert sin["distinct"] == "8+"
    assert sin["calls"] == "500"
    stack = next(row for row in rows() if row["function_name"] == "aten::stack")
    assert stack["input_shape_range"].endswith("| ...")
    assert journal.lost == 500
    assert "500 operator calls were left out" in shapes.summary()


def test_call_stacks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.shapes.places.MAX_PLACES", 10)
    for _ in shapes.watch(range(1)):
        for i in range(30):
            code = compile(f"torch.ones({i}).sin()", f"generated{i}.py", "exec")
            exec(code, {"torch": torch})
    assert len(journal.places._places) == 10  # one of them is the loop's
    assert journal.lost == 2 * 30 - 9


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_shape_that_cannot_be_read_does_not_stop_the_program() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for _ in shapes.watch(range(2)):
        assert math.isclose((nested * 2)[1].sum().item(), 6)
    assert "Some operator calls could not be recorded" in shapes.summary()


def test_an_unwritable_folder_is_told_and_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("NPU_MIGRATE_SHAPES_OUT", "taken/here")
    assert list(shapes.watch([1, 2])) == [1, 2]
    assert "NPU_MIGRATE_SHAPES_OUT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("out", "rank", "path"),
    [
        (None, 0, "npu_shapes/rank0.csv"),
        (None, 5, "npu_shapes/rank5.csv"),
        ("logs/shapes", 2, "logs/shapes/rank2.csv"),
        ("shapes.csv", 0, "shapes.csv"),
        ("shapes.csv", 2, "shapes.rank2.csv"),
    ],
)
def test_a_file_per_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str | None, rank: int, path: str
) -> None:
    if out is not None:
        monkeypatch.setenv("NPU_MIGRATE_SHAPES_OUT", out)
    journal.rank = rank
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # as hydra does
    assert list(shapes.watch([1])) == [1]
    assert (tmp_path / path).is_file()


def test_losses_and_metrics_of_functional_style(rows: Rows, line: Line) -> None:
    def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, target)

    for size in shapes.watch([4, 5, 7]):
        loss(torch.rand(size, 3, requires_grad=True), torch.zeros(size, dtype=torch.long)).backward()
    assert (
        at(rows(), line(loss, "F.cross_entropy"), "aten::nll_loss_forward")["input_shape_range"] == "[4..7, 3], [4..7]"
    )
