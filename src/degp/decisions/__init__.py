"""Decisions under uncertainty: bandits, Bayesian optimisation and active learning."""
