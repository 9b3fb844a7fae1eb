"""The app's page in Gradio: its fields, and which event calls what. What is computed is elsewhere."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hf_lrp.app.events import BEFORE, NOTHING, Events
from hf_lrp.app.examples import examples_for
from hf_lrp.app.questions import Question
from hf_lrp.results.prefix_types import PREFIX_TYPES

if TYPE_CHECKING:
    import gradio

INSTALL = 'The app needs gradio: pip install "gradio>=6.31,<7".'
CHOICES = [(PREFIX_TYPES[name].choice, name) for name in ("model", "reference", "random")]
# Who presses Enter in the target means it, also before the choice of the prefix has followed.
WITH_THE_TARGET = f"""(...values) => {{
  values[{3 + [field.name for field in fields(Question)].index("prefix")}] = "reference";
  return values;
}}"""
SHOW_IF_RANDOM = "(prefix) => ({ __type__: 'update', visible: prefix === 'random' })"
ABOUT = """# Where does each word come from?

How much of each predicted word comes from the source sentence, and how much from what the model has already written.
Shares sum to one ([method](https://aclanthology.org/2021.acl-long.91))."""
SHORT, LONG = "explain", "explain-long"  # two lanes, each with one question at a time (`serving.Guard`)
# Fields as the address names them: those of the page, then those of a question.
ADDRESS = ("model", "beside", "source", "target", "prefix", "unrelated", "word", "other", "prompt", "from", "to")


def own_file(name: str) -> str:
    """A file of this folder, as text."""
    return (files("hf_lrp.app") / name).read_text(encoding="utf-8")


def import_gradio() -> Any:
    """Gradio, told to report nothing to anybody; an ImportError says what to install."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read at many places, the first when it is imported
    try:
        import gradio
    except ImportError as error:
        raise ImportError(INSTALL) from error
    return gradio


def build(events: Events) -> gradio.Blocks:
    """The page; what its events call is `events`."""
    gr = import_gradio()
    labels, hub = events.models.labels, events.models.hub
    about = "a label, or owner/name on the Hub" if hub else None
    examples = {label: examples_for(label) for label in labels}
    first = examples[labels[0]]
    with gr.Blocks(title="hf_lrp", analytics_enabled=False, delete_cache=(600, 3600)) as page:
        gr.Markdown(ABOUT)
        with gr.Row(elem_id="both"):
            with gr.Column(elem_id="asking"):
                model = gr.Dropdown(labels, value=labels[0], label="Model", info=about, allow_custom_value=hub)
                source = gr.Textbox(first.sources[0], label="Source", lines=1, max_lines=6, elem_id="source")
                with gr.Row(elem_id="examples"):
                    samples = [gr.Button(text, size="sm", min_width=80) for text in first.sources]
                button = gr.Button("Explain", variant="primary", elem_id="explain")
                prefix = gr.Radio(CHOICES, value="model", label="The model writes after", elem_id="prefix")
                target = gr.Textbox(
                    label="Target",
                    info="What the model was conditioned on. Change it and press Enter to see how shares change.",
                    lines=1,
                    max_lines=6,
                    elem_id="target",
                )
                unrelated = gr.Textbox(
                    first.unrelated,
                    label="Unrelated sentences",
                    info="In the target's language, one per line; one of them is drawn.",
                    lines=2,
                    visible=False,
                    elem_id="unrelated",
                )
                with gr.Accordion("Compare · why this word, not that one · prompt · languages", open=False):
                    beside = gr.Dropdown(
                        [NOTHING, BEFORE, *labels],
                        value=NOTHING,
                        label="Compare with",
                        info="another model" if hub else None,
                        allow_custom_value=hub,
                    )
                    word = gr.Textbox(label="Why this word of the target", max_lines=1, elem_id="word")
                    other = gr.Textbox(label="and not this one", max_lines=1, elem_id="other")
                    prompt = gr.Textbox(
                        label="Prompt, for models without an encoder",
                        placeholder="Translate from English to French.\nEnglish: {source}\nFrench:",
                        lines=3,
                        elem_id="prompt",
                    )
                    languages = [
                        gr.Textbox(label=f"{side} language of a multilingual model", placeholder=code, max_lines=1)
                        for side, code in (("Source", "eng_Latn"), ("Target", "fra_Latn"))
                    ]
            with gr.Column(elem_id="answer"):
                result = gr.HTML(elem_id="result")
        for choice in (model, beside, prefix):
            choice.preprocess = _as_it_is
        shown = gr.State(None)
        texts = [source, target, prefix, unrelated, word, other, prompt, *languages]
        ask: dict[str, Any] = {
            "fn": events.explain,
            "inputs": [model, beside, shown, *texts],
            "outputs": [result, target, shown],
            "show_progress_on": [result],
            "concurrency_limit": 1,
            "api_visibility": "private",
        }
        quiet: dict[str, Any] = {"fn": None, "api_visibility": "private"}
        in_address = [model, beside, *texts]
        remember: dict[str, Any] = {"inputs": in_address, "js": "(...values) => hfLrp.remember(values)", **quiet}
        asked = [
            gr.on([button.click, *(field.submit for field in (source, word, other))], **ask, concurrency_id=SHORT),
            target.submit(**ask, concurrency_id=SHORT, js=WITH_THE_TARGET),
        ]
        for sample in samples:
            chosen = sample.click(inputs=sample, outputs=[source, prefix], js="(text) => [text, 'model']", **quiet)
            asked.append(chosen.then(**ask, concurrency_id=SHORT))
        for answer in asked:
            answer.then(**remember)
        # What the server asks instead for a question that takes long: nobody presses it.
        gr.Button(visible=False).click(**ask, concurrency_id=LONG)
        target.input(inputs=None, outputs=prefix, js="() => 'reference'", **quiet)
        prefix.change(inputs=prefix, outputs=unrelated, js=SHOW_IF_RANDOM, **quiet)
        model.change(
            inputs=[model, source, unrelated],
            outputs=[source, unrelated, *samples],
            js=f"(...values) => hfLrp.exchange({json.dumps(examples)}, ...values)",
            **quiet,
        )
        beginning = ["" if field.value is None else field.value for field in in_address]
        recall = f"() => hfLrp.recall({json.dumps(list(zip(ADDRESS, beginning, strict=True)))})"
        page.load(inputs=None, outputs=in_address, js=recall, **quiet).then(js="() => hfLrp.begin()", **quiet)
    return page


def _as_it_is(chosen: str | None) -> str | None:
    """Choice as it is, also where it was not offered: `Events` says so; Gradio would, too, and log a traceback."""
    return chosen
