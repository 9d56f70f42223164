"""Figures of several rounds made one: medians and how far they spread. Pure."""

import statistics


def median(values):
    """The median of what is there; None if nothing is."""
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def spread(values):
    """(least, most) of what is there; None if nothing is."""
    values = [value for value in values if value is not None]
    return (min(values), max(values)) if values else None


def best(figures):
    """(name, figure) of the least figure of several names; None if there is none. Of equals the first by name."""
    there = [(value, name) for name, value in figures.items() if value is not None]
    if not there:
        return None
    value, name = min(there)
    return name, value


def ratio(value, other):
    """How many times the other a value is; None where that makes no sense."""
    return None if value is None or not other else value / other
