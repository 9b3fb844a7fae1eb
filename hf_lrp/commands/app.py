"""Open an app in the browser: choose a model, write a sentence, see where each word comes from.

Only this machine reaches it unless --host says otherwise. Visitors choose from the
models given here; no other folder can be read. Needs the extra `app`."""

from __future__ import annotations

import argparse
import sys

from hf_lrp.app.questions import Limits
from hf_lrp.commands.arguments import add_device, add_max_memory, count
from hf_lrp.commands.loading import read_device

EXAMPLES = """
  hf-lrp app
  hf-lrp app Helsinki-NLP/opus-mt-en-de path/to/model
  hf-lrp app --hub
  hf-lrp app Helsinki-NLP/opus-mt-en-de --host 0.0.0.0 --max-tokens 60 --queue 5
"""
_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="*",
        help="folders or Hub ids to choose from (default: the embedded English-French model)",
    )
    parser.add_argument(
        "--hub", action="store_true", help="any model of the Hub can be named in the app; for this machine only"
    )
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", metavar="N", type=_port, default=7860, help="to listen on (default: 7860)")
    add_device(parser)
    limits = parser.add_argument_group("limits", "so that one visitor cannot use up the machine")
    limits.add_argument(
        "--max-tokens",
        metavar="N",
        type=count,
        default=Limits.tokens,
        help=f"of a source or a target (default: {Limits.tokens})",
    )
    add_max_memory(limits, f"s (default: {Limits.memory})")
    limits.add_argument(
        "--kept-models",
        metavar="N",
        type=count,
        default=Limits.models,
        help=f"models that stay in memory (default: {Limits.models})",
    )
    limits.add_argument(
        "--queue",
        metavar="N",
        type=count,
        default=Limits.waiting,
        help=f"questions that may wait (default: {Limits.waiting})",
    )


def run(args: argparse.Namespace) -> None:
    """Load the first model, then serve."""
    if args.hub and args.host not in _THIS_MACHINE:
        args.usage_error("--hub lets visitors load any model: with a --host for others, list the models instead")
    from hf_lrp.app.events import Events
    from hf_lrp.app.layout import import_gradio
    from hf_lrp.app.models import Models
    from hf_lrp.app.serving import require_free, serve
    from hf_lrp.models.loading import quiet_transformers

    import_gradio()
    require_free(args.host, args.port)
    memory = args.max_memory or Limits.memory
    limits = Limits(tokens=args.max_tokens, memory=memory, models=args.kept_models, waiting=args.queue)
    models = Models(args.models or [None], hub=args.hub, device=read_device(args), kept=limits.models)
    with quiet_transformers(unless=args.debug):
        models.get(models.labels[0])
        address = f"[{args.host}]" if ":" in args.host else args.host
        print(f"The app is at http://{address}:{args.port} (Ctrl-C ends it)", file=sys.stderr)
        serve(Events(models, limits), host=args.host, port=args.port)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)
