"""The bundled driver: a planner and rounds of a language model over TOOLS, under budgets, headless."""
