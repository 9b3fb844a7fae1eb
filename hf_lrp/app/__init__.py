"""The app of `hf-lrp app`: models, questions, answers and what is shown of them, then layout and server."""
