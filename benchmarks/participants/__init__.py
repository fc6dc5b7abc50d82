"""One file for each thing that is measured: `measure(place, ...)` runs in every process of a participant."""
