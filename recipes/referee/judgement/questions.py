"""What is asked, and how each answer is decided: fixed before any of the numbers was seen.

Sentences with even numbers are the development half, those with odd numbers the test half. The development half only
says which method comes first; every figure of a verdict is the test half's.
"""

from __future__ import annotations

from dataclasses import dataclass

from judgement.measures import Measure, alignment_error_rate, area_under_curve, mean_of, rank_correlation

BASELINE = "alpha-beta-lrp"  # the paper's: what all others are compared with
LEVEL = 0.05  # of tests, after Holm's correction for the number of methods
DRAWS = 2000  # of sentences, the same for all methods
FEWEST_SENTENCES = 20  # fewer decide nothing


@dataclass(frozen=True)
class Question:
    """One question to all methods.

    Attributes:
        name: in files and options.
        title: as a reader would ask it.
        figure: what the primary figure is.
        measure: how it is computed from what was found for each sentence.
        higher: whether higher is better.
        minimum: the least difference that matters.
        unit: of figure and minimum.
        further: other figures, reported with intervals and without a verdict, by what they are.
    """

    name: str
    title: str
    figure: str
    measure: Measure
    higher: bool
    minimum: float
    unit: str = ""
    further: tuple[tuple[str, Measure], ...] = ()


QUESTIONS = (
    Question(
        "tokens",
        "Which tokens, of source and prefix, does the prediction hang on?",
        "fall of the prediction's log-probability when its 1, 2, 4 highest tokens are removed: the mean over these, "
        "over masking and replacing",
        mean_of("both_fall"),
        True,
        0.25,
        "nats",
        (
            ("masked", mean_of("both_fall_mask")),
            ("replaced", mean_of("both_fall_replace")),
            ("10, 20 and 50 % removed", mean_of("both_fall_fractions")),
            ("only 10, 20 and 50 % kept: what is lost (lower is better)", mean_of("both_loss_fractions")),
        ),
    ),
    Question(
        "source",
        "Which source tokens does it hang on?",
        "the same for the 1, 2, 4 highest source tokens, the prefix untouched",
        mean_of("source_fall"),
        True,
        0.25,
        "nats",
        (
            ("masked", mean_of("source_fall_mask")),
            ("replaced", mean_of("source_fall_replace")),
            ("10, 20 and 50 % removed", mean_of("source_fall_fractions")),
            ("only 10, 20 and 50 % kept: what is lost (lower is better)", mean_of("source_loss_fractions")),
        ),
    ),
    Question(
        "prefix",
        "Which tokens of the prefix?",
        "the same for the 1, 2, 4 highest tokens of the prefix, the source untouched",
        mean_of("prefix_fall"),
        True,
        0.25,
        "nats",
        (
            ("masked", mean_of("prefix_fall_mask")),
            ("replaced", mean_of("prefix_fall_replace")),
            ("10, 20 and 50 % removed", mean_of("prefix_fall_fractions")),
            ("only 10, 20 and 50 % kept: what is lost (lower is better)", mean_of("prefix_loss_fractions")),
        ),
    ),
    Question(
        "meaning",
        "Does the source's share say how much hangs on the source?",
        "rank correlation over tokens of R(source) with the source's part in how far the predicted distribution moves "
        "(in nats: source replaced, against source replaced plus prefix replaced), within classes of tokens and "
        "thirds of the sentence",
        rank_correlation("share", "moved_share", "classes"),
        True,
        0.05,
        "",
        (
            ("with the nats that another source moves", rank_correlation("share", "moved_source", "classes")),
            (
                "of R(prefix) with the nats that another prefix moves",
                rank_correlation("rest", "moved_prefix", "classes"),
            ),
            ("without classes", rank_correlation("share", "moved_share", "one_class")),
        ),
    ),
    Question(
        "links",
        "Which words translate each other?",
        "alignment error rate (AER) on gold links, all methods' matrices through the extraction of `hf_lrp.align`",
        alignment_error_rate(),
        False,
        0.02,
        "",
        (
            ("values of the step that predicts a word", alignment_error_rate("predicts ")),
            ("values of the step that reads it", alignment_error_rate("reads ")),
        ),
    ),
    Question(
        "left-out",
        "Which source words were left out?",
        "AUROC over source tokens of minus the largest contribution over the steps; clauses taken out of the target",
        area_under_curve("score", "marked"),
        True,
        0.03,
    ),
    Question(
        "without-support",
        "Which target words have no support?",
        "AUROC over target tokens of minus R(source); translations of clauses that were taken out of the source",
        area_under_curve("score", "marked"),
        True,
        0.03,
    ),
    Question(
        "left-out-real",
        "Which source words did translators leave out?",
        "the same for spans that raters marked as omissions in translations by others (MQM)",
        area_under_curve("score", "marked"),
        True,
        0.03,
    ),
    Question(
        "without-support-real",
        "Which target words did translators add?",
        "the same for spans that raters marked as additions in translations by others (MQM)",
        area_under_curve("score", "marked"),
        True,
        0.03,
    ),
    Question(
        "randomisation",
        "Does the method read the model's weights?",
        "rank correlation of values with those of the same model with all its weights shuffled (0: nothing stays)",
        mean_of("all_shuffled"),
        False,
        0.05,
        "",
        (
            ("the top decoder layer shuffled", mean_of("top_shuffled")),
            ("the decoder shuffled", mean_of("decoder_shuffled")),
        ),
    ),
)
