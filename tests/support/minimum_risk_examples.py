"""What the tests of Minimum Risk Training and of its candidates are run on."""

import itertools

import torch
from slow_minimum_risk import slow_log_probability
from tiny_models import EOS, PAD, random_ids, tiny_model
from torch.nn.utils.rnn import pad_sequence

from hf_lrp.training.minimum_risk.candidates import sample_candidates

MARIAN_LIKE = ("marian", "pegasus", "bart", "mbart", "m2m_100")
TOY_SOURCE = torch.tensor([1, 3, 2, 0])


def make_batch(lengths=((5, 4), (3, 6), (4, 2)), seed=0):
    """Sources and references of these lengths, which end with the end token, padded."""
    sources, references = [], []
    for number, (source, reference) in enumerate(lengths):
        for rows, length in ((sources, source), (references, reference)):
            ids = random_ids(length - 1, seed=100 * seed + 2 * number + (rows is references))
            rows.append(torch.cat([ids, torch.tensor([EOS])]))
    return {
        "input_ids": pad_sequence(sources, batch_first=True, padding_value=PAD),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in sources], batch_first=True),
        "labels": pad_sequence(references, batch_first=True, padding_value=-100),
    }


def references_of(batch):
    return [row[row != -100] for row in batch["labels"]]


def toy_model():
    """End 0, words 1 to 3, and padding 4, which has no probability."""
    special = {"pad_token_id": 4, "eos_token_id": 0, "decoder_start_token_id": 4}
    model = tiny_model(vocab_size=5, decoder_vocab_size=5, dtype=torch.float64, **special)
    model.final_logits_bias[0, 4] = -1e4
    return model


def all_sequences(length):
    """What can be sampled within so many tokens: what has ended, and what is cut."""
    words = (1, 2, 3)
    ended = [[*start, 0] for n in range(length) for start in itertools.product(words, repeat=n)]
    return [torch.tensor(ids) for ids in ended + [list(ids) for ids in itertools.product(words, repeat=length)]]


def exact_probabilities(model, sequences):
    with torch.no_grad():
        return torch.stack([slow_log_probability(model, TOY_SOURCE, ids) for ids in sequences]).exp()


def encode(model, batch):
    with torch.no_grad():
        output = model.get_encoder()(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    return output.last_hidden_state, batch["attention_mask"]


def sample(model, batch, number=30, **options):
    return sample_candidates(model, *encode(model, batch), references_of(batch), number, **({"seed": 0} | options))
