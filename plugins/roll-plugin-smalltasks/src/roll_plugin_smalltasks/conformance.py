"""Examples for the conformance kit."""

from __future__ import annotations

from roll_core.testing import Cases

CONFORMANCE = {
    "sources/add_numbers": Cases(options={"high": 20, "seed": 3}),
    "sources/larger_number": Cases(options={"size": 60, "split": "heldout"}),
    "sources/max_of_four": Cases(options={"size": 60}),
    "sources/sort_numbers": Cases(options={"size": 60, "length": 4, "high": 30}),
    "sources/json_people": Cases(options={"size": 60}),
    "sources/short_description": Cases(options={"max_words": 5}),
}
