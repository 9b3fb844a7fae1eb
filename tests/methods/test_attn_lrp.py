"""AttnLRP equals a slow version of the paper's rules on every family."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from left_alone import unchanged
from safetensors.torch import load_file
from slow_attn_lrp import slow_attn_lrp
from tiny_models import tiny_model
from tiny_questions import MODELS, model_of, question_of, values_of

from hf_lrp.methods.attn_lrp import AttnLRP


@pytest.mark.parametrize("name", MODELS)
def test_equals_the_slow_version(name: str) -> None:
    model = model_of(name)
    question = question_of(model)
    values = values_of(AttnLRP(), model)
    source, decoder = slow_attn_lrp(question, values.explained, values.logits)
    if name == "whisper":  # of sound, relevance is that of positions after the convolutions
        source = values.source
    scale = max(1.0, float(decoder.abs().max()))
    tolerance = (1e-3 if name == "xglm" else 1e-5) * scale  # some models compute norms and softmax in float32
    torch.testing.assert_close(values.source.double(), source, rtol=0, atol=tolerance)
    torch.testing.assert_close(values.decoder.double(), decoder, rtol=0, atol=tolerance)


def test_the_model_comes_back_as_it_was() -> None:
    model = tiny_model("pegasus")
    with unchanged(model):
        values_of(AttnLRP(), model)


@pytest.mark.skipif(find_spec("lxt") is None, reason="needs LXT 2.1: pip install lxt")
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma3_text", "gpt2"])
def test_equals_lxt_where_that_reads_the_model(name: str, tmp_path: Path) -> None:
    support = Path(__file__).parents[1] / "support"
    out = tmp_path / "lxt.safetensors"
    script = [sys.executable, str(support / "lxt_script.py"), name, str(out)]
    subprocess.run(script, check=True, capture_output=True)
    values = values_of(AttnLRP(), model_of(name, torch.float32))
    expected = load_file(out)["relevance"]
    scale = float(expected.abs().max())
    torch.testing.assert_close(values.decoder, expected, rtol=0, atol=1e-5 * max(1.0, scale))
