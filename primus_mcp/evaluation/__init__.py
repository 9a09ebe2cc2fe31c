"""Evaluators: from a trial to an EvaluationResult, cheapest sufficient step first."""
