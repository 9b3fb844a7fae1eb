"""The minimum effects, fixed before any of the models was evaluated; docs/claim_rules.md has the reasons.

Most are shares of what the paper's figures span: R(source) falls by 0.054 over a sentence (0.864 to 0.81, from the
second step on), and the entropy of the contributions of 17 source tokens lies between 2.799 and 2.826 nats.
"""

from __future__ import annotations

FALL = 0.864 - 0.81  # of R(source) over a sentence
STEPS = 22  # in which it falls
RANGE = 2.826 - 2.799  # of source entropy over a sentence

# What a reader would notice in such a figure: a fifth of its span.
CONTRIBUTION = 0.01
ENTROPY = 0.005
# "Large": half of what a whole sentence changes. At a single step: five times what a step changes on average.
LARGE_DROP = round(FALL / 2, 3)
LAST_DROP = round(5 * FALL / STEPS, 3)
# "Roughly constant": a third of the sentence deviates from its mean by no more than half of the range.
CONSTANT_ENTROPY = round(RANGE / 2, 4)

# Target entropy spans about ln 22 = 3 nats over a sentence, most of it because the prefix grows. Evenly spread over
# prefixes of 2 to 8, 9 to 14 and 15 to 21 tokens, it differs by 0.9 and 0.4 nats from third to third: a quarter of it.
TARGET_ENTROPY_GROWTH = 0.1
# Over training, on the same sentences, the length of the prefix is no part of it: 1 % of some 2 nats.
TARGET_ENTROPY = 0.02

# Uses of source tokens average 1. An entropy 0.02 under its maximum is that of shares which vary by √(2 · 0.02) = 20 %
# between tokens at a step: a quarter of this for a token, a tenth between halves of a sentence.
USE_OF_TOKEN = 0.05
USE_TREND = 0.02

# The paper's contributions converge within 20k of 57k updates. Of a model that changes evenly until the end,
# (1 - 0.35)² = 42 % of the divergence would be left by then: less than half of this.
EARLY = 0.35
DIVERGENCE_LEFT = 0.2
BEGINNING = 0.05  # of the updates: divergences are shares of that at a checkpoint not later than this

LATER_RATE = 0.5  # "slow": at most this share of the rate of the rise before
CHANGE_RATIO = 1.1  # "change most": a tenth more than other positions
ACCURACY = 0.05
