"""The charts: what each shows as a Vega-Lite specification, and the way from there to SVG and PNG."""
