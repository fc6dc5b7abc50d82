"""The rows of the table, by subject. `building.py` holds what they share."""
