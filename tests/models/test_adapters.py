"""Models with adapters are explained as if these had been merged, and stay as they are."""

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from tiny_models import tiny_model
from tiny_tokenizer import tiny_tokenizer

from hf_lrp import explain
from hf_lrp.models.adapters import MERGED

SOURCE, TARGET = "the cat sees the dog", "she is not in the house"
LORA = LoraConfig(task_type="SEQ_2_SEQ_LM", target_modules=["q_proj", "v_proj"], r=2, init_lora_weights=False)


@pytest.mark.parametrize("way", ["get_peft_model", "add_adapter"])
def test_a_model_with_adapters_is_explained_as_merged(way):
    model = tiny_model()
    plain = explain(model, tiny_tokenizer(), SOURCE, TARGET)
    if way == "get_peft_model":
        model = get_peft_model(model, LORA)
    else:
        model.add_adapter(LORA)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = explain(model.eval(), tiny_tokenizer(), SOURCE, TARGET)
    assert MERGED in found.notes
    assert (found.source - plain.source).abs().max() > 1e-4
    assert found.conservation_error < 1e-5
    after = model.state_dict()
    assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)
    with torch.no_grad():
        ids = torch.tensor(tiny_tokenizer()(SOURCE).input_ids)[None]
        start = torch.tensor([[model.config.decoder_start_token_id]])
        logits = model(input_ids=ids, decoder_input_ids=start).logits[0, 0]
    assert found.logits[0].item() == pytest.approx(logits.max().item(), abs=1e-4)


def test_prompts_cannot_be_merged():
    config = PromptTuningConfig(
        task_type="SEQ_2_SEQ_LM", num_virtual_tokens=2, token_dim=16, num_layers=2, num_attention_heads=2
    )
    with pytest.raises(ValueError, match="cannot be merged into its weights"):
        explain(get_peft_model(tiny_model(), config).eval(), tiny_tokenizer(), SOURCE, TARGET)
