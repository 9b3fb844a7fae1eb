"""A patched model does exactly what it did, and comes back exactly as it was."""

import copy
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from left_alone import is_patched, state_of, unchanged
from tiny_models import random_ids, tiny_model
from torch import Tensor, nn
from transformers import (
    BartConfig,
    BartForCausalLM,
    BertConfig,
    BertForMaskedLM,
    MarianModel,
    PreTrainedModel,
    SwitchTransformersConfig,
    SwitchTransformersForConditionalGeneration,
)

from hf_lrp.models import exchange
from hf_lrp.models.recording import Recorded, UnknownStructure
from hf_lrp.relevance.patching import patched
from hf_lrp.relevance.rules import AlphaBeta, Epsilon

SOURCE, TARGET = random_ids(3, 6, seed=1), random_ids(3, 5, seed=2)


def assert_same(actual: Any, expected: Any) -> None:
    """Bitwise equal, through tuples and lists."""
    if isinstance(expected, Tensor):
        assert torch.equal(actual, expected)
        return
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert_same(a, e)


def logits(model: PreTrainedModel) -> tuple[Tensor, ...]:
    return (model(input_ids=SOURCE, decoder_input_ids=TARGET).logits.detach(),)


def everything(model: PreTrainedModel) -> list[Any]:
    output = model(input_ids=SOURCE, labels=TARGET, output_attentions=True, output_hidden_states=True)
    names = ["loss", "logits", "encoder_attentions", "decoder_attentions", "cross_attentions"]
    names += ["encoder_hidden_states", "decoder_hidden_states"]
    assert len(output.cross_attentions) == len(output.decoder_attentions) == 2
    assert len(output.encoder_hidden_states) == len(output.decoder_hidden_states) == 3
    return [output[name] for name in names]


def greedy(model: Any) -> tuple[Tensor, ...]:
    return (model.generate(SOURCE, max_new_tokens=8, do_sample=False),)


def beam(model: Any) -> tuple[Tensor, ...]:
    out = model.generate(SOURCE, max_new_tokens=8, num_beams=3, return_dict_in_generate=True, output_scores=True)
    return out.sequences, out.sequences_scores


def sampled(model: Any) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return (model.generate(SOURCE, max_new_tokens=8, do_sample=True),)


def gradients(model: PreTrainedModel) -> list[Tensor]:
    model.zero_grad()
    model(input_ids=SOURCE, labels=TARGET).loss.backward()
    found = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(found) > 50
    model.zero_grad()
    return found


def state_dict(model: PreTrainedModel) -> list[Any]:
    state = model.state_dict()
    return [[torch.tensor([ord(letter) for letter in key]), value] for key, value in state.items()]


COMPUTE = (logits, everything, greedy, beam, sampled, gradients, state_dict)
EAGER_ONLY = (everything,)  # sdpa gives no attention weights


@pytest.mark.parametrize(
    ("compute", "attention"),
    [(compute, "eager") for compute in COMPUTE]
    + [(compute, "sdpa") for compute in COMPUTE if compute not in EAGER_ONLY],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_patched_model_computes_exactly_the_same(
    model: PreTrainedModel, compute: Callable[[PreTrainedModel], Any], attention: str
) -> None:
    model.set_attn_implementation(attention)
    expected = compute(model)
    with unchanged(model), patched(model):
        assert is_patched(model)
        assert_same(compute(model), expected)
    assert_same(compute(model), expected)


def test_dropout_is_the_same_while_training(model: PreTrainedModel) -> None:
    model.train()
    torch.manual_seed(0)
    expected = gradients(model)
    with unchanged(model), patched(model):
        torch.manual_seed(0)
        assert_same(gradients(model), expected)


def test_a_training_step_inside_stays_after(model: PreTrainedModel) -> None:
    twin = copy.deepcopy(model)
    for trained in (model, twin):
        with ExitStack() as stack:
            if trained is model:
                stack.enter_context(patched(model))
            optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
            trained(input_ids=SOURCE, labels=TARGET).loss.backward()
            optimizer.step()
    assert_same(list(model.parameters()), list(twin.parameters()))
    assert_same(*([p.grad for p in m.parameters() if p.grad is not None] for m in (model, twin)))


def test_saving_inside_gives_the_same_checkpoint(model: PreTrainedModel, tmp_path: Path) -> None:
    expected = logits(model)
    model.save_pretrained(tmp_path / "before")
    with unchanged(model), patched(model):
        model.save_pretrained(tmp_path / "inside")
    for file in ("config.json", "generation_config.json", "model.safetensors"):
        assert (tmp_path / "inside" / file).read_bytes() == (tmp_path / "before" / file).read_bytes()
    reloaded = type(model).from_pretrained(tmp_path / "inside").eval()
    assert not is_patched(reloaded)
    torch.testing.assert_close(logits(reloaded), expected)


def test_flags_gradients_and_hooks_come_back(model: PreTrainedModel) -> None:
    model.train()
    model.model.encoder.eval()
    model.model.shared.requires_grad_(False)
    model(input_ids=SOURCE, labels=TARGET).loss.backward()
    model.model.decoder.layers[0].fc1.register_forward_hook(lambda *_: None)
    with unchanged(model), patched(model):
        logits(model)


class Boom(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, Boom])
def test_the_model_comes_back_after_any_exception(model: PreTrainedModel, error: type[BaseException]) -> None:
    with unchanged(model), pytest.raises(error), patched(model):
        assert is_patched(model)
        raise error


@pytest.mark.parametrize("calls", [0, 1, 7])
def test_the_model_comes_back_if_acquiring_is_interrupted(
    model: PreTrainedModel, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counterpart, seen = exchange.counterpart, []

    def interrupted(*args: Any) -> type[nn.Module]:
        seen.append(args)
        if len(seen) > calls:
            raise KeyboardInterrupt
        return counterpart(*args)

    monkeypatch.setattr(exchange, "counterpart", interrupted)
    with unchanged(model), pytest.raises(KeyboardInterrupt), patched(model):
        pass
    assert len(seen) == calls + 1
    monkeypatch.undo()
    with unchanged(model), patched(model):
        assert is_patched(model)


def test_the_model_comes_back_if_releasing_is_interrupted(model: PreTrainedModel) -> None:
    pending = {"fc1", "k_proj"}

    class Interrupting(nn.Linear):
        """Interrupts the first time when it gets its class back."""

        name: str

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "__class__" and value is Interrupting and self.name in pending:
                pending.remove(self.name)
                raise KeyboardInterrupt
            super().__setattr__(name, value)

    layer = model.model.decoder.layers[0]
    for module, name in ((layer.fc1, "fc1"), (layer.self_attn.k_proj, "k_proj")):
        module.__class__, module.name = Interrupting, name
    with unchanged(model), pytest.raises(KeyboardInterrupt), patched(model):
        assert len(pending) == 2
    assert not pending


@pytest.mark.parametrize("inner", [AlphaBeta(), Epsilon()], ids=str)
def test_nesting_keeps_both_rules_and_one_patch(model: PreTrainedModel, inner: Any) -> None:
    with unchanged(model), patched(model) as outside:
        classes = [type(module) for module in model.modules()]
        with patched(model, inner) as inside:
            assert [type(module) for module in model.modules()] == classes
            assert (outside.rule, inside.rule) == (AlphaBeta(), inner)
        assert [type(module) for module in model.modules()] == classes


def test_leaving_in_the_wrong_order_keeps_the_model_patched_to_the_last(model: PreTrainedModel) -> None:
    with unchanged(model):
        contexts: list[AbstractContextManager[Any]] = [patched(model) for _ in range(3)]
        for context in contexts:
            context.__enter__()
        for context in contexts:
            assert is_patched(model)
            context.__exit__(None, None, None)


def test_several_threads_patch_the_same_model(model: PreTrainedModel) -> None:
    expected = logits(model)
    barrier, failures = threading.Barrier(4), []

    def work() -> None:
        try:
            barrier.wait()
            for _ in range(15):
                with patched(model):
                    assert isinstance(model.lm_head, Recorded)
                    assert_same(logits(model), expected)
        except BaseException as error:
            failures.append(error)

    with unchanged(model):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_other_models_of_the_same_class_are_not_touched(model: PreTrainedModel) -> None:
    other = tiny_model(model.config.model_type, seed=1)
    before = state_of(other)
    with patched(model):
        assert state_of(other) == before
        assert not is_patched(tiny_model(model.config.model_type, seed=2))


def test_user_hooks_are_called_inside(model: PreTrainedModel) -> None:
    calls: list[str] = []
    fc1 = model.model.encoder.layers[0].fc1
    fc1.register_forward_hook(lambda *_: calls.append("forward"))
    fc1.register_forward_pre_hook(lambda *_: calls.append("before"))
    with patched(model):
        logits(model)
        model.lm_head.register_forward_hook(lambda *_: calls.append("inside"))
        logits(model)
    assert calls == ["before", "forward", "before", "forward", "inside"]
    logits(model)
    assert calls.count("inside") == 2


def test_a_copy_made_inside_computes_the_same(model: PreTrainedModel) -> None:
    expected = logits(model)
    with unchanged(model), patched(model):
        twin = copy.deepcopy(model)
    assert_same(logits(twin), expected)
    twin.lm_head.weight.data.zero_()
    assert_same(logits(model), expected)


def test_a_copy_made_inside_is_an_ordinary_model(model: PreTrainedModel) -> None:
    with patched(model):
        twin = copy.deepcopy(model)
    with patched(twin):
        pass
    assert not is_patched(twin)


def test_a_whole_model_can_be_pickled_inside(model: PreTrainedModel, tmp_path: Path) -> None:
    with patched(model):
        torch.save(model, tmp_path / "model.pt")
    twin = torch.load(tmp_path / "model.pt", weights_only=False)
    assert_same(logits(twin), logits(model))


def no_model() -> Any:
    return nn.Linear(2, 2)


def one_stack() -> PreTrainedModel:
    return BartForCausalLM(BartConfig(d_model=8, decoder_attention_heads=2, decoder_layers=1, decoder_ffn_dim=8))


def experts() -> PreTrainedModel:
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 11, "num_experts": 2}
    return SwitchTransformersForConditionalGeneration(SwitchTransformersConfig(**sizes))


def encoder_only() -> PreTrainedModel:
    return BertForMaskedLM(
        BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=11)
    )


def other_task() -> PreTrainedModel:
    model: Any = tiny_model("bart")
    del model.model.decoder.layers[1].fc2
    return model


def without_head() -> PreTrainedModel:
    config: Any = tiny_model().config
    return MarianModel(config)


class NotLinear(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def wrapped_linear() -> PreTrainedModel:
    model = tiny_model()
    attention = model.model.encoder.layers[1].self_attn
    attention.q_proj = NotLinear(attention.q_proj)
    return model


def integer_weights() -> PreTrainedModel:
    model = tiny_model()
    fc1 = model.model.encoder.layers[1].fc1
    fc1.weight = nn.Parameter(fc1.weight.detach().to(torch.int8), requires_grad=False)
    return model


def own_forward() -> PreTrainedModel:
    model = tiny_model()
    fc2 = model.model.decoder.layers[0].fc2
    fc2.forward = fc2.forward
    return model


def quantised() -> PreTrainedModel:
    model: Any = tiny_model()
    model.hf_quantizer = object()
    return model


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (no_model, "Expected a transformers PreTrainedModel, got Linear"),
        (one_stack, "BartForCausalLM is one stack of an encoder-decoder model.*AutoModelForSeq2SeqLM"),
        (encoder_only, "BertForMaskedLM .*'bert'.* is not supported. Supported: .*marian.*adding_a_family"),
        (experts, "SwitchTransformersForConditionalGeneration .*'switch_transformers'.* is a mixture of experts"),
        (other_task, "BartForConditionalGeneration is not built as the description of 'bart' says.*fc2.*adding_a_fam"),
        (without_head, "MarianModel has no output layer: load the checkpoint with AutoModelForSeq2SeqLM"),
        (wrapped_linear, "Expected a plain Linear, found NotLinear.*without quantisation"),
        (integer_weights, "A Linear has torch.int8 weights: the model is quantised"),
        (own_forward, "The forward method of a Linear has been replaced on the module itself"),
        (quantised, "MarianMTModel is quantised"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_refuses_what_it_cannot_explain_and_leaves_it_alone(build: Callable[[], Any], message: str) -> None:
    model = build()
    classes = [type(module) for module in model.modules()]
    error = UnknownStructure if build in (other_task, wrapped_linear, own_forward) else TypeError
    with pytest.raises(error, match=message), patched(model):
        pass
    assert [type(module) for module in model.modules()] == classes
