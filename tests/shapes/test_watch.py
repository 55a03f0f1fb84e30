"""The wrapper: it behaves like what it wraps, and the recording is over when the loop is."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator
from itertools import islice

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from migrator import shapes
from migrator.shapes.record import journal


@pytest.fixture(autouse=True)
def balanced() -> Iterator[None]:
    """Whatever a test does, no mode may be left on."""
    yield
    assert is_off()


def is_off() -> bool:
    return _get_current_dispatch_mode_stack() == []


def is_on() -> bool:
    return [type(mode).__name__ for mode in _get_current_dispatch_mode_stack()] == ["Recorder"]


def recorded(name: str) -> int:
    """Return how often an operator was recorded."""
    sites = [site for loop in journal.loops.values() for site in loop.sites.values()]
    return sum(call.count for site in sites if site.name == name for call in site.calls)


def test_behaves_like_the_loader() -> None:
    data = TensorDataset(torch.arange(10.0))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, num_replicas=1, rank=0))
    watched = shapes.watch(loader)
    assert len(watched) == 3
    assert bool(watched)
    assert watched.dataset is data
    assert watched.batch_size == 4
    watched.sampler.set_epoch(3)
    assert loader.sampler.epoch == 3
    watched.note = "kept"
    assert loader.note == "kept"
    with pytest.raises(AttributeError, match="DataLoader"):
        watched.nothing  # noqa: B018
    for _ in range(2):
        assert [len(batch) for (batch,) in watched] == [4, 4, 2]


def test_behaves_like_a_list_and_like_a_generator() -> None:
    items = shapes.watch([3, 4, 5])
    assert items[1] == 4 and list(items[1:]) == [4, 5] and 5 in items and list(enumerate(items))[2] == (2, 5)
    assert not shapes.watch([])
    squares = shapes.watch(i * i for i in range(3))
    with pytest.raises(TypeError):
        len(squares)
    assert list(squares) == [0, 1, 4]
    assert list(squares) == []


@pytest.mark.parametrize("value", ["0", "false", "OFF"])
def test_off_switch_returns_the_iterable_itself(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPU_MIGRATE_SHAPES", value)
    loader = [1, 2]
    assert shapes.watch(loader) is loader


def test_on_in_the_body_only() -> None:
    def fetch() -> Iterator[torch.Tensor]:
        for _ in range(3):
            assert is_off()
            yield torch.ones(2).cos()

    for x in shapes.watch(fetch()):
        assert is_on()
        x.sin()
    assert is_off()
    assert (recorded("aten::sin"), recorded("aten::cos")) == (3, 0)


def test_break_return_and_exceptions_end_the_recording() -> None:
    for _ in shapes.watch([1, 2]):
        break
    assert is_off()

    def leave() -> int:
        for i in enumerate(shapes.watch([1, 2])):
            return i[1]
        return 0

    assert leave() == 1
    assert is_off()

    def fail() -> None:
        for _ in zip(shapes.watch([1, 2]), shapes.watch([3, 4]), strict=True):
            raise ValueError("body")

    with pytest.raises(ValueError, match="body") as caught:
        fail()
    assert caught.traceback  # still holds the frame of the loop
    assert is_off()


def test_an_error_of_the_loader_reaches_the_program() -> None:
    def fetch() -> Iterator[int]:
        yield 1
        raise OSError("no such image")

    with pytest.raises(OSError, match="no such image"):
        for _ in shapes.watch(fetch()):
            assert is_on()


def test_a_batch_is_not_kept_alive() -> None:
    for batch in shapes.watch(torch.ones(2) for _ in range(2)):
        alive = weakref.ref(batch)
        del batch
        assert alive() is None


def test_an_abandoned_iterator_ends_with_its_last_reference() -> None:
    iterator = iter(shapes.watch([1, 2]))
    next(iterator)
    assert is_on()
    del iterator
    assert is_off()
    assert list(islice(shapes.watch([1, 2, 3]), 2)) == [1, 2]
    assert is_off()


def test_nested_loops_record_each_operator_once_for_the_innermost() -> None:
    for _ in shapes.watch(range(2)):
        torch.ones(2).sin()
        for _ in shapes.watch(range(3)):
            assert is_on()
            torch.ones(2).cos()
        for _ in shapes.watch(range(3)):
            break
        assert is_on()
        torch.ones(2).sin()
    outer, inner, _ = journal.loops.values()
    assert (recorded("aten::sin"), recorded("aten::cos")) == (4, 6)
    assert {site.name for site in outer.sites.values()} == {"aten::ones", "aten::sin"}
    assert {site.name for site in inner.sites.values()} == {"aten::ones", "aten::cos"}
    assert (outer.batch, inner.batch) == (2, 6)


def test_iterators_may_end_in_any_order() -> None:
    first, second = iter(shapes.watch([1, 2])), iter(shapes.watch([1, 2]))
    next(first), next(second)
    del first
    assert is_on()
    del second
    assert is_off()


def test_modes_of_the_program_nest_freely() -> None:
    class Count(TorchDispatchMode):
        number = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.number += 1
            return func(*args, **(kwargs or {}))

    x = torch.ones(2, 2)
    with Count() as count:
        iterator = iter(shapes.watch(range(3)))
        next(iterator)
        x.sin()
    assert is_on()  # the program's mode is gone, this one is not
    with Count() as inner:
        x.sin()
        del iterator
        x.sin()
    assert (count.number, inner.number, recorded("aten::sin")) == (1, 2, 2)
    with FlopCounterMode(display=False) as flops:
        for _ in shapes.watch(range(2)):
            x @ x
    assert flops.get_total_flops() == 2 * 2 * 2**3


def test_other_threads_are_left_alone() -> None:
    seen = []

    def work() -> None:
        torch.ones(2).cos()
        seen.append(is_off())

    for _ in shapes.watch(range(2)):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [True, True]
    assert recorded("aten::cos") == 0


def test_a_loop_abandoned_by_another_thread_lets_this_one_go_on() -> None:
    iterators = [iter(shapes.watch(range(2)))]
    next(iterators[0])
    thread = threading.Thread(target=iterators.clear)
    thread.start()
    thread.join()
    gc.collect()
    torch.ones(2).cos()
    assert recorded("aten::cos") == 0
    for _ in shapes.watch(range(1)):
        torch.ones(2).cos()
    assert recorded("aten::cos") == 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_workers_do_not_record() -> None:
    for _ in shapes.watch(range(1)):
        child = os.fork()
        if not child:
            os._exit(0 if is_off() else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert is_on()


def test_an_optimizer_step_that_raises_does_not_stop_the_recording() -> None:
    class Broken(torch.optim.SGD):
        def step(self, closure=None):
            raise RuntimeError("overflow")

    optimizer = Broken([torch.ones(1, requires_grad=True)], lr=0.1)
    for _ in shapes.watch(range(3)):
        torch.ones(2).cos()
        with pytest.raises(RuntimeError, match="overflow"):
            optimizer.step()
    assert recorded("aten::cos") == 3


def test_optimizers_are_not_recorded_but_their_closures_are() -> None:
    weight = torch.ones(3, requires_grad=True)

    def closure() -> torch.Tensor:
        loss = weight.cos().sum()
        loss.backward()
        return loss

    adam, lbfgs = torch.optim.Adam([weight]), torch.optim.LBFGS([weight], max_iter=1)
    for _ in shapes.watch(range(2)):
        closure()
        adam.step()
        lbfgs.step(closure)
    assert recorded("aten::cos") == 4
    names = {site.name for loop in journal.loops.values() for site in loop.sites.values()}
    assert not any("addcdiv" in name or "lerp" in name for name in names)


@pytest.mark.skipif(
    not hasattr(TorchDispatchMode, "ignore_compile_internals"), reason="this torch recompiles under any dispatch mode"
)
def test_torch_compile_goes_on_compiling() -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    function = torch.compile(lambda x: x.sin() * 2, backend=counter)
    for _ in shapes.watch(range(2)):
        function(torch.ones(3))
    assert counter.frame_count == 1
