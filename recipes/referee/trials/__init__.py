"""What the referee measures: interventions on models, and what methods say of them."""
