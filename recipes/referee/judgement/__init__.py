"""How the referee decides: questions with their rules, figures over sentences, verdicts."""
