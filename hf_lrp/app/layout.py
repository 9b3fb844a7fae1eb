"""The app's page in Gradio: its fields, and which event calls what. What is computed is elsewhere."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from hf_lrp.app.events import BEFORE, NOTHING, Events
from hf_lrp.app.questions import Question

if TYPE_CHECKING:
    import gradio

INSTALL = 'The app needs gradio: pip install "gradio>=6.31,<7".'
SENTENCE = "I would like a cup of coffee, please."
UNRELATED = "Les enfants jouent dans le jardin.\nNous avons acheté une maison."
PREFIXES = [
    ("its own translation", "model"),
    ("the target below", "reference"),
    ("an unrelated sentence", "random"),
]
# Who presses Enter in the target means it, also before the choice of the prefix has followed.
WITH_THE_TARGET = f"""(...values) => {{
  values[{3 + [field.name for field in fields(Question)].index("prefix")}] = "reference";
  return values;
}}"""
SHOW_IF_RANDOM = "(prefix) => ({ __type__: 'update', visible: prefix === 'random' })"
ABOUT = """# Where does each word come from?

How much of each predicted word comes from the source sentence, and how much from what the model has already written.
Shares sum to one ([method](https://aclanthology.org/2021.acl-long.91))."""
CSS = """
.gradio-container { max-width: 1200px !important; margin: 0 auto !important; }
#result .html-container { padding: 0; }
iframe.contributions { display: block; width: 100%; height: max(36rem, 85vh); border: 0; }
p.downloads { margin: 0 0 .6rem; }
p.downloads a { margin-left: .6rem; }
p.message { margin: 0; padding: .6rem .8rem; border-left: 4px solid #c0392b; background: rgba(192,57,43,.12);
  color: var(--body-text-color); overflow-wrap: anywhere; }
"""


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
    with gr.Blocks(title="hf_lrp", analytics_enabled=False, delete_cache=(600, 3600)) as page:
        gr.Markdown(ABOUT)
        with gr.Row():
            model = gr.Dropdown(
                labels, value=labels[0], label="Model", info=about, allow_custom_value=hub, min_width=260
            )
            beside = gr.Dropdown(
                [NOTHING, BEFORE, *labels],
                value=NOTHING,
                label="Compare with",
                info="another model" if hub else None,
                allow_custom_value=hub,
                min_width=260,
            )
        source = gr.Textbox(SENTENCE, label="Source", lines=1, max_lines=6, elem_id="source")
        prefix = gr.Radio(PREFIXES, value="model", label="The model writes after", elem_id="prefix")
        target = gr.Textbox(
            label="Target",
            info="What the model was conditioned on. Change it and press Enter to see how contributions change.",
            lines=1,
            max_lines=6,
            elem_id="target",
        )
        unrelated = gr.Textbox(
            UNRELATED,
            label="Unrelated sentences",
            info="In the target's language, one per line; one of them is drawn.",
            lines=2,
            visible=False,
            elem_id="unrelated",
        )
        with gr.Accordion("Why this word, not that one · prompt · languages", open=False):
            with gr.Row():
                word = gr.Textbox(label="Why this word of the target", max_lines=1, elem_id="word")
                other = gr.Textbox(label="and not this one", max_lines=1, elem_id="other")
            prompt = gr.Textbox(
                label="Prompt, for models without an encoder",
                placeholder="Translate from English to French.\nEnglish: {source}\nFrench:",
                lines=3,
                elem_id="prompt",
            )
            with gr.Row():
                languages = [
                    gr.Textbox(label=f"{side} language of a multilingual model", placeholder=code, max_lines=1)
                    for side, code in (("Source", "eng_Latn"), ("Target", "fra_Latn"))
                ]
        for choice in (model, beside, prefix):
            choice.preprocess = _as_it_is
        button = gr.Button("Explain", variant="primary", elem_id="explain")
        result = gr.HTML(elem_id="result")
        shown = gr.State(None)
        texts = [source, target, prefix, unrelated, word, other, prompt, *languages]
        ask: dict[str, Any] = {
            "fn": events.explain,
            "inputs": [model, beside, shown, *texts],
            "outputs": [result, target, shown],
            "show_progress_on": [result],
            "concurrency_limit": 1,
            "concurrency_id": "explain",
            "api_visibility": "private",
        }
        gr.on([button.click, *(field.submit for field in (source, word, other))], **ask)
        target.submit(**ask, js=WITH_THE_TARGET)
        target.input(None, None, prefix, js="() => 'reference'", api_visibility="private")
        prefix.change(None, prefix, unrelated, js=SHOW_IF_RANDOM, api_visibility="private")
    return page


def _as_it_is(chosen: str | None) -> str | None:
    """What was chosen, also where it was not offered: `Events` says so; Gradio would, too, and log a traceback."""
    return chosen
