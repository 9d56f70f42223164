"""Lines over the steps of a workload, as the burp thesis drew them: a line a tool, its name at its end. Many tools are drawn in
two panels of one scale: those that compress and encrypt, and the others; Drumlin in both."""

from math import log10

from .figures import OURS, colour_of, column, conditions
from .svg import GRID, INK, OUR_COLOUR, SOFT, Canvas, apart, powers, ticks

WIDTH, HEIGHT, LEFT, NAMES, TOP, BOTTOM = 1180, 640, 70, 160, 100, 52
LABEL = 15
# More peers than so many are drawn in two panels.
CROWD = 9
# Muted, and far enough from Drumlin's and from each other; then the same again in dashes.
HUES = ("#8c6bb1", "#c0803a", "#4a7fb5", "#b5544a", "#7d8a2e", "#8a6d5c", "#c06a9a", "#5b6670")
DASHES = (None, "5 3", "2 3")


def lines(result, part, measure, title, log):
    """The drawing of a measure over the steps; None of one step alone, or if nobody has a figure there. `log`: on a logarithmic scale."""
    steps = result["steps"] if part == "steps" else result["restores"]
    columns = [column(result, part, step, measure) for step in steps]
    series = {tool: [figures[tool].value for figures in columns] for tool in result["tools"]}
    series = {tool: values for tool, values in series.items() if any(value is not None for value in values)}
    values = [value for values in series.values() for value in values if value]
    if not values or len(steps) < 2:
        return None
    panels = groups(result["tools"], series)
    canvas = Canvas(WIDTH, HEIGHT)
    canvas.text(24, 34, title, 19, bold=True)
    unit = {"s": "Seconds", "MB": "Megabytes", "": "Number"}[measure.unit] + (", on a logarithmic scale" if log else "")
    canvas.fitted(24, 56, f"{unit}. {conditions(result)}", 12, SOFT)
    marks = powers(min(values), max(values)) if log else ticks(max(values))
    place = scale(marks, log)
    width = WIDTH / len(panels)
    for number, (said, tools) in enumerate(panels):
        left, right = number * width + LEFT, (number + 1) * width - NAMES
        if said:
            canvas.text(left - 6, TOP - 14, said, 12, INK, bold=True)
        for mark in marks:
            canvas.line(left - 6, place(mark), right + 6, place(mark), GRID)
            canvas.text(left - 12, place(mark) + 4, f"{mark:,.4g}" if mark < 1000 else f"{mark:,.0f}", 11, SOFT, "end")
        xs = [left + at * (right - left) / (len(steps) - 1) for at in range(len(steps))]
        for at, (x, step) in enumerate(zip(xs, steps)):
            canvas.line(x, TOP, x, HEIGHT - BOTTOM, GRID, 1, "1 3")
            if len(panels) > 1:
                canvas.text(x, HEIGHT - BOTTOM + 18, str(at + 1), 11, INK, "middle")
                canvas.text(x, HEIGHT - BOTTOM + 32, step, 10.5, SOFT, "middle")
            else:
                canvas.text(x, HEIGHT - BOTTOM + 22, f"{at + 1}. {step}", 12, INK, "middle")
        draw(canvas, {tool: series[tool] for tool in tools}, xs, place)
    return canvas.said(title)


def groups(tools, series):
    """(heading, tools) of each panel."""
    ours = [tool for tool in series if tool.startswith(OURS)]
    peers = [tool for tool in series if tool not in ours]
    sealed = [tool for tool in peers if colour_of(tools[tool]) == 2]
    open_ = [tool for tool in peers if tool not in sealed]
    if len(peers) <= CROWD or not sealed or not open_:
        return [("", list(series))]
    return [("Beside those that compress and encrypt", ours + sealed), ("Beside those that do one of the two, or neither", ours + open_)]


def scale(marks, log):
    """From a value to its height on the drawing."""
    low, high = (log10(marks[0]), log10(marks[-1])) if log else (0, marks[-1])

    def place(value):
        at = log10(max(value, marks[0])) if log else value
        return HEIGHT - BOTTOM - (at - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
    return place


def unbroken(points):
    """The runs of points between those that are missing: no line goes over a step that failed."""
    runs = [[]]
    for point in points:
        if point is None:
            runs.append([])
        else:
            runs[-1].append(point)
    return [run for run in runs if run]


def draw(canvas, series, xs, place):
    """The lines, Drumlin's last so that it lies on top, and the names."""
    peers = [tool for tool in series if not tool.startswith(OURS)]
    look = {tool: (HUES[n % len(HUES)], 1.6, DASHES[n // len(HUES) % len(DASHES)]) for n, tool in enumerate(peers)}
    look |= {tool: (OUR_COLOUR, 3.2 if tool == OURS else 2, None if tool == OURS else "6 3") for tool in series if tool.startswith(OURS)}
    ends = {}
    for tool in [*peers, *(tool for tool in series if tool.startswith(OURS))]:
        pieces = unbroken([value if value is None else (x, place(value)) for x, value in zip(xs, series[tool])])
        colour, width, dash = look[tool]
        for points in pieces:
            canvas.path(points, colour, width, dash)
        for x, y in sum(pieces, []):
            canvas.dot(x, y, 4 if tool == OURS else 2.8, colour)
        ends[tool] = pieces[-1][-1]
    names = list(ends)
    for tool, y in zip(names, apart([ends[tool][1] for tool in names], LABEL, TOP, HEIGHT - BOTTOM)):
        x, at = ends[tool]
        colour = look[tool][0]
        canvas.path([(x + 6, at), (xs[-1] + 16, at), (xs[-1] + 34, y)], colour, 0.7)
        canvas.text(xs[-1] + 38, y + 4, tool, 12, colour, bold=tool == OURS)
