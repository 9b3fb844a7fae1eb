"""The compiled part gives what the torch code gives, at every instruction set that this machine has."""

import contextlib
import importlib.util
import multiprocessing
import os
import platform
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_operations import assert_same_shares
from tiny_models import GOLDEN, load_golden, random_ids, tiny_model
from torch import Tensor

from hf_lrp import explain
from hf_lrp.relevance import compiled, operations
from hf_lrp.relevance.rules import AlphaBeta, Epsilon, Rule

RULE = AlphaBeta(1, 0)
OPERATIONS = ("linear", "rotated_linear", "gated", "layer_norm", "rms_norm", "residual")
LINEAR = ("linear", "rotated_linear", "gated")

Tensors = dict[str, Any]


def is_usable(level: str) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(compiled.VARIABLE, level)
        try:
            return compiled.level() == level
        except ValueError:
            return False


LEVELS = [
    pytest.param(level, marks=pytest.mark.skipif(not is_usable(level), reason=f"{level}: not built or no such CPU"))
    for level in compiled.LEVELS
]
needs_compiled = pytest.mark.skipif(
    not any(map(is_usable, compiled.LEVELS)) or os.environ.get(compiled.VARIABLE) == "off",
    reason="the compiled part was not built, or is switched off",
)
all_operations = pytest.mark.parametrize("operation", OPERATIONS)


@pytest.mark.skipif("HF_LRP_NEED_COMPILED" not in os.environ, reason="what is missing is a failure in .ci/run only")
def test_nothing_is_missing() -> None:
    """Without a compiler, and so after an error in a C file, the package is installed without its compiled part."""
    built = {name for name in compiled.LEVELS if list(Path(compiled.__file__).parent.glob(f"*fused_{name}.*"))}
    assert built == (set(compiled.LEVELS) if platform.machine() in ("x86_64", "AMD64") else {"plain"})
    # in the order of LEVELS; torch says DEFAULT where a processor has neither
    highest = {"AVX2": 1, "AVX512": 2}.get(torch.backends.cpu.get_cpu_capability().split("_")[0], 0)
    assert [name for name in compiled.LEVELS if is_usable(name)] == list(compiled.LEVELS[: highest + 1])


@pytest.mark.parametrize("content", [None, b"for another machine"])
def test_a_library_that_cannot_be_loaded_is_as_if_not_built(tmp_path: Path, content: bytes | None) -> None:
    copied = shutil.copy(str(compiled.__file__), tmp_path)
    if content is not None:
        for path in Path(compiled.__file__).parent.glob("_fused_*"):
            (tmp_path / path.name).write_bytes(content)
    spec = importlib.util.spec_from_file_location("copied", copied)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.is_built()


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(compiled.VARIABLE, request.param)
    return request.param


def draw(operation: str, seed: int, tokens: int, steps: int, inputs: int, outputs: int) -> Tensors:
    """Random arguments in float32, with some zeros."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * (torch.rand(*shape, generator=generator) > 0.1)

    relevance = normal(tokens, steps, outputs if operation in LINEAR else inputs).abs()
    if operation in LINEAR:
        bias = normal(outputs) if seed % 3 else None
        drawn = {"x": normal(tokens, inputs), "weight": normal(outputs, inputs), "bias": bias, "relevance": relevance}
        if operation == "rotated_linear":
            # cosines and sines that are not negative: a feature that is its own partner must not vanish
            angle = torch.rand(tokens, outputs, generator=generator) * 1.5
            partner = torch.randperm(outputs, generator=generator)
            drawn["rotation"] = operations.Rotation(angle.cos(), angle.sin(), partner)
        if operation == "gated":
            drawn |= {"gate": normal(outputs, inputs), "gate_bias": normal(outputs) if seed % 2 else None}
        return drawn
    if operation == "layer_norm":
        bias = normal(inputs) if seed % 3 else None
        x = normal(tokens, inputs) * 2 + seed % 5
        return {"x": x, "weight": normal(inputs), "bias": bias, "eps": 1e-5, "relevance": relevance}
    if operation == "rms_norm":
        return {"x": normal(tokens, inputs), "weight": normal(inputs), "relevance": relevance}
    return {"x": normal(tokens, inputs), "update": normal(tokens, inputs), "relevance": relevance}


def run(operation: str, tensors: Tensors, rule: Rule = RULE, **options: Any) -> tuple[Tensor, ...]:
    received = getattr(operations, operation)(rule, **tensors, **options)
    return received if isinstance(received, tuple) else (received,)


def in_torch(operation: str, tensors: Tensors, **options: Any) -> tuple[Tensor, ...]:
    """The torch code, in float64, which the compiled part does not cover."""
    doubled = {name: t.double() if isinstance(t, Tensor) else t for name, t in tensors.items()}
    if "rotation" in doubled:
        cos, sin, partner = doubled["rotation"]
        doubled["rotation"] = operations.Rotation(cos.double(), sin.double(), partner)
    assert not compiled.covers(RULE, doubled["relevance"])
    return run(operation, doubled, **options)


def assert_same(operation: str, tensors: Tensors, **options: Any) -> None:
    """The compiled part is used, and agrees with torch."""
    assert compiled.covers(RULE, *(t for t in tensors.values() if isinstance(t, Tensor)))
    assert_same_shares(run(operation, tensors, **options), in_torch(operation, tensors, **options))


any_sizes = st.fixed_dictionaries(
    {
        "tokens": st.integers(1, 5),
        "steps": st.integers(1, 30),
        "inputs": st.integers(1, 70),
        "outputs": st.integers(1, 300),
    }
)
same_level = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@all_operations
@same_level
@given(seed=st.integers(0, 10**6), sizes=any_sizes, lag=st.none() | st.integers(0, 6))
def test_any_shape(level: str, operation: str, seed: int, sizes: dict[str, int], lag: int | None) -> None:
    tensors = draw(operation, seed, **sizes)
    if lag is None or operation in ("residual", "rms_norm"):
        assert_same(operation, tensors)
        return
    token, step = torch.arange(sizes["tokens"])[:, None], torch.arange(sizes["steps"])
    tensors["relevance"] *= (step >= token - lag)[..., None]
    assert_same(operation, tensors, lag=lag)


def dead_outputs(tensors: Tensors) -> None:
    for name in ("x", "update"):
        if name in tensors:
            tensors[name] = -tensors[name].abs()
    if "weight" in tensors:
        tensors["weight"] = tensors["weight"].abs()
    if "bias" in tensors:
        tensors["bias"] = -torch.ones(len(tensors["weight"]))
        tensors["bias"][::3] = 1.0


def all_dead(tensors: Tensors) -> None:
    dead_outputs(tensors)
    if "bias" in tensors:
        tensors["bias"] = -torch.ones(len(tensors["weight"]))
    if "eps" in tensors:
        tensors["x"] = torch.zeros_like(tensors["x"])


def zeros(tensors: Tensors) -> None:
    tensors["x"] = torch.zeros_like(tensors["x"])


def no_relevance(tensors: Tensors) -> None:
    tensors["relevance"] = torch.zeros_like(tensors["relevance"])


def equal_inputs(tensors: Tensors) -> None:
    tensors["x"] = torch.full_like(tensors["x"], 0.75)


def scaled(name: str, factor: float) -> Any:
    def edit(tensors: Tensors) -> None:
        for each in (name, "update") if name == "x" else (name,):
            if tensors.get(each) is not None:
                tensors[each] = tensors[each] * factor

    edit.__name__ = f"{name} times {factor}"
    return edit


SCALES = [scaled(name, factor) for name in ("x", "weight", "bias", "relevance") for factor in (1e-12, 1e12)]
EDITS = [dead_outputs, all_dead, zeros, no_relevance, equal_inputs, *SCALES]


# Which of 600 outputs carry relevance at some step: more than go together, in runs and apart.
LIVING = {
    "every second": torch.arange(600) % 2 == 0,
    "runs": torch.arange(600) // 7 % 3 > 0,
    "the end": torch.arange(600) >= 597,
    "one": torch.arange(600) == 300,
    "all": torch.arange(600) >= 0,
    "none": torch.arange(600) < 0,
}


@pytest.mark.parametrize("operation", ["linear", "rotated_linear"])
@pytest.mark.parametrize("living", LIVING.values(), ids=LIVING)
@pytest.mark.parametrize("lag", [None, 1])
def test_outputs_without_relevance_are_left_out(level: str, operation: str, living: Tensor, lag: int | None) -> None:
    """Per token: the second has them at its last step only, the third has others. Their weights are never read."""
    tensors = draw(operation, 8, tokens=4, steps=5, inputs=70, outputs=600)
    carried = living.expand(4, 5, 600).clone()
    carried[1, :-1] = False
    carried[2] = ~living
    tensors["relevance"] = (
        tensors["relevance"] * carried * (torch.arange(5) >= torch.arange(4)[:, None] - 1)[..., None]
    )
    assert_same(operation, tensors, lag=lag)
    if operation == "linear" and living.any() and not living.all():
        without = {name: tensors[name][[0, 1, 3]] for name in ("x", "relevance")}
        expected = run(operation, tensors | without)[0]
        tensors["weight"][~living] = torch.inf
        assert torch.equal(run(operation, tensors | without)[0], expected)


@all_operations
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_corner_cases(level: str, operation: str, edit: Any) -> None:
    for seed in (1, 2, 3):  # the third without a bias
        tensors = draw(operation, seed, tokens=3, steps=8, inputs=37, outputs=150)
        edit(tensors)
        assert_same(operation, tensors)


@all_operations
def test_denormals(level: str, operation: str) -> None:
    """Contributions of the size of denormal numbers, which have few digits: totals are kept, and nothing breaks."""
    tensors = draw(operation, 4, tokens=3, steps=8, inputs=37, outputs=150)
    for name in ("x", "update"):
        if name in tensors:
            tensors[name] = tensors[name] * 1e-40
    if tensors.get("bias") is not None:
        tensors["bias"] = tensors["bias"] * 1e-40
    received = torch.cat(run(operation, tensors), -1)
    assert bool(received.isfinite().all()) and bool((received >= 0).all())
    torch.testing.assert_close(received.sum(-1), tensors["relevance"].sum(-1), rtol=1e-5, atol=0)


@pytest.mark.parametrize(("operation", "size"), [("layer_norm", 1e4), ("rms_norm", 1e4), ("rms_norm", 1e8)])
def test_a_norm_stands_one_massive_activation(level: str, operation: str, size: float) -> None:
    for seed in range(4):
        tensors = draw(operation, seed, tokens=3, steps=5, inputs=300, outputs=1)
        tensors["x"][:, 7] = size * (-1) ** seed
        assert_same(operation, tensors)


@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_a_layer_norm_of_few_inputs(level: str, inputs: int) -> None:
    """With two, all that passes from one to the other is of the size of eps."""
    for seed in range(20):
        assert_same("layer_norm", draw("layer_norm", seed, tokens=2, steps=3, inputs=inputs, outputs=1))


@all_operations
def test_strided_tensors(level: str, operation: str) -> None:
    tensors = draw(operation, 5, tokens=6, steps=5, inputs=12, outputs=9)
    expected = run(operation, tensors)
    turned = {n: t.mT.contiguous().mT if isinstance(t, Tensor) and t.dim() > 1 else t for n, t in tensors.items()}
    for a, e in zip(run(operation, turned), expected, strict=True):
        assert torch.equal(a, e)


@all_operations
@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_make_no_difference(
    level: str, operation: str, threads: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(compiled, "SMALLEST_SHARE", 1)
    tensors = draw(operation, 6, tokens=5, steps=7, inputs=20, outputs=30)
    before = torch.get_num_threads()
    request.addfinalizer(lambda: torch.set_num_threads(before))
    results = []
    for number in (1, threads):
        torch.set_num_threads(number)
        results.append(run(operation, tensors))
    for a, e in zip(*results, strict=True):
        assert torch.equal(a, e)


@needs_compiled
@pytest.mark.parametrize("fails", [False, True])
def test_torch_leaves_the_threads_to_the_compiled_part(
    fails: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """While relevance goes back, torch has one thread and the compiled part all; then torch has them again."""
    before = torch.get_num_threads()
    request.addfinalizer(lambda: torch.set_num_threads(before))
    monkeypatch.setattr(compiled, "SMALLEST_SHARE", 1)
    torchs: list[int] = []
    workers: set[int] = set()

    class Library:
        """Notes which threads call the compiled part, and how many torch has."""

        def __getattr__(self, name: str) -> Any:
            function = getattr(library, name)

            def call(*arguments: Any) -> Any:
                torchs.append(torch.get_num_threads())
                workers.add(threading.get_ident())
                if fails:
                    raise RuntimeError("in the middle")
                return function(*arguments)

            return call

    library = compiled.load_library()
    monkeypatch.setattr(compiled, "load_library", Library)
    torch.set_num_threads(3)
    model, ids = tiny_model(), (random_ids(6, seed=1), random_ids(5, seed=2))
    with pytest.raises(RuntimeError, match="in the middle") if fails else contextlib.nullcontext():
        explain(model, None, *ids)
    assert torch.get_num_threads() == 3
    own = [number for number in torchs if number != 3]  # threads other than the caller's have torch's own number
    assert own and set(own) == {1}
    assert fails or len(workers) > 1


@needs_compiled
def test_what_goes_through_torch_keeps_its_threads(request: pytest.FixtureRequest) -> None:
    before = torch.get_num_threads()
    request.addfinalizer(lambda: torch.set_num_threads(before))
    torch.set_num_threads(3)
    with compiled.own_threads(RULE, torch.ones(2)):
        assert torch.get_num_threads() == (1 if torch.backends.openmp.is_available() else 3)
        with compiled.own_threads(RULE, torch.ones(2)):
            assert torch.get_num_threads() == (1 if torch.backends.openmp.is_available() else 3)
    for rule, x in ((Epsilon(), torch.ones(2)), (RULE, torch.ones(2).double())):
        with compiled.own_threads(rule, x):
            assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == 3


@needs_compiled
def test_a_forked_process_has_threads_of_its_own(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(compiled, "SMALLEST_SHARE", 1)
    before = torch.get_num_threads()
    request.addfinalizer(lambda: torch.set_num_threads(before))
    torch.set_num_threads(2)
    tensors = draw("linear", 7, tokens=5, steps=7, inputs=20, outputs=30)
    expected = run("linear", tensors)[0]
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work() -> None:
        sender.send(torch.equal(compiled.linear(**tensors), expected))

    process = context.Process(target=work)
    process.start()
    try:
        assert receiver.poll(60) and receiver.recv() is True
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_contributions(level: str, name: str) -> None:
    golden = load_golden(name, torch.float32)
    c: Any = explain(golden.model, None, golden.source_ids, golden.target_ids, start_token="keep")
    assert float((c.source - golden.source["a1_b0_eps1e-12"]).abs().max()) < 2e-6
    assert c.conservation_error < 2e-6


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.VARIABLE, "off")
    assert compiled.level() is None
    assert not compiled.covers(RULE, torch.ones(2))


def test_an_unknown_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.VARIABLE, "sse9")
    with pytest.raises(ValueError, match="HF_LRP_COMPILED must be off, plain, avx2, avx512 or empty; got 'sse9'"):
        compiled.level()


@needs_compiled
def test_a_level_that_the_processor_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [level for level in compiled.LEVELS if not is_usable(level)]
    if not missing:
        pytest.skip("this machine has all levels")
    monkeypatch.setenv(compiled.VARIABLE, missing[-1])
    with pytest.raises(ValueError, match="this processor lacks it. There is: plain"):
        compiled.level()


@needs_compiled
def test_other_rules_and_dtypes_go_through_torch() -> None:
    x = torch.ones(2)
    assert compiled.covers(RULE, x, None)
    assert not any(compiled.covers(rule, x) for rule in (AlphaBeta(0.5, 0.5), AlphaBeta(2, -1), Epsilon()))
    assert not any(compiled.covers(RULE, x, x.to(dtype)) for dtype in (torch.float64, torch.bfloat16))
    assert not compiled.covers(RULE, x.to("meta"))
