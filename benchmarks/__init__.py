"""Measures tfdist beside its peers: `python -m benchmarks --help`. See docs/benchmarks.md."""
