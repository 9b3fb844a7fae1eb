"""The app on Hugging Face Spaces, or on any server: `python app.py`."""

from hf_lrp.app.events import Events
from hf_lrp.app.models import Models
from hf_lrp.app.questions import Limits
from hf_lrp.app.serving import serve

# What visitors choose from; None is the embedded English-French model.
MODELS = [None, "Helsinki-NLP/opus-mt-en-de", "Helsinki-NLP/opus-mt-en-fr", "Helsinki-NLP/opus-mt-zh-en"]
LIMITS = Limits(tokens=96, memory="2GB", models=2, waiting=12)


def make_events() -> Events:
    """What the app does, with these models and limits."""
    return Events(Models(MODELS, kept=LIMITS.models), LIMITS)


if __name__ == "__main__":
    serve(make_events(), host="0.0.0.0", port=7860)  # where Spaces look for it
